"""DeepAugment's two networks, their features and their weights, distorted by the draws of the authors' modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from biasbed.plugins.deepaug import cae_distortion as cae
from biasbed.plugins.deepaug import edsr_distortion as edsr
from biasbed.plugins.deepaug.cae import CAE
from biasbed.plugins.deepaug.distortion import Draws
from biasbed.plugins.deepaug.edsr import EDSR
from helpers.scripted import Given, Script, permutation, uniform, whole
from replays import Case, close, weights_by_formula

WIDTH = 64


def draws() -> Draws:
    return Draws(torch.Generator())


def signal_draws(case: Case) -> Iterator[tuple[int, str, str, list[Given]]]:
    """(option, name of its code, name of its image, what it draws) of the autoencoder; the bits are drawn by all."""
    bits, positions = uniform(case["binarise_uniform"]), uniform(case["mask_uniform"])
    yield 0, "opt0", "opt0_scale", [bits, uniform(case["opt0_u"]), uniform(case["opt0_U"])]
    yield 1, "opt1", "opt1_zero_mask", [positions, bits]
    yield 2, "opt2", "opt2_negate_mask", [positions, bits]
    yield 3, "opt3", "opt3_perm", [permutation(case["opt3_perm"]), bits]
    yield 5, "opt5", "opt5_flip_dims_1_2", [permutation([1, 2, 0]), bits]
    yield 5, "", "opt5_flip_dims_0_2", [permutation([0, 2, 1]), bits]
    yield 6, "opt6", "opt6_conv", [uniform(case["opt6_U"]), bits]
    kept = [uniform(0.5)] * case["binarise_uniform"].shape[1]  # every channel is shifted like the one before it
    yield 8, "opt8", "opt8_shift_0_2", [whole(0, 3), whole(2, 3), *kept, bits]
    yield cae.NONE, "none", "none", [bits]


@torch.no_grad()
def replay_cae(case: Case) -> None:
    network = CAE().eval()
    weights_by_formula(network, int(case["seed"]), float(case["gain"]))
    latent = network.encode(torch.from_numpy(case["x"]))
    close(latent, case["latent"])
    for option, code_name, name, drawn in signal_draws(case):
        with Script(drawn):
            code = cae.distort_signal(latent, option, draws(), WIDTH)
        if code_name:
            close(code, case[f"code_{code_name}"])
        close(network.decode(code), case[f"out_{name}"])
    close(network.decode(torch.ones_like(latent)), case["decode_ones"])


@torch.no_grad()
def replay_edsr(case: Case) -> None:
    """Ones of an option are what happens within the body, tens what happens before; one of three draws is the rarer
    variant."""
    network = EDSR().eval()
    weights_by_formula(network, int(case["seed"]), float(case["gain"]))
    x, elements = torch.from_numpy(case["x"]), uniform(case["pre_uniform"])

    def distorted(option: int, *drawn: Given) -> Tensor:
        with Script(drawn):
            return edsr.distort_signal(network, x, option, draws())

    first, second, third = (whole(number, 3) for number in range(3))
    pairs = [whole(channel, WIDTH) for channel in case["pre1_pairs"].flatten()]
    made = {
        "clean": [network(x), distorted(45, first)],
        "pre1": [distorted(15, *pairs, first)],
        "pre2": [distorted(25, elements, first)],
        "pre3": [distorted(35, elements, first)],
        "body1": [distorted(41, first)],
        "body2_relu": [distorted(42, second)],
        "body2_gelu": [distorted(42, first), distorted(42, third)],
        "body3_axes_1_2": [distorted(43, second)],
        "body3_axes_1_3": [distorted(43, first), distorted(43, third)],
        "body4": [distorted(44, whole(case["body4_skip"] - 2, 15))],
        "body4_lastskipped": [distorted(44, whole(case["body4_lastskipped_skip"] - 2, 15))],
    }
    for name, results in made.items():
        for result in results:
            close(result, case[name])  # the mean of 105 would hide much under the tolerance for whole networks


def on_a_block(option: int, block: int) -> Given:
    """Return the draw of the block that an option acts on."""
    blocks = list(edsr.ON_A_BLOCK[option][0])
    return whole(blocks.index(block), len(blocks))


def replay_edsr_weights(case: Case) -> None:
    for option in (0, 1, 2, 3, 4, 5, 7):
        block = int(case[f"op{option}_block"])
        kinds = [f"{conv}_{kind}" for conv in (0, 2) for kind in ("weight", "bias")]
        keys = {f"body.{block}.body.{kind.replace('_', '.')}": kind for kind in kinds}
        weights = {key: torch.from_numpy(case[f"op{option}_before_{kind}"]) for key, kind in keys.items()}
        with Script(on_a_block(option, block)):
            changed = edsr.distort_weights(weights, option, draws())
        assert {key for key in keys if changed[key] is not weights[key]} == set(
            case[f"op{option}_changed_keys"].tolist()
        )
        for key, kind in keys.items():
            close(changed[key], case[f"op{option}_after_{kind}"])
    for option, conv in ((6, 2), (9, 0), (11, 2)):  # of one tensor, wherever it is
        key = f"body.0.body.{conv}.weight"
        drawn = [uniform(case[f"op{option}_{name}"]) for name in ("u", "U") if f"op{option}_{name}" in case]
        with Script(on_a_block(option, 0), drawn):
            changed = edsr.distort_weights({key: torch.from_numpy(case[f"op{option}_before"])}, option, draws())
        close(changed[key], case[f"op{option}_after"])


REPLAYS: dict[str, Callable[[Case], None]] = {
    "cae_forward_*": replay_cae,
    "edsr_forward_*": replay_edsr,
    "edsr_weight_ops_*": replay_edsr_weights,
}
UNCOMPARED: dict[str, dict[str, str]] = {
    "cae_forward_*": {"opt6_U": "moves the latent too little for any of the 512 bits to flip"},
    "edsr_weight_ops_*": {f"op2_before_0_{kind}": "is multiplied by zero" for kind in ("weight", "bias")},
}
