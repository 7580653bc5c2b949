"""Images made from images, by several processes: seeded per image, resumable, each written whole or not at all."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from biasbed.config import Auto
from biasbed.data.prepared import ImagesManifest
from biasbed.data.source import Source
from biasbed.data.transforms import key_seed
from biasbed.errors import CorruptImage, Failure, UsageError
from biasbed.options import PrepareOptions
from biasbed.prepare.distortion import Distortion
from biasbed.registry import from_file, user_files
from biasbed.settings import setting
from biasbed.system.files import whole
from biasbed.system.processes import die_with_parent
from biasbed.system.terminal import ProgressBar

ROWS_PER_TASK = 64


@dataclass(frozen=True)
class PooledOptions(PrepareOptions):
    """What can be told to a maker of many images."""

    processes: int | Auto = setting("auto", "processes that make images (auto: one per core, one on a GPU)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_below(processes=1)

    def how_many(self, device: str) -> int:
        """Processes that make images on a device."""
        if self.processes != "auto":
            return int(self.processes)
        return 1 if device == "cuda" else os.cpu_count() or 1


class Work(Protocol):
    """Images to be made, of each of which there is one file or several; it is pickled and sent to each process."""

    @property
    def names(self) -> Sequence[str]:
        """What the images are called, whichever of them are there already."""

    def is_there(self, row: int) -> bool:
        """Whether all files of one are there."""

    def maker(self) -> Callable[[int], None]:
        """What writes the files of a row that are not there; CorruptImage where what it needs can't be read.

        It is asked for once in each process, and makes rows in any order. Each file is written whole or not at all.
        """


class SingleFiles:
    """Work of one file an image."""

    def path(self, row: int) -> Path:
        """The file of one, whose end says its format."""
        raise NotImplementedError

    def pixels(self) -> Callable[[int], Tensor]:
        """What makes the image of a row, [3,H,W] in [0,1] or uint8; asked for as `Work.maker` is."""
        raise NotImplementedError

    def is_there(self, row: int) -> bool:
        return self.path(row).exists()

    def maker(self) -> Callable[[int], None]:
        make = self.pixels()
        return lambda row: write(self.path(row), make(row))


@dataclass(frozen=True)
class Copies(SingleFiles):
    """A copy of every image of a source, distorted."""

    source: Source
    folder: Path  # of the images
    format: str
    seed: int
    redraw: float
    make: Callable[[str], Distortion]  # on a device; a module's function or a partial of one, as it is pickled
    device: str = "cpu"

    @property
    def names(self) -> Sequence[str]:
        return self.source.ids

    def path(self, row: int) -> Path:
        return self.folder / f"{self.source.ids[row]}.{self.format}"

    def pixels(self) -> Callable[[int], Tensor]:
        return _Distorted(self)


def missing(work: Work, skipped: Sequence[str]) -> bool:
    """Whether an image is not there, of those that could be made."""
    known = set(skipped)
    return any(name not in known and not work.is_there(row) for row, name in enumerate(work.names))


def complete(work: Work, manifest: ImagesManifest, folder: Path, processes: int, may_skip: bool) -> ImagesManifest:
    """Make what is not there yet of a folder's images; its manifest, which says so from then on.

    may_skip: images that can't be made are left out with a warning; else the first of them is a Failure.
    """
    manifest.write(folder)
    with ProgressBar(len(work.names), "image") as bar:
        problems = make_images(work, processes, bar)
    if problems and not may_skip:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Failure(f"{next(iter(problems.values()))}{more}; corrupt=skip goes on without such files")
    for message in problems.values():
        print(f"warning: {message}; left out", file=sys.stderr)
    count = len(work.names) - len(problems)
    done = replace(manifest, complete=True, skipped=tuple(sorted(problems)), images=count)
    done.write(folder)
    return done


def same_settings(folder: Path, wanted: ImagesManifest, overwrite: bool, hint: str = "") -> ImagesManifest | None:
    """The manifest of what is there. Made with other settings, it goes if that is asked for, else UsageError.

    hint: what may be done besides making it anew.
    """
    found = ImagesManifest.read(folder)
    if found is None:
        discard(folder)  # whatever is in it, nothing says how it was made
        return None
    ours, theirs = {**wanted.settings, "format": wanted.format}, {**found.settings, "format": found.format}
    different = [f"{name}={theirs.get(name)}" for name in ours if ours[name] != theirs.get(name)]
    if not different:
        return found
    if not overwrite:
        raise UsageError(f"{folder} was made with {', '.join(different)}: overwrite=true makes it anew{hint}")
    discard(folder)
    return None


def discard(folder: Path) -> None:
    """Remove the folder: out of the way first, so that an interruption can't leave half of it to be taken for new."""
    aside = folder.with_name(f".{folder.name}.discarded")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.replace(aside)
        shutil.rmtree(aside)


