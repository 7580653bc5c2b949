"""Temporary tracking servers: an empty one for each test, one with the imported BiasBed results for all."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

# At the end: `conftest` must go on meaning the one in tests/.
sys.path.append(str(Path(__file__).parent))

from toy_runs import Recorder


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's MLflow settings or writes into the user's home."""
    for name in ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture
def recorder(_empty_store: Path, tmp_path: Path) -> Recorder:
    """An empty tracking server."""
    shutil.copy(_empty_store, tmp_path / "mlflow.db")
    return Recorder(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)


@pytest.fixture(scope="session")
def published_uri(_empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tracking server with the imported BiasBed results; tests only read it."""
    from biasbed.published import import_runs

    folder = tmp_path_factory.mktemp("published")
    shutil.copy(_empty_store, folder / "mlflow.db")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    assert import_runs("biasbed", uri) == 158
    return uri
