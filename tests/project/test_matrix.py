"""Settings of machines in `matrix.py`, and slices of slow tests: none is lost where several are tried at once."""

from __future__ import annotations

from typing import cast

import pytest

from helpers.slices import outside_slice
from matrix import SETTINGS, TOGETHER


def test_every_setting_is_in_one_group() -> None:
    assert sorted(name for group in TOGETHER for name in group) == sorted(SETTINGS)


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
