"""Inputs and outputs of the authors' own modules, all of them; and that a change of one per cent would be noticed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import replays.debiased
import replays.debiasing_coupled
import replays.robustness
import replays.sagnet
from biasbed.networks.style import StyleTransfer
from helpers.dependence import independence
from replays import load, walk

FILES = walk.files()


def test_every_vector_has_a_replay() -> None:
    assert len(FILES) >= 30
    for name in FILES:
        walk.replay_of(name)


@pytest.mark.parametrize("name", FILES)
def test_ours_is_as_the_authors_have_it(name: str) -> None:
    replay, uncompared = walk.replay_of(name)
    case = load(FILES[name])
    replay(case)
    assert set(uncompared) <= set(case), "excused keys that are not there"
    assert list(walk.compared_keys(case, uncompared))


# Replays of whole networks, and of many steps, once for each of their keys.
LONG = (
    *("sagnet_step_r18", "padain_net_r18", "cae_forward_a", "edsr_forward_a", "style_transfer_net_a"),
    *(f"debiasing/{name}" for name in ("lff_steps", "disent_steps", "biasensemble_disent_steps")),
)


@pytest.mark.parametrize("name", [pytest.param(f, marks=pytest.mark.slow if f in LONG else ()) for f in FILES])
def test_one_per_cent_is_noticed(name: str) -> None:
    replay, uncompared = walk.replay_of(name)
    case = load(FILES[name])
    unnoticed = [key for key in walk.compared_keys(case, uncompared) if not walk.fails(replay, walk.changed(case, key))]
    assert not unnoticed


# --- what the authors' code could as well have given, expected values by other routes ---------------------------------


def test_a_step_whose_gradient_is_clipped() -> None:
    case = load(FILES["sagnet_step_r18"])
    total = float(case["adv_total_norm"])
    factor = 0.5 * total / (total + 1e-6)  # torch's clipping adds 1e-6 to the norm
    clipped = {
        **case,
        "clip": np.asarray(0.5 * total),
        "adv_grad_norms_clipped": factor * case["adv_grad_norms_unclipped"],
        "bn1_weight_adv_grad_clipped": np.float32(factor) * case["bn1_weight_adv_grad_clipped"],
    }
    replays.sagnet.replay_step(clipped)
    assert walk.fails(replays.sagnet.replay_step, {**case, "clip": clipped["clip"]})


def rebias_by_hand(first: float, second: float, nets: int) -> replays.Case:
    """Return a step of the authors' with these widths by position of the argument, beside that many biased networks."""
    random, n = np.random.RandomState(3), 9
    shapes = {"f_features": (n, 5), "f_logits": (n, 3), "g_features": (nets, n, 4), "g_logits": (nets, n, 3)}
    case = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    f, f_logits, g, g_logits = (torch.tensor(value, requires_grad=True) for value in case.values())
    y, weights = torch.arange(n) % 3, {"f": 0.3, "g": 0.7}
    losses = [
        functional.cross_entropy(g_logits[net], y) - weights["g"] * independence(g[net], f.detach(), first, second)
        for net in range(nets)
    ]
    dependence = torch.stack([independence(f, g[net].detach(), first, second) for net in range(nets)]).sum()
    classification = functional.cross_entropy(f_logits, y)
    results = {"g_loss": torch.stack(losses).sum(), "f_loss": classification + weights["f"] * dependence}
    results |= {"f_loss_cls": classification, "f_loss_indep": dependence, "y": y}
    for name, tables in (("f", (f, f_logits)), ("g", (g, g_logits))):
        slopes = torch.autograd.grad(results[f"{name}_loss"], tables)
        results |= {f"{name}_grad_features": slopes[0], f"{name}_grad_logits": slopes[1]}
        case[f"{name}_lambda"] = np.asarray(weights[name])
    widths = {"sigma_first_argument": np.asarray(first), "sigma_second_argument": np.asarray(second)}
    return {**case, **widths, **{name: value.detach().numpy() for name, value in results.items()}}


@pytest.mark.parametrize("nets", [1, 2])
def test_a_step_of_unequal_widths_and_weights(nets: int) -> None:
    """Whatever the number of biased networks; and every number of it is compared, the widths one by one."""
    replay, case = replays.debiasing_coupled.replay_rebias, rebias_by_hand(1.7, 0.8, nets)
    replay(case)
    unnoticed = [key for key in walk.compared_keys(case, {}) if not walk.fails(replay, walk.changed(case, key))]
    assert not unnoticed
    exchanged = {**case, "sigma_first_argument": np.asarray(0.8), "sigma_second_argument": np.asarray(1.7)}
    assert walk.fails(replay, exchanged)


def test_sizes_of_a_training_of_another_length() -> None:
    """Half, 1/sqrt(2) and all of 224 pixels are 112, 158 and 224; nothing below 120."""
    even, odd = [], []
    for start, end in ((0, 14), (14, 40), (40, 50)):
        for epoch in range(start, end):
            early = 2 * epoch < start + end
            even.append(120 if early else 158)
            odd.append(158 if early else 224)
    sizes = {"epochs": 50, "schedule": [14, 40], "min_size": 120, "size_even_batch": even, "size_odd_batch": odd}
    replays.debiased.replay_sizes({key: np.asarray(value) for key, value in sizes.items()})


def stylised_by_hand(x: Tensor, order: Tensor, alpha: float, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """relu4_1 and the decoded images (all rows and columns), from [weight, bias, ...] of VGG-19 and decoder."""
    left = iter(weights)

    def conv(h: Tensor) -> Tensor:
        return functional.conv2d(functional.pad(h, (1, 1, 1, 1), mode="reflect"), next(left), next(left))

    h = functional.conv2d(x, next(left), next(left))
    for stage, convs in enumerate((2, 2, 4, 1)):
        h = functional.max_pool2d(h, 2, ceil_mode=True) if stage else h
        for _ in range(convs):
            h = conv(h).relu()
    mean, std = h.mean((2, 3), keepdim=True), (h.var((2, 3), keepdim=True) + 1e-5).sqrt()
    styled = (h - mean) / std * std[order] + mean[order]
    out = alpha * styled + (1 - alpha) * h
    for convs in (1, 4, 2):
        for _ in range(convs):
            out = conv(out).relu()
        out = out.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    return h, conv(conv(out).relu())


@torch.no_grad()
def test_images_whose_sides_are_no_multiples_of_8() -> None:
    network = StyleTransfer()
    replays.weights_by_formula(network.encoder, 3)
    replays.weights_by_formula(network.decoder, 4)
    x, order = torch.rand(2, 3, 20, 13, generator=torch.Generator().manual_seed(0)), torch.tensor([1, 0])
    features, images = stylised_by_hand(x, order, 0.5, list(network.state_dict().values()))
    assert images.shape == (2, 3, 24, 16)
    case = {"seed_vgg": 3, "seed_decoder": 4, "alpha": 0.5, "x": x, "perm": order}
    case |= {"relu4_1": features, "stylised": images}
    replays.debiased.replay_network({key: np.asarray(value) for key, value in case.items()})
