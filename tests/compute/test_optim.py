"""Groups of parameters with rates and decays of their own, and a rate that is linear between points."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.make import make_algorithm
from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.compute.optim import (
    ParameterRoles,
    has_restart,
    list_parameters,
    make_optimizer,
    rate_factor,
    restart_steps,
)
from biasbed.compute.precision import Precision
from biasbed.config import Optim
from biasbed.errors import UsageError
from biasbed.tasks import MultiClass
from biasbed.training.resolve import resolve
from helpers.making import images

RATES = {"optim.lr": "0.01", "optim.lr_batch": "none"}


def made(**flags: str) -> Algorithm:
    config = resolve({"suite": "folders", "algorithm": "erm", "backbone": "resnet10", **RATES, **flags})
    torch.manual_seed(0)
    algorithm = make_algorithm(config, MultiClass(), Group(), Precision(), TrainData(8, 5, 1))
    algorithm.start()
    return algorithm.train()


def rates(algorithm: Algorithm) -> dict[str, tuple[float, float]]:
    """Rate and decay of each parameter, by name."""
    groups = algorithm.optimizer("main").param_groups
    told = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    return {name: told[id(parameter)] for name, parameter in algorithm.named_parameters()}


def test_by_default_there_is_one_plain_group() -> None:
    optimizer = made().optimizer("main")
    assert len(optimizer.param_groups) == 1
    assert set(optimizer.state_dict()["param_groups"][0]) == {
        *torch.optim.SGD([nn.Parameter(torch.ones(1))]).state_dict()["param_groups"][0],
        "initial_lr",
    }


def test_the_head_has_a_rate_of_its_own_and_norms_no_decay() -> None:
    algorithm = made(**{"optim.head_factor": "10", "optim.decay_norms": "false"})
    algorithm.set_rate(0.5)
    for name, parameter in algorithm.named_parameters():
        is_head = name.startswith("network.backbone.fc.")
        wanted = (0.05 if is_head else 0.005, 0.0 if parameter.ndim == 1 else 1e-4)
        assert rates(algorithm)[name] == pytest.approx(wanted), name
    assert algorithm.optimizer("main").param_groups[0]["lr"] == 0.005  # what is logged


def test_a_state_of_groups_is_restored() -> None:
    algorithm, other = (made(**{"optim.decay_norms": "false"}) for _ in range(2))
    algorithm.update(Batch(images(8), torch.arange(8) % 5))
    other.load_optimizer_states(algorithm.optimizer_states())
    for mine, theirs in zip(
        list_parameters(algorithm.optimizer("main")), list_parameters(other.optimizer("main")), strict=True
    ):
        momentum = algorithm.optimizer("main").state[mine]["momentum_buffer"]
        assert torch.equal(other.optimizer("main").state[theirs]["momentum_buffer"], momentum)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_gradients_keep_the_order_in_which_parameters_were_asked_for(name: Any) -> None:
    """Groups mix them; each must get its own gradient, as with one group."""
    found = []
    for optim in (Optim(name=name, weight_decay=0), Optim(name=name, weight_decay=0, decay_norms=False)):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        optimizer = make_optimizer(optim, 256, network.parameters())
        assert [id(p) for p in list_parameters(optimizer)] == [id(p) for p in network.parameters()]
        for number, parameter in enumerate(list_parameters(optimizer)):
            parameter.grad = torch.full_like(parameter, number + 1.0)
        optimizer.step()
        found.append([parameter.detach().clone() for parameter in network.parameters()])
    assert len(optimizer.param_groups) == 2
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("accumulate", ["1", "2"])
def test_an_update_with_groups_of_one_rate_is_that_without(accumulate: str) -> None:
    """Through the whole of a method: a factor of nearly one, which splits, changes next to nothing."""
    batch = Batch(images(8), torch.arange(8) % 5)
    plain, split = made(accumulate=accumulate), made(accumulate=accumulate, **{"optim.head_factor": "1.0000001"})
    for algorithm in (plain, split):
        algorithm.update(batch)
    assert len(split.optimizer("main").param_groups) == 2
    for one, other in zip(plain.parameters(), split.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-7)


def test_groups_of_a_method_s_own_keep_their_options() -> None:
    layer, head = nn.Linear(2, 2), nn.Linear(2, 2)
    given = [{"params": layer.parameters(), "lr": 0.5}, {"params": [*head.parameters()]}]
    optimizer = make_optimizer(
        Optim(lr=0.1, head_factor=3, decay_norms=False),
        256,
        given,
        ParameterRoles(head={id(p) for p in head.parameters()}),
    )
    told = [(group["lr"], group["weight_decay"], group["places"]) for group in optimizer.param_groups]
    assert told == [
        *((0.5, 1e-4, [0]), (0.5, 0.0, [1])),
        *((pytest.approx(0.3), 1e-4, [2]), (pytest.approx(0.3), 0.0, [3])),
    ]


def test_a_head_in_a_group_of_its_own_rate_goes_by_that() -> None:
    head = nn.Linear(2, 2)
    given = [{"params": [*head.parameters()], "lr": 0.5}]
    optimizer = make_optimizer(
        Optim(lr=0.1, head_factor=3), 256, given, ParameterRoles(head={id(p) for p in head.parameters()})
    )
    assert [group["lr"] for group in optimizer.param_groups] == [1.5]


def test_classifiers_of_a_method_s_own_are_heads() -> None:
    """DisEnt's networks have none: its two classifiers take the features of both."""
    algorithm = made(algorithm="disent", **{"optim.head_factor": "10"})
    algorithm.set_rate(0.5)
    fast = {name for name, (rate, _) in rates(algorithm).items() if rate == pytest.approx(0.05)}
    assert fast == {f"pair.{head}.{kind}" for head in ("head", "biased_head") for kind in ("weight", "bias")}


