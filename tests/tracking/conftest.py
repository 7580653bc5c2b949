"""A server with runs, and another one to which they may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.compared import Store
from helpers.toy_runs import Recorder


@pytest.fixture
def recorder(tracking: str, tmp_path: Path) -> Recorder:
    return Recorder(tracking, tmp_path)


@pytest.fixture
def store(tracking: str) -> Store:
    return Store(tracking)
