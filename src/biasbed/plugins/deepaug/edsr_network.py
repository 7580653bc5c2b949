"""Training of a small EDSR on a user's images (Lim et al. 2017, section 4; `edsr`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.data.source import Source
from biasbed.data.transforms import keyed_randomness
from biasbed.plugins.deepaug.edsr import EDSR, RANGE, SCALE
from biasbed.prepare.fit import FitOptions, Tick, fit, patches
from biasbed.prepare.networks import NetworkMaker, WeightsOptions
from biasbed.settings import setting

ENLARGEMENT = 2  # of the images made, over those trained on


@dataclass(frozen=True)
class EDSRTraining(FitOptions):
    """The defaults take half a minute on one core for images of 40 pixels."""

    width: int = setting(16, "channels (authors: 64)", ge=4)
    steps: int = setting(1500, "training steps", ge=1)


class EDSRNetwork(NetworkMaker[WeightsOptions]):
    """Maker of the super-resolution network."""

    Settings = WeightsOptions
    kind = "edsr"
    Training = EDSRTraining

    def train(self, training: FitOptions, tick: Tick, partial: Path) -> EDSR:
        assert isinstance(training, EDSRTraining)
        return train_edsr(self.training_images, training, self.device, tick, partial)


def train_edsr(
    source: Source,
    options: EDSRTraining,
    device: torch.device | str = "cpu",
    tick: Tick = lambda count: None,
    resume: Path | None = None,
) -> EDSR:
    """Train a network that enlarges patches of the images; return it in eval mode on `device`.

    It minimises the absolute difference to the patch, given the patch at a quarter of its size (bicubic, antialiased).
    The network's `size`, that of the images made with it, is twice `options.size`: images are distorted at half of
    their resolution (authors: 128 pixels of about 400), because a quarter of a small image shows nothing. On a CPU, the
    same options give the same weights. For `tick`, `resume` and errors, see `fit`.
    """
    with keyed_randomness(options.seed):
        network = EDSR(ENLARGEMENT * options.size, options.width)

    def loss(images: Tensor, generator: torch.Generator) -> Tensor:
        side = images.shape[-1] // SCALE * SCALE
        target = RANGE * images[..., :side, :side].to(device)
        return functional.l1_loss(network(shrink_to_quarter(target)), target)

    return fit(
        network,
        lambda start: patches(source, options.size, options.batch_size, options.seed, start),
        loss,
        options,
        device=device,
        tick=tick,
        resume=resume,
        identity=f"edsr {source.fingerprint()}",
    )


def shrink_to_quarter(images: Tensor) -> Tensor:
    """Reduce images [N,3,4h,4w] in [0,255] to a quarter of their size, [N,3,h,w]."""
    size = [length // SCALE for length in images.shape[-2:]]
    return functional.interpolate(images, size, mode="bicubic", antialias=True).clamp(0, RANGE)
