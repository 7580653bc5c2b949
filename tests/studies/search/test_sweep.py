"""The command: refusals, what it leaves, its winners, and trials as runs of their own. Few real trainings."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from biasbed import cli, record
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.runs.collect import collect
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import Failure, UsageError
from biasbed.options import SweepOptions
from biasbed.settings import build, specs
from biasbed.studies import benchmark, winners
from biasbed.studies import study as tracked
from biasbed.studies.launchers import TrainCommand
from biasbed.studies.launchers.local import LocalLauncher
from biasbed.studies.search import feed
from biasbed.studies.search.search import choose_objective
from biasbed.studies.study import find_finished_runs
from biasbed.studies.study_table import read_table
from biasbed.tracking.folder import RunFolder, exclusive
from helpers import children
from helpers.commands import ROOT, command_environment
from helpers.fake_trials import MONITOR, Bed, FakeTrials
from helpers.runs import all_runs

LR = "optim.lr: {distribution: loguniform, low: 0.01, high: 1.0}\n"


def test_the_defaults_of_mlproject_mean_that_nothing_is_said() -> None:
    entry_point = yaml.safe_load((ROOT / "MLproject").read_text())["entry_points"]["sweep"]
    flags = {name: str(parameter["default"]) for name, parameter in entry_point["parameters"].items()}
    declared = specs(SweepOptions)
    options = build(SweepOptions, {name: value for name, value in flags.items() if name in declared})
    assert options == SweepOptions()
    assert {value for name, value in flags.items() if name not in declared} == {"auto"}
    assert set(flags) <= set(cli.COMMANDS["sweep"].settings())


def test_wrong_sweeps_are_refused_before_anything_is_made(
    bed: Bed, tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused: list[tuple[dict[str, str], str]] = [
        ({"algorithms": "erm,infodrob"}, "unknown algorithm 'infodrob'; did you mean 'infodrop'?"),
        ({"algorithms": "erm,erm"}, "erm is there twice"),
        ({"algorithms": ","}, "name at least one method"),
        ({"optim.lr": "0.3"}, "optim.lr is searched over and given as optim.lr=0.3"),
        ({"sampler": "brute_force"}, "needs a finite space"),
        ({"objective": "val/acuracy/val"}, "did you mean 'val/accuracy/val'?"),
        ({"objective": "test/accuracy/ink"}, "oracle=yes does it, and marks every number"),
        ({"seeds": "3"}, "unknown setting 'seeds'; did you mean 'seed'?"),
    ]
    for changed, message in refused:
        assert bed.run(FakeTrials(), monkeypatch, tracking="on", **changed) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert message in error
    assert not all_runs(tracking)
    assert not bed.home.exists()


def test_a_sweep_from_start_to_winners(
    bed: Bed, tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = FakeTrials({"infodrop-trial1": ["fail"] * 3})
    common: dict[str, Any] = {"algorithms": "erm,infodrop", "trials": "5", "study": "mine", "workers": "2"}
    command = (launcher, monkeypatch)
    assert bed.run(*command, **common, dry_run="yes") == 0
    assert "mine: 10 trials: 0 complete" in capsys.readouterr().out
    assert not bed.home.exists()

    # The trainings are pretence and send nothing; the study itself is on the server.
    assert bed.run(*command, **common, tracking="on") == 0
    printed = capsys.readouterr()
    assert "erm: 5 trials: 5 complete; val/accuracy/val" in printed.out
    assert "infodrop: 5 trials: 4 complete, 1 failed" in printed.out
    assert "failed: 1 (the loss is not finite)" in printed.out
    assert "default" in printed.out
    assert "erm trial 0 complete" in printed.err
    (parent,) = all_runs(tracking, kind="study", study="mine")
    assert parent.info.status == "FINISHED"
    environments = [command.environment for command in launcher.commands]
    assert {environment["BIASBED_PARENT_RUN"] for environment in environments} == {parent.info.run_id}
    assert '"biasbed.kind": "trial"' in environments[0][record.GIVEN_TAGS]
    folder = bed.home / "studies" / "mine"
    rows = list(csv.DictReader((folder / "trials.csv").open()))
    assert len(rows) == 10
    best = max((row for row in rows if row["algorithm"] == "erm"), key=lambda row: float(row["value"] or 0))

    # Winners: a table with fresh seeds, found through the server.
    table = winners.fetch_table("mine", "auto")
    assert (table.study, table.seeds) == ("mine_winners", (1, 2, 3))
    assert table.rows["erm"] == {"algorithm": "erm", "optim.lr": best["optim.lr"]}
    assert table.settings["epochs"] == "4"
    assert read_table(str(folder / "winners.yaml")) == table
    from mlflow import MlflowClient

    files = MlflowClient(tracking).list_artifacts(parent.info.run_id)
    assert {file.path for file in files} == {"ledger.csv", "sweep.yaml", "trials.csv", "winners.yaml"}

    # Again: what failed is tried once more, then nothing is.
    again = FakeTrials()
    assert bed.run(again, monkeypatch, **common, tracking="on") == 0
    assert again.started == ["infodrop-trial1"]
    capsys.readouterr()
    assert bed.run(again, monkeypatch, **common, tracking="on") == 0
    assert "mine: 10 trials; nothing is left to train" in capsys.readouterr().err
    assert again.started == ["infodrop-trial1"]
    assert len(all_runs(tracking, kind="study")) == 1


def test_a_second_command_is_refused_in_a_line(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = FakeTrials()
    with exclusive(bed.home / "studies" / "mine", "searched"):
        assert bed.run(launcher, monkeypatch, study="mine") == 1
    assert f"is being searched by process {os.getpid()} on" in capsys.readouterr().err
    assert launcher.started == []


def test_another_sweep_of_the_same_name_is_refused(
    bed: Bed, tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common: dict[str, Any] = {"algorithms": "erm,infodrop", "trials": "1", "study": "mine", "tracking": "on"}
    command = (FakeTrials(), monkeypatch)
    assert bed.run(*command, **common) == 0
    for changed, message in (
        ({"algorithms": "erm"}, "has searches of infodrop, too"),
        ({"epochs": "5"}, "the sweep was made with epochs=4, not 5: name another with study="),
        ({"objective": "val/loss/val"}, "the sweep was made with objective=val/accuracy/val, not val/loss/val"),
        ({"suite": "demo", "data_dir": "none", "train": "auto"}, "is one of the suite folders"),
    ):
        assert bed.run(*command, **{**common, **changed}) == 2
        assert message in capsys.readouterr().err
    bed.space.write_text(LR.replace("0.01", "0.02"))
    assert bed.run(*command, **common) == 2
    assert "the sweep was made with another space (optim.lr)" in capsys.readouterr().err
    settings = {**bed.settings(tracking="on"), "suite": "folders", "algorithms": "erm", "study": "mine"}
    words = [w for name, value in settings.items() for w in (f"--{name}", value)]
    assert cli.main(["benchmark", *words]) == 2
    assert "the study 'mine' is a sweep: name another" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trial_that_could_not_be_sent_is_named_and_sent_later(
    bed: Bed, tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is complete: what it was trained for is known. Only the server lacks it."""
    flags = {"trials": "3", "study": "mine", "tracking": "on"}
    launcher = FakeTrials({"erm-trial1": ["unsent"]})

    def refuse(folder: RunFolder, named: str) -> bool:
        raise Failure(f"{folder.path.name}: the server does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(feed, "send_unless_sent", refuse)
        assert bed.run(launcher, monkeypatch, **flags) == 1
    printed = capsys.readouterr()
    assert "erm: 3 trials: 3 complete" in printed.out
    assert "biasbed: trained, but not sent to the server: erm-trial1. The same command" in printed.err
    assert all_runs(tracking, kind="trial") == []
    (parent,) = all_runs(tracking, kind="study")
    assert parent.info.status == "FINISHED"  # its winners can be trained

    assert bed.run(launcher, monkeypatch, **flags) == 0
    assert launcher.started == ["erm-trial0", "erm-trial1", "erm-trial2"]
    (sent,) = all_runs(tracking, kind="trial")
    assert (sent.info.status, sent.data.tags[record.TRIAL_STATE]) == ("FINISHED", "complete")
    assert len(_history(tracking, sent.info.run_id)) == 4
    capsys.readouterr()
    assert bed.run(launcher, monkeypatch, **flags) == 0
    assert "-> run" not in capsys.readouterr().out


def test_winners_that_can_t_be_had(tracking: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    with pytest.raises(UsageError, match="from_study=mine: no finished sweeps have this name on sqlite"):
        winners.fetch_table("mine", "auto")
    for _ in range(2):
        tags = {record.KIND: "study", record.STUDY: "mine", record.SUITE: "demo"}
        client.set_terminated(client.create_run("0", tags=tags).info.run_id)
    with pytest.raises(UsageError, match="2 finished sweeps have this name"):
        winners.fetch_table("mine", "demo")
    study_run = client.create_run("0", tags={record.KIND: "study", record.STUDY: "other", record.SUITE: "demo"})
    with pytest.raises(UsageError, match=r"the best trials so far are in table=<its folder>/winners\.yaml"):
        winners.fetch_table("other", "auto")
    client.update_run(study_run.info.run_id, status="FINISHED")
    with pytest.raises(Failure, match="no trial is complete yet"):
        winners.fetch_table("other", "auto")
    content = winners.make_table(
        "other", "demo", {"erm": {"": {"optim.lr": "0.123"}}}, [0, 1], {}, {"objective": "m", "oracle": "false"}
    )
    (tmp_path / tracked.WINNERS).write_text(yaml.safe_dump(content))
    client.log_artifact(study_run.info.run_id, str(tmp_path / tracked.WINNERS))
    assert winners.fetch_table("other", "auto").seeds == (2, 3, 4)
    assert benchmark.build_table(benchmark.BenchmarkOptions(from_study="other", seeds="2"), {}).seeds == (2, 3)
    assert cli.main(["benchmark", "--from_study", "other", "--table", "main"]) == 2


def test_a_queue_that_takes_everything_gets_eight_workers(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeTrials()
    both: dict[str, Any] = {"algorithms": ("erm", "infodrop"), "trials": 20}
    assert bed.plan(launcher, **both, workers="auto").workers == 2
    monkeypatch.setattr(FakeTrials, "capacity", lambda *arguments: sys.maxsize)
    assert bed.plan(launcher, **both, workers="auto").workers == 40
    monkeypatch.setattr(FakeTrials, "detached", True)
    assert bed.plan(launcher, **both, workers="auto").workers == 8
    assert bed.plan(launcher, **both, workers=20).workers == 20
    assert bed.plan(launcher, trials=3, workers="auto").workers == 3


def test_an_objective_on_test_sets_is_marked_everywhere(
    bed: Bed, tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = FakeTrials()
    monkeypatch.setattr("helpers.fake_trials.MONITOR", "test/accuracy/ink")
    flags = {"trials": "2", "study": "peek", "tracking": "on", "objective": "test/accuracy/ink", "oracle": "yes"}
    assert bed.run(launcher, monkeypatch, **flags) == 0
    assert "ORACLE: on test images" in capsys.readouterr().out
    (parent,) = all_runs(tracking, kind="study")
    assert parent.data.tags[record.ORACLE] == "test/accuracy/ink"
    assert f'"{record.ORACLE}": "test/accuracy/ink"' in launcher.commands[0].environment[record.GIVEN_TAGS]
    table = winners.fetch_table("peek", "auto")
    assert benchmark._origin_tags(table) == {record.SWEEP: "peek", record.ORACLE: "test/accuracy/ink"}
    options = benchmark.BenchmarkOptions(from_study="peek", algorithms=("erm", "infodrop"))
    changed = benchmark.build_table(options, {"optim.lr": "0.5"})
    assert changed.settings["optim.lr"] == "0.5"  # the user's own word
    assert changed.rows == {name: {"algorithm": name} for name in ("erm", "infodrop")}


def test_the_direction_of_an_objective() -> None:
    directions = {"val/accuracy/val": True, "val/loss/val": False, "test/loss/ink": False}
    assert choose_objective("auto", directions, "val/accuracy/val", False) == ("val/accuracy/val", True)
    assert choose_objective("val/loss/val", directions, "val/accuracy/val", False) == ("val/loss/val", False)
    assert choose_objective("test/loss/ink", directions, "val/accuracy/val", True) == ("test/loss/ink", False)


# --- real trainings ---------------------------------------------------------------------------------------------------


class Forked(LocalLauncher):
    """Starts trainings from a server that has imported all they need."""

    def start(self, command: TrainCommand) -> Any:
        environment = {**command_environment(), **command.environment}
        arguments = (command.arguments, environment, str(Path.cwd()), str(command.log), None)
        process = children._CONTEXT.Process(target=children._child, args=arguments)
        process.start()
        return SimpleNamespace(poll=lambda: process.exitcode, stop=process.terminate, kill=process.kill)


class SecondIsPruned:
    """A pruner that ends every trial but the first after its first epoch."""

    def prune(self, study: object, trial: Any) -> bool:
        return bool(trial.number)


def test_trials_are_runs_of_their_own_with_their_true_status(
    bed: Bed, tracking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(feed, "make_pruner", lambda *arguments: SecondIsPruned())
    flags = {"trials": "2", "study": "mine", "tracking": "on", "loader_workers": "0", "log_model": "false"}
    launcher: Any = Forked(SweepOptions())
    assert bed.run(launcher, monkeypatch, **flags, epochs="4", device="cpu") == 0
    (parent,) = all_runs(tracking, kind="study")
    runs = {run.data.tags[record.TRIAL]: run for run in all_runs(tracking, kind="trial", study="mine")}
    assert {number: run.info.status for number, run in runs.items()} == {"0": "FINISHED", "1": "KILLED"}
    assert {number: run.data.tags[record.TRIAL_STATE] for number, run in runs.items()} == {
        "0": "complete",
        "1": "pruned",
    }
    assert [run.info.run_name for run in runs.values()] == [f"erm-trial{number}" for number in runs]
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}
    assert runs["1"].data.tags["mlflow.note.content"].startswith("pruned at epoch ")
    assert "1 complete, 1 pruned" in capsys.readouterr().out
    rows = list(csv.DictReader((bed.home / "studies" / "mine" / "trials.csv").open()))
    assert [row["run_id"] for row in rows] == [runs["0"].info.run_id, runs["1"].info.run_id]
    best = max(value.value for value in _history(tracking, runs["0"].info.run_id))
    assert float(rows[0]["value"]) == best
    # Trials count nowhere as trainings.
    assert find_finished_runs(tracking, "mine") == {}
    assert collect(RunStore(tracking), AnalyzeOptions())[0].is_search


def _history(uri: str, run_id: str) -> list[Any]:
    from mlflow import MlflowClient

    return MlflowClient(uri).get_metric_history(run_id, MONITOR)
