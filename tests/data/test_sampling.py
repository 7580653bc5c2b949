"""Streams that are balanced over domains, classes and groups, or drawn with replacement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from biasbed.batch import MAIN
from biasbed.data.loading import TrainLoader
from biasbed.data.sampling import Order
from biasbed.data.source import Decoded, MemorySource
from biasbed.data.streams import BatchPlan, Part, Stream, per_domain

SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=6)  # rows of each cell


def shuffled_cells(sizes: list[int]) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))


def source(size: int, name: str = "images", **columns: Any) -> MemorySource:
    """The pixels of an image are its row's number."""
    images = np.arange(size, dtype=np.uint8)[:, None, None, None].repeat(3, 1)
    y = columns.pop("y", np.arange(size) % 3)
    ids = [f"{number:04}" for number in range(size)]
    return MemorySource(name=name, classes=("a", "b", "c"), y=y, ids=ids, images=images, **columns)


def biased(size: int = 90, conflicting: int = 9) -> MemorySource:
    """Three classes, whose bias is the class but for a few images."""
    y = np.arange(size) % 3
    bias = y.copy()
    bias[:conflicting] = (y[:conflicting] + 1) % 3
    return source(size, y=y, bias=bias)


def three_domains(sizes: tuple[int, ...] = (40, 9, 20)) -> MemorySource:
    return source(sum(sizes), domain=shuffled_cells(list(sizes)), domains=("photo", "paint", "ink"))


# --- orders -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(sizes=SIZES, seed=st.integers(0, 99), start=st.integers(0, 400))
def test_every_round_has_one_row_of_every_cell(sizes: list[int], seed: int, start: int) -> None:
    own = shuffled_cells(sizes)
    rows, _ = Order((seed, 0, 0), own).read(start * len(sizes), 20 * len(sizes))
    rounds = own[rows].reshape(20, len(sizes))
    assert (np.sort(rounds, axis=1) == np.arange(len(sizes))).all()


