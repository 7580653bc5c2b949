"""When sets are tested: at every so many-th evaluation, or at the end, on the best and on the last weights."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
from pyarrow import parquet

from biasbed import cli
from biasbed.studies.plan import PlannedRun
from biasbed.studies.status import read_status
from helpers import children
from helpers.commands import ROOT
from helpers.runs import all_runs, run_folders, stored, timeless

SUITE = f"{ROOT}/tests/helpers/toy_suite.py:Fogs"
FOGGED, CLEAR = "test/accuracy/fogged", "test/accuracy/clear"


def words(*more: str) -> list[str]:
    """Four epochs of three steps, of which the last two are no good."""
    return ["train", "--suite", SUITE, "--algorithm", "helpers.toys:Fading", "--device", "cpu", "--epochs", "4", *more]


def records(folder: Path) -> list[dict[str, object]]:
    """The journal without what the clock says."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{**entry, "timestamp": 0, "metrics": timeless(entry["metrics"])} for entry in lines]


def epochs_of(folder: Path, name: str) -> list[int]:
    """The epochs that have a metric."""
    return [int(entry["step"]) for entry in records(folder) if name in entry["metrics"]]  # type: ignore[operator, call-overload]


@pytest.fixture(scope="module")
def at_end(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training whose conditioned set is tested at the end; its best epoch is not the last."""
    home = tmp_path_factory.mktemp("at_end")
    flags = words("--test_every", "fogged:end", "--tracking", "offline")
    done = children.run(flags, env={"BIASBED_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return run_folders(home)[0]


def test_every_second_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    assert cli.main(words("--test_every", "fogged:2", "--tracking", "offline")) == 0
    (folder,) = run_folders(tmp_path / "home")
    assert epochs_of(folder, CLEAR) == [1, 2, 3, 4]
    assert epochs_of(folder, FOGGED) == epochs_of(folder, "test/accuracy/fog_mean") == [2, 4]
    best = torch.load(folder / "best.ckpt", weights_only=True)["best"]["number"]
    kept = folder / "predictions" / "fogged"
    assert (kept / "last.parquet").exists()
    assert (kept / "best.parquet").exists() == (best in (2, 4)), "decisions are those of the best weights, or not there"


def test_at_the_end_best_and_last_weights_are_tested_at_their_epochs(at_end: Path) -> None:
    best = int(torch.load(at_end / "best.ckpt", weights_only=True)["best"]["number"])
    assert best <= 2
    assert epochs_of(at_end, CLEAR) == [1, 2, 3, 4]
    assert epochs_of(at_end, FOGGED) == epochs_of(at_end, "test/accuracy_by_condition/fogged:haze_1") == [best, 4]
    assert epochs_of(at_end, "test/accuracy/fog_mean") == [best, 4], "what is derived of it comes with it"
    for which, number in {"best": best, "last": 4}.items():
        file = parquet.read_table(at_end / "predictions" / "fogged" / f"{which}.parquet")
        assert set(file["epoch"].to_pylist()) == {number}
        right = [a == b for a, b in zip(file["label"].to_pylist(), file["decision"].to_pylist(), strict=True)]
        (entry,) = [e for e in records(at_end) if e["step"] == number and FOGGED in e["metrics"]]  # type: ignore[operator]
        assert entry["metrics"][FOGGED] == pytest.approx(sum(right) / len(right))  # type: ignore[index]


def test_its_numbers_are_those_of_testing_every_time(
    at_end: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    assert cli.main(words("--tracking", "offline")) == 0
    (always,) = run_folders(tmp_path / "home")
    whole = {entry["step"]: entry["metrics"] for entry in records(always)}
    found: dict[object, dict[str, float]] = {}
    for entry in records(at_end):
        found.setdefault(entry["step"], {}).update(entry["metrics"])  # type: ignore[call-overload]
    for step, metrics in found.items():
        own = {name: value for name, value in whole[step].items() if name in metrics}  # type: ignore[operator, attr-defined]
        assert {name: v for name, v in metrics.items() if not name.startswith("best/")} == {
            name: v for name, v in own.items() if not name.startswith("best/")
        }


def test_late_tests_are_no_progress_of_the_training(at_end: Path) -> None:
    about = dict(
        algorithm="fading", row="fading", seed=0, overrides={}, study="adhoc", config_hash="", run_key="", base=at_end
    )
    run = PlannedRun(**about, monitor="val/accuracy/val", unit="epoch", total=4, cadence=1, processes=1, tracked=False)  # type: ignore[arg-type]
    assert read_status(run, {}).reached == 4


@pytest.mark.parametrize(("moment", "count"), [("piece", 3), pytest.param("saved", 5, marks=pytest.mark.slow)])
def test_killed_while_testing_at_the_end_and_finished_by_the_same_command(
    moment: str, count: int, at_end: Path, tracking: str, tmp_path: Path
) -> None:
    """Each condition is tested once; one that was cut goes on where it was."""
    flags = words("--test_every", "fogged:end")
    killed = children.run(flags, kill=(moment, count, "SIGKILL"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = children.run(flags)
    assert done.returncode == 0, done.stderr
    (folder,) = run_folders(tmp_path / "home")
    assert records(folder) == records(at_end)
    assert not list(folder.glob("predictions/*/*.npz"))
    (run,) = all_runs(tracking, kind="train")
    sent: dict[int, dict[str, float]] = {}
    for entry in records(at_end):
        sent.setdefault(int(entry["step"]), {}).update(entry["metrics"])  # type: ignore[call-overload]
    assert stored(tracking, run.info.run_id) == sent
