"""The loss scale of fp16, counted by hand."""

from __future__ import annotations

import pytest
import torch

from biasbed.compute.precision import Precision

GOOD, BAD = [torch.ones(2), torch.zeros(1)], [torch.ones(2), torch.tensor([torch.inf])]


def scales(steps: str, interval: int = 3) -> list[float]:
    """The exponent of the scale after each step: accepted (a) or refused (r)."""
    precision = Precision("fp16")
    precision.growth_interval = interval
    found = []
    for step in steps:
        assert precision.approve(GOOD if step == "a" else BAD) == (step == "a")
        found.append(float(precision.scale(torch.tensor(1.0)).log2()))
    return found


def test_the_scale_doubles_after_so_many_accepted_steps_in_a_row() -> None:
    assert scales("aaaaaaa") == [16, 16, 17, 17, 17, 18, 18]


def test_a_refused_step_halves_it_and_counting_begins_anew() -> None:
    assert scales("aaraaaa") == [16, 16, 15, 15, 15, 16, 16]
    assert scales("r" * 18)[-3:] == [0, 0, 0], "never below 1"


def test_what_was_scaled_is_unscaled() -> None:
    precision = Precision("fp16")
    loss = torch.tensor(0.75)
    assert float(precision.scale(loss)) == 0.75 * 65536
    assert precision.unscale(precision.scale(loss)) == loss


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_other_precisions_have_no_scale(name: str) -> None:
    precision = Precision(name)
    loss = torch.tensor(0.75)
    assert precision.scale(loss) is precision.unscale(loss) is loss
    assert precision.approve(BAD)


def test_the_count_goes_on_after_a_checkpoint() -> None:
    first, second = Precision("fp16"), Precision("fp16")
    first.growth_interval = second.growth_interval = 3
    assert [first.approve(GOOD) for _ in range(2)] == [True, True]
    second.load_state_dict(first.state_dict())
    second.approve(GOOD)
    assert second.state_dict() == {"scale": 2.0**17, "accepted": 0}


@pytest.mark.parametrize(("name", "kind"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_products_are_of_the_precision_s_type(name: str, kind: torch.dtype) -> None:
    """And weights stay what they are."""
    layer = torch.nn.Linear(2, 2)
    with Precision(name).autocast():
        assert layer(torch.ones(1, 2)).dtype == kind
    assert layer.weight.dtype == torch.float32
