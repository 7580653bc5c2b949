"""LNL: learning not to learn (Kim, Kim, Kim, Kim and Kim, CVPR 2019), with a bias label per image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.base import Objective, Optimizer, Setup, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import OPEN, SGD, STEPS, epochs
from biasbed.batch import Batch, at_least_fp32
from biasbed.networks import surgery
from biasbed.networks.stages import family_of
from biasbed.settings import setting


def negative_entropy(logits: Tensor) -> Tensor:
    """Return the mean of sum_k p_k log p_k over images and positions, p the softmax of logits [N,K,...].

    In fp32 at least. Smallest, -log K, if all values are equally likely.
    """
    log_p = at_least_fp32(logits).log_softmax(1)
    return (log_p.exp() * log_p).sum(1).mean()


def reverse(x: Tensor, factor: float) -> Tensor:
    """Return x with its gradient multiplied by -factor."""
    still = x.detach()
    return still + factor * (still - x)


class MapRecorder:
    """Recorder of the map that passes while `is_recording`."""

    def __init__(self) -> None:
        self.is_recording, self.map = False, torch.empty(0)

    def __call__(self, x: Tensor) -> None:
        if self.is_recording:
            self.map = x


class Predictor(nn.Module):
    """Classifier of the bias from the mean over positions of maps [N,C,H,W], or from features [N,C]: logits [N,K].

    hidden: add a hidden layer as wide as the input. normalised: normalise the input of each image first. The sum of
    residual blocks that passes between a transformer's stages is of any size, and the reversed gradient enlarges it.
    """

    def __init__(self, channels: int, biases: int, hidden: bool, normalised: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, elementwise_affine=False) if normalised else nn.Identity()
        first = (nn.Linear(channels, channels), nn.ReLU()) if hidden else ()
        self.layers = nn.Sequential(*first, nn.Linear(channels, biases))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(self.norm(x.flatten(2).mean(2) if x.ndim == 4 else x))
        return logits


class LNL(ERM):
    """ERM whose maps half-way through the network are trained to hide the bias from a predictor.

    Each step has two phases on one batch. In the first the network learns by its own loss plus `entropy_weight` times
    the negative entropy of the predictor (equation 4). In the second, the predictor learns the bias from new maps, and
    the layers before them take a second step along that gradient times -`reversal`.
    """

    @dataclass(frozen=True)
    class HParams:
        entropy_weight: float = setting(0.01, "weight of the predictor's negative entropy (authors)", ge=0)
        reversal: float = setting(0.1, "factor of the reversed gradient (authors)", ge=0)

    uses: ClassVar[frozenset[str]] = frozenset({"bias"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            "backbone": OPEN,
            "init": OPEN,
            "image_size": 28,
            "augment.crop": False,
            "augment.crop_scale": OPEN,
            "augment.crop_ratio": OPEN,
            "augment.flip": False,
            **epochs(100),
            "batch_size": 128,
            **SGD,
            "optim.lr": 0.01,
            "optim.lr_batch": None,
            "optim.weight_decay": 5e-4,
            **STEPS,
            "optim.milestones": (0.4, 0.8),
            "precision": "fp32",
            "hparams.entropy_weight": 0.01,
            "hparams.reversal": 0.1,
        }
    }

    hparams: HParams

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        surgery.find_middle(backbone)

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        backbone = self.network.get_submodule("backbone")
        middle = surgery.find_middle(backbone)
        self.channels = middle.channels
        early = {*nn.ModuleList(middle.before).parameters(), *middle.tokens}
        self.is_early = [parameter in early for parameter in self.network.parameters()]
        family = family_of(backbone)
        self.is_stream = family is not None and family.kind != "efficientnet"  # whose blocks end with batch norms
        self.is_small = isinstance(getattr(backbone, "layers", None), nn.Sequential) and not self.is_stream
        self.recorder = MapRecorder()
        middle.after.observe(self.recorder)

    def on_train_data(self, data: TrainData) -> None:
        self.predictor = Predictor(self.channels, data.num_biases, self.is_small, self.is_stream)

    def optimizers(self) -> dict[str, Optimizer]:
        return {
            "main": self.setup.optimizer(self.network.parameters()),
            "predictor": self.setup.optimizer(self.predictor.parameters()),
        }

    def update(self, batch: Batch) -> dict[str, Tensor]:
        gradients, first = self.grads(batch, self.network_objective)
        self.apply_gradients(gradients)
        gradients, second = self.grads(batch, self.predictor_objective)
        # None for layers after the middle: momentum and weight decay would move them with a gradient of zeros.
        early = iter(gradients["early"])
        main = [next(early) if is_early else None for is_early in self.is_early]
        self.apply_gradients({"main": main, "predictor": gradients["predictor"]})
        return {"network": first["main"], "predictor": second["predictor"]}

    def network_objective(self, batch: Batch) -> dict[str, Objective]:
        """Return the network's loss, for the first phase."""
        logits, maps = self.logits_and_maps(batch.x)
        self.observe(logits, batch.y)
        loss = self.task.loss(logits, batch.y)
        entropy = negative_entropy(self.predictor(maps))
        self.note("classification", loss)
        self.note("negative_entropy", entropy)
        return {"main": (loss + self.hparams.entropy_weight * entropy, self.network.parameters())}

    def predictor_objective(self, batch: Batch) -> dict[str, Objective]:
        """Return the predictor's loss, reversed for the layers before the maps, for the second phase."""
        _, maps = self.logits_and_maps(batch.x)
        logits = self.predictor(reverse(maps, self.hparams.reversal))
        assert batch.bias is not None
        loss = functional.cross_entropy(at_least_fp32(logits), batch.bias)
        pairs = zip(self.network.parameters(), self.is_early, strict=True)
        early = [parameter for parameter, is_early in pairs if is_early]
        return {"early": (loss, early), "predictor": (loss, self.predictor.parameters())}

    def logits_and_maps(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of images, and the maps half-way to them."""
        self.recorder.is_recording = True
        try:
            logits = self.network(x)
            return logits, self.recorder.map
        finally:
            self.recorder.is_recording, self.recorder.map = False, torch.empty(0)
