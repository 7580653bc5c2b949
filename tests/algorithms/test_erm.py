"""Balanced draws of ERM."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from biasbed import algorithms
from biasbed.algorithms.requests import Stage
from biasbed.errors import NotApplicable
from helpers.grouped import TRAIN, groups, reader, rows


@pytest.mark.parametrize(("balance", "column"), [("class", TRAIN.y), ("group", groups())])
def test_erm_draws_each_class_or_group_equally_often(balance: str, column: np.ndarray) -> None:
    read = reader("erm", **{"hparams.balance": balance}).plan_stage(Stage("main", dict), 0)
    number = len(set(column.tolist()))
    for step in range(3):
        drawn = Counter(column[rows(read, step)].tolist())
        assert set(drawn.values()) == {18 // number}
        assert len(drawn) == number
    usual = reader("erm").plan_stage(Stage("main", dict), 0)
    assert any(len(set(Counter(column[rows(usual, step)].tolist()).values())) > 1 for step in range(3))


def test_groups_alone_need_bias_labels() -> None:
    assert reader("erm", **{"hparams.balance": "class", "data.labels": False}).job.needs == frozenset()
    assert reader("erm", **{"hparams.balance": "group"}).job.needs == {"bias"}
    with pytest.raises(NotApplicable, match="erm needs bias labels of the training images, and 'shades' has none"):
        reader("erm", **{"hparams.balance": "group", "data.labels": False})


def test_balance_is_a_setting_of_erm_and_of_methods_without_any() -> None:
    for name in algorithms.names():
        cls = algorithms.load(name)
        has_balance = "balance" in {field.name for field in dataclasses.fields(cls.HParams)}
        assert has_balance == (
            name in ("erm", "stylized_erm", "style_transfer", "deepaug_cae", "deepaug_edsr", "deepaug")
        )
        assert cls.streams(cls.HParams())
