"""A server with runs, and another one to which they may go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from biasbed.tracking import pages
from helpers.compared import Store
from helpers.postgres import free_port
from helpers.toy_runs import Recorder


@pytest.fixture
def move(
    tracking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _empty_store: Path,
    serve_at: Callable[[str], None],
) -> Callable[[str], str]:
    """Makes another, empty server the one in use."""

    def to(name: str) -> str:
        folder = tmp_path / name
        if not folder.exists():
            folder.mkdir()
            shutil.copy(_empty_store, folder / "mlflow.db")
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        monkeypatch.setenv("BIASBED_HOME", str(folder / "home"))
        serve_at(uri)
        return uri

    return to


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
