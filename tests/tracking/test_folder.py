"""Which folder a training gets, whatever has become of the notes in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from biasbed import cli, record
from biasbed.compute import checkpoint
from biasbed.errors import Failure
from biasbed.evaluation import tracked_job
from biasbed.tracking import folder as run_folder
from biasbed.tracking import transfer
from biasbed.tracking.folder import RunFolder
from helpers.runs import all_runs

Capture = pytest.CaptureFixture[str]


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
    return run_folder.folder_for(base, "auto", True, study).path.name


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


REPETITIONS = {
    "the same once more": ("a", "auto", "run-2", True),
    "asked for": ("a", "never", "run-2", False),
    "another study's": ("b", "auto", "run-2", False),
    "in the folder of one that was interrupted": ("a", "auto", "run", False),
}


@pytest.mark.parametrize("case", REPETITIONS)
def test_a_repetition_says_what_is_repeated(case: str, tmp_path: Path, capsys: Capture) -> None:
    study, resume, name, is_said = REPETITIONS[case]
    folder = made(tmp_path / "run", "a")
    folder.write_state({**folder.read_state(), "run_id": "0123abcd"})
    job: Any = SimpleNamespace(
        base=tmp_path / "run", config=SimpleNamespace(study=study, resume=resume), WORK="trained"
    )
    tracked_job.print_repetition(job, RunFolder(tmp_path / name))
    line = (
        f"a finished run has the same settings: run 0123abcd, {folder.path}; this one is trained anew into run-2; "
        "resume=once leaves it out\n"
    )
    assert capsys.readouterr().err == (line if is_said else "")


ODD = (
    '{"tags": {"a": 3}}',
    '{"params": {"a": null}}',
    '{"location": 5}',
    '{"inputs": [["a"]]}',
    '{"tracking_uri": 3}',
)


@pytest.mark.parametrize("content", [*ODD, '{"attempts": "x"}', '{"run_id": []}', '{"a":' * 50_000])
def test_notes_that_are_json_but_odd_are_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    assert RunFolder(tmp_path).read_state() == {}
    assert RunFolder(tmp_path).is_damaged


def test_sync_names_every_folder_that_it_can_t_read(tracking: str, tmp_path: Path, capsys: Capture) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "home" / "folders" / name).mkdir(parents=True)
    (tmp_path / "home" / "folders" / "a" / "run.json").mkdir()
    (tmp_path / "home" / "folders" / "b" / "run.json").write_text('{"tags": {}, "sent": false}')
    (tmp_path / "home" / "folders" / "c" / "run.json").write_text('{"tags": 3}')
    assert cli.main(["sync"]) == 1
    told = capsys.readouterr().err
    assert "folders/a: Is a directory" in told
    assert all(f"folders/{name}: its run.json is damaged" in told for name in "bc")
    assert "runs that could not be sent: 3" in told


def test_two_damaged_checkpoints_are_no_reason_to_start_anew(tmp_path: Path) -> None:
    assert checkpoint.load_newest(tmp_path) == (None, [])
    for name in ("last.ckpt", "previous.ckpt"):
        (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(Failure, match=r"no checkpoint can be read .*last.ckpt.*previous.ckpt.*resume=never"):
        checkpoint.load_newest(tmp_path)


def test_every_import_that_was_cut_short_is_deleted(tracking: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    whole, cut = (client.create_run("0", n, tags={record.ORIGIN_RUN: "a" * 32}).info.run_id for n in (1, 2))
    client.set_terminated(whole)
    assert transfer._find_origin(tracking, "a" * 32) == whole
    assert [run.info.run_id for run in all_runs(tracking)] == [whole] != [cut]


@pytest.mark.parametrize(("end", "is_cut_off"), [("os.kill(os.getpid(), 9)", True), ("leave(0)", False)])
def test_a_process_that_is_killed_after_its_last_line_was_cut_off(end: str, is_cut_off: bool, tmp_path: Path) -> None:
    """Who repeats a killed command wants no second training of a finished one."""
    script = f"""
import os, sys
import subprocess
import sys
from pathlib import Path
from biasbed.system.processes import leave
from biasbed.tracking.folder import RunFolder

folder = RunFolder(Path(sys.argv[1]))
with folder.commanded():
    pass
assert not folder.was_cut_off
print("the last line", flush=True)
{end}
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "the last line\n", done.stderr
    folder = RunFolder(tmp_path)
    assert folder.was_cut_off == is_cut_off
    folder.end_command()  # the repeated command has reported
    assert not folder.was_cut_off


@pytest.mark.parametrize("value", ['"x"', "[]", "null", "true", "1" + "0" * 400])
def test_a_line_with_a_value_that_is_no_number_is_damaged(value: str, tmp_path: Path) -> None:
    """It would be sent, refused in the middle of the others, and the server blamed."""
    folder = RunFolder(tmp_path)
    good = '{"step": 1, "timestamp": 1, "metrics": {"a": 0.5, "b": NaN}, "late": true}'
    (tmp_path / "metrics.jsonl").write_text(f'{good}\n{{"step": 2, "timestamp": 1, "metrics": {{"a": {value}}}}}\n')
    assert [line["step"] for line in folder.read_journal()] == [1]
    assert not folder.has_whole_journal
