"""Commands that a signal ends while they talk to a server: no run stays RUNNING, and no folder stays behind."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from biasbed import cli
from biasbed.tracking import server
from helpers.archives import rich_run, zipped
from helpers.runs import all_runs
from helpers.toy_runs import Recorder


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The temporary folder of a command that SIGTERM reaches while it sends or fetches its first files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the command does not attend to SIGTERM"))

    def send(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    for name in ("log_artifacts", "log_text", "download_artifacts"):
        monkeypatch.setattr(MlflowClient, name, send)
    monkeypatch.setattr(server, "store_text", send)
    return folder


def test_an_import_of_a_paper_leaves_nothing(tracking: str, ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import", "--source", "biasbed"]) == 128 + signal.SIGTERM
    assert "biasbed: ended by SIGTERM" in capsys.readouterr().err
    assert all_runs(tracking) == []


def test_an_import_of_a_file_leaves_nothing(
    recorder: Recorder, move: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    file = zipped(recorder, rich_run(recorder))
    there = move("other")
    folder: Path = request.getfixturevalue("ended")
    assert cli.main(["import", "--source", str(file)]) == 128 + signal.SIGTERM
    assert all_runs(there) == []
    assert list(folder.iterdir()) == []


def test_an_export_leaves_no_file(recorder: Recorder, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    run_id = rich_run(recorder)
    folder: Path = request.getfixturevalue("ended")
    before = set(tmp_path.iterdir())
    assert cli.main(["export", "--file", str(tmp_path / "x.zip"), "--run", run_id]) == 128 + signal.SIGTERM
    assert set(tmp_path.iterdir()) == before
    assert list(folder.iterdir()) == []
