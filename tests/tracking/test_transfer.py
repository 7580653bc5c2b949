"""Runs as a file: the same on another server, once, and nothing is left by a signal."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow import MlflowClient

from biasbed import cli, record
from biasbed.errors import UsageError
from biasbed.options import ZipOptions
from biasbed.tracking import server, transfer
from biasbed.tracking.archive import Archive
from biasbed.tracking.transfer import write_archive
from helpers.archives import rich_run, zipped
from helpers.runs import all_runs
from helpers.sizes import draw_few, without_sizes
from helpers.toy_runs import THREE, Recorder, fill


def told(uri: str, run_id: str) -> dict[str, Any]:
    """All that a server knows of a run, ids and tags of an import aside."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    run = client.get_run(run_id)
    inputs = run.inputs.dataset_inputs if run.inputs else []
    of_import = {record.ORIGIN_RUN, record.ORIGIN_SERVER, record.IMPORT, "mlflow.parentRunId"}
    tags = {name: value for name, value in run.data.tags.items() if name not in of_import}
    return {
        "info": (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time),
        "experiment": client.get_experiment(run.info.experiment_id).name,
        "params": run.data.params,
        "tags": tags,
        "metrics": {
            name: [(m.step, m.timestamp, repr(m.value)) for m in client.get_metric_history(run_id, name)]
            for name in run.data.metrics
        },
        "inputs": [(i.dataset.to_dictionary(), [(t.key, t.value) for t in i.tags]) for i in inputs],
        "artifacts": sorted(entry.path for entry in client.list_artifacts(run_id)),
        "protocol": Path(client.download_artifacts(run_id, record.PROTOCOL_FILE)).read_text(),
    }


def test_a_run_is_the_same_on_the_other_server(
    recorder: Recorder, move: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = rich_run(recorder)
    file = zipped(recorder, run_id)
    there = move("other")
    assert cli.main(["import", "--source", str(file)]) == 0
    (run,) = all_runs(there, kind="train")
    first, second = told(recorder.uri, run_id), told(there, run.info.run_id)
    assert "checkpoints" in first["artifacts"]
    first["artifacts"].remove("checkpoints")
    assert first == second
    assert run.data.tags[record.ORIGIN_RUN] == run_id != run.info.run_id
    assert run.data.tags[record.ORIGIN_SERVER] == recorder.uri

    assert cli.main(["import", "--source", str(file)]) == 0
    assert "0 runs imported" in capsys.readouterr().out
    assert [found.info.run_id for found in all_runs(there, kind="train")] == [run.info.run_id]


def test_a_study_is_analysed_alike_where_it_was_imported(
    recorder: Recorder, move: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few(monkeypatch)
    monkeypatch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
    study = recorder.client.create_run(recorder.experiment, tags={record.KIND: "study", record.STUDY: "mine"})
    recorder.client.set_terminated(study.info.run_id)
    fill(recorder, THREE, study="mine", **{"mlflow.parentRunId": study.info.run_id})
    recorder.train("erm", 9, study="mine", status="RUNNING")
    recorder.train("erm", 8)
    file = zipped(recorder, study="mine")
    there = move("other")
    assert transfer.import_archive(str(file)) == 7
    (parent,) = all_runs(there, kind="study")
    children = all_runs(there, kind="train")
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}

    scores = [scores_of(uri) for uri in (recorder.uri, there)]
    pd.testing.assert_frame_equal(*scores)
    assert len(scores[0]) == 3 * 6


def scores_of(uri: str) -> pd.DataFrame:
    from biasbed.analysis import load

    return load(uri, study="mine").scores.drop(columns="run_id", errors="ignore")


def test_the_original_and_a_file_of_an_import_are_known(recorder: Recorder, move: Callable[[str], str]) -> None:
    run_id = recorder.train("erm")
    file = zipped(recorder, run_id)
    assert transfer.import_archive(str(file)) == 0
    there = move("other")
    transfer.import_archive(str(file))
    (run,) = all_runs(there)
    again = zipped(recorder, run.info.run_id)
    with Archive(file) as original, Archive(again) as opened:
        assert opened.runs == original.runs  # without what the import has added
        assert (opened.runs[0].run_id, opened.runs[0].server) == (run_id, recorder.uri)
    assert transfer.import_archive(str(again)) == 0
    move("third")
    assert transfer.import_archive(str(again)) == 1


def test_an_import_that_was_cut_short_is_made_anew(
    recorder: Recorder, move: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = zipped(recorder, recorder.train("erm"), recorder.train("erm", 1))
    there = move("other")
    with monkeypatch.context() as patch:
        patch.setattr(Archive, "unpack", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli.main(["import", "--source", str(file)]) == 130
    assert all_runs(there) == [], "the interrupted run is deleted at once"
    assert transfer.import_archive(str(file)) == 2
    assert sorted(run.data.tags[record.SEED] for run in all_runs(there, kind="train")) == ["0", "1"]


# --- wrong commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "--file", "x.zip", "--run", "a" * 32, "--study", "s"], "one of both"),
        (["import", "--source", "x.zip"], "No such file or directory: x.zip"),
    ],
)
def test_wrong_commands_are_refused(
    words: list[str], message: str, recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorder.train("erm")
    assert cli.main([word.format(run=run) for word in words]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not list(tmp_path.glob("*.zip*"))


def test_runs_that_go_on_are_not_exported_and_files_not_overwritten(recorder: Recorder, tmp_path: Path) -> None:
    running, done = recorder.train("erm", status="RUNNING"), recorder.train("erm", 1)
    with pytest.raises(UsageError, match="still running"):
        zipped(recorder, running)
    assert not list(tmp_path.glob("*.zip*"))
    file = zipped(recorder, done)
    with pytest.raises(UsageError, match="is there already"):
        write_archive(ZipOptions(file=str(file), run=(done,)))


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
