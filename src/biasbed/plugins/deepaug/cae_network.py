"""Training of a small compressive autoencoder on a user's images (Theis et al. 2017; `cae`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.data.source import Source
from biasbed.data.transforms import keyed_randomness
from biasbed.plugins.deepaug.cae import CAE, LAYERS
from biasbed.prepare.fit import FitOptions, Tick, fit, patches
from biasbed.prepare.networks import NetworkMaker, WeightsOptions
from biasbed.settings import setting

WIDTH = 24  # in wider networks, the same steps of Adam move a layer's output further, until the last tanh saturates


@dataclass(frozen=True)
class CAETraining(FitOptions):
    """The defaults take less than a minute on one core for images of 40 pixels."""

    width: int = setting(WIDTH, "channels of the first layer (authors: 64)", ge=4)
    steps: int = setting(2000, "training steps", ge=1)
    batch_size: int = setting(4, "images per step: many small steps learn more in the same time", ge=1)
    lr: float = setting(2e-3, "highest learning rate of Adam up to a width of 24; times 24/width above", gt=0)


class CAENetwork(NetworkMaker[WeightsOptions]):
    """Maker of the compressive autoencoder."""

    Settings = WeightsOptions
    kind = "cae"
    Training = CAETraining

    def train(self, training: FitOptions, tick: Tick, partial: Path) -> CAE:
        assert isinstance(training, CAETraining)
        return train_cae(self.training_images, training, self.device, tick, partial)


def train_cae(
    source: Source,
    options: CAETraining,
    device: torch.device | str = "cpu",
    tick: Tick = lambda count: None,
    resume: Path | None = None,
) -> CAE:
    """Train a network that reconstructs patches of the images; return it in eval mode on `device`.

    It minimises the squared error without a rate term, because the number of bits is fixed. Bits are rounded at random,
    as when images are distorted. On a CPU, the same options give the same weights. For `tick`, `resume` and errors, see
    `fit`.
    """
    with keyed_randomness(options.seed):
        network = CAE(options.size, options.width)
        initialise(network)

    def loss(images: Tensor, generator: torch.Generator) -> Tensor:
        images = images.to(device)
        latent_shape = (len(images), network.latent_channels, images.shape[2] // 4, images.shape[3] // 4)
        uniform = torch.rand(latent_shape, generator=generator, device=device)
        made = network(images, uniform)
        return functional.mse_loss(made, images[..., : made.shape[2], : made.shape[3]])

    return fit(
        network,
        lambda start: patches(source, options.size, options.batch_size, options.seed, start),
        loss,
        replace(options, lr=options.lr * min(1, WIDTH / options.width)),
        device=device,
        tick=tick,
        resume=resume,
        identity=f"cae {source.fingerprint()}",
    )


@torch.no_grad()
def initialise(network: CAE) -> None:
    """Draw weights that keep the signal's scale on its way to the bits (He et al. 2015), from the global generator.

    With torch's default initialisation the latent starts at 0: bits are coin tosses, and the decoder learns to ignore
    them.
    """
    for name in LAYERS:
        layer: Any = network.get_submodule(name)
        fan_in = layer.weight[0].numel() if isinstance(layer, nn.Conv2d) else len(layer.weight)
        nn.init.normal_(layer.weight, std=(2 / fan_in) ** 0.5)
        nn.init.zeros_(layer.bias)
        if name.endswith(".4"):
            layer.weight *= 0.3
    for name, factor in (("e_conv_3.0", 2.0), ("d_up_conv_3.3", 0.1)):
        layer = network.get_submodule(name)
        layer.weight *= factor
