"""Injects faults: `PYTHONPATH=src:tests python -m faults --faults 1000`.

Prints each life that breaks the law with the command that repeats it, and at the end the faults by their kind. What a
broken life left stays in the folder that is named. Exit code 1 if any life broke the law.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from faults import Life, lives, pairs
from faults.fleet import FLEET, make_materials
from faults.pairs import PAIRS
from faults.servers import Tracking
from helpers import children

SERVER = "server-"  # what the name of a scenario begins with whose tracking server is at fault


class Workshop:
    """Materials and undisturbed trainings of all lives, each made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        children.start_server()
        self.materials = make_materials(folder / "materials")
        self._undisturbed: dict[str, lives.Undisturbed] = {}
        self._tracking: Tracking | None = None

    def live(self, seed: int, scenario: str) -> Life:
        """Return the life of a seed; a folder of that name from before is removed."""
        folder = self.folder / f"seed{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        if scenario in PAIRS:
            server = self._server() if scenario.endswith(pairs.SERVED) else None
            return pairs.live(scenario, seed, folder, self.materials, server)
        name = scenario.removeprefix(SERVER)
        tracking = None if name == scenario else self._server()
        return lives.live(FLEET[name], seed, folder, self.materials, self.undisturbed(name), tracking)

    def undisturbed(self, name: str) -> lives.Undisturbed:
        """Return the undisturbed training of the fleet; a test of a model needs the training that makes it."""
        training = FLEET[name]
        if training.tests and not (self.materials / f"{training.tests}.ckpt").exists():
            made = self.undisturbed(training.tests).result.folder / "best.ckpt"
            shutil.copy(made, self.materials / f"{training.tests}.ckpt")
        if name not in self._undisturbed:
            home = self.folder / f"undisturbed-{name}"
            self._undisturbed[name] = lives.undisturbed(training, home, self.materials)
        return self._undisturbed[name]

    def _server(self) -> Tracking:
        if self._tracking is None:
            self._tracking = Tracking(self.folder / "server", self.materials / "store.db")
        return self._tracking

    def close(self) -> None:
        if self._tracking is not None:
            self._tracking.close()


def scenarios() -> dict[str, int]:
    """Return how often each scenario is drawn."""
    served = {f"{SERVER}{name}": 4 for name in ("plain", "averaged", "staged", "conditions")}
    return {**dict.fromkeys(FLEET, 4), **served, **dict.fromkeys(PAIRS, 1)}


def scenario_of(seed: int) -> str:
    """Return the scenario of a seed, which the seed alone decides."""
    odds = scenarios()
    return random.Random(f"scenario {seed}").choices(list(odds), weights=list(odds.values()))[0]


def describe(life: Life, folder: Path) -> str:
    """Return the problems of a life, what happened before, and the command that repeats it."""
    lines = [f"BROKEN seed {life.seed}, {life.scenario}, in {folder / f'seed{life.seed}'}"]
    for name, problems in life.problems.items():
        lines.append(f"  {name}: {len(problems)}: {'; '.join(problems[:3])[:1500]}")
    lines += [f"  | {line}" for line in life.trail]
    again = f"PYTHONPATH=src:tests python -m faults --first {life.seed} --faults 1 --only {life.scenario}"
    return "\n".join([*lines, f"  again: {again}"])


def format_counts(lived: Sequence[Life]) -> str:
    """Return the faults by their kind, in Markdown. A fault survived if nothing was wrong with its life."""
    injected = Counter(fault.kind for life in lived for fault in life.faults)
    survived = Counter(fault.kind for life in lived if not life.problems for fault in life.faults)
    lines = ["| fault | injected | survived |", "| --- | ---: | ---: |"]
    lines += [f"| {kind} | {count} | {survived[kind]} |" for kind, count in sorted(injected.items())]
    rows, minutes = sum(life.rows for life in lived), sum(life.seconds for life in lived) / 60
    total = f"{injected.total()} faults in {len(lived)} lives; {rows} metric rows compared; {minutes:.0f} minutes"
    return "\n".join([*lines, "", total])


def live_on(workshop: Workshop, seeds: Iterable[int], only: str | None) -> Iterator[Life]:
    """Yield the lives of seeds, one after the other."""
    for seed in seeds:
        life = workshop.live(seed, only or scenario_of(seed))
        if life.problems:
            print(describe(life, workshop.folder))
        print(f"seed {seed}, {life.scenario}: {len(life.faults)} faults in {life.seconds:.0f} s", flush=True)
        yield life


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, help="end after so many")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after so many, however few faults")
    parser.add_argument("--first", type=int, default=0, help="the first seed; the others follow")
    parser.add_argument("--only", choices=sorted(scenarios()), help="one scenario")
    flags = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # a server of ours ends with us
    end, lived, count = time.monotonic() + 60 * flags.minutes, [], 0
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    with contextlib.closing(Workshop(folder)) as workshop:
        for life in live_on(workshop, range(flags.first, sys.maxsize), flags.only):
            lived.append(life)
            count += len(life.faults)
            if count >= flags.faults or time.monotonic() > end:
                break
    print(f"{format_counts(lived)}; next: --first {lived[-1].seed + 1}")
    if any(life.problems for life in lived):
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
