"""State of a training: best values, kept and replaced weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from biasbed.training.state import TrainingState, replaced_weights


def test_a_stage_begins_with_nothing_of_the_one_before_it() -> None:
    state = TrainingState(0, 7, True, True, True, 3.0, {"often": torch.ones(2)}, {"value": 1.0}, [{}], {"value": 2.0})  # type: ignore[list-item]
    state.begin_stage(1)
    assert state == TrainingState(stage=1, earlier=3.0, history=[{}], best={"value": 2.0})  # type: ignore[list-item]


def test_kept_weights_are_those_of_the_first_best_value() -> None:
    module, state = nn.Linear(1, 1), TrainingState()
    for number, value in enumerate([0.3, 0.7, 0.5, 0.7]):
        nn.init.constant_(module.bias, float(number))
        state.keep_better(value, module)
    assert state.kept["value"] == 0.7
    assert state.kept["weights"]["bias"].item() == 1.0


@pytest.mark.parametrize("fails", [False, True])
def test_replaced_weights_are_back_after_the_block(fails: bool) -> None:
    module = nn.BatchNorm1d(2)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    others = {name: tensor + 1 for name, tensor in before.items()}
    try:
        with replaced_weights(module, others):
            assert all(torch.equal(others[name], tensor) for name, tensor in module.state_dict().items())
            assert not fails
    except AssertionError:
        assert fails
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
