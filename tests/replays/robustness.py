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
from biasbed.algorithms.fast_adversarial import FastAdversarial
from biasbed.algorithms.speckle import add_speckle
from biasbed.batch import Batch
from biasbed.data import augmix
from biasbed.networks import attention
from biasbed.networks.network import IMAGENET_MEAN, IMAGENET_STD, Network
from helpers.commands import SHARED
from replays import Case, close, setup

VARIANT = "dfr"


def drawn() -> Mapping[str, Any]:
    """Levels and signs of the operations, and all of the mixtures; beside the vectors, in JSON."""
    content: Mapping[str, Any] = json.loads((SHARED / "vectors" / "robustness" / "augmix_draws.json").read_text())
    return content


def signed(operation: Mapping[str, Any]) -> tuple[str, float]:
    """As ours has it: a level and its sign in one."""
    name, level = operation["op"], operation.get("level", 0.0)
    return name, -level if operation.get("negate") and name in augmix.SIGNED else level


def normalised(image: np.ndarray) -> np.ndarray:
    """[H,W,3] in [0,1] as [3,H,W] the way ImageNet's networks see it."""
    return ((image - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)).transpose(2, 0, 1)


def replay_augmix(case: Case) -> None:
    draws = drawn()
    for step in draws["ops"]:
        name, level = signed(step)
        picture = np.asarray(augmix.ALL[name](Image.fromarray(case["op_input"]), level))
        assert np.array_equal(picture, case[f"op.{name}.{step['case']}"]), (name, level)
    for name, step in draws["draws"].items():
        if name == VARIANT:
            continue
        chains = [[signed(operation) for operation in chain] for chain in step["chains"]]
        picture = augmix.mix(case[f"{name}.input"], augmix.Mixture(step["weights"], step["m"], chains))
        assert picture.dtype == np.float32
        close(normalised(picture), case[f"{name}.output"], rtol=0, atol=1e-6)


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
        is_finite = np.isfinite(case[f"{number}.grad"])  # theirs has none for predictions of which some are 0 in fp32
        close(network.logits.grad[torch.from_numpy(is_finite)], case[f"{number}.grad"][is_finite], rtol=0, atol=1e-5)


def gate(case: Case, part: str, kind: type[nn.Module]) -> tuple[nn.Module, Tensor]:
    """Return the authors' gate with their parameters, which have the same names, and what it is shown."""
    x = torch.from_numpy(case[f"{part}.x"])
    module = kind(x.shape[1])
    weights = {name: torch.from_numpy(case[f"{part}.{name}"]) for name in module.state_dict() if "num_" not in name}
    module.load_state_dict(weights, strict=False)
    return module.eval(), x


def replay_gates(case: Case) -> None:
    """Compare gates of a pattern in weights, biases, running statistics; in training the norm takes the batch's own."""
    module, x = gate(case, "se", attention.SE)
    close(module(x), case["se.y"], rtol=0, atol=1e-6)
    module, x = gate(case, "cbam", attention.CBAM)
    assert isinstance(module, attention.CBAM)
    close(module.ChannelGate(x), case["cbam.y_channel"], rtol=0, atol=1e-6)
    close(module(x), case["cbam.y_eval"], rtol=0, atol=1e-6)
    close(module.train()(x), case["cbam.y_train"], rtol=0, atol=1e-6)
    variance = module.SpatialGate.spatial.get_buffer("bn.running_var")
    close(variance, case["cbam.running_var_after_train"], rtol=0, atol=1e-6)


def replay_attack(case: Case) -> None:
    """One step from the noise that was drawn; batch norm has no decay."""
    layers = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5)),
    )
    for name, value in layers.state_dict().items():
        if "num_" not in name:
            value.copy_(torch.from_numpy(case[f"fgsm.before.{name}"]))
    rate, spared = float(case["fgsm.lr"]), [*layers[1].parameters()]
    rest = [p for p in layers.parameters() if all(p is not q for q in spared)]
    groups = [{"params": rest, "weight_decay": 1e-4}, {"params": spared}]
    optimizer = torch.optim.SGD(groups, rate, momentum=0.9)
    method = FastAdversarial(
        FastAdversarial.HParams(), setup(5, lambda: Network(layers), optimizer=lambda parameters: optimizer)
    )
    batch = Batch(torch.from_numpy(case["fgsm.x"]), torch.from_numpy(case["fgsm.y"]).long())
    first, noises = torch.from_numpy(case["fgsm.noise_initial"]), []
    method.draw_noise = lambda x: first.clone()  # type: ignore[method-assign]
    perturb = method.perturb
    method.perturb = lambda batch: noises.append(perturb(batch)) or noises[-1]  # type: ignore[func-returns-value,method-assign]
    method.train()
    losses = method.losses(batch)
    losses["classification"].backward()
    optimizer.step()
    close(noises[0], case["fgsm.noise_final"], rtol=0, atol=1e-7)
    attacked = method.take_notes()["attacked_at_random"]
    close(torch.stack([attacked, losses["classification"].detach()]), case["fgsm.losses_attack_then_train"], atol=1e-6)
    for name, value in layers.state_dict().items():
        if "num_" not in name:
            close(value, case[f"fgsm.after.{name}"], rtol=0, atol=1e-6)


def replay_training(case: Case) -> None:
    replay_gates(case)
    replay_attack(case)
    for name, shape in (("speckle", (-1, 1, 1)), ("speckle_batch", (-1, 1, 1, 1))):
        x, normal = (torch.from_numpy(case[f"{name}.{key}"]) for key in ("x", "normal"))
        per = "channel" if name == "speckle" else "image"
        sigma = torch.from_numpy(case[f"{name}.sigma_per_{per}"]).float().view(shape)
        close(add_speckle(x, sigma, normal), case[f"{name}.output"], rtol=0, atol=1e-6)


# Both hidden units are below 0 for all of that file's inputs: tests/networks/test_attention.py has others.
OFF = ("1.weight", "1.bias", "3.weight")
REPLAYS = {
    "robustness/augmix": replay_augmix,
    "robustness/jsd": replay_jsd,
    "robustness/training": replay_training,
}
UNCOMPARED = {
    "robustness/augmix": {f"{VARIANT}.output_16bit": "another method by that name: the share is the clean image's"},
    "robustness/training": {
        **{f"cbam.ChannelGate.mlp.{name}": "behind units that are all off" for name in OFF},
    },
}
