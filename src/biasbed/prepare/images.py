"""Making images in several processes: seeded per image, resumable, each file written atomically."""

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
from biasbed.registry import from_file, user_files
from biasbed.settings import setting
from biasbed.system.files import atomic_file
from biasbed.system.processes import die_with_parent
from biasbed.system.terminal import ProgressBar

ROWS_PER_TASK = 64


class Distortion(Protocol):
    """Random distortion of images. It starts with clean weights: call `redraw` before the first image."""

    def redraw(self, generator: torch.Generator) -> None:
        """Draw a new distortion of the network's weights, from the clean ones."""

    def __call__(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """Return the distorted image [3,H',W'] in [0,1] of [3,H,W] in [0,1]; draws the distortion of the features."""


@dataclass(frozen=True)
class PooledOptions(PrepareOptions):
    """Settings of makers of many images."""

    processes: int | Auto = setting("auto", "processes that make images (auto: one per core, one on a GPU)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_below(processes=1)

    def count_processes(self, device: str) -> int:
        """Return the number of processes that make images on a device."""
        if self.processes != "auto":
            return int(self.processes)
        return 1 if device == "cuda" else os.cpu_count() or 1


class Work(Protocol):
    """Images to be made, each in one file or several. It is pickled and sent to each process."""

    @property
    def names(self) -> Sequence[str]:
        """Names of all images, made or not."""

    def is_there(self, row: int) -> bool:
        """Return True if all files of an image exist."""

    def make_writer(self) -> Callable[[int], None]:
        """Return a function that writes the missing files of a row, each atomically.

        It raises CorruptImage if an original can't be read. It is requested once per process and called with rows in
        any order.
        """


class SingleFiles:
    """Work with one file per image."""

    def path(self, row: int) -> Path:
        """Return the file of an image; its suffix is its format."""
        raise NotImplementedError

    def make_renderer(self) -> Callable[[int], Tensor]:
        """Return a function that makes the image of a row, [3,H,W] in [0,1] or uint8; requested as a writer is."""
        raise NotImplementedError

    def is_there(self, row: int) -> bool:
        return self.path(row).exists()

    def make_writer(self) -> Callable[[int], None]:
        make = self.make_renderer()
        return lambda row: save_image(self.path(row), make(row))


@dataclass(frozen=True)
class Copies(SingleFiles):
    """Distorted copies of all images of a source."""

    source: Source
    folder: Path  # of the images
    format: str
    seed: int
    redraw_probability: float  # for each image, that the distortion of the network is drawn anew
    make: Callable[[str], Distortion]  # on a device; a module's function or a partial of one, because it is pickled
    device: str = "cpu"

    @property
    def names(self) -> Sequence[str]:
        return self.source.ids

    def path(self, row: int) -> Path:
        return self.folder / f"{self.source.ids[row]}.{self.format}"

    def make_renderer(self) -> Callable[[int], Tensor]:
        return _Distorted(self)


def has_missing(work: Work, skipped: Sequence[str]) -> bool:
    """Return True if an image is missing that was not skipped. skipped: names of images that can't be made."""
    left_out = set(skipped)
    return any(name not in left_out and not work.is_there(row) for row, name in enumerate(work.names))


def make_missing(work: Work, manifest: ImagesManifest, folder: Path, processes: int, may_skip: bool) -> ImagesManifest:
    """Make the missing images of a folder; write its complete manifest and return it.

    may_skip: images that can't be made are left out with a warning. Otherwise Failure is raised for the first.
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


def remove_other_images(
    folder: Path, manifest: ImagesManifest, overwrite: bool, hint: str = ""
) -> ImagesManifest | None:
    """Remove a folder of images that were made with other settings than those of `manifest`.

    Returns the manifest of the folder if it stays, else None. Raises UsageError for other settings without `overwrite`.
    hint: an alternative, for the message.
    """
    existing = ImagesManifest.read(folder)
    if existing is None:
        remove_folder(folder)  # nothing in it says how its files were made
        return None
    ours = {**manifest.settings, "format": manifest.format}
    theirs = {**existing.settings, "format": existing.format}
    different = [f"{name}={theirs.get(name)}" for name in ours if ours[name] != theirs.get(name)]
    if not different:
        return existing
    if not overwrite:
        raise UsageError(f"{folder} was made with {', '.join(different)}: overwrite=true makes it anew{hint}")
    remove_folder(folder)
    return None


def refuse_foreign_folder(folder: Path) -> None:
    """Raise UsageError for a folder with files but without a manifest, which nobody may replace unasked."""
    if folder.is_dir() and any(folder.iterdir()) and ImagesManifest.read(folder) is None:
        raise UsageError(f"{folder} is there, and nothing in it says how it was made: move it away")


def remove_folder(folder: Path) -> None:
    """Remove a folder. It is renamed first, so that an interruption can't leave half of it in place."""
    aside = folder.with_name(f".{folder.name}.discarded")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.replace(aside)
        shutil.rmtree(aside)


def make_images(work: Work, processes: int, bar: ProgressBar) -> dict[str, str]:
    """Make every missing image; return the problems of those that can't be read, by id.

    Raises Failure if a process dies. Files that are written stay, and the next call continues from there.
    """
    tasks = _split_rows(len(work.names), processes)
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


def find_redraws(count: int, probability: float, seed: int) -> np.ndarray:
    """Return for each row the last row, up to itself, at which the distortion of the weights is drawn: int64 [count].

    Each row draws anew with the given probability, the first one always: 0, 0, 2, 2 if rows 0 and 2 draw. The result
    does not depend on which process makes which images.
    """
    coins = np.random.default_rng([seed, 0xC0]).random(count) < probability
    return np.maximum.accumulate(np.where(coins, np.arange(count), 0))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread, as in the processes of a pool: the number of threads changes the rounding."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _split_rows(count: int, processes: int) -> list[range]:
    """Split the rows into tasks: small enough that all processes end at nearly the same time."""
    size = max(1, min(ROWS_PER_TASK, -(-count // (4 * processes))))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


@contextlib.contextmanager
def _pool(work: Work, processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes that end with this one, also when it is interrupted."""
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
    """Maker of the missing images of some rows."""

    def __init__(self, work: Work) -> None:
        self.work, self.make = work, work.make_writer()

    def make_all(self, rows: Sequence[int]) -> dict[str, str]:
        """Make the missing images; return the problems of those that can't be made, by name."""
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
    """Function from a row to its distorted copy; the distortion is set up once per process."""

    def __init__(self, work: Copies) -> None:
        self.work = work
        self.distortion = work.make(work.device)
        self.weights_of = find_redraws(len(work.source), work.redraw_probability, work.seed)
        self.drawn = -1

    def __call__(self, row: int) -> Tensor:
        image = self.work.source.load(row).float() / 255
        if self.weights_of[row] != self.drawn:
            self.drawn = int(self.weights_of[row])
            self.distortion.redraw(make_generator(self.work.seed, "weights", self.drawn))
        return self.distortion(image, make_generator(self.work.seed, "image", row))


def make_generator(seed: int, purpose: str, row: int) -> torch.Generator:
    """Make a generator for the draws of one purpose (the weights, the image) for a row."""
    return torch.Generator().manual_seed(key_seed(seed, *purpose.encode(), row))


def save_image(path: Path, image: Tensor) -> None:
    """Save [3,H,W] in [0,1] or uint8, atomically."""
    if image.dtype != torch.uint8:
        image = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = image.permute(1, 2, 0).cpu().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {"png": "PNG", "jpg": "JPEG"}[path.suffix[1:]]
    with atomic_file(path, durable=False) as temporary:  # waiting for the disk would cost a million images hours
        Image.fromarray(pixels).save(temporary, kind, **({"quality": 95} if kind == "JPEG" else {}))


def _start(files: Sequence[str], work: bytes) -> None:
    """Prepare a process of the pool. files: the user's modules to import. work: the pickled `Work`."""
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
