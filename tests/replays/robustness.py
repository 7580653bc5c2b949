"""AugMix's operations, mixtures and divergence, and speckle noise: the authors' modules, with what they drew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from biasbed.algorithms.augmix import AugMix
from biasbed.algorithms.speckle import speckled
from biasbed.batch import Batch
from biasbed.data import augmix
from biasbed.networks.network import IMAGENET_MEAN, IMAGENET_STD
from helpers.commands import SHARED
from replays import Case, close, setup

VARIANT = "dfr"


def drawn() -> Mapping[str, Any]:
    """Levels and signs of the operations, and all of the mixtures; beside the vectors, in JSON."""
    found: Mapping[str, Any] = json.loads((SHARED / "vectors" / "robustness" / "augmix_draws.json").read_text())
    return found


def signed(operation: Mapping[str, Any]) -> tuple[str, float]:
    """As ours has it: a level and its sign in one."""
    name, level = operation["op"], operation.get("level", 0.0)
    return name, -level if operation.get("negate") and name in augmix.SIGNED else level


def normalised(image: np.ndarray) -> np.ndarray:
    """[H,W,3] in [0,1] as [3,H,W] the way ImageNet's networks see it."""
    return ((image - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)).transpose(2, 0, 1)


def replay_augmix(case: Case) -> None:
    given = drawn()
    for entry in given["ops"]:
        name, level = signed(entry)
        found = np.asarray(augmix.ALL[name](Image.fromarray(case["op_input"]), level))
        assert np.array_equal(found, case[f"op.{name}.{entry['case']}"]), (name, level)
    for name, entry in given["draws"].items():
        if name == VARIANT:
            continue
        chains = [[signed(operation) for operation in chain] for chain in entry["chains"]]
        found = augmix.mix(case[f"{name}.input"], augmix.Mixture(entry["weights"], entry["m"], chains))
        assert found.dtype == np.float32
        close(normalised(found), case[f"{name}.output"], rtol=0, atol=1e-6)


class Known(nn.Module):
    """Stands for a network of three images: the logits that belong to each."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits.flatten(0, 1)[x[:, 0, 0, 0].long()]


def replay_jsd(case: Case) -> None:
    """One step's losses, of "images" that say where their logits are."""
    for number in range(sum(key.endswith(".logits") for key in case)):
        logits, y = (torch.from_numpy(case[f"{number}.{name}"]) for name in ("logits", "target"))
        network = Known(logits)
        method = AugMix(AugMix.HParams(), setup(logits.shape[-1], lambda network=network: network))
        places = torch.arange(logits[..., 0].numel()).view(3, len(y)).T[..., None, None, None]
        losses = method.losses(Batch(places.float(), y))
        total = losses["classification"] + losses["divergence"]
        total.backward()
        rtol = 1e-4 if logits.abs().max() > 50 else 1e-5
        close(losses["classification"], case[f"{number}.cross_entropy"], rtol=1e-5, atol=0)
        close(total, case[f"{number}.loss"], rtol=rtol, atol=0)
        assert network.logits.grad is not None
        assert network.logits.grad.isfinite().all()
        known = np.isfinite(case[f"{number}.grad"])  # theirs has none for predictions of which some are 0 in fp32
        assert known.mean() >= 0.5
        close(network.logits.grad[torch.from_numpy(known)], case[f"{number}.grad"][known], rtol=0, atol=1e-5)


def replay_training(case: Case) -> None:
    for name, shape in (("speckle", (-1, 1, 1)), ("speckle_batch", (-1, 1, 1, 1))):
        x, normal = (torch.from_numpy(case[f"{name}.{key}"]) for key in ("x", "normal"))
        per = "channel" if name == "speckle" else "image"
        sigma = torch.from_numpy(case[f"{name}.sigma_per_{per}"]).float().view(shape)
        close(speckled(x, sigma, normal), case[f"{name}.output"], rtol=0, atol=1e-6)


# Of other methods and networks, which are not there yet.
LATER = {
    "se": ("x", "y", "fc.0.weight", "fc.2.weight"),
    "cbam": (
        *("x", "y_channel", "y_eval", "y_train", "running_var_after_train"),
        *(f"ChannelGate.mlp.{layer}.{kind}" for layer in (1, 3) for kind in ("weight", "bias")),
        *(f"SpatialGate.spatial.bn.{kind}" for kind in ("weight", "bias", "running_mean", "running_var")),
        "SpatialGate.spatial.conv.weight",
    ),
    "fgsm": (
        *("x", "noise_initial", "noise_final", "losses_attack_then_train", "lr"),
        *(f"{when}.{layer}.weight" for when in ("before", "after") for layer in (0, 1, 5)),
        *(f"{when}.{layer}.bias" for when in ("before", "after") for layer in (0, 1, 5)),
        *(f"{when}.1.running_{kind}" for when in ("before", "after") for kind in ("mean", "var")),
    ),
}
REPLAYS = {
    "robustness/augmix": replay_augmix,
    "robustness/jsd": replay_jsd,
    "robustness/training": replay_training,
}
UNCOMPARED = {
    "robustness/augmix": {f"{VARIANT}.output_16bit": "another method by that name: the share is the clean image's"},
    "robustness/training": {f"{part}.{name}": "not there yet" for part, names in LATER.items() for name in names},
}
