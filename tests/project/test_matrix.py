"""The settings of `matrix.py` and slices of slow tests: none is lost where several are tried at once."""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest

from helpers.commands import ROOT
from helpers.slices import outside_slice
from matrix import QUICK, SETTINGS, WHOLE, Setting, grouped, together

GROUPS = grouped(SETTINGS)


def test_every_setting_is_in_one_group() -> None:
    names = [name for group in GROUPS for name in group]
    assert sorted(names) == sorted(SETTINGS)
    assert len(GROUPS) == max(
        sum(setting.arithmetic for setting in SETTINGS.values()),
        sum("HOME" in setting.env or bool(setting.home) for setting in SETTINGS.values()),
    )


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_a_group_is_all_of_its_settings(group: dict[str, Setting]) -> None:
    whole = together(group.values())
    for setting in group.values():
        assert setting.env.items() <= whole.env.items()
        assert not setting.home or (whole.home == setting.home and "HOME" not in whole.env)
        assert not setting.folder or whole.folder == setting.folder
        assert whole.offline >= setting.offline
        assert whole.arithmetic >= setting.arithmetic
    assert sum(setting.arithmetic for setting in group.values()) <= 1


def test_one_setting_alone_is_itself() -> None:
    for setting in SETTINGS.values():
        assert dataclasses.replace(together([setting]), env=setting.env) == setting


def test_the_tests_that_are_run_are_there() -> None:
    for word in (*QUICK, *WHOLE):
        if word.startswith("tests"):
            path, _, name = word.partition("::")
            assert (ROOT / path).exists(), path
            assert not name or f"def {name}(" in (ROOT / path).read_text(), word


class Item:
    """Collected test, slow or not."""

    def __init__(self, name: str, is_slow: bool) -> None:
        self.name, self.is_slow = name, is_slow

    def get_closest_marker(self, name: str) -> object:
        return self if name == "slow" and self.is_slow else None


def test_each_slow_test_is_in_one_of_ten_slices_and_no_other_test_is_left_out() -> None:
    items = cast("list[pytest.Item]", [Item(str(number), number % 3 == 0) for number in range(100)])
    slow = [item.name for item in items if item.get_closest_marker("slow")]
    kept: list[str] = []
    for part in range(1, 11):
        left_out = {item.name for item in outside_slice(items, f"{part}/10")}
        assert left_out < set(slow)
        kept += [name for name in slow if name not in left_out]
    assert sorted(kept) == sorted(slow)
