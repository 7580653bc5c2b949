"""Requests of methods and suites for their streams: parts, weights, views, labels, and reading at a stroke."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biasbed.algorithms.requests import Stage
from biasbed.batch import MAIN, Batch
from biasbed.compute.distributed import Group
from biasbed.config import Augment
from biasbed.data import loading, views
from biasbed.data.loading import TrainLoader
from biasbed.data.source import Decoded, MemorySource
from biasbed.data.streams import BatchPlan, InOrder, Part, Stream, per_domain, weighted
from biasbed.data.transforms import TrainingTransform
from biasbed.errors import UsageError
from biasbed.training import job
from biasbed.training.reading import Reader
from biasbed.training.resolve import resolve
from helpers.domain_tree import make_domains

STILL = Augment(crop=False, flip=False)


def source(size: int = 30, side: int = 8, **columns: Any) -> MemorySource:
    """Images that are all of one level, their row's."""
    images = np.broadcast_to(np.arange(size, dtype=np.uint8)[:, None, None, None], (size, 3, side, side)).copy()
    ids = [str(number) for number in range(size)]
    return MemorySource(
        name="images", classes=("a", "b", "c"), y=np.arange(size) % 3, ids=ids, images=images, **columns
    )


def batches(stream: Stream, steps: int, **about: Any) -> list[Batch]:
    loader = TrainLoader(BatchPlan({MAIN: stream}, 3, **about), 0, False)
    return [batch for _, _, batch, _ in loader.from_step(0, steps)]


def domains(size: int = 30) -> MemorySource:
    return source(size, domain=np.arange(size) % 3, domains=("x", "y", "z"))


# --- equal parts ------------------------------------------------------------------------------------------------------


def test_a_step_in_parts_has_equal_parts_of_every_domain_in_each() -> None:
    batch = Batch(torch.arange(12.0), torch.arange(12), domain=torch.arange(3).repeat_interleave(4), parts=3)
    halves = batch.split(2)
    assert [half.domain.tolist() for half in halves] == [[0, 0, 1, 1, 2, 2]] * 2
    assert torch.cat([half.y for half in halves]).sort().values.tolist() == list(range(12))
    mixed = Batch(batch.x, batch.y, domain=batch.domain)
    for number, part in mixed.by_domain().items():
        assert torch.equal(part.y, batch.by_domain()[number].y)


def test_a_method_may_need_even_parts_where_processes_share_them(tmp_path: Path) -> None:
    make_domains(tmp_path / "Toy")
    flags = {"suite": "domains", "data_dir": str(tmp_path), "train": "Toy", "test_domains": "art", "algorithm": "irm"}
    for size, world in ((5, 1), (8, 2)):
        reader = Reader(job.plan(resolve({**flags, "batch_size": size})), Group(0, world), 0)
        assert reader.plan_stage(Stage(MAIN, dict), 0).sizes(0) == [2 * size // world] * world
        reader.check([Stage(MAIN, dict)])
    reader = Reader(job.plan(resolve({**flags, "batch_size": 6})), Group(0, 2), 0)
    with pytest.raises(UsageError, match=r"^irm needs a multiple of 2 images of every domain .* 6 .* are 3 each$"):
        reader.check([Stage(MAIN, dict)])


# --- as often as a table says -----------------------------------------------------------------------------------------


def test_images_are_drawn_in_proportion_to_their_weights() -> None:
    weights = np.array([0.0, 1.0, 3.0] * 10)
    part = weighted(Part(source(), 1.0, Decoded.pixels, replacement=True), weights, "table")
    index = torch.cat([batch.index for batch in batches(Stream((part,), 30), 100)]).numpy()
    counts = np.bincount(index, minlength=30)
    assert not counts[weights == 0].any()
    ratio = counts[weights == 3].sum() / counts[weights == 1].sum()
    assert 2.6 < ratio < 3.4  # of 3,000 draws: four standard deviations


def test_without_replacement_a_pass_has_every_image_as_often_as_its_weight() -> None:
    weights = np.array([0, 1, 3] * 10)
    stream = Stream((weighted(Part(source(), 1.0, Decoded.pixels), weights, "table"),), 8)
    assert stream.steps_per_epoch == 5  # of 40 images
    index = torch.cat([batch.index for batch in batches(stream, 5)]).numpy()
    assert np.bincount(index, minlength=30).tolist() == weights.tolist()


# --- views ------------------------------------------------------------------------------------------------------------

PLAIN, GRAIN = views.make("plain", {}), views.make("helpers.toys:Grain", {"strength": 0.2})


def test_shared_views_have_one_crop_and_flip_and_changes_of_their_own() -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (12, 3, 32, 32), dtype=np.uint8)
    noisy = MemorySource(name="n", classes=("a",), y=np.zeros(12, int), ids=[str(i) for i in range(12)], images=images)
    part, changes = Part(noisy, 1.0, TrainingTransform(16, Augment())), (PLAIN, PLAIN, views.make("jitter", {}))
    apart, shared = (batches(Stream((part,), 12, changes, shared=s), 1)[0].x for s in (False, True))
    assert apart.shape == shared.shape == (12, 3, 3, 16, 16)
    assert torch.equal(shared[:, 0], shared[:, 1])
    assert not torch.equal(apart[:, 0], apart[:, 1])
    assert not torch.equal(shared[:, 0], shared[:, 2])
    assert torch.equal(apart[:, 0], shared[:, 0]), "the first view is what it would be alone"


