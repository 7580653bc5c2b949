"""Studies that stop when decided: what is trained, decided, stored and refused; with trainings that only pretend."""

from __future__ import annotations

import csv
import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.options import BenchmarkOptions
from biasbed.settings import build
from biasbed.studies import benchmark, plan, stopping
from biasbed.studies import runner as running
from biasbed.studies.launchers import TrainCommand
from biasbed.studies.study import refuse_changed_plan
from biasbed.studies.study_table import StudyTable
from biasbed.system.processes import Interrupted
from biasbed.tracking.folder import RunFolder
from helpers.fake_runs import Fake, FakeLauncher, begin
from helpers.small_study import settings

ROWS = {"erm": 0.2, "slow": 0.5, "fast": 0.8}  # scores that are far apart
OPTIONS = BenchmarkOptions(stop="decided", stop_alpha=0.1)


@dataclass
class Scored(FakeLauncher):
    """Trainings that end with the scores of their row; a signal comes before some start."""

    levels: dict[str, float] = field(default_factory=lambda: dict(ROWS))
    signal_at: int = -1  # number of the start
    study: str = "mine"

    def start(self, command: TrainCommand) -> Fake:
        if len(self.started) == self.signal_at:
            raise Interrupted(15)
        self.started.append(command.name)
        row, seed = command.name.split("-seed")
        folder = RunFolder(command.log.parent)
        score = self.levels[row] + 0.001 * (7 * int(seed) % 5)

        def act() -> None:
            metrics = dict.fromkeys(METRICS, score)
            worse = dict.fromkeys(METRICS, 0.99) | {METRICS[0]: 0.1}  # a better test, but not by the monitor
            begin(folder, self.study)
            folder.write_journal(
                [
                    {"step": 1, "timestamp": 1, "metrics": {**metrics, METRICS[0]: 0.9}},
                    {"step": 2, "timestamp": 2, "metrics": worse},
                ]
            )
            folder.mark_done()

        return Fake(command, 0, act)


METRICS: list[str] = []  # the monitor, then the tests


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "time", SimpleNamespace(sleep=lambda seconds: None, monotonic=time.monotonic))


@pytest.fixture
def study(image_root: Path, tmp_path: Path) -> plan.StudyPlan:
    rows = {"erm": {"algorithm": "erm"}}
    rows |= {name: {"algorithm": "erm", "optim.lr": lr} for name, lr in (("slow", "0.001"), ("fast", "0.01"))}
    where = {"tracking": "offline", "nproc": "1", "output_dir": str(tmp_path / "home")}
    table = StudyTable("folders", "mine", rows, tuple(range(10)), settings(image_root, workers="0", **where))
    made = plan.make_plan(table, FakeLauncher(tmp_path), "2")
    protocol = made.runs[0].protocol
    assert protocol is not None
    METRICS[:] = [protocol.monitor, *stopping.choose_score(protocol, (), "auto").metrics]
    return made


def carry_out(study: plan.StudyPlan, launcher: FakeLauncher, options: BenchmarkOptions = OPTIONS) -> None:
    benchmark.train_plan(study, launcher, options, stop=stopping.plan_stop(study, options))


