"""`benchmark` on tiny image folders: what it trains and records."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml

from biasbed import cli
from biasbed.errors import UsageError
from biasbed.settings import build, specs
from biasbed.studies import benchmark, plan
from biasbed.studies.study import StudyRun, refuse_mixture
from biasbed.studies.study_table import StudyTable, read_table
from biasbed.training import job
from biasbed.training.resolve import resolve
from helpers import children
from helpers.commands import ROOT
from helpers.fake_runs import FakeLauncher
from helpers.runs import all_runs, history, run_folders, stored
from helpers.small_study import Forked, settings, words


def table(image_root: Path, *algorithms: str, seeds: int = 2, **more: str) -> StudyTable:
    rows = {name: {"algorithm": name} for name in algorithms}
    return StudyTable("folders", "mine", rows, tuple(range(seeds)), settings(image_root, workers="0", **more))


def planned(image_root: Path, tmp_path: Path, *algorithms: str, **options: str) -> plan.StudyPlan:
    return plan.make_plan(table(image_root, *algorithms, **options), FakeLauncher(tmp_path), "auto")


# --- planning ---------------------------------------------------------------------------------------------------------


def test_a_plan_names_the_runs_that_train_would_make(image_root: Path, tracking: str, tmp_path: Path) -> None:
    """Folder and key of every run are those of the same settings given to `train`, though images are read once."""
    study_plan = planned(image_root, tmp_path, "erm", "infodrop", nproc="1")
    assert [run.name for run in study_plan.runs] == ["erm-seed0", "infodrop-seed0", "erm-seed1", "infodrop-seed1"]
    for run in study_plan.runs:
        alone = job.plan(resolve(run.overrides))
        assert (run.run_key, run.config_hash, run.base) == (alone.run_key, alone.config_hash, alone.base)
        assert run.total == 2
    assert study_plan.workers == 2
    assert not run_folders(tmp_path / "home")


def test_wrong_studies_are_refused_before_anything_is_made(
    image_root: Path, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, message in {
        "": "say what to train",
        "--algorithms erm,infodrob": "unknown algorithm 'infodrob'; did you mean 'infodrop'?",
        "--algorithms a.py:Net,b.py:Net": "a.py:Net and b.py:Net would both be filed under 'net'",
        "--algorithms erm --hparams.drop_rate 1": "erm: unknown setting 'hparams.drop_rate'",
        "--algorithms stylized_erm": "prepare",
        "--algorithms erm --seed 1": "unknown setting 'seed'; did you mean 'seeds'?",
        "--algorithms erm --output_dir /proc/nowhere": "No such file or directory: /proc/nowhere",
        "--table mian": "did you mean 'main'?",
    }.items():
        assert cli.main(words(image_root, *flags.split())) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert message in error
    assert not all_runs(tracking)
    assert not (tmp_path / "home").exists()


def test_the_defaults_of_mlproject_mean_that_nothing_is_said() -> None:
    entry_point = yaml.safe_load((ROOT / "MLproject").read_text())["entry_points"]["benchmark"]
    flags = {name: str(parameter["default"]) for name, parameter in entry_point["parameters"].items()}
    declared = specs(benchmark.BenchmarkOptions)
    options = build(benchmark.BenchmarkOptions, {name: value for name, value in flags.items() if name in declared})
    assert options == benchmark.BenchmarkOptions()
    assert {value for name, value in flags.items() if name not in declared} == {"auto"}


def test_flags_win_over_the_table(image_root: Path) -> None:
    options = benchmark.BenchmarkOptions(table="main", algorithms=("padain", "erm"), seeds="4..4", study="other")
    built = benchmark.build_table(options, {"steps": "7"})
    assert (built.study, built.seeds, list(built.rows)) == ("other", (4,), ["padain", "erm"])
    assert built.settings == {"reliance.sets": "in_domain", "steps": "7"}


# --- the study's run --------------------------------------------------------------------------------------------------


def test_there_is_one_run_of_the_study_whoever_calls(tracking: str) -> None:
    from mlflow import MlflowClient

    first = StudyRun(tracking, "mine", "folders", "auto", None)
    first.finish("KILLED")
    assert StudyRun(tracking, "mine", "folders", "auto", None).run_id == first.run_id
    client = MlflowClient(tracking)
    assert client.get_run(first.run_id).info.status == "RUNNING"
    opened = client.create_run("0").info.run_id  # what `mlflow run` opens for a later call
    assert StudyRun(tracking, "mine", "folders", "auto", opened).run_id == first.run_id
    assert client.get_run(opened).data.tags["mlflow.parentRunId"] == first.run_id
    assert len(all_runs(tracking, kind="study", study="mine")) == 2
    with pytest.raises(UsageError, match="'mine' is one of the suite folders: name another"):
        refuse_mixture(tracking, "mine", "demo", {})
    opened_for_another = client.create_run("0").info.run_id
    assert StudyRun(tracking, "another", "folders", "auto", opened_for_another).run_id == opened_for_another


# --- the whole --------------------------------------------------------------------------------------------------------


def test_a_study_from_start_to_end(
    image_root: Path, tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two workers, real trainings: nested runs with the numbers of `train`; then nothing is left to do."""
    monkeypatch.setattr(benchmark, "open_launcher", Forked)
    command = words(image_root, "--algorithms", "erm,infodrop", "--seeds", "3..3", "--workers", "2", "--study", "mine")
    assert cli.main([*command, "--dry_run", "yes"]) == 0
    assert "2 runs: 2 to do; 2 at a time" in capsys.readouterr().out
    assert not run_folders(tmp_path / "home")

    assert cli.main(command) == 0
    printed = capsys.readouterr()
    assert "in all" in printed.out
    assert "erm-seed3 done in" in printed.err
    assert "biasbed.study%60%20%3D%20%27mine%27" in printed.out  # a link
    table = printed.out.split("Analysis of suite folders, study mine")[1]
    assert "InfoDrop" in table
    assert table.splitlines()[-1].startswith("Tables, figures and report: ")
    (parent,) = all_runs(tracking, kind="study", study="mine")
    children_ = all_runs(tracking, kind="train", study="mine")
    assert parent.info.status == "FINISHED"
    assert {run.data.tags["mlflow.parentRunId"] for run in children_} == {parent.info.run_id}
    assert Counter(run.info.status for run in children_) == {"FINISHED": 2}
    with (tmp_path / "home" / "studies" / "mine" / "ledger.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["attempts"], row["reached"]) for row in rows] == [
        ("erm-seed3", "1", "2"),
        ("infodrop-seed3", "1", "2"),
    ]
    assert all(float(row["device_hours"]) > float(row["training_hours"]) > 0 for row in rows)
    from mlflow import MlflowClient

    assert {"ledger.csv", "table.yaml"} <= {f.path for f in MlflowClient(tracking).list_artifacts(parent.info.run_id)}

    flags = [w for name, value in settings(image_root).items() for w in (f"--{name}", value)]
    alone = ["train", "--suite", "folders", "--workers", "0", "--seed", "3", *flags, "--tracking", "offline"]
    environment = {"BIASBED_HOME": str(tmp_path / "alone")}
    assert children.run([*alone, "--algorithm", "erm"], env=environment).returncode == 0
    (reference,) = run_folders(tmp_path / "alone")
    (erm,) = [folder for folder in run_folders(tmp_path / "home") if folder.name.startswith("erm")]
    assert history(erm) == history(reference)

    # Again, with the resolved table as a user would: nothing is started.
    again = ["benchmark", "--table", str(tmp_path / "home" / "studies" / "mine" / "table.yaml")]
    assert cli.main(again) == 0
    assert capsys.readouterr().err.splitlines() == ["mine: 2 runs; nothing is left to train"]
    assert len(run_folders(tmp_path / "home")) == len(all_runs(tracking, kind="train")) == 2
    assert cli.main([*again, "--dry_run", "yes"]) == 0
    assert "2 runs: 2 done" in capsys.readouterr().out
    # What `main` does besides: its analysis finds them.
    monkeypatch.setattr(benchmark, "read_table", lambda name: read_table(again[2]))
    benchmark.main_study({"seeds": "3..3", "output_dir": str(tmp_path / "home")})
    assert (tmp_path / "home" / "report" / "report.html").exists()
    assert len(all_runs(tracking, kind="train")) == 2
    # Other settings under the same name are refused: analysis would refuse the mixture.
    assert cli.main([*again, "--epochs", "3"]) == 2
    assert "name another with study=" in capsys.readouterr().err
    # Finished runs count though their folders are on another machine.
    assert cli.main([*again, "--output_dir", str(tmp_path / "elsewhere"), "--dry_run", "yes"]) == 0
    assert "2 runs: 2 done" in capsys.readouterr().out


