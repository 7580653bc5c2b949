"""Results in the schema of Every Eval Ever: every value is there, and nothing of this machine."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from biasbed import cli
from biasbed.plugins.sharing import every_eval_ever
from biasbed.plugins.sharing.run_results import RunResults
from helpers.exported_results import expected, run_of, runs
from helpers.toy_runs import THREE, Recorder, fill


@settings(max_examples=25)
@given(runs)
def test_every_value_is_in_the_file(run: RunResults) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = json.loads(every_eval_ever.write_run(Path(folder), run, "org/model", "org", True).read_text())
        values = {entry["evaluation_result_id"]: entry["score_details"]["score"] for entry in log["evaluation_results"]}
        assert values == expected(run)
        names = [entry["evaluation_name"] for entry in log["evaluation_results"]]
        assert names == [result.metric.measured_on for result in run.results]


def test_a_measure_without_a_direction_is_marked(tmp_path: Path) -> None:
    run = run_of({("auroc_msp", "edge", ""): 0.75, ("texture_accuracy", "edge", ""): 0.5, ("loss", "edge", ""): 1.0})
    path = every_eval_ever.write_run(tmp_path, run, "org/model", "org", False)
    directions = {}
    for result in json.loads(path.read_text())["evaluation_results"]:
        config = result["metric_config"]
        directions[config["metric_name"]] = config["lower_is_better"], config.get("additional_details")
    none = False, {"direction": "none: neither higher nor lower is better"}
    assert directions == {"auroc_msp": none, "texture_accuracy": none, "loss": (True, None)}


def test_a_run_on_a_part_of_the_images_says_so(tmp_path: Path) -> None:
    run = run_of({("accuracy", "edge", ""): 0.5})
    note = "on at most 60 images of each set: a smoke test, do not publish these numbers"
    for limit in (None, 60):
        limited = replace(run, protocol=replace(run.protocol, limit=limit))
        path = every_eval_ever.write_run(tmp_path / str(limit), limited, "org/model", "org", False)
        log = json.loads(path.read_text())
        assert (log["source_metadata"]["additional_details"].get("note") == note) == (limit == 60)
        (result,) = log["evaluation_results"]
        assert result["metric_config"]["evaluation_description"].endswith(note) == (limit == 60)


def test_a_brier_score_has_its_bounds_and_its_unit_once(tmp_path: Path) -> None:
    path = every_eval_ever.write_run(tmp_path, run_of({("brier", "edge", ""): 0.189}), "org/model", "org", False)
    config = json.loads(path.read_text())["evaluation_results"][0]["metric_config"]
    assert (config["min_score"], config["max_score"], config["metric_unit"]) == (0, 2, "")


def test_an_export_leaves_an_existing_folder_as_it_is(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the other formats do; an empty folder may be filled."""
    run = recorder.train("erm")
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "run.json").write_text("mine")
    words = ["export", "--format", "every_eval_ever", "--file", str(folder), "--run", run]
    assert cli.main(words) == 2
    assert f"file={folder} is there already: give another name, or remove it" in capsys.readouterr().err
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["run.json"]
    assert (folder / "run.json").read_text() == "mine"
    empty = tmp_path / "empty"
    empty.mkdir()
    words[4] = str(empty)
    assert cli.main(words) == 0
    assert len(list(empty.glob("data/*/*/*/*.json"))) == 1
    assert sorted(path.name for path in tmp_path.glob("*.tmp")) == []


def test_no_path_of_this_machine_is_exported(recorder: Recorder, tmp_path: Path) -> None:
    settings = {"data_dir": "/secret/place", "init": "/secret/place/w.pth", "optim.lr": "0.1"}
    run = recorder.train("erm", settings=settings)
    folder = tmp_path / "out"
    words = ["--format", "every_eval_ever", "--file", str(folder), "--run", run]
    assert cli.main(["export", *words]) == 0
    (path,) = folder.glob("data/*/*/*/*.json")
    text = path.read_text()
    assert "/secret" not in text
    assert str(tmp_path) not in text
    details = json.loads(text)["source_metadata"]["additional_details"]
    assert json.loads(details["settings"]) == {"init": "w.pth", "optim.lr": "0.1"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "every_eval_ever"], "is a folder"),
        (["--file", "x.zip", "--model_id", "a/b"], "'model_id'; it is one of format=every_eval_ever|huggingface"),
        (
            ["--format", "huggingface", "--file", "x", "--samples", "no"],
            "it is one of format=every_eval_ever",
        ),
    ],
)
def test_wrong_exports_are_refused(
    words: list[str],
    message: str,
    recorder: Recorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", "--run", recorder.train("erm"), *words]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_the_project_s_own_validator_passes_them(recorder: Recorder, tmp_path: Path, validators: str) -> None:
    fill(recorder, THREE, study="mine")
    words = ["--format", "every_eval_ever", "--file", str(tmp_path / "out"), "--study", "mine"]
    assert cli.main(["export", *words]) == 0
    files = sorted((tmp_path / "out").glob("data/*/*/*/*"))
    assert len(files) == 6
    command = [validators, "-m", "every_eval_ever", "validate", *(str(p.relative_to(tmp_path / "out")) for p in files)]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed, 0 warning-only, 0 failed" in done.stdout