def test_only_what_may_change_a_verdict_is_trained(
    study: plan.StudyPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are 0.3 apart and vary by 0.004, so each pair is as far apart as can be.

    All six arrangements of three groups of two: 2 / 216 is below 0.1 / 3 x 3 / 5 and 2 / 36 is above 0.1 / 3 x 2 / 5.
    """
    launcher = Scored(tmp_path)
    carry_out(study, launcher)
    assert Counter(launcher.started) == Counter(f"{row}-seed{seed}" for row in ROWS for seed in range(6))
    content = json.loads((study.folder / "decisions.json").read_text())
    assert [look["seeds"] for look in content["looks"]] == [[0, 1], [2, 3], [4, 5]]
    assert [[c["decided"] for c in look["comparisons"]] for look in content["looks"]] == [[False] * 3] * 2 + [
        [True] * 3
    ]
    last = {(c["a"], c["b"]): c["difference"] for c in content["looks"][-1]["comparisons"]}
    assert last["erm", "fast"] == pytest.approx(-0.6)
    assert content["looks"][0]["scores"]["slow"] == pytest.approx([0.5, 0.502])  # of the best epoch by the monitor
    with (study.folder / "ledger.csv").open() as file:
        states = Counter(row["state"] for row in csv.DictReader(file))
    assert states == {"done": 18, "not needed": 12}
    printed = capsys.readouterr()
    assert "saved by stop=decided: 12 of 30 trainings" in printed.out
    assert "look 2 of 5: nothing is decided" in printed.err
    assert "fast is better than erm by 60.00 points" in printed.err
    assert printed.err.rstrip().endswith("every comparison is decided; 12 trainings not needed")


def test_rows_that_are_decided_get_no_more_seeds(study: plan.StudyPlan, tmp_path: Path) -> None:
    """`erm` and `slow` are alike, and `fast` differs from both and is decided first; then the seeds are used up."""
    launcher = Scored(tmp_path, levels={**ROWS, "slow": 0.2})
    carry_out(study, launcher)
    assert Counter(name.split("-")[0] for name in launcher.started) == {"erm": 10, "slow": 10, "fast": 6}
    content = json.loads((study.folder / "decisions.json").read_text())
    assert len(content["looks"]) == 5
    assert [(c["a"], c["b"]) for c in content["looks"][-1]["comparisons"]] == [("erm", "slow")]


def test_a_killed_study_decides_as_an_undisturbed_one(study: plan.StudyPlan, tmp_path: Path, image_root: Path) -> None:
    levels = {**ROWS, "slow": 0.2}
    for number in (3, 16):
        with pytest.raises(Interrupted):
            carry_out(study, Scored(tmp_path, levels=levels, signal_at=number))
    launcher = Scored(tmp_path, levels=levels)
    carry_out(study, launcher)
    assert len(launcher.started) < 26 - 3
    table = replace(study.table, settings={**study.table.settings, "output_dir": str(tmp_path / "other")})
    undisturbed = plan.make_plan(table, FakeLauncher(tmp_path), "2")
    carry_out(undisturbed, Scored(tmp_path, levels=levels))
    assert (undisturbed.folder / "decisions.json").read_bytes() == (study.folder / "decisions.json").read_bytes()
    again = Scored(tmp_path, levels=levels)
    carry_out(study, again)
    assert again.started == []
    assert (undisturbed.folder / "decisions.json").read_bytes() == (study.folder / "decisions.json").read_bytes()


def test_a_failed_run_leaves_its_look_open(study: plan.StudyPlan, tmp_path: Path) -> None:
    class Failing(Scored):
        def start(self, command: TrainCommand) -> Fake:
            training = super().start(command)
            return replace(training, code=2, act=lambda: None) if command.name == "erm-seed3" else training

    launcher = Failing(tmp_path)
    with pytest.raises(Failure, match=r"1 of 12 runs failed: erm-seed3"):
        carry_out(study, launcher)
    content = json.loads((study.folder / "decisions.json").read_text())
    assert len(content["looks"]) == 1
    after = Scored(tmp_path)
    carry_out(study, after)
    assert after.started[0] == "erm-seed3"
    assert len(after.started) == 7


def test_a_look_is_not_made_twice_with_other_scores(study: plan.StudyPlan, tmp_path: Path) -> None:
    carry_out(study, Scored(tmp_path))
    folder = study.runs[0].folder()
    records = folder.read_journal()
    records[0]["metrics"][METRICS[1]] += 0.25
    folder.write_journal(records)
    with pytest.raises(Failure, match="look 1 of the study 'mine' was made before, with other scores"):
        carry_out(study, Scored(tmp_path))


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop_group": 5}, r"was planned otherwise \(seeds=10, stop_group=2, stop_alpha=0.1, stop_control=none\)"),
        ({"stop_control": "erm"}, "a plan must not change once scores have been seen"),
        ({"stop": "none", "stop_alpha": 0.05}, "stops when decided: give stop=decided as before, or name another"),
    ],
)
def test_a_plan_does_not_change(changes: dict[str, Any], message: str, study: plan.StudyPlan, tmp_path: Path) -> None:
    carry_out(study, Scored(tmp_path))
    options = replace(OPTIONS, **changes)
    stop = stopping.plan_stop(study, options) if options.stop == "decided" else None
    launcher = Scored(tmp_path)
    with pytest.raises(UsageError, match=message):
        benchmark.train_plan(study, launcher, options, stop=stop)
    with pytest.raises(UsageError, match=message):
        benchmark.dry_run(study, stop)
    assert launcher.started == []


def test_a_study_of_fixed_seeds_is_not_continued_with_looks(study: plan.StudyPlan, tmp_path: Path) -> None:
    few = replace(study, runs=study.runs[:3])
    benchmark.train_plan(few, Scored(tmp_path), BenchmarkOptions())
    with pytest.raises(UsageError, match="'mine' has runs of fixed seeds"):
        carry_out(study, Scored(tmp_path))
    with pytest.raises(UsageError, match="in a way that can't be read"):
        refuse_changed_plan("mine", "{}", "no plan")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop_control": "erb"}, "stop_control=erb: no row that is trained has this name; did you mean 'erm'?"),
        ({"stop_group": 3}, "stop_group=3: 10 seeds are no whole groups of 3: give 9 or 12 seeds"),
        ({"stop_group": 1, "stop_alpha": 0.001}, "10 runs of each row can't decide anything"),
        ({"stop_score": ("inc",)}, "the study tests no set 'inc'"),
        ({"stop_score": ("accurcy/ink",)}, "accurcy/ink"),
        ({"stop_score": ("ink", "loss/ink")}, "loss/ink (loss) have no common mean: name one measure"),
    ],
)
def test_what_can_not_be_planned_is_refused(changes: dict[str, Any], message: str, study: plan.StudyPlan) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        stopping.plan_stop(study, replace(OPTIONS, **changes))


def test_settings_without_their_switch_are_refused() -> None:
    with pytest.raises(UsageError, match="stop_group=5: has no effect without stop=decided"):
        build(BenchmarkOptions, {"stop_group": "5"})
    assert build(BenchmarkOptions, {"stop": "decided", "stop_group": "5"}).stop_group == 5


# --- the score --------------------------------------------------------------------------------------------------------


def test_a_score_is_the_mean_over_blocks_at_the_first_best_epoch(study: plan.StudyPlan) -> None:
    run = study.runs[0]
    score = stopping.Score((("test/a/x", "test/a/y"), ("test/a/z",)), "fraction", True)
    monitor = run.monitor

    def at(step: int, monitored: float, x: float, **more: str) -> dict[str, Any]:
        tests = {"test/a/x": x, "test/a/y": 0.4, "test/a/z": 0.6}
        return {"step": step, "metrics": {monitor: monitored, **tests}, **more}

    records = [at(1, 0.9, 0.0, stage="before"), at(1, 0.5, 0.1), at(2, 0.8, 0.2), at(3, 0.8, 0.9)]
    assert score.read(run, records) == pytest.approx(((0.2 + 0.4) / 2 + 0.6) / 2)
    late = [{**entry, "metrics": {k: v for k, v in entry["metrics"].items() if k != "test/a/z"}} for entry in records]
    late.append({"step": 2, "metrics": {"test/a/z": 0.5}, "late": True})  # tested at the end, with the best weights
    assert score.read(run, late) == pytest.approx((0.3 + 0.5) / 2)
    with pytest.raises(Failure, match=r"erm-seed0 has no finite test/a/z at its best evaluation \(epoch 2\)"):
        score.read(run, late[:-1])
    with pytest.raises(Failure, match="by which its best evaluation is chosen"):
        score.read(run, [])


def test_the_plan_is_a_tag_of_the_trainings(study: plan.StudyPlan, tmp_path: Path) -> None:
    commands: list[TrainCommand] = []

    class Watching(Scored):
        def start(self, command: TrainCommand) -> Fake:
            commands.append(command)
            return super().start(command)

    carry_out(study, Watching(tmp_path))
    stop = stopping.plan_stop(study, OPTIONS)
    for command in commands:
        assert json.loads(command.environment[record.GIVEN_TAGS]) == {record.STOP: stop.tag}
    tag = json.loads(stop.tag)
    assert (tag["group"], tag["looks"], tag["runs"], tag["alpha"]) == (2, 5, 10, 0.1)
    assert tag["plan"] != json.loads(stopping.plan_stop(study, replace(OPTIONS, stop_score=("ink",))).tag)["plan"]
