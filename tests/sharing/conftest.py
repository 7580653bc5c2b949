"""A server with runs, another one to import to, and a Python that has the validators of other projects."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.toy_runs import Recorder


@pytest.fixture
def recorder(tracking: str, tmp_path: Path) -> Recorder:
    return Recorder(tracking, tmp_path)


@pytest.fixture
def elsewhere(
    tracking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _empty_store: Path,
    serve_at: Callable[[str], None],
) -> Callable[[], str]:
    """Makes another, empty server the one in use."""

    def change() -> str:
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        shutil.copy(_empty_store, folder / "mlflow.db")
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        monkeypatch.setenv("BIASBED_HOME", str(folder / "home"))
        serve_at(uri)
        return uri

    return change


@pytest.fixture
def validators() -> str:
    """A Python of an environment of its own: their packages need other versions than ours."""
    python = os.environ.get("BIASBED_VALIDATORS", "")
    if not python:
        pytest.skip("BIASBED_VALIDATORS=<python 3.12 with every-eval-ever==0.3.0, mlcroissant and pyarrow> is not set")
    return python
