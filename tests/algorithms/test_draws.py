"""Laws of what is drawn; and draws that steer the host, keyed by position, not streamed."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from biasbed.algorithms.base import Progress
from biasbed.algorithms.draws import Drawn, HostDraws, normal, uniform, with_draws


def group(seed: int, shared: int = 0) -> Any:
    return SimpleNamespace(
        generator=torch.Generator().manual_seed(seed), shared_generator=torch.Generator().manual_seed(shared)
    )


def first(draws: HostDraws, **position: Any) -> float:
    return float(torch.rand((), generator=draws.generator(Progress(**position))))


def test_same_position_same_draws_in_another_process() -> None:
    first_process, second_process = HostDraws(group(5)), HostDraws(group(5))
    sequence = [first(first_process, epoch=epoch, step=step) for epoch in range(2) for step in range(3)]
    assert first(second_process, epoch=1, step=1) == sequence[4]
    assert len(set(sequence)) == 6


def test_seed_stage_and_part_matter() -> None:
    draws = HostDraws(group(5))
    values = [first(draws), first(draws), first(draws, stage="warm-up"), first(HostDraws(group(6)))]
    assert len(set(values)) == 4


def test_what_all_ranks_draw_alike() -> None:
    """In every part of a step the same, by position and the seed that they share."""

    def shared(draws: HostDraws, **position: Any) -> float:
        return float(torch.rand((), generator=draws.shared_generator(Progress(**position))))

    first_rank, second_rank = HostDraws(group(5)), HostDraws(group(6))
    assert shared(first_rank, step=3) == shared(second_rank, step=3) == shared(first_rank, step=3)
    others = [
        shared(first_rank, step=4),
        shared(first_rank, epoch=1, step=3),
        shared(HostDraws(group(5, shared=1)), step=3),
    ]
    assert len({shared(first_rank, step=3), first(first_rank, step=3), *others}) == 5


def test_the_groups_generator_stays_where_it_is() -> None:
    owner = group(5)
    before = owner.generator.get_state()
    first(HostDraws(owner))
    assert torch.equal(before, owner.generator.get_state())


def test_draws_are_gone_after_an_error() -> None:
    points = [Drawn(), Drawn()]
    with contextlib.suppress(RuntimeError), with_draws(points, [1, 2]):
        seen = [point.draw for point in points]
        raise RuntimeError
    assert seen == [1, 2]
    assert [point.draw for point in points] == [None, None]


def test_draws_of_an_epoch_are_the_same_in_all_its_steps() -> None:
    def drawn(seed: int, epoch: int, step: int, stage: str = "main") -> float:
        generator = HostDraws(group(seed)).epoch_generator(Progress(stage=stage, epoch=epoch, step=step))
        return float(torch.rand((), generator=generator))

    assert drawn(5, 1, 0) == drawn(5, 1, 7)
    assert len({drawn(5, 0, 0), drawn(5, 1, 0), drawn(6, 1, 0), drawn(5, 1, 0, "warm-up")}) == 4


def test_uniform_draws_are_scaled_to_both_ends() -> None:
    unit = torch.rand(1000, generator=torch.Generator().manual_seed(3)).double()
    drawn = uniform((1000,), 2.0, 5.0, torch.Generator().manual_seed(3), torch.float64)
    torch.testing.assert_close(drawn, 2 + 3 * unit, rtol=1e-15, atol=0)
    assert (float(drawn.min()), float(drawn.max())) == pytest.approx((2, 5), abs=0.02)


def test_normal_draws_have_the_moments_of_the_law() -> None:
    """0, 1, 0 and 3; of 100,000 draws they are off by a hundredth or two."""
    drawn = normal((100_000,), torch.Generator().manual_seed(0), torch.float64)
    moments = [float(drawn.pow(power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.06)
