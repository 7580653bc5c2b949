"""Requests of methods and suites for their streams: parts, weights, views, labels, and reading at a stroke."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from biasbed import cli
from biasbed.algorithms.requests import Stage
from biasbed.batch import MAIN, Batch
from biasbed.compute.distributed import Group
from biasbed.config import Augment
from biasbed.data import loading, views
from biasbed.data.loading import TrainLoader
from biasbed.data.source import Decoded, MemorySource
from biasbed.data.streams import BatchPlan, InOrder, Part, Stream, per_domain, weighted
from biasbed.data.transforms import make_training_transform
from biasbed.errors import Failure, UsageError
from biasbed.training import job
from biasbed.training.reading import Reader
from biasbed.training.resolve import resolve
from helpers import toys
from helpers.domain_tree import make_domains
from helpers.runs import run_folders

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


@pytest.mark.parametrize("world", [1, 2])
def test_domains_come_one_after_the_other_in_equal_parts(world: int) -> None:
    stream = Stream(per_domain(Part(domains(), 1.0, Decoded.pixels, replacement=True)), 12, images=30, apart=True)
    for rank in range(world):
        for batch in batches(stream, 4, rank=rank, world=world):
            assert batch.parts == 3
            assert batch.domain.tolist() == sorted(batch.domain.tolist())
            found = batch.by_domain()
            assert {number: set(part.domain.tolist()) for number, part in found.items()} == {0: {0}, 1: {1}, 2: {2}}
            assert [len(part) for part in found.values()] == [4 // world] * 3


def test_a_step_in_parts_has_equal_parts_of_every_domain_in_each() -> None:
    batch = Batch(torch.arange(12.0), torch.arange(12), domain=torch.arange(3).repeat_interleave(4), parts=3)
    halves = batch.split(2)
    assert [half.domain.tolist() for half in halves] == [[0, 0, 1, 1, 2, 2]] * 2
    assert torch.cat([half.y for half in halves]).sort().values.tolist() == list(range(12))
    mixed = Batch(batch.x, batch.y, domain=batch.domain)
    for number, part in mixed.by_domain().items():
        assert torch.equal(part.y, batch.by_domain()[number].y)


class ByDomain(toys.Plain):
    """The worst domain's loss, which each step's parts tell apart."""

    uses = frozenset({"domain"})
    size: int | None = None

    @classmethod
    def streams(cls, hparams: Any) -> dict[str, toys.StreamRequest]:
        return {MAIN: toys.StreamRequest(per_domain=True, size=cls.size, replacement=True)}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        parts = batch.by_domain()
        assert batch.parts == len(parts) == 2
        each = [self.task.loss(self.head(self.features(part.x)), part.y) for part in parts.values()]
        return {"worst": torch.stack(each).max()}


@pytest.fixture
def by_domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    make_domains(tmp_path / "data" / "Toy", ("day", "night", "rain"))
    monkeypatch.setattr(toys, "ByDomain", ByDomain, raising=False)
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))

    def train(*more: str) -> int:
        words = ["train", "--suite", "domains", "--data_dir", str(tmp_path / "data"), "--train", "Toy", "--epochs", "1"]
        how = ["--test_domains", "rain", "--image_size", "16", "--backbone", "resnet10", "--device", "cpu"]
        return cli.main([*words, *how, "--tracking", "offline", "--workers", "0", *more])

    return train


def test_a_method_is_given_the_domains_that_train_in_equal_parts(by_domain: Callable[..., int], tmp_path: Path) -> None:
    assert by_domain("--algorithm", "helpers.toys:ByDomain", "--batch_size", "4") == 0
    assert len(run_folders(tmp_path / "home")) == 1


def test_parts_that_can_not_be_shared_out_are_refused(
    by_domain: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(ByDomain, "size", 3)
    assert by_domain("--algorithm", "helpers.toys:ByDomain", "--batch_size", "4", "--accumulate", "2") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "3 images of every domain (stream 'main') can't be shared out to 2 parts" in line
    assert not run_folders(tmp_path / "home")


def test_a_method_may_need_even_parts_where_processes_share_them(tmp_path: Path) -> None:
    make_domains(tmp_path / "Toy")
    flags = {"suite": "domains", "data_dir": str(tmp_path), "train": "Toy", "test_domains": "art", "algorithm": "irm"}
    for size, world in ((5, 1), (8, 2)):
        reader = Reader(job.plan(resolve({**flags, "batch_size": size})), Group(0, world), 0)
        assert reader.plan(Stage(MAIN, dict), 0).sizes(0) == [2 * size // world] * world
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


def test_the_draws_are_those_of_one_process_shared_out() -> None:
    part = weighted(Part(source(), 1.0, Decoded.pixels, replacement=True), np.arange(30.0), "table")
    one = BatchPlan({MAIN: Stream((part,), 12)}, 5)
    plans = [BatchPlan({MAIN: Stream((part,), 12)}, 5, rank, 2) for rank in range(2)]
    for step in range(10):
        assert sorted(key for plan in plans for key in plan.keys(step)) == sorted(one.keys(step))


@pytest.mark.parametrize(
    ("values", "how", "message"),
    [
        (np.zeros(30), {}, "the table 'often', by which images are to be drawn, is 0 for every image"),
        (np.full(30, -1.0), {}, "has values that are no weights"),
        (np.full(30, np.nan), {}, "has values that are no weights"),
        (np.full(30, 0.5), {}, "has parts of images"),
        (np.ones(30), {"by": ("y",)}, "can't be drawn by the table 'often' and be balanced by y"),
    ],
)
def test_tables_that_say_nothing(values: np.ndarray, how: dict[str, Any], message: str) -> None:
    with pytest.raises(Failure, match=r"table 'often'") as caught:
        weighted(Part(source(), 1.0, Decoded.pixels, **how), values, "often")
    assert message in str(caught.value)


# --- views ------------------------------------------------------------------------------------------------------------

PLAIN, GRAIN = views.make("plain", {}), views.make("helpers.toys:Grain", {"strength": 0.2})


def test_shared_views_have_one_crop_and_flip_and_changes_of_their_own() -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (12, 3, 32, 32), dtype=np.uint8)
    noisy = MemorySource(name="n", classes=("a",), y=np.zeros(12, int), ids=[str(i) for i in range(12)], images=images)
    part, changes = Part(noisy, 1.0, make_training_transform(16, Augment())), (PLAIN, PLAIN, views.make("jitter", {}))
    apart, shared = (batches(Stream((part,), 12, changes, shared=s), 1)[0].x for s in (False, True))
    assert apart.shape == shared.shape == (12, 3, 3, 16, 16)
    assert torch.equal(shared[:, 0], shared[:, 1])
    assert not torch.equal(apart[:, 0], apart[:, 1])
    assert not torch.equal(shared[:, 0], shared[:, 2])
    assert torch.equal(apart[:, 0], shared[:, 0]), "the first view is what it would be alone"


def test_where_a_view_is_of_floats_all_are_in_the_same_range() -> None:
    part = Part(source(), 1.0, make_training_transform(8, STILL))
    (batch,) = batches(Stream((part,), 10, (PLAIN, GRAIN)), 1)
    assert batch.x.dtype == torch.float32
    assert torch.allclose(batch.x[:, 0, 0, 0, 0] * 255, batch.index.float())
    assert 0 <= batch.x.min() <= batch.x.max() <= 1


def test_a_view_is_drawn_by_its_key_whatever_the_number_of_workers_and_where_it_starts() -> None:
    stream = Stream((Part(source(), 1.0, make_training_transform(8, STILL)),), 10, (GRAIN,))
    plan = BatchPlan({MAIN: stream}, 1)
    whole = {step: batch.x for step, _, batch, _ in TrainLoader(plan, 0, False).from_step(0, 6)}
    loader = TrainLoader(plan, 2, False)
    for step, _, batch, _ in loader.from_step(2, 5):
        assert torch.equal(batch.x, whole[step])
    loader.close()


def test_an_unknown_view_and_a_setting_that_it_has_not() -> None:
    with pytest.raises(UsageError, match="unknown view 'jiter'; did you mean 'jitter'"):
        views.make("jiter", {})
    with pytest.raises(UsageError, match=r"unknown setting 'jitter.hues'; did you mean 'hue'"):
        views.make("jitter", {"hues": 0.1})


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
    still = make_training_transform(8, STILL)
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


def test_the_last_batch_is_left_out_where_it_is_not_full() -> None:
    stream = Stream((Part(source(), 1.0, Decoded.pixels),), 8, drop_last=True)
    plan = BatchPlan({MAIN: stream}, 0)
    found = [(step, following, len(batch)) for step, following, batch, _ in TrainLoader(plan, 0, False).from_step(0, 8)]
    assert found == [(0, 1, 8), (1, 2, 8), (2, 4, 8), (4, 5, 8), (5, 6, 8), (6, 8, 8)]


def test_stages_draw_apart_from_the_last() -> None:
    stream = Stream((Part(source(), 1.0, Decoded.pixels),), 6)
    orders = [[key.row for key in BatchPlan({MAIN: stream}, 0, stage=stage).keys(0)] for stage in (0, 1, 2)]
    assert orders[0] == [key.row for key in BatchPlan({MAIN: stream}, 0).keys(0)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
