"""Which folder a training gets, whatever has become of the notes in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from biasbed import record, run_folder
from biasbed.run_folder import RunFolder


def made(path: Path, study: str, damaged: bool = False, with_config: bool = True) -> RunFolder:
    """A finished training's folder."""
    path.mkdir()
    folder = RunFolder(path)
    folder.write_state({"tags": {record.STUDY: study}, "sent": True})
    if with_config:
        (path / record.CONFIG_FILE).write_text(yaml.safe_dump({"study": study}))
    if damaged:
        (path / "run.json").write_text('{"tags": {')
    folder.mark_done()
    return folder


def found(base: Path, study: str) -> str:
    return run_folder.find(base, "auto", True, study).path.name


def test_a_damaged_folder_stays_its_study_s(tmp_path: Path) -> None:
    made(tmp_path / "run", "a", damaged=True)
    assert found(tmp_path / "run", "b") == "run-2"
    assert found(tmp_path / "run", "a") == "run"


def test_the_newest_of_a_series_is_mended_when_it_is_damaged(tmp_path: Path) -> None:
    made(tmp_path / "run", "a")
    made(tmp_path / "run-2", "a", damaged=True)
    assert found(tmp_path / "run", "a") == "run-2"


@pytest.mark.parametrize("config", [None, "{", "[]", "study: 3", "study: [a]"])
def test_a_folder_that_nobody_can_be_told_of_is_left_alone(tmp_path: Path, config: str | None) -> None:
    folder = made(tmp_path / "run", "a", damaged=True, with_config=False)
    if config is not None:
        (folder.path / record.CONFIG_FILE).write_text(config)
    assert folder.study is None
    assert found(tmp_path / "run", "b") == "run-2"


def test_a_folder_that_no_training_has_begun_in_is_anybody_s(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert found(tmp_path / "run", "b") == "run"
