"""A server with runs, and another one to which they may go."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# At the end: `conftest` must go on meaning the one in tests/.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "analysis")]

from toy_runs import Recorder


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
