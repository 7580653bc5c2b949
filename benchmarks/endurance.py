"""Does anything grow that should not? Memory, handles, threads and disk over a long training and over many studies.

    PYTHONPATH=src python benchmarks/endurance.py [--epochs 300] [--studies 50] [--keep <folder>]

The training's images are few and small, and it has a loader process, tests and a checkpoint after every epoch, and a
database. It is watched from outside, with all its processes: the second tenth of its epochs stands beside the ninth.
Then as many studies of two trainings, one after the other on one database and in one home: what each takes, and what
it leaves. Exit code 1 where something has grown by more than the bounds below.
What lies in /dev/shm is the whole machine's: others' loaders are counted too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from biasbed.tracking.folder import JOURNAL

ROOT = Path(__file__).resolve().parent.parent
CLASSES, IMAGES, SIDE = ("a", "b", "c"), 16, 20
EVERY = 0.2  # seconds between two looks
# How much more there may be late than early, as a share of the early: what a history takes, and an allocator's noise.
BOUNDS = {"memory_mb": 0.02, "seconds": 0.1, "disk_mb": 0.02}  # of all else nothing


@dataclass(frozen=True)
class Look:
    """At a command and all its processes."""

    memory_mb: float  # private to each of them (USS): what is shared hangs on who else is there
    handles: int
    threads: int
    children: int
    shared: int  # files in /dev/shm


def look(process: psutil.Process) -> Look | None:
    """None where it has just ended."""
    try:
        family = [process, *process.children(recursive=True)]
        memory = sum(member.memory_full_info().uss for member in family) / 2**20
        counts = sum(member.num_fds() for member in family), sum(member.num_threads() for member in family)
    except psutil.Error:
        return None
    return Look(memory, *counts, len(family) - 1, len(os.listdir("/dev/shm")))


def images(root: Path) -> None:
    generator = np.random.default_rng(0)
    for folder in ("photo", "paint"):
        for label, name in enumerate(CLASSES):
            (root / folder / name).mkdir(parents=True)
            for number in range(IMAGES):
                pixels = generator.integers(0, 60, (SIDE, SIDE, 3)) + 60 * label
                Image.fromarray(pixels.astype(np.uint8)).save(root / folder / name / f"{number}.png")


def flags(data: Path, epochs: int) -> list[str]:
    return [
        *("--suite", "folders", "--data_dir", str(data), "--train", "photo", "--image_size", "16", "--device", "cpu"),
        *("--epochs", str(epochs), "--batch_size", "8", "--backbone", "resnet10", "--optim.lr_batch", "none"),
        *("--optim.lr", "0.02", "--log_model", "false"),
    ]


@contextlib.contextmanager
def started(words: Sequence[str], home: Path) -> Iterator[psutil.Popen]:
    """Yield a command with a home, a database and temporary files of its own below a folder."""
    (home / "tmp").mkdir(exist_ok=True)
    environment_of_run = {"BIASBED_HOME": str(home / "home"), "MLFLOW_TRACKING_URI": f"sqlite:///{home / 'mlflow.db'}"}
    env = {
        **os.environ,
        **environment_of_run,
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(home / "tmp"),
    }
    with (home / "log").open("ab") as log:
        process = psutil.Popen([sys.executable, "-m", "biasbed", *words], env=env, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def finished(process: psutil.Popen, home: Path) -> None:
    if process.wait() != 0:
        raise SystemExit((home / "log").read_text()[-2000:])


# --- a long training --------------------------------------------------------------------------------------------------


def train(data: Path, home: Path, epochs: int) -> list[tuple[int, Look]]:
    """(epochs so far, what there was) again and again."""
    home.mkdir()
    seen: list[tuple[int, Look]] = []
    with started(["train", *flags(data, epochs), "--workers", "1"], home) as process:
        while process.poll() is None:
            time.sleep(EVERY)
            snapshot = look(process)
            if snapshot is not None:
                seen.append((sum(_lines(path) for path in home.glob(f"home/*/*/{JOURNAL}")), snapshot))
        finished(process, home)
    return seen


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def grown(seen: Sequence[tuple[int, Look]], epochs: int) -> dict[str, tuple[float, float]]:
    """Name -> medians over the second tenth of the epochs, and over the ninth."""
    tenth = epochs / 10
    early = [asdict(snapshot) for epoch, snapshot in seen if tenth <= epoch < 2 * tenth]
    late = [asdict(snapshot) for epoch, snapshot in seen if 8 * tenth <= epoch < 9 * tenth]
    return {
        name: (statistics.median(e[name] for e in early), statistics.median(e[name] for e in late)) for name in early[0]
    }


# --- many studies -----------------------------------------------------------------------------------------------------


def studies(data: Path, home: Path, number: int) -> list[dict[str, float]]:
    """Measure each study's time, and the temporary folder and disk after it."""
    home.mkdir()
    rows_of_studies = []
    for study in range(number):
        began, before = psutil.Process().cpu_times(), _used(home)
        most = 0.0
        words = [
            "benchmark",
            *flags(data, 2),
            "--algorithms",
            "erm,infodrop",
            "--seeds",
            str(study),
            "--study",
            f"s{study}",
        ]
        with started([*words, "--workers", "2", "--loader_workers", "0"], home) as process:
            while process.poll() is None:
                time.sleep(EVERY)
                most = max(most, snapshot.memory_mb if (snapshot := look(process)) else 0.0)
            finished(process, home)
        ended = psutil.Process().cpu_times()
        seconds = ended.children_user + ended.children_system - began.children_user - began.children_system
        left = len(list((home / "tmp").iterdir()))
        rows_of_studies.append({"memory_mb": most, "seconds": seconds, "disk_mb": _used(home) - before, "left": left})
    return rows_of_studies


def _used(home: Path) -> float:
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file() and not path.is_symlink()) / 2**20


# --- the table --------------------------------------------------------------------------------------------------------


def report(title: str, pairs: dict[str, tuple[float, float]]) -> list[str]:
    """Prints; what has grown too much."""
    print(f"\n{title}\n{'':12} {'early':>10} {'late':>10}")
    for name, (early, late) in pairs.items():
        print(f"{name:12} {early:10.1f} {late:10.1f}")
    much = [name for name, (early, late) in pairs.items() if late > early * (1 + BOUNDS.get(name, 0.0))]
    return [f"{title}: {name} {pairs[name][0]:.1f} -> {pairs[name][1]:.1f}" for name in much]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--studies", type=int, default=50)
    parser.add_argument("--keep", type=Path, help="folder to work in, which is not removed")
    flags = parser.parse_args()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        home = flags.keep or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        images(home / "images")
        if flags.epochs:
            seen = train(home / "images", home / "training", flags.epochs)
            faults += report(f"a training of {flags.epochs} epochs", grown(seen, flags.epochs))
        if flags.studies:
            each = studies(home / "images", home / "studies", flags.studies)
            part = max(1, flags.studies // 5)
            ends = {
                n: tuple(statistics.median(snapshot[n] for snapshot in of) for of in (each[:part], each[-part:]))
                for n in each[0]
            }
            faults += report(f"{flags.studies} studies, the first {part} beside the last {part}", ends)
    print("\n".join(["", *(f"GREW: {fault}" for fault in faults)] if faults else ["", "nothing has grown"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
