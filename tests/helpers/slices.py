"""Slices of the slow tests, of which every run of CI has one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def outside_slice(items: Sequence[pytest.Item], share: str) -> list[pytest.Item]:
    """Return the slow tests outside of a slice. share: `3/10` for every tenth slow test, beginning with the third.

    Neighbours go to different slices: so each slice has its share of every file, and all take about equally long.
    """
    part, parts = map(int, share.split("/"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    return [item for number, item in enumerate(slow) if number % parts != part - 1]
