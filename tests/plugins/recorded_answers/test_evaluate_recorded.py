"""Scores of recorded decisions by the command `evaluate`: runs, tables, and what is refused."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from helpers.children import Command
from helpers.decision_files import MIXED, conflicts, write_csv
from helpers.runs import all_runs


def test_the_command_scores_tracks_and_compares(biasbed: Command, tracking: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "net.csv", "net", conflicts(MIXED))
    write_csv(tmp_path / "human.csv", "subject-01", conflicts(["bear"] * 3 + ["car"] * 3 + ["dog"] * 3))
    shown = biasbed("evaluate", "--model", "net.csv,human.csv").stdout
    (run,) = all_runs(tracking, kind="evaluate")
    assert run.info.status == "FINISHED"
    # One model and one person: neither number is of both, and the run is the model's.
    assert run.data.tags["biasbed.row"] == "net"
    assert run.data.metrics["test/shape_bias/cue_conflict"] == 2 / 5
    assert run.data.metrics["test/shape_bias/cue_conflict:people"] == 1
    assert run.data.metrics["test/accuracy/cue_conflict"] == 5 / 9
    assert "shape bias 0.4000" in shown
    assert "shape bias 1.0000" in shown
    import mlflow

    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, dst_path=str(tmp_path / "got")))
    with (folder / "evaluation.csv").open() as file:
        scores = {row["observer"]: row for row in csv.DictReader(file)}
    assert {name: int(row["correct"]) for name, row in scores.items()} == {"net": 5, "subject-01": 9}
    assert scores["net"]["ece"] == ""
    with (folder / "shape_bias.csv").open() as file:
        rows = [(row["observer"], row["class"], row["shape"], row["texture"]) for row in csv.DictReader(file)]
    assert ("net", "all", "2", "3") in rows
    assert ("subject-01", "dog", "2", "0") in rows
    with (folder / "error_consistency.csv").open() as file:
        (pair,) = csv.DictReader(file)
    assert (pair["a"], pair["b"], pair["only_b"], pair["kappa"]) == ("net", "subject-01", "4", "0.0")


def test_every_model_is_a_row_whatever_else_the_files_have(biasbed: Command, tracking: str, tmp_path: Path) -> None:
    choices = {"net": MIXED, "Other Net": ["bear"] * 9, "subject-01": ["dog"] * 9}
    for number, (name, answers) in enumerate(choices.items()):
        write_csv(tmp_path / f"{number}.csv", name, conflicts(answers))
    shown = biasbed("evaluate", "--model", "0.csv,1.csv,2.csv", "--study", "both").stdout
    assert "all models" in shown
    runs = {run.data.tags["biasbed.row"]: run for run in all_runs(tracking, kind="evaluate")}
    accuracies = {row: run.data.metrics["test/accuracy/cue_conflict"] for row, run in runs.items()}
    assert accuracies == {"net": 5 / 9, "other_net": 3 / 9}
    assert {run.data.metrics["test/accuracy/cue_conflict:people"] for run in runs.values()} == {3 / 9}
    # Which others are in the files is not part of what a model has decided.
    write_csv(tmp_path / "more.csv", "third", conflicts(["car"] * 9))
    biasbed("evaluate", "--model", "0.csv,1.csv,2.csv,more.csv", "--study", "again")
    again = {run.data.tags["biasbed.row"]: run for run in all_runs(tracking, kind="evaluate", study="again")}
    assert set(again) == {*runs, "third"}
    for row, run in runs.items():
        assert run.data.tags["biasbed.run_key"] == again[row].data.tags["biasbed.run_key"]
    assert len({run.data.tags["biasbed.run_key"] for run in again.values()}) == 3


def test_recorded_decisions_need_no_torch(tmp_path: Path) -> None:
    import subprocess

    from helpers.commands import command_environment

    write_csv(tmp_path / "a.csv", "net", conflicts(MIXED))
    code = (
        "import sys; from biasbed.cli import main; "
        "assert main(['evaluate', '--model', 'a.csv', '--tracking', 'offline']) == 0; assert 'torch' not in sys.modules"
    )
    environment = command_environment({"BIASBED_HOME": str(tmp_path / "home")})
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True)
