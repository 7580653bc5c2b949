"""Commands in messages: in the form in which this process was started."""

from __future__ import annotations

import pytest

from biasbed.system import commands
from helpers.commands import ROOT

SETTINGS = {"study": "my study", "data_dir": "<folder>"}
ALLOWED = ("system/commands.py",)


SERVER = "http://alice:secret@host:5000"


def test_a_command_is_typed_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(commands.SERVER, raising=False)
    monkeypatch.delenv(commands.LAUNCHED, raising=False)
    assert (
        commands.format_command("analyze", SETTINGS, "...")
        == "biasbed analyze --study 'my study' --data_dir <folder> ..."
    )
    monkeypatch.setenv(commands.SERVER, SERVER)
    assert commands.format_command("analyze", {}) == "MLFLOW_TRACKING_URI=http://host:5000 biasbed analyze"
    assert commands.format_command("prepare", {}) == "biasbed prepare"


def test_under_mlflow_run_a_command_is_one_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by children, and after the run that `mlflow run` opened has been taken."""
    monkeypatch.setenv(commands.RUN, "0")
    monkeypatch.setenv(commands.LAUNCHED, "")
    monkeypatch.setenv(commands.SERVER, SERVER)
    commands.note_launcher()
    monkeypatch.delenv(commands.RUN)
    before = "MLFLOW_TRACKING_URI=http://host:5000 mlflow run . -e"
    again = f"{before} train -P seed=1 -P sets='a b' --env-manager uv"
    assert (
        commands.format_continuation(["train", "--seed", "1", "--sets=a b", "--suite", "auto", "--resume", "never"])
        == again
    )
    assert commands.format_command("analyze", {"study": "main"}) == f"{before} analyze -P study=main --env-manager uv"


def test_no_message_takes_a_checkout_for_granted() -> None:
    """A pip install has none: commands come from `commands.format_command`."""
    source = ROOT / "src" / "biasbed"
    files = [path for path in source.rglob("*.py") if not path.as_posix().endswith(ALLOWED)]
    files += (ROOT / "analysis").rglob("*.py")
    assert len(files) > 200
    lines = [line for path in files for line in path.read_text().splitlines()]
    wrong = [line for line in lines if "mlflow run . -e" in line and "`mlflow run . -e" not in line]
    assert wrong == []
