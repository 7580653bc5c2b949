"""What starting each command takes, beside what Python and torch take by themselves.

    PYTHONPATH=src python benchmarks/starting.py [--rounds 3]

`--help` of every command stands beside a Python that does nothing, as it loads nothing heavy; the shortest real run of
those that compute stands beside an import of the libraries that they can't do without. A comparison of a small table
stands by itself, and so does the import of a paper's 158 runs (50,000 values) into a new local database. Seconds of the
processor, children's included; each with a home of its own, and a database that is made before. A training of one step
is tested on all sets of the demo and written down: what is above the import is a whole small training.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sides import Goal, Row, Work, interleaved, ratios, show

from biasbed.cli import COMMANDS

TITLE = "Start-up"
HOW = "`benchmarks/starting.py`: processor time of whole commands, in turn; the time of each is in its note."
ROOT = Path(__file__).resolve().parent.parent
BARE, TORCH, MLFLOW = "python", "import torch", "import mlflow"
LIBRARIES = "import torch, torchvision, mlflow"
NOTES = (
    "Nearly all of the import of 158 runs is MLflow's own: loading it, making the tables of a new database, and four "
    "calls of its client for each run."
)
IMPORTS = {name: name for name in (TORCH, MLFLOW, LIBRARIES)} | {BARE: "pass"}
# Real runs, as short as they come, and what they can't do without.
TRAIN = ["train", "--algorithm", "erm", "--steps", "1", "--backbone", "resnet10", "--batch_size", "8", "--workers", "0"]
RUNS = {
    "train, one step": (LIBRARIES, [*TRAIN, "--device", "cpu", "--limit", "64", "--tracking", "offline"]),
    "list methods": (BARE, ["list", "--what", "methods"]),
    "sync, nothing to send": (MLFLOW, ["sync"]),
}
SCORES = "dataset,a,b,c,d\n" + "".join(f"set{n},{60 + n},{61 + n * 1.1},{64 + n % 3},{59 + n}\n" for n in range(8))
WHOLE = {  # seconds of the processor
    "compare, a table of four methods": (["compare", "{place}/scores.csv"], Goal(5.0)),
    "import of BiasBed's 158 runs": (["import", "--source", "biasbed"], Goal(5.0)),
}
TRAINING = 1.3  # goal of a training by the import of its libraries


def children_seconds() -> float:
    """Of the processor, by all commands that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def command(words: list[str], env: dict[str, str], module: bool = True) -> Work:
    start = [sys.executable, "-m", "biasbed"] if module else [sys.executable, "-c"]

    def work() -> None:
        done = subprocess.run([*start, *words], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr[-500:]}")

    return work


def _anew(words: list[str], env: dict[str, str], place: Path) -> Work:
    """A command whose database is not there yet."""

    def work() -> None:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            own = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "BIASBED_HOME": f"{folder}/home"}
            command(words, {**env, **own})()

    return work


def rows(quick: bool = False, *, rounds: int = 3) -> list[Row]:
    names = list(COMMANDS)[:1] if quick else list(COMMANDS)
    with tempfile.TemporaryDirectory() as place:
        own = {"MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db", "BIASBED_HOME": f"{place}/home"}
        env = {**os.environ, **own, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        sides = {name: command([code], env, module=False) for name, code in IMPORTS.items()}
        sides |= {f"{name} --help": command([name, "--help"], env) for name in names}
        for number, (name, (_, words)) in enumerate({} if quick else RUNS.items()):  # each with runs of its own
            sides[name] = command(words, {**env, "BIASBED_HOME": f"{place}/home{number}"})
        Path(place, "scores.csv").write_text(SCORES)
        for name, (words, _) in ({} if quick else WHOLE).items():
            sides[name] = _anew([word.format(place=place) for word in words], env, Path(place))
        times = interleaved(sides, 1 if quick else rounds, children_seconds)
    bases = {**{f"{name} --help": BARE for name in names}, **{name: base for name, (base, _) in RUNS.items()}}
    found = [Row.of(name, times[name], unit="s") for name in IMPORTS]
    for name, base in bases.items():
        if name in times:
            took = Row.of(name, times[name]).ratio
            of = ratios(times, name, base)
            found.append(Row.of(f"{name} / {base}", of, Goal(TRAINING) if base == LIBRARIES else None, f"{took:.2f} s"))
    found += [Row.of(name, times[name], goal, unit="s") for name, (_, goal) in WHOLE.items() if name in times]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    show(rows(rounds=parser.parse_args().rounds))


if __name__ == "__main__":
    main()
