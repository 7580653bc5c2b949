"""Commands in messages: in the form in which this process was started."""

from __future__ import annotations

import pytest

from biasbed.system import commands
from helpers.commands import ROOT

SETTINGS = {"study": "my study", "data_dir": "<folder>"}
ALLOWED = ("system/commands.py",)


@pytest.mark.parametrize(
    ("is_mlflow", "told"),
    [
        (False, "biasbed analyze --study 'my study' --data_dir <folder> ..."),
        (True, "mlflow run . -e analyze -P study='my study' -P data_dir=<folder> ..."),
    ],
)
def test_a_command_is_typed_as_it_was_started(is_mlflow: bool, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the run that `mlflow run` opened has been taken."""
    monkeypatch.delenv(commands.RUN, raising=False)
    monkeypatch.setattr(commands, "_STARTED_BY_MLFLOW", is_mlflow)
    assert commands.typed("analyze", SETTINGS, "...") == told


def test_no_message_takes_a_checkout_for_granted() -> None:
    """A pip install has none: what is typed comes of `commands.typed`."""
    source = ROOT / "src" / "biasbed"
    files = [path for path in source.rglob("*.py") if not path.as_posix().endswith(ALLOWED)]
    files += (ROOT / "analysis").rglob("*.py")
    assert len(files) > 200
    lines = [line for path in files for line in path.read_text().splitlines()]
    wrong = [line for line in lines if "mlflow run . -e" in line and "`mlflow run . -e" not in line]
    assert wrong == []
