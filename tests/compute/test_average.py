"""Averaged weights against means computed by hand, over what algorithm 1 of Cha et al. says, written out as it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biasbed.compute.average import Average
from biasbed.compute.distributed import Group
from biasbed.compute.mean_weights import EMA, SMA, SWAD
from biasbed.config import Ema, Swad
from helpers.averages import mean, valley

EVERY = 4  # steps between evaluations


class Model(nn.Module):
    """Weights, running statistics, a table, counts, and a norm that appears twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.again = nn.Sequential(self.norm, nn.InstanceNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False))
        self.register_buffer("table", torch.zeros(5))


AVERAGED = {"layer.weight", "layer.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}
AVERAGED |= {"again.2.weight", "again.2.bias"}


class Scripted:
    """Validation losses, one after the other."""

    def __init__(self, losses: Sequence[float]) -> None:
        self.losses: Iterator[float] = iter(losses)

    def loss(self) -> float:
        return next(self.losses)


def move(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Other values of everything in it; a copy of them."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            fresh = torch.rand(tensor.shape, generator=generator)
            tensor.copy_(fresh if tensor.is_floating_point() else tensor + 1)
    return state(module)


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def by_hand(iterates: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of what is averaged."""
    return {name: mean([weights[name] for weights in iterates]) for name in AVERAGED}


def run(average: Average, module: nn.Module, steps: int, seed: int = 0) -> list[dict[str, Tensor]]:
    """Weights after each step; an evaluation after every fourth."""
    generator = torch.Generator().manual_seed(seed)
    iterates = []
    for step in range(1, steps + 1):
        iterates.append(move(module, generator))
        average.add(step)
        if step % EVERY == 0:
            average.before_evaluation()
    return iterates


def shown(average: Average) -> dict[str, Tensor]:
    with average.evaluated_weights():
        return state(average.module)


def assert_mean(average: Average, iterates: Sequence[dict[str, Tensor]], last: dict[str, Tensor]) -> None:
    """Check that tested weights are the mean of these, others the last ones, and live weights unchanged."""
    found, means = shown(average), by_hand(iterates)
    for name, value in found.items():
        name = name.replace("again.0.", "norm.")
        torch.testing.assert_close(value, means.get(name, last[name]), rtol=1e-7, atol=0, msg=name)
    assert all(torch.equal(value, last[name]) for name, value in state(average.module).items())


def swad(losses: Sequence[float], **settings: Any) -> SWAD:
    return SWAD(Model(), Group(), Swad(**settings), Scripted(losses).loss)


# --- which steps ------------------------------------------------------------------------------------------------------


def test_without_an_average_the_live_weights_are_tested() -> None:
    average = Average(Model(), Group())
    last = run(average, average.module, 8)[-1]
    assert all(torch.equal(value, last[name]) for name, value in shown(average).items())
    assert average.checkpoint({}) == {}


@pytest.mark.parametrize("steps", [3, 5, 6, 17])
def test_sma_is_the_mean_from_a_step_on(steps: int) -> None:
    average = SMA(Model(), Group(), first=5)
    iterates = run(average, average.module, steps)
    assert_mean(average, iterates[4:] or iterates[-1:], iterates[-1])


@pytest.mark.parametrize(
    ("losses", "start", "end"),
    [
        ([4, 3, 1, 2, 2], 3, 5),  # the third is the least of three, and training ends in the valley
        ([4, 3, 1, 2], 0, 0),  # not known yet
        ([1, 1, 1, 2, 2, 2], 1, 6),  # threshold 1.3: above it, but not six times
        ([1, 1, 1, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1, 1], 1, 6),  # six times, and what comes after counts no more
        ([1, 1, 10, *[6] * 6], 1, 2),  # threshold 5.2: the third is above it already, six are by the eighth
        ([math.nan, 1, 1, math.inf, 1, 1, 1], 5, 7),  # what is no number is no start
        ([1, 1, 1, *[math.nan] * 6], 1, 3),
    ],
)
def test_swad_is_the_mean_over_the_valley(losses: list[float], start: int, end: int) -> None:
    """From the weights at the evaluation `start` to those at the evaluation `end`, or the last."""
    average = swad(losses)
    iterates = run(average, average.module, EVERY * len(losses))
    between = iterates[EVERY * start - 1 : EVERY * end] if start else iterates[-1:]
    assert_mean(average, between, iterates[-1])


def test_a_loss_at_the_threshold_is_in_the_valley() -> None:
    """The threshold is 1.5: the fourth and the sixth are at it, and two above it in a row come after these alone."""
    losses, settings = [1, 1, 2, 1.5, 2, 1.5, 2, 2, 1], Swad(optimum_patience=2, overfit_patience=2, tolerance=1.5)
    average = SWAD(Model(), Group(), settings, Scripted(losses).loss)
    iterates = run(average, average.module, EVERY * len(losses))
    assert_mean(average, iterates[EVERY - 1 : 6 * EVERY], iterates[-1])
    assert valley(losses, settings) == (0, 5)


def test_random_losses_as_the_algorithm_has_it() -> None:
    generator = np.random.default_rng(0)
    ended = 0
    for number in range(150):
        optimum = int(generator.integers(1, 5))
        settings = Swad(optimum, int(generator.integers(optimum, optimum + 4)), float(generator.uniform(1, 1.3)))
        losses = generator.choice([0.9, 1.0, 1.1, 1.3, 1.6, 2.0], int(generator.integers(1, 25))).tolist()
        average = SWAD(nn.Linear(1, 1), Group(), settings, Scripted(losses).loss)
        iterates = run(average, average.module, EVERY * len(losses), seed=number)
        found = valley(losses, settings)
        between = iterates[-1:] if found is None else iterates[EVERY * (found[0] + 1) - 1 : EVERY * (found[1] + 1)]
        ended += average.ended
        for name, value in shown(average).items():
            torch.testing.assert_close(value, mean([weights[name] for weights in between]), rtol=1e-7, atol=0)
    assert ended > 20


# --- what is averaged, and kept ---------------------------------------------------------------------------------------


def test_weights_and_running_statistics_are_averaged_and_nothing_else() -> None:
    assert set(Average(Model(), Group()).weights()) == AVERAGED


def test_sums_are_of_float64_and_means_of_the_weights_type() -> None:
    average = SMA(Model(), Group(), 1)
    run(average, average.module, 3)
    assert {tensor.dtype for tensor in average.total.sums.values()} == {torch.float64}
    assert shown(average)["layer.weight"].dtype == torch.float32


def test_the_live_weights_are_back_after_an_error() -> None:
    average = SMA(Model(), Group(), 1)
    last = run(average, average.module, 3)[-1]
    with pytest.raises(RuntimeError), average.evaluated_weights():
        raise RuntimeError
    assert all(torch.equal(value, last[name]) for name, value in state(average.module).items())


LOSSES = [3, 2, 1, 1, 1.2, 5, 1, 5, 5, 5, 5, 5, 5, 1, 1]


@pytest.mark.parametrize("cut", [3, 12, 13, 22, 36, 55])
@pytest.mark.parametrize("kind", ["sma", "swad", "ema"])
def test_cut_anywhere_and_restored_is_bit_equal(kind: str, cut: int) -> None:
    """Before a start, in the valley, above the threshold and after the end; at evaluations and between them."""

    def fresh(losses: Sequence[float]) -> Average:
        torch.manual_seed(0)
        if kind == "ema":
            return EMA(Model(), Group(), 12, Ema(decay=0.9))
        return swad(losses) if kind == "swad" else SMA(Model(), Group(), 12)

    straight = fresh(LOSSES)
    iterates = run(straight, straight.module, EVERY * len(LOSSES))
    first = fresh(LOSSES)
    run(first, first.module, cut)
    with first.evaluated_weights() as live:
        kept = {"algorithm": state(first.module), **first.checkpoint(live)}
    second = fresh(LOSSES[cut // EVERY :])
    second.module.load_state_dict(kept["algorithm"])
    second.restore(kept)
    assert all(torch.equal(value, iterates[cut - 1][name]) for name, value in state(second.module).items())
    for step in range(cut + 1, EVERY * len(LOSSES) + 1):
        second.module.load_state_dict(iterates[step - 1])
        second.add(step)
        if step % EVERY == 0:
            second.before_evaluation()
    for name, value in shown(straight).items():
        assert torch.equal(shown(second)[name], value), name


def test_patience_with_overfitting_is_no_shorter_than_with_the_optimum() -> None:
    with pytest.raises(ValueError, match=r"swad\.overfit_patience=2: at least"):
        Swad(optimum_patience=3, overfit_patience=2)


# --- exponential moving average ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("warmup", [False, True])
@pytest.mark.parametrize("first", [1, 4])
def test_ema_is_timm_s_to_the_bit(first: int, warmup: bool) -> None:
    """Tables apart, which timm averages as well. (It moves a norm that appears twice two times in a step.)"""
    from timm.utils import ModelEmaV3

    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = EMA(module, Group(), first, Ema(decay=0.9, warmup=warmup))
    theirs = ModelEmaV3(module, decay=0.9, update_after_step=first - 1, use_warmup=warmup)
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 13):
        live = move(module, generator)
        average.add(step)
        theirs.update(module, step=step)
        for name, value in shown(average).items():
            assert torch.equal(value, theirs.module.state_dict()[name]), name
            assert step <= first or name.endswith("tracked") or not torch.equal(value, live[name])
