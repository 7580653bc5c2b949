"""DeepAugment's two networks, their features and their weights, distorted by the draws of the authors' modules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from biasbed.networks.cae import CAE, binarise
from biasbed.networks.edsr import EDSR
from biasbed.prepare import deepaug_cae as cae
from biasbed.prepare import deepaug_edsr as edsr
from biasbed.prepare.distortion import Weights, amplified
from replays import Case, close, weights_by_formula


@torch.no_grad()
def replay_cae(case: Case) -> None:
    network = CAE().eval()
    weights_by_formula(network, int(case["seed"]), float(case["gain"]))
    bits, positions = torch.from_numpy(case["binarise_uniform"]), torch.from_numpy(case["mask_uniform"])
    latent = network.encode(torch.from_numpy(case["x"]))
    close(latent, case["latent"])
    kernel = cae.identity_kernel(32)
    shift = cae.with_taps(torch.zeros(32, 32, 3, 3), [(c, c, 0, 2) for c in range(32)])
    distorted = {
        ("none", "none"): latent,
        ("opt1", "opt1_zero_mask"): cae.dropped_positions(latent, positions),
        ("opt2", "opt2_negate_mask"): cae.negated_positions(latent, positions),
        ("opt3", "opt3_perm"): cae.permuted(latent, case["opt3_perm"].tolist()),
        ("opt5", "opt5_flip_dims_1_2"): cae.mirrored(latent, range(32), (1, 2)),
        ("", "opt5_flip_dims_0_2"): cae.mirrored(latent, range(32), (0, 2)),
        ("opt6", "opt6_conv"): functional.conv2d(
            latent, cae.noisy(kernel, torch.from_numpy(case["opt6_U"])), padding=1
        ),
        ("opt8", "opt8_shift_0_2"): functional.conv2d(latent, shift, padding=1),
    }
    codes = {names: binarise(changed, bits) for names, changed in distorted.items()}
    bright = amplified(codes["none", "none"], 3, 4, float(case["opt0_u"]), torch.from_numpy(case["opt0_U"]))
    for (code_name, name), code in (codes | {("opt0", "opt0_scale"): bright}).items():
        if code_name:
            close(code, case[f"code_{code_name}"])
        close(network.decode(code), case[f"out_{name}"])
    close(network.decode(torch.ones_like(latent)), case["decode_ones"])


@torch.no_grad()
def replay_edsr(case: Case) -> None:
    network = EDSR().eval()
    weights_by_formula(network, int(case["seed"]), float(case["gain"]))
    x, uniform = torch.from_numpy(case["x"]), torch.from_numpy(case["pre_uniform"])
    shallow = network.shallow(x)

    def image(deep: Tensor, features: Tensor = shallow) -> Tensor:
        return network.enlarge(deep + features)

    def before(features: Tensor) -> Tensor:
        return image(network.body(features), features)

    def within(change: Callable[[Tensor], Tensor]) -> Tensor:
        return image(edsr.within_body(network.body, shallow, change))

    def skipping(skipped: np.ndarray) -> Tensor:
        return image(edsr.last_module_only(network.body, shallow, skipped.tolist()))

    made = {
        "clean": network(x),
        "pre1": before(edsr.copied(shallow, [(a, b) for a, b in case["pre1_pairs"].tolist()])),
        "pre2": before(edsr.dropped(shallow, uniform)),
        "pre3": before(edsr.with_signs(shallow, uniform)),
        "body1": within(torch.neg),
        "body2_relu": within(functional.relu),
        "body2_gelu": within(functional.gelu),
        "body3_axes_1_2": within(lambda features: features.flip((1, 2))),
        "body3_axes_1_3": within(lambda features: features.flip((1, 3))),
        "body4": skipping(case["body4_skip"]),
        "body4_lastskipped": skipping(case["body4_lastskipped_skip"]),
    }
    for name, result in made.items():
        close(result, case[name])  # the mean of 105 would hide much under the tolerance for whole networks


def replay_edsr_weights(case: Case) -> None:
    for option in (0, 1, 2, 3, 4, 5, 7):
        block = int(case[f"op{option}_block"])
        blocks, operation = edsr.ON_A_BLOCK[option]
        assert block in blocks
        kinds = [f"{conv}_{kind}" for conv in (0, 2) for kind in ("weight", "bias")]
        keys = {f"body.{block}.body.{kind.replace('_', '.')}": kind for kind in kinds}
        weights = {key: torch.from_numpy(case[f"op{option}_before_{kind}"]) for key, kind in keys.items()}
        changed = operation(weights, block, None)
        assert {key for key in keys if changed[key] is not weights[key]} == set(
            case[f"op{option}_changed_keys"].tolist()
        )
        for key, kind in keys.items():
            close(changed[key], case[f"op{option}_after_{kind}"])
    tensors = {
        key: torch.from_numpy(case[key])
        for key in ("op6_before", "op9_before", "op11_before", "op6_U", "op9_U", "op11_U")
    }
    sixth: Weights = {"body.0.body.2.weight": tensors["op6_before"]}
    close(
        edsr.amplified_second(sixth, 0, float(case["op6_u"]), tensors["op6_U"])["body.0.body.2.weight"],
        case["op6_after"],
    )
    kernels = edsr.noise_kernels(float(case["op9_u"]), tensors["op9_U"])
    close(edsr.convolved(tensors["op9_before"], kernels), case["op9_after"])
    close(edsr.shaken(tensors["op11_before"], tensors["op11_U"]), case["op11_after"])


REPLAYS: dict[str, Callable[[Case], None]] = {
    "cae_forward_*": replay_cae,
    "edsr_forward_*": replay_edsr,
    "edsr_weight_ops_*": replay_edsr_weights,
}
UNCOMPARED: dict[str, dict[str, str]] = {
    "cae_forward_*": {"opt6_U": "moves the latent too little for any of the 512 bits to flip"},
    "edsr_weight_ops_*": {f"op2_before_0_{kind}": "is multiplied by zero" for kind in ("weight", "bias")},
}
