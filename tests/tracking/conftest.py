"""A server with runs, and another one to which they may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed.tracking import pages
from helpers.compared import Store
from helpers.postgres import free_port
from helpers.toy_runs import Recorder


@pytest.fixture
def recorder(tracking: str, tmp_path: Path) -> Recorder:
    return Recorder(tracking, tmp_path)


@pytest.fixture
def store(tracking: str) -> Store:
    return Store(tracking)


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> range:
    """Ports that nobody uses, as those at which pages are looked for."""
    first = free_port()
    monkeypatch.setattr(pages, "PORTS", range(first, first + 1))
    return pages.PORTS
