"""Parts of a training by themselves: lengths of stages, tables, values per image, kept weights, hashes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.requests import Pass, Stage, StreamRequest
from biasbed.batch import MAIN
from biasbed.compute.distributed import Group
from biasbed.data.streams import InOrder, Part, Stream
from biasbed.errors import UsageError
from biasbed.training import averaged, job
from biasbed.training.identity import config_hash
from biasbed.training.per_example import gather_by_index, score_conflicting
from biasbed.training.reading import Reader
from biasbed.training.recovery import decided_sets
from biasbed.training.resolve import resolve
from biasbed.training.state import TrainingState, replaced_weights
from helpers import toys
from helpers.commands import ROOT

SUITES = f"{ROOT}/tests/helpers/toy_suite.py"


def plan(suite: str, **flags: Any) -> job.Job:
    settings = {name.replace("__", "."): str(value) for name, value in flags.items()}
    common = {"suite": f"{SUITES}:{suite}", "algorithm": "helpers.toys:Plain", "tracking": "offline", "nproc": "1"}
    return job.plan(resolve({**common, "device": "cpu", **settings}))


# --- stages -----------------------------------------------------------------------------------------------------------


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
    assert reader.steps(stage, reader.plan(stage, 0), left) == steps


def test_the_last_stage_has_what_the_stages_before_it_leave() -> None:
    """A pass takes nothing, and neither does a stage that comes in addition."""
    step: Any = print
    stages = (Stage("a", step, share=0.25), Stage("c", step, epochs=1), Stage("d", step, share=0.5))
    before = (Pass("b", step, print), *stages)
    assert Reader.left((*before, Stage(MAIN, step))) == 0.25
    assert Reader.left((*before, Stage(MAIN, step, share=0.1))) == 0.25
    assert Reader.left((Stage(MAIN, step, share=0.1),)) == 1.0


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


def test_a_table_is_read_at_each_image_s_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of the second data set follow those of the first; a later change of the method's table moves nothing."""
    often = torch.arange(84) % 5  # 48, the first index of the second, is no multiple

    def on_train_data(self: Algorithm, data: TrainData) -> None:
        self.register_buffer("often", often.clone())

    request = StreamRequest(data={"shades": 0.5, "validation_half": 0.5}, weights="often")
    members = {"streams": classmethod(lambda cls, hparams: {MAIN: request}), "on_train_data": on_train_data}
    monkeypatch.setattr(toys, "Wrong", type("Wrong", (toys.Plain,), members), raising=False)
    reader = Reader(plan("Shades", algorithm="helpers.toys:Wrong"), Group(), 0)
    stage = Stage(MAIN, lambda batch: {})
    method: Any = nn.Module()
    method.often = often.clone()
    tables = reader.tables(stage, method)
    method.often.zero_()
    parts = reader.plan(stage, 0, tables).streams[MAIN].parts
    assert [len(part.source) for part in parts] == [48, 36]
    first, second = (np.sort(part.rows_at(np.arange(len(part)))).tolist() for part in parts)
    assert first == [row for row in range(48) for _ in range(row % 5)]
    assert second == [row for row in range(36) for _ in range((48 + row) % 5)]


# --- values per image -------------------------------------------------------------------------------------------------


class Gathered(Group):
    """One of several processes, with the rows of all of them at hand."""

    def __init__(self, world: int, rows: list[Tensor]) -> None:
        super().__init__(0, world)
        self.rows = rows

    def gather(self, tensor: Tensor) -> Tensor:
        assert torch.equal(tensor, self.rows[0])
        return torch.cat(self.rows)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("images", [6, 7, 8])
def test_values_of_all_processes_are_in_the_order_of_the_images(world: int, images: int) -> None:
    """Every process has every so many-th image, in batches of two."""
    values = torch.arange(images * 2.0).view(images, 2)
    of_ranks = [values[rank::world] for rank in range(world)]
    source: Any = type("Images", (), {"__len__": lambda self: images})()
    part = Part(source, 1.0, lambda picture: picture)  # type: ignore[arg-type, return-value]
    order = InOrder(Stream((part,), 2), 2, 0, world)
    batches = [{"value": rows} for rows in of_ranks[0].split(2)]
    gathered = gather_by_index(batches, order, Gathered(world, of_ranks))
    assert torch.equal(gathered["value"], values)


def test_conflicting_images_are_found_by_the_average_precision() -> None:
    """By hand: after each conflicting image, from the highest value down, the share of them so far."""
    y, bias = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 1, 0, 0])  # the second and the fourth conflict
    source: Any = SimpleNamespace(y=y, bias=bias)
    values = {"first": torch.tensor([0.0, 9, 1, 8, 2]), "mixed": torch.tensor([5.0, 4, 3, 2, 1])}
    expected = {"train/first_precision": 1.0, "train/mixed_precision": (1 / 2 + 2 / 4) / 2}
    assert score_conflicting(values, [source]) == pytest.approx(expected)
    halves: Any = [SimpleNamespace(y=y[part], bias=bias[part]) for part in (slice(0, 2), slice(2, 5))]
    assert score_conflicting(values, halves) == pytest.approx(expected)
    assert score_conflicting(values, [SimpleNamespace(y=y, bias=None)]) == {}  # type: ignore[list-item]
    assert score_conflicting(values, [SimpleNamespace(y=y, bias=y)]) == {}  # type: ignore[list-item]
    assert score_conflicting(values, [SimpleNamespace(y=y, bias=1 - y)]) == {}  # type: ignore[list-item]


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_stage_begins_with_nothing_of_the_one_before_it() -> None:
    state = TrainingState(0, 7, True, True, True, 3.0, {"often": torch.ones(2)}, {"value": 1.0}, [{}], {"value": 2.0})  # type: ignore[list-item]
    state.enter(1)
    assert state == TrainingState(stage=1, earlier=3.0, history=[{}], best={"value": 2.0})  # type: ignore[list-item]


def test_kept_weights_are_those_of_the_first_best_value() -> None:
    module, state = nn.Linear(1, 1), TrainingState()
    for number, value in enumerate([0.3, 0.7, 0.5, 0.7]):
        nn.init.constant_(module.bias, float(number))
        state.keep_better(value, module)
    assert state.kept["value"] == 0.7
    assert state.kept["weights"]["bias"].item() == 1.0


@pytest.mark.parametrize("fails", [False, True])
def test_replaced_weights_are_back_after_the_block(fails: bool) -> None:
    module = nn.BatchNorm1d(2)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    others = {name: tensor + 1 for name, tensor in before.items()}
    try:
        with replaced_weights(module, others):
            assert all(torch.equal(others[name], tensor) for name, tensor in module.state_dict().items())
            assert not fails
    except AssertionError:
        assert fails
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_decided_sets_are_those_of_the_evaluation_at_once_and_at_the_end() -> None:
    history: list[dict[str, Any]] = [
        {"step": 2, "stage": "first", "metrics": {"val/accuracy/early": 1.0}},
        {"step": 1, "metrics": {"val/accuracy/before": 1.0}},
        {"step": 2, "metrics": {"val/accuracy/val": 1.0, "train/loss": 1.0, "time/epoch_seconds": 1.0}},
        {"step": 2, "metrics": {"test/accuracy/fogged": 1.0}, "late": True},
        {"step": 3, "metrics": {"test/accuracy/after": 1.0}},
    ]
    assert decided_sets(history, 2) == {"val", "fogged"}


# --- what is watched, and what is one configuration -------------------------------------------------------------------


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