def test_a_method_without_a_head_of_a_network_is_refused() -> None:
    with pytest.raises(UsageError, match=r"optim\.head_factor: .*Plain has no network"):
        made(algorithm="helpers.toys:Plain", **{"optim.head_factor": "10"})


# --- piecewise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # From the end of the warm-up (10 steps) to that of the training: a half half-way, a quarter at two thirds.
        ("cosine", {0: 0.1, 8: 0.9, 9: 1.0, 10: 1.0, 60: 0.5, 10 + 200 / 3: 0.25}),
        # By 0.1 at 0.5 and 0.75 of all 110 steps, which are 55 and 82.
        ("step", {0: 0.1, 9: 1.0, 10: 1.0, 54: 1.0, 55: 0.1, 81: 0.1, 82: 0.01, 109: 0.01}),
        ("constant", {0: 0.1, 4: 0.5, 9: 1.0, 109: 1.0}),
    ],
)
def test_rates_after_a_warm_up_of_two_epochs(schedule: Any, expected: dict[float, float]) -> None:
    optim = Optim(schedule=schedule, warmup=2.0, milestones=(0.5, 0.75), gamma=0.1)
    for step, factor in expected.items():
        assert rate_factor(optim, step, 110, 5) == pytest.approx(factor), step


@pytest.mark.parametrize(("part", "total", "step"), [(0.29, 100, 29), (0.57, 100, 57), (0.3, 18, 5), (0.26, 18, 5)])
def test_parts_of_a_training_begin_at_the_nearest_step(part: float, total: int, step: int) -> None:
    """0.29 * 100 is a little less than 29 in floating point."""
    assert restart_steps(Optim(restarts=(part,)), total) == [step]
    drops = [rate_factor(Optim(milestones=(part,), gamma=0.5), number, total, 9) for number in range(total)]
    assert drops == [1.0] * step + [0.5] * (total - step)


