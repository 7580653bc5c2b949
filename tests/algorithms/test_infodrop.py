"""InfoDrop against its own law, and at its edges; tests/replays/infodrop.py has the authors' module."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from biasbed.algorithms.base import Progress
from biasbed.algorithms.infodrop import (
    AliasTable,
    InfoDrop,
    Mask,
    MaskDraw,
    drop_weights,
    fixed_uniform,
    mark_drawn,
)
from biasbed.batch import Batch
from biasbed.compute.optim import restart_steps
from biasbed.config import Optim
from biasbed.networks.surgery import Site, Window
from biasbed.training.resolve import resolve
from helpers.commands import ROOT
from replays import Case, load
from replays.infodrop import offsets_of, site_of

NO_IMAGES = Batch(torch.empty(0, 3, 8, 8))
VECTORS = sorted((ROOT / "tests" / "vectors").glob("infodrop_*.npz"))

# --- the law of the draws ---------------------------------------------------------------------------------------------


def masked_by(case: Case, channels: int, seed: int | None) -> Tensor:
    """Return the positions that a mask drops in maps of ones: [N,channels,h*w] of 0 and 1."""
    mask = Mask(site_of(case), hparams(case))
    mask.draw = MaskDraw(offsets_of(case), None if seed is None else torch.Generator().manual_seed(seed))
    mask.weights = torch.from_numpy(case["prob"])
    images, height, width = case["prob"].shape
    return (mask.change(torch.ones(images, channels, height, width)) == 0).flatten(2).float()


def hparams(case: Case) -> InfoDrop.HParams:
    values = {key: float(case[key]) for key in ("drop_rate", "temperature", "band_width")}
    return InfoDrop.HParams(**values)


@pytest.mark.parametrize("seed", [0, None], ids=["generator", "fixed"])
@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_each_position_is_dropped_as_often_as_derived(path: Path, seed: int | None) -> None:
    """Frequencies over channels against 1 - (1 - w)^m; all positions together as a chi-square."""
    case, channels = load(path), 2000
    expected = case["derived_drop_probability"].reshape(len(case["prob"]), -1)
    frequency = masked_by(case, channels, seed).mean(dim=1).numpy()
    certain = np.minimum(expected, 1 - expected) * channels < 5
    np.testing.assert_allclose(frequency[certain], expected[certain], atol=0.01)
    score = (frequency - expected)[~certain] / np.sqrt(expected * (1 - expected) / channels)[~certain]
    # positions of one map are independent or negatively correlated: the sum varies no more than a chi-square's
    assert abs(np.mean(score**2) - 1) < 5 * np.sqrt(2 / score.size)
    assert np.abs(score).max() < 5


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_joint_law_is_multinomial_sampling(path: Path) -> None:
    """The number of distinct positions per map has the mean and spread that torch.multinomial gives it."""
    case, channels = load(path), 3000
    ours = masked_by(case, channels, seed=1).sum(dim=2)
    weights = torch.from_numpy(case["prob"]).flatten(1) + 1e-8
    count = int(case["sampling_num"])
    drawn = torch.multinomial(weights, channels * count, True, generator=torch.Generator().manual_seed(2))
    reference = mark_drawn(drawn.view(len(weights), channels, count), weights.shape[1]).float().sum(dim=2)
    error = reference.std(dim=1) * (2 / channels) ** 0.5
    assert ((ours.mean(dim=1) - reference.mean(dim=1)).abs() < 5 * error + 1e-6).all()
    assert ((ours.std(dim=1) / reference.std(dim=1) - 1).abs() < 0.1).all()


@given(
    st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1e-30, 1.0]), min_size=1, max_size=40).filter(
        lambda w: sum(w) > 1e-20
    )
)
@settings(max_examples=60)
def test_alias_table_holds_its_distribution(values: list[float]) -> None:
    weights = torch.tensor([values, values[::-1]], dtype=torch.float64)
    table = AliasTable.from_weights(weights)
    assert ((table.keep >= 0) & (table.keep <= 1 + 1e-6)).all()
    held = table.keep.double().clone()
    held.scatter_add_(1, table.alias, 1 - table.keep.double())
    torch.testing.assert_close(held / len(values), weights / weights.sum(1, keepdim=True), rtol=1e-5, atol=1e-7)


def test_fixed_numbers_look_uniform_and_do_not_depend_on_the_part_asked_for() -> None:
    device = torch.device("cpu")
    positions, coins = fixed_uniform(0, 200_000, 50, device)
    counts = torch.bincount(positions, minlength=50).double()
    assert counts.numel() == 50
    assert ((counts - 4000) ** 2 / 4000).sum() < 95  # chi-square, 49 degrees of freedom, p = 1e-4
    assert coins.min() >= 0
    assert coins.max() < 1
    assert abs(coins.double().mean() - 0.5) < 0.003
    assert abs(torch.corrcoef(torch.stack([positions.double(), coins.double()]))[0, 1]) < 0.01
    part = fixed_uniform(1000, 1100, 50, device)
    assert torch.equal(part[0], positions[1000:1100])
    assert torch.equal(part[1], coins[1000:1100])


# --- edges ------------------------------------------------------------------------------------------------------------

MOVES = [(1, 1), (-3, 0), (2, -2)]


def test_weights_of_an_image_that_underflows() -> None:
    """All of an image's densities are far below the batch's: in fp32 powers, 0 / 0."""
    u = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 0.01
    u[1] = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1)) * 10
    weights = drop_weights(u, MOVES, Window(7, 2, 3), temperature=0.001)
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.sum(dim=(1, 2)), torch.ones(4))


@pytest.mark.parametrize(("weight", "dropped"), [(1.0, 1), (0.0, 77.9)])
def test_draws_go_where_the_weights_are(weight: float, dropped: float) -> None:
    """150 draws of 100 positions: all of them to one that has all weight, or 100 (1 - 0.99^150) hit where none has."""
    weights = torch.zeros(1, 10, 10)
    weights[0, 4, 7] = weight
    settings_of_mask: Any = SimpleNamespace(drop_rate=1.5)
    dropped_positions = Mask._dropped(settings_of_mask, weights, 200, MaskDraw([], torch.Generator().manual_seed(0)))
    assert float(dropped_positions.sum((2, 3)).double().mean()) == pytest.approx(dropped, rel=0.02)


def test_map_too_small_for_a_draw_is_left_alone() -> None:
    mask = Mask(Site(nn.Identity(), nn.Identity(), Window()), InfoDrop.HParams(drop_rate=0.5))
    mask.draw = MaskDraw(MOVES, torch.Generator())
    mask.observe(torch.ones(2, 3, 1, 1))
    z = torch.ones(2, 4, 1, 1)
    assert torch.equal(mask.change(z), z)


def test_per_image_weights_do_not_depend_on_the_batch() -> None:
    u = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 2, 3, 4]).view(
        4, 1, 1, 1
    )
    together = drop_weights(u, MOVES, Window(7, 2, 3), per_image=True)
    alone = torch.cat([drop_weights(image[None], MOVES, Window(7, 2, 3)) for image in u])
    torch.testing.assert_close(together, alone)


# --- in a network -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["timm:resnetaa34d", "resnet14"])
def test_maps_fit_in_every_stage(make_algorithm: Any, batch: Any, backbone: str) -> None:
    """Kernel, stride and padding come from the convolutions, so that a mask has its map's size everywhere."""
    algorithm = make_algorithm("infodrop", {"layers": 4}, backbone=backbone)
    assert len(algorithm.masks) > 5
    batch.x = torch.rand(2, 3, 64, 64)
    batch.y = batch.y[:2]
    (loss,) = algorithm(batch).values()
    loss.backward()
    assert loss.isfinite()


