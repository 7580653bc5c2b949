"""The order of training examples: every image once per epoch, the same for any number of processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from biasbed.batch import MAIN, stacked
from biasbed.data.loading import TrainLoader
from biasbed.data.source import Decoded, MemorySource
from biasbed.data.streams import BatchPlan, Part, Stream
from biasbed.data.transforms import keyed_randomness


def source(size: int, name: str = "images", **columns: np.ndarray) -> MemorySource:
    images = np.arange(size, dtype=np.uint8)[:, None, None, None].repeat(3, 1).repeat(4, 2).repeat(4, 3)
    y = np.arange(size) % 3
    return MemorySource(
        name=name, classes=("a", "b", "c"), y=y, ids=[str(i) for i in range(size)], images=images, **columns
    )


def stream(sizes: list[int], shares: list[float], batch_size: int) -> Stream:
    parts = [Part(source(size), share, Decoded.pixels) for size, share in zip(sizes, shares, strict=True)]
    return Stream(tuple(parts), batch_size)


def rows_of(main: Stream, seed: int, step: int) -> list[list[int]]:
    keys = BatchPlan({MAIN: main}, seed).keys(step)
    return [[key.row for key in keys if key.part == part] for part in range(len(main.parts))]


@settings(max_examples=60)
@given(size=st.integers(4, 60), batch=st.integers(2, 20), epoch=st.integers(0, 3), seed=st.integers(0, 99))
def test_an_epoch_is_one_pass_in_a_new_order(size: int, batch: int, epoch: int, seed: int) -> None:
    main = stream([size], [1.0], batch)
    steps = range(epoch * main.steps_per_epoch, (epoch + 1) * main.steps_per_epoch)
    rows = np.concatenate([rows_of(main, seed, step)[0] for step in steps])
    assert sorted(rows) == list(range(size))
    other = np.concatenate([rows_of(main, seed + 1, step)[0] for step in steps])
    assert size < 8 or not np.array_equal(rows, other)


@settings(max_examples=40)
@given(clean=st.integers(6, 50), extra=st.integers(3, 50))
def test_a_second_source_keeps_its_share_and_is_read_evenly(clean: int, extra: int) -> None:
    main = stream([clean, extra], [0.5, 0.5], 8)
    steps = [rows_of(main, 0, step) for step in range(6 * main.steps_per_epoch)]
    full = [rows for step, rows in enumerate(steps) if (step + 1) % main.steps_per_epoch]
    assert all(len(first) == len(second) == 4 for first, second in full)
    seen = np.bincount(np.concatenate([second for _, second in steps]), minlength=extra)
    assert seen.max() - seen.min() <= 1  # whole passes, one after the other


def test_a_last_batch_too_small_for_batch_norm_is_passed_over() -> None:
    plan = BatchPlan({MAIN: stream([9], [1.0], 4)}, 0)
    loader = TrainLoader(plan, 0, False)
    assert [(step, following) for step, following, _, _ in loader.from_step(0, 5)] == [(0, 1), (1, 3), (3, 4), (4, 6)]
    assert not plan.is_usable(2)
    assert plan.is_usable(1)


def test_keyed_randomness_leaves_the_generators_as_they_were() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with keyed_randomness(1, 2, 3):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with keyed_randomness(1, 2, 3):
        assert torch.equal(torch.rand(3), inside)
    with keyed_randomness(1, 2, 4):
        assert not torch.equal(torch.rand(3), inside)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_worker_s_batch_is_laid_into_shared_memory(channels_last: bool) -> None:
    """Made on the worker's heap it would be copied, and the heap would grow without end."""
    images = [torch.randint(0, 255, (5, 6, 3), dtype=torch.uint8) for _ in range(4)]
    images = [image.permute(2, 0, 1) if channels_last else image.permute(2, 0, 1).contiguous() for image in images]
    loader = DataLoader(images, batch_size=4, num_workers=1, collate_fn=lambda items: (stacked(items), None))
    where = DataLoader(images, batch_size=4, num_workers=1, collate_fn=lambda items: stacked(items).is_shared())
    ((batch, _),) = loader
    assert torch.equal(batch, torch.stack(images))
    assert batch.is_contiguous(memory_format=torch.channels_last) == channels_last
    assert list(where) == [True]