def test_a_view_is_drawn_by_its_key_whatever_the_number_of_workers_and_where_it_starts() -> None:
    stream = Stream((Part(source(), 1.0, TrainingTransform(8, STILL)),), 10, (GRAIN,))
    plan = BatchPlan({MAIN: stream}, 1)
    whole = {step: batch.x for step, _, batch, _ in TrainLoader(plan, 0, False).from_step(0, 6)}
    loader = TrainLoader(plan, 2, False)
    for step, _, batch, _ in loader.from_step(2, 5):
        assert torch.equal(batch.x, whole[step])
    loader.close()


# --- columns, passes, and many at a stroke ----------------------------------------------------------------------------


def test_a_stream_without_labels_has_none() -> None:
    streams = {MAIN: Stream((Part(source(), 1.0, Decoded.pixels),), 6)}
    streams["other"] = Stream((Part(domains(), 1.0, Decoded.pixels),), 4, labelled=False)
    _, _, batch, _ = next(iter(TrainLoader(BatchPlan(streams, 0), 0, False).from_step(0, 1)))
    assert batch.y is not None
    assert batch.extra["other"].y is None
    assert batch.extra["other"].domain is not None


@pytest.mark.parametrize("stream", ["one part", "two sources", "per domain"])
def test_images_at_a_stroke_are_those_that_come_one_by_one(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    still = TrainingTransform(8, STILL)
    parts = {
        "one part": (Part(source(), 1.0, still),),
        "two sources": (Part(source(), 0.5, still), Part(source(12), 0.5, still)),
        "per domain": per_domain(Part(domains(), 1.0, still)),
    }[stream]
    made = Stream(parts, 12)
    opened: list[int] = []
    one_by_one = MemorySource.open
    monkeypatch.setattr(MemorySource, "open", lambda own, row: opened.append(row) or one_by_one(own, row))
    at_a_stroke = batches(made, 3)
    assert not opened
    monkeypatch.setattr(loading, "_is_ready", lambda part: False)
    for left, right in zip(at_a_stroke, batches(made, 3), strict=True):
        assert all(torch.equal(getattr(left, name), getattr(right, name)) for name in ("x", "y", "index"))
    assert opened


def test_a_pass_sees_every_image_once_and_in_order() -> None:
    parts = (Part(source(25), 0.5, Decoded.pixels), Part(source(8), 0.5, Decoded.pixels))
    seen = []
    for rank in range(2):
        order = InOrder(Stream(parts, 4), 4, rank, 2)
        found = [batch for _, _, batch, _ in TrainLoader(order, 0, False).from_step(0, len(order))]
        index = torch.cat([batch.index for batch in found]).tolist()
        assert index == list(order.positions(rank))
        seen += index
    assert sorted(seen) == list(range(33))
