"""The planner: cost by measured steps of a training that pretends, and the lead that seeds show."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from biasbed import published
from biasbed.config import Config
from biasbed.errors import Failure
from biasbed.studies import planner
from biasbed.studies.launchers import Launcher, TrainCommand
from biasbed.studies.plan import PlannedRun, plan_trainings
from biasbed.studies.planner import describe_cost, describe_power
from biasbed.tracking.folder import RunFolder
from helpers.domain_tree import make_domains
from helpers.fake_runs import planned

TRAINING = {"algorithm": "erm", "backbone": "resnet10", "init": "scratch", "image_size": "16", "batch_size": "4"}
TIMES = {"time/epoch_seconds": 6.0, "time/evaluation_seconds": 5.0}
WARM_UP = {"time/epoch_seconds": 60.0, "time/evaluation_seconds": 50.0}


class Timed(Launcher):
    """Launcher whose trainings have ended at once, in the times above; None: they never end."""

    def __init__(self, times: Sequence[dict[str, float]] | None = (WARM_UP, TIMES)) -> None:
        self.times = times
        self.commands: list[TrainCommand] = []
        self.killed = False

    def resolve_device(self, config: Config) -> Config:
        return dataclasses.replace(config, device="cpu", nproc=1)

    def start(self, command: TrainCommand) -> Timed:
        self.commands.append(command)
        if self.times is not None:
            records = [{"step": step, "timestamp": step, "metrics": times} for step, times in enumerate(self.times, 1)]
            RunFolder(command.folder).write_journal(records)
        return self

    def poll(self) -> int | None:
        return None if self.times is None else 0

    def stop(self) -> None:
        """Do nothing: it is killed."""

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three domains of twenty images, of each of which four are tested in the measured training."""
    make_domains(tmp_path / "Toy", images=10, size=16)
    monkeypatch.setattr(planner, "TEST_IMAGES", 4)
    monkeypatch.setattr(planner, "WORTH_MEASURING", 0)
    return tmp_path


def make_run(data: Path, **settings: str) -> PlannedRun:
    given = {**TRAINING, "data_dir": str(data), "train": "Toy", "test_domains": "art", "output_dir": str(data / "runs")}
    _, (run,) = plan_trainings({**given, "tracking": "offline", **settings}, [0], Timed())
    return run


def test_steps_are_extrapolated_without_the_first_ones(data: Path) -> None:
    """A step takes 2 s. An evaluation takes 5 s on 4 images of each in and out part, so 12.5 s on all 60 images."""
    run = make_run(data, suite="domainbed", steps="600", evaluate_every="300")
    launcher = Timed()
    text = describe_cost([run, run], 1200, launcher, workers=2, folder=data / "study")
    assert text == "about 20:25 by 3 measured steps of erm, an estimate"  # 600 x 2 s + 2 x 12.5 s
    (command,) = launcher.commands
    assert {name: command.overrides[name] for name in ("steps", "evaluate_every", "limit", "tracking")} == {
        **{"steps": "6", "evaluate_every": "3", "limit": "4", "tracking": "offline"}
    }
    assert (command.slot, command.slots) == (0, 2)
    assert not (data / "study").exists() or not list((data / "study").iterdir())


def test_epochs_are_extrapolated_to_all_images(data: Path) -> None:
    """Three steps of four images take 6 s in two domains with a fifth held out, which have 32 images: 16 s an epoch."""
    run = make_run(data, suite="domains", epochs="10")
    whole, _ = plan_trainings(run.overrides, [0], Timed())
    launcher = Timed()
    text = describe_cost([run], 10, launcher, workers=1, folder=data / "study")
    num_images = len(whole.suite.source(whole.suite.train_name))
    tested = sum(tested.images for tested in whole.protocol.sets)
    part, _ = plan_trainings({**launcher.commands[0].overrides, "output_dir": str(data / "part")}, [0], Timed())
    assert sum(tested.images for tested in part.protocol.sets) < tested
    seconds = 10 * (6.0 * num_images / 12 + 5.0 * tested / sum(tested.images for tested in part.protocol.sets))
    assert text == f"about {int(seconds) // 60}:{int(seconds) % 60:02} by 3 measured steps of erm, an estimate"


def test_what_cannot_be_measured_is_not_said(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(data, suite="domainbed", steps="600")
    failed = Timed([WARM_UP])
    assert describe_cost([run], 600, failed, 1, data / "study") is None

    class Queue(Timed):
        detached = True

        def start(self, command: TrainCommand) -> Timed:
            raise AssertionError("a queue may start it tomorrow")

    assert describe_cost([run], 600, Queue(), 1, data / "study") is None

    class Broken(Timed):
        def start(self, command: TrainCommand) -> Timed:
            raise Failure("no docker")

    assert describe_cost([run], 600, Broken(), 1, data / "study") is None
    monkeypatch.setattr(planner, "PATIENCE", 0.05)
    hanging = Timed(None)
    assert describe_cost([run], 600, hanging, 1, data / "study") is None
    assert hanging.killed
    monkeypatch.setattr(planner, "WORTH_MEASURING", 600 * 4 + 1)
    short = Timed()
    assert describe_cost([run], 600, short, 1, data / "study") is None
    assert not short.commands


# --- what is decided --------------------------------------------------------------------------------------------------


def make_study(home: Path, rows: Sequence[str], *data_sets: str) -> list[PlannedRun]:
    """Return a run of each row that holds out all domains of these data sets of DomainBed."""
    protocol = published.find("domainbed_iclr2021").protocol
    sets = tuple(tested for tested in protocol.sets if tested.block in data_sets)
    own: Any = dataclasses.replace(protocol, sets=sets, derived=())
    return [dataclasses.replace(planned(home, row), protocol=own) for row in rows]


def test_seeds_on_pacs_show_a_lead_by_the_paper_s_repeats(tmp_path: Path) -> None:
    """The power of the lead that is named is 80 %, by t-tests of draws with the deviation that is named."""
    text = describe_power(make_study(tmp_path, ["erm", "coral", "mine"], "pacs"), "domainbed", 3)
    assert text is not None
    match = re.fullmatch(
        r"3 seeds of each row show, with 80% probability \(3 pairs together\), a lead of (\S+) points on pacs as a "
        r"whole; a lead of 2 points takes (\d+) seeds, if they differ as published repeats do, by (\S+) points",
        text,
    )
    assert match is not None
    lead, needed, deviation = float(match[1]), int(match[2]), float(match[3])
    draws = np.random.default_rng(0).normal(0, deviation, (2, 20_000, 20))
    for num_seeds, shift, least, most in ((3, lead, 0.75, 0.85), (needed, 2, 0.77, 1), (needed - 1, 2, 0, 0.83)):
        a, b = draws[:, :, :num_seeds]
        p = stats.ttest_ind(a + shift, b, axis=1).pvalue
        assert least < (p < 0.05 / 3).mean() < most


def test_other_designs_are_told_too(tmp_path: Path) -> None:
    assert describe_power(make_study(tmp_path, ["erm"], "pacs"), "domainbed", 3) is None
    two = make_study(tmp_path, ["erm", "mine"], "pacs")
    assert describe_power(two, "domainbed", 1) == "one seed of each row shows no difference"
    assert describe_power(two, "folders", 3) == (
        "3 seeds of each row show, with 80% probability, a lead of 3.1 standard deviations between seeds"
    )
    both = make_study(tmp_path, ["erm", "mine"], "pacs", "vlcs")
    assert describe_power(both, "domainbed", 3) == (
        "tests of 2 rows take at least 6 data sets, and these are 2, so no difference over them can be shown"
    )