def make_images(work: Work, processes: int, bar: ProgressBar) -> dict[str, str]:
    """Make every image that is not there yet; returns what was wrong with those that can't be read, by id.

    Raises Failure when a process dies. What is written stays, and the next call goes on from there.
    """
    tasks = _tasks(len(work.names), processes)
    problems: dict[str, str] = {}
    if processes == 1:
        with _one_thread():
            worker = _Worker(work)
            for rows in tasks:
                problems |= worker.make_all(rows)
                bar.tick(len(rows))
        return problems
    with _pool(work, processes) as pool:
        try:
            futures: list[Future[dict[str, str]]] = [pool.submit(_make_rows, rows) for rows in tasks]
            sizes = {future: len(rows) for future, rows in zip(futures, tasks, strict=True)}
            for future in as_completed(futures):
                problems |= future.result()
                bar.tick(sizes[future])
        except BrokenProcessPool:
            raise Failure(
                "a process that made images was killed (is there enough memory? processes= sets their number); "
                "the same command goes on"
            ) from None
    return problems


def redrawn_at(count: int, probability: float, seed: int) -> np.ndarray:
    """For each row, the row at which the distortion of the weights that applies to it was drawn: int64 [count].

    Each row draws anew with the given probability, the first one always. A function of the row, whatever process makes
    which images.
    """
    coins = np.random.default_rng([seed, 0xC0]).random(count) < probability
    return np.maximum.accumulate(np.where(coins, np.arange(count), 0))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """As in the processes of a pool: another number of threads rounds otherwise, and near a threshold a bit flips."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _tasks(count: int, processes: int) -> list[range]:
    size = max(1, min(ROWS_PER_TASK, -(-count // (4 * processes))))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


@contextlib.contextmanager
def _pool(work: Work, processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, also when it is interrupted."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    # Not `work` itself: a process that can't unpickle what a user's file holds would never read on.
    pool = ProcessPoolExecutor(processes, context, _start, (user_files(), pickle.dumps(work)))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


# --- in a process -----------------------------------------------------------------------------------------------------

_worker: _Worker | None = None


class _Worker:
    def __init__(self, work: Work) -> None:
        self.work, self.make = work, work.maker()

    def make_all(self, rows: Sequence[int]) -> dict[str, str]:
        """What was wrong with the images that can't be made, by name."""
        problems = {}
        for row in rows:
            if self.work.is_there(row):
                continue
            try:
                self.make(row)
            except CorruptImage as error:
                problems[self.work.names[row]] = str(error)
        return problems


class _Distorted:
    """Makes the copy of a row."""

    def __init__(self, work: Copies) -> None:
        self.work = work
        self.distortion = work.make(work.device)
        self.weights_of = redrawn_at(len(work.source), work.redraw, work.seed)
        self.drawn = -1

    def __call__(self, row: int) -> Tensor:
        image = self.work.source.load(row).float() / 255
        if self.weights_of[row] != self.drawn:
            self.drawn = int(self.weights_of[row])
            self.distortion.redraw(generator(self.work.seed, "weights", self.drawn))
        return self.distortion(image, generator(self.work.seed, "image", row))


def generator(seed: int, purpose: str, row: int) -> torch.Generator:
    return torch.Generator().manual_seed(key_seed(seed, *purpose.encode(), row))


def write(path: Path, image: Tensor) -> None:
    """Save [3,H,W] in [0,1] or uint8, atomically."""
    if image.dtype != torch.uint8:
        image = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = image.permute(1, 2, 0).cpu().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {"png": "PNG", "jpg": "JPEG"}[path.suffix[1:]]
    with whole(path, durable=False) as temporary:  # waiting for the disk would cost a million images hours
        Image.fromarray(pixels).save(temporary, kind, **({"quality": 95} if kind == "JPEG" else {}))


def _start(files: Sequence[str], work: bytes) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(signal.SIGKILL)
    torch.set_num_threads(1)
    for file in files:
        from_file(Path(file))
    _worker = _Worker(pickle.loads(work))


def _make_rows(rows: Sequence[int]) -> dict[str, str]:
    assert _worker is not None
    return _worker.make_all(rows)