def test_masks_act_where_and_as_said(make_algorithm: Any, batch: Any) -> None:
    """Stem and layer1 rebuilt by hand from the plain backbone's parts and the masks' own functions."""
    algorithm = make_algorithm("infodrop", {"layers": 1}, backbone="resnet10")
    plain = copy.deepcopy(algorithm.network)
    seen: list[Tensor] = []
    algorithm.network.backbone.layer1.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    algorithm(batch)

    same_seed_and_position = make_algorithm("infodrop", {"layers": 1}, backbone="resnet10")
    draws = same_seed_and_position.draw(batch)
    generator = torch.Generator()
    generator.manual_seed(algorithm.group.generator.initial_seed())
    resnet = plain.backbone
    hand = [Mask(Site(nn.Identity(), nn.Identity(), m.window, m.pool), algorithm.hparams) for m in algorithm.masks]
    for mask, draw in zip(hand, draws, strict=True):
        mask.draw = MaskDraw(draw.offsets, generator)
    with torch.no_grad():
        image = plain.normalise(batch.x)
        hand[0].observe(image)
        x = hand[0].change(resnet.maxpool(resnet.relu(resnet.bn1(resnet.conv1(image)))))
        block = resnet.layer1[0]
        hand[1].observe(x)
        middle = hand[1].change(torch.relu(block.bn1(block.conv1(x))))
        hand[2].observe(middle)
        out = hand[2].change(torch.relu(block.bn2(block.conv2(middle)) + x))
    torch.testing.assert_close(seen[0], out, rtol=0, atol=0)


