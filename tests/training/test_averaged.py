"""Averages of a whole training: what is tested, kept, exported and gone on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from biasbed import cli
from biasbed.algorithms.make import from_checkpoint
from biasbed.config import Swad
from biasbed.training import averaged, engine
from helpers.averages import mean, valley
from helpers.resumable import SWAD
from helpers.runs import assert_equal, history, run_folders

SETTINGS = Swad(optimum_patience=2, overfit_patience=2, tolerance=1.05)


@pytest.fixture
def short(train_flags: list[str]) -> list[str]:
    """Six evaluations in 12 steps."""
    flags = {**dict(zip(train_flags[::2], train_flags[1::2], strict=True)), "--steps": "12", "--evaluate_every": "2"}
    del flags["--epochs"]
    return [word for pair in flags.items() for word in pair] + ["--tracking", "offline"]


class Noted:
    """Weights of a training after its steps, its validation losses, and the weights that it tested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live: list[dict[str, Tensor]] = []
        self.losses: list[float] = []
        self.tested: list[dict[str, Tensor]] = []
        update, loss, evaluate = engine.Engine._update, averaged.validation_loss, engine.Engine.evaluate

        def noting_update(own: engine.Engine, *rest: Any) -> None:
            update(own, *rest)
            self.live.append({name: value.clone() for name, value in own.algorithm.state_dict().items()})

        def noting_loss(*arguments: Any) -> float:
            self.losses.append(loss(*arguments))
            return self.losses[-1]

        def noting_evaluate(own: engine.Engine, *rest: Any) -> dict[str, float]:
            self.tested.append({name: value.clone() for name, value in own.algorithm.state_dict().items()})
            return evaluate(own, *rest)

        monkeypatch.setattr(engine.Engine, "_update", noting_update)
        monkeypatch.setattr(averaged, "validation_loss", noting_loss)
        monkeypatch.setattr(engine.Engine, "evaluate", noting_evaluate)


def assert_means(found: Mapping[str, Tensor], iterates: Sequence[Mapping[str, Tensor]]) -> None:
    for name, value in found.items():
        wanted = mean([w[name] for w in iterates]) if value.is_floating_point() else iterates[-1][name]
        torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-8, msg=name)


def test_swad_tests_and_keeps_the_mean_over_the_valley(
    tracking: str, short: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computed by hand: at each evaluation, from what training had after its steps and its losses."""
    noted = Noted(monkeypatch)
    assert cli.main(["train", *short, *SWAD]) == 0
    (folder,) = run_folders(tmp_path / "home")
    steps, at = [*history(folder)], []
    for number, step in enumerate(steps):
        found = valley(noted.losses[: number + 1], SETTINGS)
        ended = found is not None and found[1] < number
        between = (step, step) if found is None else (steps[found[0]], steps[found[1]])
        at.append(between)
        assert_means(noted.tested[number], noted.live[between[0] - 1 : between[1]])
        if ended:  # the live weights' losses are not needed any more
            noted.losses += [noted.losses[-1]] * (len(steps) - len(noted.losses))
    assert any(first < last for first, last in at)
    kept = torch.load(folder / "best.ckpt", weights_only=True)
    assert_equal(kept["algorithm"], noted.tested[steps.index(int(kept["best"]["number"]))])
    assert_equal(from_checkpoint(folder / "best.ckpt").algorithm.state_dict(), kept["algorithm"])
    last = torch.load(folder / "last.ckpt", weights_only=True)
    assert_equal(last["algorithm"], noted.tested[-1])
    for name, value in last["average"]["live"].items():
        assert torch.equal(value, noted.live[-1][name])