@settings(max_examples=60)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_a_cell_s_rows_come_in_whole_passes(sizes: list[int], seed: int) -> None:
    own = shuffled_cells(sizes)
    rows, numbers = Order((seed, 0, 0), own).read(0, 40 * len(sizes))
    for cell, size in enumerate(sizes):
        of_cell = rows[own[rows] == cell]
        for number in range(40 // size):
            assert sorted(of_cell[number * size : (number + 1) * size]) == sorted(np.flatnonzero(own == cell))
        assert numbers[own[rows] == cell].tolist() == [turn // size for turn in range(40)]


@settings(max_examples=60)
@given(
    sizes=SIZES, replacement=st.booleans(), start=st.integers(0, 9000), cuts=st.lists(st.integers(1, 99), max_size=4)
)
def test_any_stretch_is_read_alike_from_wherever_reading_starts(
    sizes: list[int], replacement: bool, start: int, cuts: list[int]
) -> None:
    own = shuffled_cells(sizes)
    whole = Order((7, 0, 0), own, replacement).read(start, 1 + sum(cuts))
    other, at, pieces = Order((7, 0, 0), own, replacement), start, []
    for length in (*cuts, 1):
        pieces.append(other.read(at, length))
        at += length
    for column in (0, 1):
        assert np.concatenate([piece[column] for piece in pieces]).tolist() == whole[column].tolist()


@settings(max_examples=30)
@given(sizes=SIZES, replacement=st.booleans())
def test_no_row_meets_the_same_number_twice(sizes: list[int], replacement: bool) -> None:
    """Or two readings of one image would be augmented alike."""
    rows, numbers = Order((1, 0, 0), shuffled_cells(sizes), replacement).read(3000, 3000)
    assert len({*zip(rows.tolist(), numbers.tolist(), strict=True)}) == 3000


@pytest.mark.parametrize("replacement", [False, True])
def test_cells_are_equally_likely_and_so_are_the_rows_of_a_cell(replacement: bool) -> None:
    sizes = [50, 2, 7, 1]
    own = shuffled_cells(sizes)
    rows, _ = Order((3, 0, 0), own, replacement).read(5000, 28_000)
    counts = np.bincount(rows, minlength=len(own))
    expected = len(rows) / (len(sizes) * np.asarray(sizes)[own])  # weights 1 / (cells x count)
    by_cell = np.bincount(own, weights=counts)
    if replacement:
        assert stats.chisquare(counts, expected).pvalue > 0.001
        assert stats.chisquare(by_cell).pvalue > 0.001
        assert by_cell.std() > 0  # draws, not turns
    else:
        assert (by_cell == 7000).all()
        assert abs(counts - expected).max() <= 1


def test_with_replacement_each_image_is_drawn_by_itself() -> None:
    rows, _ = Order((0, 0, 0), np.zeros(100, dtype=int), replacement=True).read(0, 100_000)
    assert stats.chisquare(np.bincount(rows, minlength=100)).pvalue > 0.001
    missed = [100 - len(np.unique(chunk)) for chunk in rows.reshape(1000, 100)]
    assert np.mean(missed) == pytest.approx(100 * 0.99**100, abs=1)  # a pass would miss none


def test_orders_of_other_seeds_streams_parts_and_cells_differ() -> None:
    own = shuffled_cells([30, 30])
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    orders = [tuple(Order(key, own).read(0, 60)[0].tolist()) for key in keys]
    assert len(set(orders)) == len(keys)
    rows = np.asarray(orders[0])
    ranks = [np.searchsorted(np.flatnonzero(own == cell), rows[own[rows] == cell]) for cell in (0, 1)]
    assert ranks[0].tolist() != ranks[1].tolist()


# --- streams ----------------------------------------------------------------------------------------------------------


def of_domains(images: MemorySource, **how: Any) -> tuple[Part, ...]:
    return per_domain(Part(images, 1.0, Decoded.pixels, **how))


def loaded(stream: Stream, seed: int = 0, start: int = 0, workers: int = 0) -> list[Any]:
    """The rest of an epoch."""
    loader = TrainLoader(BatchPlan({MAIN: stream}, seed), workers, False)
    try:
        end = (start // stream.steps_per_epoch + 1) * stream.steps_per_epoch
        return [batch for _, _, batch, _ in loader.from_step(start, end)]
    finally:
        loader.close()


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("sizes", [(40, 9, 20), (3, 3, 3), (1, 50, 7)])
def test_every_step_has_equal_parts_of_every_domain(sizes: tuple[int, ...], replacement: bool) -> None:
    images = three_domains(sizes)
    stream = Stream(of_domains(images, replacement=replacement), 12, images=len(images))
    batches = loaded(stream)
    assert len(batches) == stream.steps_per_epoch == -(-len(images) // 12)
    for batch in batches:
        assert {number: len(part) for number, part in batch.by_domain().items()} == {0: 4, 1: 4, 2: 4}
        assert (batch.x[:, 0, 0, 0] == batch.index).all()
        assert images.domain is not None
        assert (images.domain[batch.index] == batch.domain.numpy()).all()


@settings(max_examples=40)
@given(batch=st.integers(4, 40), domains=st.integers(1, 4), steps=st.integers(1, 60))
def test_where_domains_do_not_divide_the_batch_they_take_turns(batch: int, domains: int, steps: int) -> None:
    images = source(60, domain=np.arange(60) % domains, domains=tuple("abcd"[:domains]))
    stream = Stream(of_domains(images), batch, images=60)
    counts = np.array([[count for _, count in stream.batch_spans(step)] for step in range(steps)])
    assert (counts.sum(axis=1) == batch).all()
    assert counts.max() - counts.min() <= 2
    assert np.ptp(counts.sum(axis=0)) <= 2
    if batch % domains == 0:
        assert (counts == batch // domains).all()
    starts = np.array([[start for start, _ in stream.batch_spans(step)] for step in range(steps + 1)])
    assert (np.diff(starts, axis=0) == counts).all()


def test_every_cell_of_class_and_bias_has_its_share_of_each_batch() -> None:
    images = biased()
    part = Part(images, 1.0, Decoded.pixels, by=("y", "bias"))
    stream = Stream((part,), 24)
    for batch in loaded(stream):
        found = np.unique(np.stack([batch.y.numpy(), batch.bias.numpy()]), axis=1, return_counts=True)[1]
        assert found.tolist() == [4] * 6
    classes = Stream((replace(part, by=("y",)),), 24)
    assert all(np.bincount(batch.y).tolist() == [8, 8, 8] for batch in loaded(classes))


STREAMS = {
    "per domain": lambda: Stream(of_domains(three_domains()), 12, images=69),
    "per domain, classes, replacement": lambda: Stream(
        of_domains(three_domains(), by=("y",), replacement=True), 10, images=69
    ),
    "by group": lambda: Stream((Part(biased(), 1.0, Decoded.pixels, by=("y", "bias")),), 16),
    "replacement": lambda: Stream((Part(biased(), 1.0, Decoded.pixels, replacement=True),), 16),
    "balanced beside shuffled": lambda: Stream(
        (Part(source(30), 0.5, Decoded.pixels), Part(biased(), 0.5, Decoded.pixels, by=("bias",))), 12
    ),
}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_out_each_step(kind: str, world: int) -> None:
    stream = STREAMS[kind]()
    one = BatchPlan({MAIN: stream}, 5)
    plans = [BatchPlan({MAIN: stream}, 5, rank, world) for rank in range(world)]
    for step in range(40):
        parts = [plan.keys(step) for plan in plans]
        assert sorted(key for part in parts for key in part) == sorted(one.keys(step))
        assert [len(part) for part in parts] == plans[0].sizes(step)
        weights = [len(part) * world / len(one.keys(step)) for part in parts]
        assert [plan.weight(step) for plan in plans] == pytest.approx(weights)


@pytest.mark.parametrize("kind", STREAMS)
def test_an_image_has_one_index_whatever_the_seed_and_the_number_of_processes(kind: str) -> None:
    stream = STREAMS[kind]()
    slots: dict[int, set[tuple[int, int]]] = {}
    sources = list({id(part.source): part.source for part in stream.parts}.values())
    for seed in (0, 1):
        for batch in (batch for start in range(0, 20, 5) for batch in loaded(stream, seed, start)):
            for index, pixel, label in zip(
                batch.index.tolist(), batch.x[:, 0, 0, 0].tolist(), batch.y.tolist(), strict=True
            ):
                slots.setdefault(index, set()).add((pixel, label))
    assert all(len(images) == 1 for images in slots.values())
    first = sources[0]
    expected = {row: {(row, int(first.y[row]))} for row in slots if row < len(first)}  # the order of the ids
    assert {row: slots[row] for row in expected} == expected
    assert max(slots) < stream.num_examples == sum(len(entry) for entry in sources)


def test_a_second_stream_over_the_same_images_has_their_indices_and_draws_apart() -> None:
    images = biased()
    main = Stream((Part(images, 1.0, Decoded.pixels),), 12)
    balanced = Stream((Part(images, 1.0, Decoded.pixels, by=("bias",)),), 12)
    other = Stream((Part(source(10), 1.0, Decoded.pixels),), 4)
    loader = TrainLoader(BatchPlan({"balanced": balanced, MAIN: main, "other": other}, 0), 0, False)
    for _, _, batch, _ in loader.from_step(0, main.steps_per_epoch):
        for found in (batch, batch.extra["balanced"]):
            assert (found.x[:, 0, 0, 0] == found.index).all()
        assert batch.index.tolist() != batch.extra["balanced"].index.tolist()
        assert batch.extra["other"].index.min() >= len(images)


def test_a_file_that_can_not_be_read_is_replaced_from_its_own_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    from biasbed.errors import CorruptImage

    images = three_domains()
    opened = MemorySource.open

    def damaged(self: MemorySource, row: int) -> Any:
        if row % 2:
            raise CorruptImage(f"{row} is damaged")
        return opened(self, row)

    monkeypatch.setattr(MemorySource, "open", damaged)
    stream = Stream(of_domains(images), 12, images=len(images))
    for batch in loaded(stream):
        assert {number: len(part) for number, part in batch.by_domain().items()} == {0: 4, 1: 4, 2: 4}
        assert not (batch.index % 2).any()
