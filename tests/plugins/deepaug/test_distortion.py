"""DeepAugment's distortions: what each option changes and leaves alone, and that nothing but the generator decides."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from biasbed.plugins.deepaug import cae_distortion as deepaug_cae
from biasbed.plugins.deepaug import edsr_distortion as deepaug_edsr
from biasbed.plugins.deepaug.cae import CAE, LAYERS
from biasbed.plugins.deepaug.distortion import Draws, Weights, scale_count
from biasbed.plugins.deepaug.edsr import BLOCKS, EDSR
from helpers.scripted import Script, whole
from helpers.tensors import changed, seeded


def weights_of(network: torch.nn.Module, seed: int = 0) -> Weights:
    """A state dict of its shapes without a zero and without two equal elements, so that every change shows."""
    generator = seeded(seed)
    return {key: torch.randn(value.shape, generator=generator) + 1e-3 for key, value in network.state_dict().items()}


def filters_changed(before: Tensor, after: Tensor) -> list[int]:
    return (before != after).flatten(1).any(1).nonzero().flatten().tolist()


CAE_WEIGHTS = weights_of(CAE(size=16, width=16))
FULL_CAE_WEIGHTS = weights_of(CAE(size=16))
EDSR_WEIGHTS = weights_of(EDSR(size=16, width=8))


def distorted_cae(option: int, seed: int, weights: Weights = CAE_WEIGHTS, width: int = 16) -> Weights:
    return deepaug_cae.distort_weights(weights, option, Draws(seeded(seed)), width)


def distorted_edsr(option: int, seed: int) -> Weights:
    return deepaug_edsr.distort_weights(EDSR_WEIGHTS, option, Draws(seeded(seed)))


# --- the autoencoder's weights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", deepaug_cae.WEIGHT_OPTIONS)
def test_cae_layers(option: int) -> None:
    """Only option 4 changes two layers, only options 0 to 3 the biases."""
    before = {key: value.clone() for key, value in CAE_WEIGHTS.items()}
    keys = [changed(CAE_WEIGHTS, distorted_cae(option, seed)) for seed in range(60)]
    assert not changed(before, CAE_WEIGHTS)
    layers = [{LAYERS.index(key.rpartition(".")[0]) for key in found} for found in keys]
    assert set.union(*layers) == {0: {*range(11, 16)}, 3: {*range(10, 14)}}.get(option, {*range(8, 14)})
    assert {len(found) for found in layers} == ({1, 2} if option == 4 else {1})
    assert any(key.endswith("bias") for found in keys for key in found) == (option in range(4))


def test_cae_second_flipped_layer_stays_as_it_was() -> None:
    first, second = LAYERS[12], LAYERS[15]
    result = deepaug_cae.flip_filters(CAE_WEIGHTS, first, second)
    assert changed(CAE_WEIGHTS, result) == {f"{first}.weight", f"{first}.bias"}
    for kind in ("weight", "bias"):
        assert torch.equal(result[f"{first}.{kind}"], CAE_WEIGHTS[f"{first}.{kind}"].flip(0))
    same = deepaug_cae.flip_filters(CAE_WEIGHTS, first, first)
    assert not changed(result, same)


def seed_of_layer(option: int, layer: int, weights: Weights, width: int) -> Weights:
    """A result of the option in the given layer."""
    for seed in range(100):
        result = distorted_cae(option, seed, weights, width)
        if f"{LAYERS[layer]}.weight" in changed(weights, result):
            return result
    raise AssertionError(f"option {option} never changed layer {layer}")


@pytest.mark.parametrize(("option", "most"), [(1, 12), (2, 25), (3, 25)])
@pytest.mark.parametrize("layer", [10, 12])
def test_cae_filters_with_their_biases(option: int, most: int, layer: int) -> None:
    """At the authors' width; in the transposed layer 10, of input channels with the biases of as many outputs."""
    result = seed_of_layer(option, layer, FULL_CAE_WEIGHTS, 64)
    for kind in ("weight", "bias"):
        key = f"{LAYERS[layer]}.{kind}"
        before, after = FULL_CAE_WEIGHTS[key], result[key]
        found = filters_changed(before[:, None], after[:, None])
        assert most // 3 < len(found) <= most
        limit = len(FULL_CAE_WEIGHTS[f"{LAYERS[layer]}.weight"])
        assert max(found) < limit
        if option == 1:
            assert torch.equal(after[found], -before[found])
        elif option == 2:
            assert not after[found].any()
        else:
            once = -functional.gelu(before)
            assert sum(torch.allclose(after[f], once[f]) for f in found) > len(found) // 2


