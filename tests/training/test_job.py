"""Plan of a training: lengths of stages, watched sets, hashes, parts of a batch."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from biasbed import algorithms
from biasbed.algorithms.requests import Pass, Stage, StreamRequest
from biasbed.batch import MAIN
from biasbed.compute.distributed import Group
from biasbed.errors import UsageError
from biasbed.training import averaged, job
from biasbed.training.identity import config_hash
from biasbed.training.reading import Reader
from biasbed.training.resolve import resolve
from helpers.commands import ROOT

SUITES = f"{ROOT}/tests/helpers/toy_suite.py"


def plan(suite: str, **flags: Any) -> job.Job:
    settings = {name.replace("__", "."): str(value) for name, value in flags.items()}
    common = {"suite": f"{SUITES}:{suite}", "algorithm": "helpers.toys:Plain", "tracking": "offline", "nproc": "1"}
    return job.plan(resolve({**common, "device": "cpu", **settings}))


@pytest.mark.parametrize(
    ("settings", "left", "steps"),
    [
        ({"steps": 5}, 1.0, 5),
        ({"epochs": 2}, 1.0, 6),
        ({"share": 0.4}, 0.1, 5),  # of 12 steps 4.8: what is left is the last stage's
        ({"share": 0.001}, 1.0, 1),
        ({}, 0.6, 7),  # 7.2
        ({}, 1.0, 12),
    ],
)
def test_a_stage_takes_the_nearest_number_of_steps(settings: dict[str, Any], left: float, steps: int) -> None:
    reader = Reader(plan("Fogs", epochs=4), Group(), 0)  # three steps each
    stage = Stage("any", lambda batch: {}, **settings)
    assert reader.count_steps(stage, reader.plan_stage(stage, 0), left) == steps


def test_the_last_stage_has_what_the_stages_before_it_leave() -> None:
    """A pass takes nothing, and neither does a stage that comes in addition."""
    step: Any = print
    stages = (Stage("a", step, share=0.25), Stage("c", step, epochs=1), Stage("d", step, share=0.5))
    before = (Pass("b", step, print), *stages)
    assert Reader.share_left((*before, Stage(MAIN, step))) == 0.25
    assert Reader.share_left((*before, Stage(MAIN, step, share=0.1))) == 0.25
    assert Reader.share_left((Stage(MAIN, step, share=0.1),)) == 1.0


@pytest.mark.parametrize(
    ("monitor", "expected"), [("val/accuracy/val", ["val"]), ("test/accuracy/fog_mean", ["fogged"])]
)
def test_swad_watches_the_sets_behind_the_monitor(monitor: str, expected: list[str]) -> None:
    planned = plan("Fogs")
    suite = SimpleNamespace(monitor=monitor, validating=planned.suite.tested, test_domains=())
    watching: Any = SimpleNamespace(suite=suite, protocol=planned.protocol)
    assert [member.name for member in averaged.watched_sets(watching)] == expected


def test_a_hash_is_of_all_that_is_computed_and_a_key_of_the_seed_as_well() -> None:
    """Neither is of how it is run: in which folder, with how many workers."""
    planned = plan("Fogs", seed=1)
    like = plan("Fogs", seed=1, workers=1, output_dir="/tmp/elsewhere")
    assert (like.config_hash, like.run_key) == (planned.config_hash, planned.run_key)
    seeded, changed = plan("Fogs", seed=2), plan("Fogs", seed=1, optim__lr=0.01)
    assert seeded.config_hash == planned.config_hash != changed.config_hash
    assert len({seeded.run_key, planned.run_key, changed.run_key}) == 3
    data, protocol, usual = planned.fingerprint, planned.protocol, planned.normalisation
    values = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    brought = usual._replace(kind="tag", mean=values[0], std=values[1])
    hashes = [
        config_hash(planned.config, protocol, data),
        config_hash(planned.config, protocol, data, brought),
        config_hash(planned.config, protocol, data[::-1]),
        config_hash(planned.config, dataclasses.replace(protocol, start="other"), data),
        config_hash(planned.config, dataclasses.replace(protocol, monitor="val/loss/val"), data),
    ]
    assert len(set(hashes)) == 5
    assert hashes[0] == planned.config_hash


@pytest.mark.parametrize(
    ("request_", "processes", "accumulate", "refused"),
    [
        (StreamRequest(per_domain=True, size=12), 1, 3, False),
        (StreamRequest(per_domain=True, size=12), 1, 5, True),
        (StreamRequest(per_domain=True, size=12), 2, 3, False),
        (StreamRequest(per_domain=True, size=12), 2, 4, True),  # three processes of one and a half
        (StreamRequest(size=12), 1, 5, False),
        (StreamRequest(multiple=2, size=12), 2, 2, True),  # three each
        (StreamRequest(multiple=2, size=12), 2, 3, False),  # two each
        (StreamRequest(multiple=2, size=12), 1, 4, False),  # a process of its own has all of them
    ],
)
def test_parts_of_a_domain_are_whole(request_: StreamRequest, processes: int, accumulate: int, refused: bool) -> None:
    config: Any = SimpleNamespace(accumulate=accumulate, batch_size=7, algorithm="any")
    arguments = (config, SimpleNamespace(usual=None), {MAIN: request_}, processes)
    if not refused:
        job.refuse_parts(*arguments)  # type: ignore[arg-type]
        return
    with pytest.raises(UsageError, match="images of every domain"):
        job.refuse_parts(*arguments)  # type: ignore[arg-type]


def test_a_loss_of_hard_labels_takes_no_smoothed_ones() -> None:
    config = resolve({"suite": "demo", "algorithm": "lff", "label_smoothing": "0.1"})
    with pytest.raises(UsageError, match=r"label_smoothing=0\.1: lff weights images by"):
        job.refuse_settings(config, algorithms.load("lff"))
