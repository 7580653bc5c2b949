"""Injects faults: `PYTHONPATH=src:tests python -m faults --ledger <folder> --faults 1000`.

A line per life that breaks the law, with the command that lives it again; then the table. It goes on where the ledger
ends. Exit code 1 if any life broke the law. What such a life left stays in the folder that is named.
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
from collections.abc import Sequence
from pathlib import Path

from faults import Life, ledger, lives, pairs
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
        """The life of a seed; a folder of that name from before is removed."""
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
            place = self.folder / f"undisturbed-{name}"
            self._undisturbed[name] = lives.undisturbed(training, place, self.materials)
        return self._undisturbed[name]

    def _server(self) -> Tracking:
        if self._tracking is None:
            self._tracking = Tracking(self.folder / "server", self.materials / "store.db")
        return self._tracking

    def close(self) -> None:
        if self._tracking is not None:
            self._tracking.close()


def scenarios() -> dict[str, int]:
    """Their names, and how often each is drawn."""
    served = {f"{SERVER}{name}": 4 for name in ("plain", "averaged", "staged", "conditions")}
    return {**dict.fromkeys(FLEET, 4), **served, **dict.fromkeys(PAIRS, 1)}


def scenario_of(seed: int) -> str:
    """Return the scenario of a seed, which the seed alone decides."""
    odds = scenarios()
    return random.Random(f"scenario {seed}").choices(list(odds), weights=list(odds.values()))[0]


def told(life: Life, folder: Path) -> str:
    """Return a description of the fault and of how to see it again."""
    lines = [f"BROKEN seed {life.seed}, {life.scenario}, in {folder / f'seed{life.seed}'}"]
    lines += [f"  {name}: {len(found)}: {'; '.join(found[:3])[:1500]}" for name, found in life.problems.items()]
    lines += [f"  | {line}" for line in life.trail]
    again = f"PYTHONPATH=src:tests python -m faults --ledger <folder> --seed {life.seed} --only {life.scenario}"
    return "\n".join([*lines, f"  again: {again}"])


def read_flags(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--ledger", type=Path, required=True, help="folder of the ledger, made where it is missing")
    parser.add_argument("--faults", type=int, default=1000, help="end when the ledger holds so many")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after so many, whatever the ledger holds")
    parser.add_argument("--only", choices=sorted(scenarios()), help="one scenario")
    parser.add_argument("--seed", type=int, help="live one seed again, which does not go into the ledger")
    parser.add_argument("--again", action="store_true", help="live the broken seeds again: their new lives stand")
    parser.add_argument("--table", action="store_true", help="print what the ledger holds, and inject nothing")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    flags = read_flags(words)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # a server of ours ends with us
    if flags.table:
        print(ledger.table(ledger.read(flags.ledger)))
        return 0
    flags.ledger.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    with contextlib.closing(Workshop(folder)) as workshop:
        return _work(workshop, flags, folder)


def _work(workshop: Workshop, flags: argparse.Namespace, folder: Path) -> int:
    """One seed again, or one after the other; the exit code."""
    if flags.seed is not None:
        life = workshop.live(flags.seed, flags.only or scenario_of(flags.seed))
        print(told(life, folder) if life.problems else "\n".join([*life.trail, "all is well"]))
        return 1 if life.problems else 0
    if flags.again:
        failed = [entry for entry in ledger.read(flags.ledger) if entry["problems"]]
        broken = sum([bool(_lived(workshop, flags, folder, one["seed"], one["scenario"]).problems) for one in failed])
    else:
        broken = _go_on(workshop, flags, folder)
    print(ledger.table(ledger.read(flags.ledger)))
    if not broken:
        shutil.rmtree(folder)
    return 1 if broken else 0


def _go_on(workshop: Workshop, flags: argparse.Namespace, folder: Path) -> int:
    """Live seed after seed; how many broke the law."""
    entries, broken, end = ledger.read(flags.ledger), 0, time.monotonic() + 60 * flags.minutes
    seed, count = max((entry["seed"] for entry in entries), default=-1) + 1, ledger.injected(entries)
    while count < flags.faults and time.monotonic() < end:
        life = _lived(workshop, flags, folder, seed, flags.only or scenario_of(seed))
        count, seed, broken = count + len(life.faults), seed + 1, broken + bool(life.problems)
        print(f"{count} faults", flush=True)
    return broken


def _lived(workshop: Workshop, flags: argparse.Namespace, folder: Path, seed: int, scenario: str) -> Life:
    """One life, which goes into the ledger."""
    life = workshop.live(seed, scenario)
    ledger.add(flags.ledger, life.plain())
    if life.problems:
        print(told(life, folder))
    print(f"seed {seed}, {scenario}: {len(life.faults)} faults in {life.seconds:.0f} s", flush=True)
    return life


if __name__ == "__main__":
    sys.exit(main())