def test_cae_elementwise_options() -> None:
    for seed in range(20):
        (key,) = changed(CAE_WEIGHTS, distorted_cae(5, seed)) or {""}
        ratio = distorted_cae(5, seed)[key] / CAE_WEIGHTS[key]
        assert set(ratio.unique().tolist()) in ({0.0, 1.0}, {-1.0, 1.0})
        assert 0.4 < (ratio == 1).float().mean() < 0.6
        amplified = distorted_cae(4, seed)
        for key in changed(CAE_WEIGHTS, amplified):  # up to 9 for one draw of the layer, 81 for two
            assert 1 <= (amplified[key] / CAE_WEIGHTS[key]).min() < 1.5


def test_cae_kernel_options() -> None:
    for seed in range(20):
        for option in (6, 7, 8):
            result = distorted_cae(option, seed)
            (key,) = changed(CAE_WEIGHTS, result)
            before, after = CAE_WEIGHTS[key], result[key]
            if option == 6:
                assert any(torch.equal(after, torch.rot90(before, k, (2, 3))) for k in (1, 2, 3))
            elif option == 7:
                found = filters_changed(before, after)
                assert 1 <= len(found) <= max(1, len(before) // 5)
                assert torch.equal(after[found], -before[found])
            else:
                assert torch.equal(after.flatten(2).sum(2), before.flatten(2).amax(2))
                assert ((after != 0).flatten(2).sum(2) == 1).all()


def test_numbers_of_filters_follow_the_width() -> None:
    assert [scale_count(12, width) for width in (64, 32, 16, 4, 1)] == [12, 6, 3, 1, 1]


# --- the autoencoder's signal -----------------------------------------------------------------------------------------


LATENT = torch.rand(1, 32, 24, 20, generator=seeded(7)) - 0.5


def test_cae_kernels() -> None:
    kernels = {option: deepaug_cae._KERNELS[option](32, Draws(seeded(3))) for option in (6, 7, 8)}
    identity = deepaug_cae.make_identity_kernel(32)
    assert torch.equal(functional.conv2d(LATENT, identity, padding=1), LATENT)
    off = kernels[6] - identity
    assert off.abs().max() <= 0.1
    assert off.min() < -0.099
    assert off.max() > 0.099
    extra = kernels[7] - identity
    assert set(extra.unique().tolist()) == {0.0, 1.0}
    assert 8 <= extra.sum() <= 24
    assert (extra.flatten(1).sum(1) <= 1).all()
    own = kernels[8][range(32), range(32)].flatten(1)
    assert (own.sum(1) == 1).all()
    assert kernels[8].sum() == 32
    moves = (own[1:] != own[:-1]).any(1).sum()
    assert 1 <= moves <= 14


def test_cae_shifts_are_drawn_anew_for_one_channel_in_five() -> None:
    """One in nine of these draws the same shift again."""
    kernel = deepaug_cae._KERNELS[8](400, Draws(seeded(0)))
    own = kernel[range(400), range(400)].flatten(1)
    moves = int((own[1:] != own[:-1]).any(1).sum())
    assert abs(moves - 399 * 0.2 * 8 / 9) < 4 * 7.7


# --- EDSR's weights ---------------------------------------------------------------------------------------------------

BOTH = {"0.weight", "0.bias", "2.weight", "2.bias"}
EDSR_TOUCHES: dict[int, tuple[set[int], set[str]]] = {
    0: ({0, 3, 6, 9}, BOTH),
    1: ({1, 4, 7}, {"0.weight", "0.bias"}),
    2: ({0, 3, 6, 9}, {"0.weight", "0.bias"}),
    3: ({0, 3, 6, 9}, {"0.weight", "2.weight"}),
    4: ({0, 3, 6, 9}, {"0.weight"}),
    5: ({0, 3, 6, 9}, {"0.weight"}),
    6: ({0, 3, 6, 9}, {"2.weight"}),
    7: ({0, 3, 6, 9}, {"0.weight", "2.weight"}),
    8: ({1, 5, 9}, {"0.weight"}),
    9: ({0, 3, 6, 9}, {"0.weight"}),
    10: ({1, 5, 9}, {"2.weight"}),
    11: ({*range(15)}, {"2.weight"}),
    **dict.fromkeys((12, 16), ({*range(15)}, {"0.weight", "2.weight"})),
    **dict.fromkeys((13, 14, 15), ({*range(15)}, {"0.weight"})),
}


@pytest.mark.parametrize("option", deepaug_edsr.WEIGHT_OPTIONS)
def test_edsr_blocks(option: int) -> None:
    """An option changes its blocks and tensors: never the last block, nor anything outside of blocks."""
    before = {key: value.clone() for key, value in EDSR_WEIGHTS.items()}
    blocks, kinds = EDSR_TOUCHES[option]
    found: set[tuple[int, str]] = set()
    for seed in range(90):
        result = distorted_edsr(option, seed)
        assert all(torch.isfinite(value).all() for value in result.values())
        parts = [key.split(".", 3) for key in changed(EDSR_WEIGHTS, result)]
        assert all(part[0] == "body" and part[2] == "body" for part in parts)
        found |= {(int(part[1]), part[3]) for part in parts}
        assert len({part[1] for part in parts}) <= (1 if option <= 11 else 5)
    assert not changed(before, EDSR_WEIGHTS)
    assert {block for block, _ in found} == blocks
    assert {kind for _, kind in found} == kinds
    assert BLOCKS - 1 not in blocks


def in_edsr(option: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """(before, after) of every weight that changed."""
    result = distorted_edsr(option, seed)
    return [(EDSR_WEIGHTS[key], result[key]) for key in sorted(changed(EDSR_WEIGHTS, result))]


def test_edsr_convolved_kernels() -> None:
    for seed in range(5):
        ((_, after),) = in_edsr(8, seed)
        assert torch.allclose(after, after[:, :1].expand_as(after), atol=1e-5)  # one tap for all filters of a channel
        ((before, blurred),) = in_edsr(10, seed)
        padded = functional.pad(before, (1, 1, 1, 1))
        assert blurred.abs().max() <= padded.abs().sum((1, 2, 3)).max()
        ((before, after),) = in_edsr(11, seed)
        assert (after - before).abs().max() <= 0.5 + 1e-6


def test_edsr_redraws_three_options_in_turn() -> None:
    """Options 0, 1 and 7, of blocks 3, 7 and 3: each acts on what the one before it left."""
    network = EDSR(size=16, width=8)
    made = deepaug_edsr.EDSRDistortion(network)
    with Script(whole([0, 1, 7], 17), whole(1, 4), whole(2, 3), whole(1, 4)):
        made.redraw(seeded(0))
    expected = dict(network.state_dict())
    for option, block in ((0, 3), (1, 7), (7, 3)):
        expected = deepaug_edsr.ON_A_BLOCK[option][1](expected, block, Draws(seeded(0)))
    assert not changed(made.distorted.state_dict(), expected)
    assert {key.split(".")[1] for key in changed(network.state_dict(), expected)} == {"3", "7"}


def test_edsr_blurs_have_most_of_their_mass_on_few_taps() -> None:
    """A Dirichlet distribution of nine taps and concentration a has (a + 1) / (9 a + 1) as its mean sum of squares."""
    width = 24
    deltas = torch.zeros(width, width, 3, 3)
    deltas[range(width), range(width), 1, 1] = 1  # convolved with a kernel, each gives the kernel back
    weights = {f"body.{block}.body.2.weight": deltas for block in (1, 5, 9)}
    result = deepaug_edsr.distort_weights(weights, 10, Draws(seeded(0)))
    (key,) = changed(weights, result)
    kernels = result[key].flatten(2)
    torch.testing.assert_close(kernels.sum(2), torch.ones(width, width))
    assert kernels.square().sum(2).mean() == pytest.approx(1.1 / 1.9, rel=0.05)


def test_edsr_masks_and_signs() -> None:
    def by_filter(ratio: Tensor) -> list[set[float]]:
        return [set(f.unique().tolist()) for f in ratio.flatten(1)]

    for seed in range(5):
        for before, after in in_edsr(13, seed):
            assert set((after / before).unique().tolist()) == {-1.0, 1.0}
        for before, after in in_edsr(14, seed):
            assert set((after / before).unique().tolist()) == {0.0, 1.0}
        for before, after in in_edsr(15, seed):
            found = by_filter(after / before)
            assert all(values in ({1.0}, {-1.0}) for values in found)
        for before, after in in_edsr(16, seed):
            taps = (after != 0).flatten(2).sum(2)
            strongest = before.flatten(2).amax(2)
            assert torch.equal(after.flatten(2).sum(2)[taps == 1], strongest[taps == 1])
            assert (strongest[taps == 0] < 0).all()  # a lone negative tap is not its kernel's largest value
            assert taps.max() == 1


def test_edsr_turns() -> None:
    planes = set()
    for seed in range(10):
        for before, after in in_edsr(12, seed):
            turns = {(k, axes) for k in (1, 2, 3) for axes in ((2, 3), (0, 1))}
            planes |= {axes for k, axes in turns if torch.equal(torch.rot90(before, k, axes), after)}
    assert planes == {(2, 3), (0, 1)}
