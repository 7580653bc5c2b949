"""`benchmark protocol=day` on trainings that pretend: what it searches, ends early, refuses."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass

import pytest

from biasbed import cli
from biasbed.studies.launchers import TrainCommand
from biasbed.studies.runner import Runner
from biasbed.studies.search import sweep
from helpers.fake_trials import Bed, FakeTraining, FakeTrials, score


@dataclass
class LateTraining(FakeTraining):
    """Training that another one overtakes."""

    looks: int = 0

    def poll(self) -> int | None:
        self.looks += 1
        return super().poll() if self.stopped or self.looks > 30 else None


class LateDefaults(FakeTrials):
    """Launcher whose trainings with the defaults are late, and the worst."""

    def start(self, command: TrainCommand) -> FakeTraining:
        training = super().start(command)
        if command.overrides["optim.lr"] != "0.1":
            return training
        return LateTraining(command, training.value, training.outcome)


def benchmark(bed: Bed, launcher: FakeTrials, monkeypatch: pytest.MonkeyPatch, **changed: str) -> int:
    monkeypatch.setattr(sweep, "open_launcher", lambda options: launcher)
    monkeypatch.setattr(sweep, "Runner", functools.partial(Runner, pause=0.001))
    settings = {**bed.settings(), "suite": "folders", "workers": "1", "protocol": "day", "epochs": "9", **changed}
    return cli.main(["benchmark", *(word for name, value in settings.items() for word in (f"--{name}", value))])


def test_each_seed_is_a_search_of_the_defaults_and_five_draws(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = LateDefaults(value=lambda words: 0.1 if words["optim.lr"] == "0.1" else score(words))
    assert benchmark(bed, launcher, monkeypatch, algorithms="erm", seeds="2", workers="2") == 0
    capsys.readouterr()
    rows = list(csv.DictReader((bed.home / "studies" / "day" / "trials.csv").open()))
    assert [row["trial"] for row in rows] == [*(f"r0-{n}" for n in range(6)), *(f"r1-{n}" for n in range(6))]
    assert {row["state"] for row in rows} == {"complete", "pruned"}
    assert rows[0]["state"] == rows[6]["state"] == "complete"  # the defaults, to the end
    assert {command.overrides["seed"] for command in launcher.commands} == {"0", "1"}


def test_what_it_cannot_search_is_refused(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for changed, message in (
        ({"algorithms": "erm", "table": "main"}, "protocol=day searches methods: give algorithms="),
        ({}, "protocol=day searches methods: give algorithms="),
        ({"algorithms": "erm", "seeds": "0,1,5"}, "seeds=0,1,5: protocol=day takes their number"),
    ):
        assert benchmark(bed, FakeTrials(), monkeypatch, **changed) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert message in error
    assert not bed.home.exists()
