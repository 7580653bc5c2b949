"""The loop's own promises: cadence, units, precision, rates, and which columns a method may see."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from biasbed import cli
from biasbed.algorithms.base import Algorithm, Setup
from biasbed.batch import Batch
from biasbed.compute import checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.tasks import MultiClass
from biasbed.training import clock, engine
from helpers import toys
from helpers.commands import ROOT
from helpers.runs import history, run_folders


def train(home: Path, words: list[str]) -> Path:
    assert cli.main(["train", *words, "--tracking", "offline"]) == 0
    return run_folders(home)[-1]


def test_outputs_that_are_not_finite_fail_the_run_and_keep_what_was_computed(
    tracking: str, train_flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a loss that is not finite does; before, the second epoch had the accuracy of the first class."""
    words = ["train", *train_flags, "--algorithm", "helpers.toys:Overflowing", "--tracking", "offline"]
    assert cli.main(words) == 1
    assert re.search(r"outputs for the image \S+ of 'val' are not finite \((inf|-inf|nan)\)", capsys.readouterr().err)
    (folder,) = run_folders(tmp_path / "home")
    assert list(history(folder)) == [1]
    assert checkpoint.load_last(folder) is not None


def test_only_long_training_is_saved_before_its_evaluation(
    tracking: str, train_flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All evaluations take long, and of the three epochs the second."""
    skipped, saved = 0.0, []
    update, decide, save = engine.Engine._update, engine.Evaluator.decide, checkpoint.save

    def slow_update(self: engine.Engine, stage: Any, step: int, *rest: Any) -> None:
        nonlocal skipped
        skipped += 2 * engine.LONG * (step == self.steps_per_epoch)
        update(self, stage, step, *rest)

    def slow_decide(self: engine.Evaluator, predict: Any, **more: Any) -> Any:
        nonlocal skipped
        skipped += 2 * engine.LONG
        return decide(self, predict, **more)

    def note(path: Path, state: dict[str, Any]) -> None:
        if path.name == checkpoint.LAST:
            saved.append((len(state["history"]), state["position"]["due"]))
        save(path, state)

    later = SimpleNamespace(perf_counter=lambda: time.perf_counter() + skipped, time=time.time)
    monkeypatch.setattr(engine, "time", later)
    monkeypatch.setattr(engine.Engine, "_update", slow_update)
    monkeypatch.setattr(engine.Evaluator, "decide", slow_decide)
    monkeypatch.setattr(checkpoint, "save", note)
    train(tmp_path / "home", [*train_flags, "--backbone", "mlp"])
    assert saved == [(1, False), (1, True), (2, False), (3, False)]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision(precision: str, tracking: str, train_flags: list[str], tmp_path: Path) -> None:
    # At 16 pixels (maps of 1 x 1), torch 2.15's bf16 convolution on the CPU now and then gives a NaN gradient.
    words = [*train_flags, "--image_size", "64", "--epochs", "1"]
    folder = train(tmp_path / "home", [*words, "--precision", precision, "--algorithm", "helpers.toys:SagNetLike"])
    state = torch.load(folder / "last.ckpt", weights_only=True)
    assert (state["precision"]["scale"] > 1) == (precision == "fp16")
    assert all(math.isfinite(metrics["train/loss"]) for metrics in history(folder).values())


def test_a_default_training_logs_what_it_promises(tracking: str, train_flags: list[str], tmp_path: Path) -> None:
    folder = train(tmp_path / "home", train_flags)
    (record, *_) = torch.load(folder / "last.ckpt", weights_only=True)["history"]
    machine = {name for name in record["metrics"] if name.startswith("system/")}
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= machine
    assert set(record["metrics"]) - machine == {
        *("train/loss", "train/classification", "train/accuracy", "train/lr"),
        *("val/accuracy/val", "val/loss/val", "test/accuracy/ink", "test/loss/ink"),
        *("test/accuracy/paint", "test/loss/paint", "val/ece/val", "test/ece/ink", "test/ece/paint"),
        *("time/epoch_seconds", "time/waiting_seconds", "time/evaluation_seconds"),
        *("time/images_per_second", "memory/peak_mb"),
        *("best/val", "best/ink", "best/paint"),
    }
    assert record["metrics"]["train/lr"] == 0.02


def test_short_names_have_the_numbers_of_the_best_epoch(tracking: str, train_flags: list[str], tmp_path: Path) -> None:
    folder = train(tmp_path / "home", [*train_flags, "--backbone", "mlp", "--epochs", "5"])
    values = history(folder)
    curve = {step: metrics["val/accuracy/val"] for step, metrics in values.items()}
    best = max(curve, key=lambda step: (curve[step], -step))
    having = [step for step, metrics in values.items() if "best/val" in metrics]
    assert having == [step for step in curve if all(curve[step] > curve[other] for other in range(1, step))]
    last = {name: value for step in having for name, value in values[step].items()}  # what MLflow's table shows
    for name in ("ink", "paint"):
        assert last[f"best/{name}"] == round(values[best][f"test/accuracy/{name}"], 4)
    assert last["best/val"] == round(curve[best], 4)


def test_a_method_that_pries_sees_nothing_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches, further streams and passes, of images whose bias is labelled; the twin that declares it sees it."""
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    suite = f"{ROOT}/tests/helpers/toy_suite.py:Shades"
    words = ["train", "--suite", suite, "--data.labels", "yes", "--epochs", "1", "--tracking", "offline"]
    assert cli.main([*words, "--algorithm", "helpers.toys:Prying"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(toys.Prying, "uses", frozenset({"bias"}))
        with pytest.raises(AssertionError, match=r"sees \['bias'\]"):
            cli.main([*words, "--algorithm", "helpers.toys:Prying", "--seed", "1"])


# --- steps of several optimizers --------------------------------------------------------------------------------------


class TwoPartAlgorithm(Algorithm):
    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {
            "main": self.setup.optimizer(self.first.parameters()),
            "other": self.setup.optimizer(self.second.parameters()),
        }


def make(precision: str = "fp32") -> TwoPartAlgorithm:
    torch.manual_seed(0)
    optimizer = lambda parameters: torch.optim.SGD(parameters, lr=1.0)  # noqa: E731
    setup = Setup(2, MultiClass(), nn.Identity, optimizer, Group(), Precision(precision))
    algorithm = TwoPartAlgorithm(TwoPartAlgorithm.HParams(), setup)
    algorithm.start()
    return algorithm


def test_under_fp16_all_optimizers_step_or_none() -> None:
    algorithm = make("fp16")
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}
    good = [torch.ones_like(p) for p in algorithm.first.parameters()]
    bad = [torch.full_like(p, torch.inf) for p in algorithm.second.parameters()]
    scale = algorithm.setup.precision.state_dict()["scale"]
    algorithm.apply_gradients({"main": good, "other": bad})
    assert all(torch.equal(before[name], value) for name, value in algorithm.state_dict().items())
    assert algorithm.setup.precision.state_dict()["scale"] == scale / 2
    algorithm.apply_gradients({"main": good, "other": good})
    assert all(torch.equal(before[name] - 1, value) for name, value in algorithm.state_dict().items())


# --- rates ------------------------------------------------------------------------------------------------------------


def test_momenta_begin_anew_with_the_schedule(
    tracking: str, train_flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all three optimizers of a method: those of 18 steps before which none has a momentum yet."""
    fresh: dict[str, list[int]] = {}
    update = engine.Engine._update

    def noting(self: engine.Engine, stage: Any, step: int, *rest: Any) -> None:
        for name, state in self.algorithm.optimizer_states().items():
            fresh.setdefault(name, [])
            fresh[name] += [step] if not state["state"] else []
        update(self, stage, step, *rest)

    monkeypatch.setattr(engine.Engine, "_update", noting)
    train(tmp_path / "home", [*train_flags, "--algorithm", "helpers.toys:SagNetLike", "--optim.restarts", "0.3,0.8"])
    assert len(fresh) == 3
    for steps in fresh.values():
        assert steps == [0, 5, 14]  # of 18


def test_parts_of_a_batch_are_its_examples_in_order() -> None:
    columns = {"x": torch.rand(7, 3), "y": torch.arange(7), "index": 10 + torch.arange(7)}
    extra = Batch(torch.rand(4, 3), torch.arange(4))
    parts = Batch(**columns, extra={"more": extra}).split(3)
    assert [len(part) for part in parts] == [3, 2, 2]
    for name, column in columns.items():
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), column)
    assert torch.equal(torch.cat([part.extra["more"].y for part in parts]), extra.y)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_groups_of_losses_are_computed_in_turn(accumulate: int) -> None:
    """A group begins once the gradients of the group before are there; together they are the gradients of `grads`."""
    algorithm = make()
    algorithm.setup = dataclasses.replace(algorithm.setup, accumulate=accumulate)
    batch = Batch(torch.rand(7, 3), torch.rand(7))
    events: list[str] = []

    def loss_of(network: nn.Module, part: Batch) -> Any:
        parameters = list(network.parameters())
        return torch.stack([(p**2).sum() for p in parameters]).sum() * part.x.mean(), parameters

    def groups(part: Batch) -> Iterator[Any]:
        for name, network in (("main", algorithm.first), ("other", algorithm.second)):
            events.append(f"compute {name}")
            yield {name: loss_of(network, part)}

    found, terms = {}, {}
    for gradients, losses in algorithm.grads_in_turn(batch, groups):
        events += [f"receive {name}" for name in gradients]
        found |= gradients
        terms |= losses
    earlier = ["compute main", "compute other"] * (accumulate - 1)
    assert events == [*earlier, "compute main", "receive main", "compute other", "receive other"]
    together = {"main": algorithm.first, "other": algorithm.second}
    expected, expected_terms = algorithm.grads(
        batch, lambda part: {name: loss_of(network, part) for name, network in together.items()}
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert terms == expected_terms


def test_a_checkpoint_at_an_epoch_s_end_holds_no_time_of_it(
    tracking: str, train_flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training after a resume would be charged with it. The clock ticks whenever it is read."""
    ticks = itertools.count()
    ticking = SimpleNamespace(perf_counter=lambda: float(next(ticks)), time=time.time)
    for module in (clock, engine):
        monkeypatch.setattr(module, "time", ticking)
    folder = train(tmp_path / "home", [*train_flags, "--backbone", "mlp", "--epochs", "1"])
    state = torch.load(folder / "last.ckpt", weights_only=True)
    assert state["seconds"] < 4 < state["history"][-1]["metrics"]["time/epoch_seconds"]
