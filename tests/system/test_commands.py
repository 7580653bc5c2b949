"""Commands in messages: in the form in which this process was started."""

from __future__ import annotations

import pytest

from biasbed.system import commands
from helpers.commands import ROOT

SETTINGS = {"study": "my study", "data_dir": "<folder>"}
ALLOWED = ("system/commands.py",)


TYPED = [
    *("/bin/python", "/bin/mlflow", "run", "https://a:secret@host/x", "-etrain", "-P", "seed=1", "-Psets=a b"),
    *("--env-manager", "uv", "--experiment-name=first one", "--run-name", "mine", "-P", "resume=never"),
]
SERVER = "http://alice:secret@host:5000"


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The process that has started this one with `mlflow run`."""
    started = {"words": TYPED, "variables": {commands.SERVER: SERVER}}
    monkeypatch.setattr(commands, "read_launcher", lambda: (started["words"], started["variables"]))
    monkeypatch.setenv(commands.RUN, "0")
    monkeypatch.setenv(commands.LAUNCHED_AS, "")
    monkeypatch.delenv(commands.LAUNCHED_AS)
    return started


def test_a_command_is_typed_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(commands.SERVER, raising=False)
    assert commands.typed("analyze", SETTINGS, "...") == "biasbed analyze --study 'my study' --data_dir <folder> ..."
    monkeypatch.setenv(commands.SERVER, SERVER)
    assert commands.typed("analyze", {}) == "MLFLOW_TRACKING_URI=http://host:5000 biasbed analyze"
    assert commands.typed("prepare", {}) == "biasbed prepare"


def test_what_mlflow_run_was_given_is_given_again(launcher: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by children, and after the run that `mlflow run` opened has been taken."""
    commands.note_launcher()
    monkeypatch.delenv(commands.RUN)
    before = "MLFLOW_TRACKING_URI=http://host:5000 mlflow run https://host/x -e"
    options = "--env-manager uv --experiment-name 'first one'"
    again = f"{before} train -P seed=1 -P sets='a b' {options}"
    assert commands.typed_again(["train", "--seed", "1", "--suite", "demo"]) == again
    assert commands.typed("analyze", {"study": "main"}) == f"{before} analyze -P study=main {options}"


def test_what_another_program_launched_is_typed_from_its_arguments(launcher: dict[str, object]) -> None:
    launcher |= {"words": ["python", "mine.py"], "variables": {}}
    commands.note_launcher()
    assert commands.typed_again(["train", "--seed", "1", "--sets", "auto"]) == "mlflow run . -e train -P seed=1"


def test_no_message_takes_a_checkout_for_granted() -> None:
    """A pip install has none: what is typed comes of `commands.typed`."""
    source = ROOT / "src" / "biasbed"
    files = [path for path in source.rglob("*.py") if not path.as_posix().endswith(ALLOWED)]
    files += (ROOT / "analysis").rglob("*.py")
    assert len(files) > 200
    lines = [line for path in files for line in path.read_text().splitlines()]
    wrong = [line for line in lines if "mlflow run . -e" in line and "`mlflow run . -e" not in line]
    assert wrong == []