@pytest.mark.parametrize(("epochs", "steps"), [(0.7, 4), (0.3, 2), (1.5, 8)])
def test_a_warm_up_of_a_part_of_an_epoch_takes_the_nearest_number_of_steps(epochs: float, steps: int) -> None:
    """Epochs have five steps: 3.5, 1.5 and 7.5, which Python rounds to the even number."""
    optim = Optim(schedule="constant", warmup=epochs)
    factors = [rate_factor(optim, step, 100, 5) for step in range(10)]
    assert factors == pytest.approx([min(1.0, (step + 1) / steps) for step in range(10)])


def test_a_schedule_begins_anew_after_the_step_before_a_restart() -> None:
    """At 0.25 of 10 steps, which is rounded to 2: between the steps 1 and 2."""
    optim = Optim(schedule="cosine", restarts=(0.25,))
    assert [step for step in range(10) if has_restart(optim, step, step + 1, 10)] == [1]
    assert has_restart(optim, 0, 3, 10)
    assert [rate_factor(optim, step, 10, 5) for step in (0, 1, 2, 6)] == pytest.approx([1, 0.5, 1, 0.5])


SCHEDULES = (
    *(Optim(schedule=name, warmup=warmup) for name in ("step", "cosine") for warmup in (0.0, 1.0)),
    Optim(schedule="piecewise", points=(0, 0.5, 1), factors=(1, 0.5, 0.1)),
)


@pytest.mark.parametrize("alone", SCHEDULES)
def test_between_restarts_the_schedule_is_that_of_a_training_of_its_own(alone: Optim) -> None:
    """35, 20 and 45 of 100 steps, whatever the schedule."""
    joined = replace(alone, restarts=(0.35, 0.55))
    expected = [rate_factor(alone, step, total, 5) for total in (35, 20, 45) for step in range(total)]
    assert [rate_factor(joined, step, 100, 5) for step in range(100)] == expected


@pytest.mark.parametrize("wrong", [(0.5, 0.2), (0.5, 0.5), (0.0,), (1.0,), (math.nan,)])
def test_restarts_and_milestones_rise_within_the_training(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"optim\.restarts"):
        Optim(restarts=wrong)
    with pytest.raises(ValueError, match=r"optim\.milestones"):
        Optim(milestones=wrong)


def test_the_rate_scales_with_the_global_batch() -> None:
    assert Optim(lr=0.1).rate(512) == pytest.approx(0.2)
    assert Optim(lr=0.1, lr_batch=None).rate(512) == 0.1


def test_every_setting_of_an_optimizer_reaches_it() -> None:
    settings: dict[str, Any] = dict(lr=0.5, momentum=0.7, nesterov=True, beta1=0.8, beta2=0.95, weight_decay=0.01)
    for name, kind in (("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        optimizer = make_optimizer(Optim(name=name, **settings), 256, nn.Linear(2, 2).parameters())  # type: ignore[arg-type]
        assert type(optimizer) is kind
        expected = {"momentum": 0.7, "nesterov": True} if name == "sgd" else {"betas": (0.8, 0.95)}
        for setting, value in {"lr": 0.5, "weight_decay": 0.01, **expected}.items():
            assert optimizer.param_groups[0][setting] == value


def test_linear_between_points_at_every_step() -> None:
    optim = Optim(schedule="piecewise", points=(0, 0.4, 1), factors=(0, 1, 0))
    factors = [rate_factor(optim, step, 10, 5) for step in range(10)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"points": (0.0, 0.5)}, r"optim\.points="),
        ({"points": (0.1, 1.0)}, r"optim\.points="),
        ({"points": (0.0, 0.5, 0.5, 1.0)}, r"optim\.points="),
        ({"factors": (1.0, 0.0)}, r"optim\.factors="),
        ({"factors": (1.0, float("nan"), 0.0)}, r"optim\.factors="),
        ({"schedule": "piecewise", "warmup": 1.0}, r"give optim\.warmup=0"),
    ],
)
def test_points_and_factors_fit(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optim(**settings)
