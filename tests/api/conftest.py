"""Comparisons in tests: coarse simulations, and no settings or home of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.sizes import draw_few


@pytest.fixture(autouse=True)
def _few_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    draw_few(monkeypatch)