def test_the_runs_that_fail_are_named_in_the_end(
    image_root: Path, tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from biasbed.errors import Failure

    study_plan = planned(image_root, tmp_path, "erm", "infodrop", tracking="offline", nproc="1")
    launcher = FakeLauncher(tmp_path, {"erm-seed0": ["refuse"], "erm-seed1": ["refuse"]}, study="mine")
    with pytest.raises(Failure, match=r"2 of 4 runs failed: erm-seed0 \(exit code 2\); erm-seed1") as caught:
        benchmark.train_plan(study_plan, launcher, benchmark.BenchmarkOptions())
    assert "\n" not in str(caught.value)
    assert sorted(launcher.started) == ["erm-seed0", "erm-seed1", "infodrop-seed0", "infodrop-seed1"]


# --- without a server -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_study_without_a_server_is_sent_once(
    image_root: Path, tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two nodes that share nothing, each with seeds of its own, then `sync` for each, twice."""
    monkeypatch.setattr(benchmark, "open_launcher", Forked)
    homes = [tmp_path / "one", tmp_path / "two"]
    for seed, home in enumerate(homes):
        flags = ["--algorithms", "erm", "--seeds", f"{seed}..{seed}", "--study", "mine", "--output_dir", str(home)]
        assert cli.main(words(image_root, *flags, "--tracking", "offline", epochs="1")) == 0
    assert not all_runs(tracking)
    for home, machine in zip(homes * 2, ["one", "two"] * 2, strict=True):
        monkeypatch.setattr("socket.gethostname", lambda machine=machine: machine)
        assert cli.main(["sync", "--output_dir", str(home)]) == 0
    assert capsys.readouterr().out.count("nothing to send") == 2
    (parent,) = all_runs(tracking, kind="study", study="mine")
    runs = all_runs(tracking, kind="train", study="mine")
    assert sorted(run.data.tags["biasbed.seed"] for run in runs) == ["0", "1"]
    assert {run.data.tags["mlflow.parentRunId"] for run in runs} == {parent.info.run_id}
    assert {run.info.status for run in [parent, *runs]} == {"FINISHED"}
    for home, run in zip(homes, sorted(runs, key=lambda run: run.data.tags["biasbed.seed"]), strict=True):
        assert stored(tracking, run.info.run_id) == history(run_folders(home)[0])
    from mlflow import MlflowClient

    kept = {f.path for f in MlflowClient(tracking).list_artifacts(parent.info.run_id, "machines")}
    assert kept == {"machines/one", "machines/two"}
    # A copy of a folder that was sent is known by the server.
    shutil.copytree(homes[0], tmp_path / "copy")
    state = next((tmp_path / "copy").glob("*/*/run.json"))
    content = json.loads(state.read_text())
    state.write_text(json.dumps({name: value for name, value in content.items() if name not in ("run_id", "sent")}))
    assert cli.main(["sync", "--output_dir", str(tmp_path / "copy")]) == 0
    printed = capsys.readouterr()
    assert printed.out == "nothing to send: the server has it all\n"
    assert "is left alone: its results were sent as run" in printed.err
    assert len(all_runs(tracking, kind="train")) == 2
