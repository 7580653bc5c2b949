"""Whole commands on the simulated card, in one process: costs of steps and decisions, cuts and resume.

A command is one word, its own words separated by blanks. A training is carried out in one go and, with `--cut <n>`
before it, once more, ended after n steps and continued.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from helpers.card.simulation import Card

CUT = "--cut"


class Watch:
    """Costs of steps and of decisions of the engine; ends the process's training after some steps if told to."""

    def __init__(self, card: Card) -> None:
        from biasbed.evaluation.evaluator import Evaluator
        from biasbed.training.engine import Engine

        self.card, self.costs, self.places = card, Counter[str](), Counter[str]()
        self.steps, self.cut = 0, 0
        self._update, self._decide = Engine._update, Evaluator._decide
        watch = self

        def update(engine: Engine, *args: Any) -> None:
            watch.measure("step", watch._update, engine, *args)
            watch.steps += 1
            if watch.steps == watch.cut:
                os.kill(os.getpid(), signal.SIGTERM)

        def decide(evaluator: Evaluator, *args: Any) -> Any:
            return watch.measure("decision", watch._decide, evaluator, *args)

        mock.patch.object(Engine, "_update", update).start()
        mock.patch.object(Evaluator, "_decide", decide).start()

    def measure(self, name: str, function: Any, *args: Any) -> Any:
        self.card.reset()
        result = function(*args)
        self.costs.update({f"{name}s": 1, **{f"{name}/{cost}": n for cost, n in self.card.costs().items()}})
        self.places.update({f"{name}: {place}": n for place, n in self.card.places.items()})
        return result

    def begin(self, cut: int) -> None:
        self.costs.clear()
        self.places.clear()
        self.steps, self.cut = 0, cut


def command(words: list[str], home: Path) -> int:
    """Run one command at a place of its own; its exit code."""
    from biasbed.cli import main
    from biasbed.compute import device

    device.GPU_FILES = ("null",)  # the simulated card has no file in /dev
    os.environ |= {"BIASBED_HOME": str(home), "MLFLOW_TRACKING_URI": f"sqlite:///{home}.db"}
    with contextlib.redirect_stdout(sys.stderr):
        return main(words)


def state(home: Path) -> dict[str, Any]:
    """Return what the newest checkpoint of the only run has of the training, and no clock."""
    (path,) = home.rglob("last.ckpt")
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    parts = ("algorithm", "optimizers", "precision", "random", "position", "tables", "kept", "average")
    loaded["position"].pop("earlier")  # seconds of earlier stages
    return {name: loaded[name] for name in parts if name in loaded}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def measure(watch: Watch, words: list[str], home: Path) -> dict[str, Any]:
    cut = int(words[words.index(CUT) + 1]) if CUT in words else 0
    words = words[2:] if cut else words
    watch.begin(0)
    found = {"codes": [command(words, home / "whole")], **watch.costs, "places": dict(watch.places)}
    if cut and found["codes"] == [0]:
        watch.begin(cut)
        found["codes"].append(command(words, home / "cut"))
        watch.begin(0)
        found["codes"].append(command(words, home / "cut"))
        found["resumed"] = same(state(home / "whole"), state(home / "cut"))
    return found


def visit(card: Card, folder: str, *commands: str) -> Iterator[dict[str, Any]]:
    """Yield the exit codes and costs of each command, and whether the cut one's checkpoint is the whole one's."""
    watch = Watch(card)
    for number, text in enumerate(commands):
        home = Path(folder) / str(number)
        home.mkdir(parents=True)
        yield {"command": text, **measure(watch, shlex.split(text), home)}