def test_offsets_are_uniform_over_the_square(make_algorithm: Any) -> None:
    """-radius to radius in rows and columns, both ends included, every pair as likely."""
    algorithm = make_algorithm("infodrop", {"radius": 2, "num_offsets": 5000})
    (draw,) = algorithm.draw(NO_IMAGES)
    counts = np.array([draw.offsets.count((i, j)) for i in range(-2, 3) for j in range(-2, 3)])
    assert counts.sum() == 5000
    assert ((counts - 200) ** 2 / 200).sum() < 60  # chi-square, 24 degrees of freedom, p < 1e-4


def masked_steps(algorithm: Any, total: int, steps_per_epoch: int) -> list[int]:
    """Return the steps of a training in which the algorithm draws masks."""
    masked = []
    for step in range(total):
        epoch, within = divmod(step, steps_per_epoch)
        epochs = -(-total // steps_per_epoch)
        algorithm.progress = Progress("main", epoch, epochs, within, steps_per_epoch, total=total)
        masked += [step] if algorithm.draw(NO_IMAGES)[0] is not None else []
    return masked


@pytest.mark.parametrize(("total", "steps_per_epoch"), [(120, 1), (50, 13), (40, 1000)])
def test_masks_end_where_the_schedule_begins_anew(make_algorithm: Any, total: int, steps_per_epoch: int) -> None:
    """Whatever the duration, counted in epochs or in steps: in fewer than one epoch, too."""
    for part in (100 / 120, 0.5, 0.77):
        algorithm = make_algorithm("infodrop", {"finetune_from": part})
        (start,) = restart_steps(Optim(restarts=(part,)), total)
        assert masked_steps(algorithm, total, steps_per_epoch) == list(range(start))
    assert masked_steps(make_algorithm("infodrop"), total, steps_per_epoch) == list(range(total)), "the default"


def test_the_authors_train_with_masks_however_long(make_algorithm: Any) -> None:
    """Ten epochs of their preset: the last sixth of them without masks, at the rate of a training's beginning."""
    resolved = resolve({"algorithm": "infodrop", "preset": "authors", "epochs": "10"}).identity_settings()
    assert resolved["hparams.finetune_from"] == resolved["optim.restarts"][0]
    algorithm = make_algorithm("infodrop", {"finetune_from": resolved["hparams.finetune_from"]})
    assert masked_steps(algorithm, 10 * 6, 6) == list(range(50))


def test_mask_in_eval_is_a_function_of_the_image(make_algorithm: Any, batch: Any) -> None:
    """Same answer for any batch size and position, no generator moved, and another answer than without masks."""
    algorithm = make_algorithm("infodrop", {"mask_in_eval": True}).eval()
    before = algorithm.group.generator.get_state()
    together = algorithm.predict(batch.x)
    assert torch.equal(together, algorithm.predict(batch.x))
    alone = torch.cat([algorithm.predict(image[None]) for image in batch.x.flip(0)]).flip(0)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    assert torch.equal(before, algorithm.group.generator.get_state())
    assert not torch.allclose(together, algorithm.network(batch.x), atol=1e-3)
