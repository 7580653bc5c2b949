"""Networks: backbones by name, initial weights, and the one place that inserts modules into a ResNet (`surgery`)."""

from __future__ import annotations

import torch

from biasbed.config import NetworkSettings
from biasbed.errors import UsageError, first_line
from biasbed.networks import statistics
from biasbed.networks.backbones import Form, check_name, create, resolve
from biasbed.networks.lineage import origin, read, start
from biasbed.networks.network import Network, Normalise, as_input
from biasbed.networks.weights import check_init, load_weights

__all__ = ["Network", "Normalise", "as_input", "build", "check_init", "check_name", "origin", "resolve", "start"]


PLAIN = NetworkSettings()
# Mean and std of images that a backbone gets as they are, or divided by 255 once more, as some authors' programs do.
SCALES = {"unit": (0.0, 1.0), "unit_255": (0.0, 255.0)}


def build(
    name: str,
    num_outputs: int,
    init: str = "scratch",
    settings: NetworkSettings = PLAIN,
    *,
    image_size: int | None = None,
    width: float = 1.0,
    head: bool = True,
) -> Network:
    """A network by name that maps images [N,C,H,W] in [0,1] to logits [N,num_outputs].

    init: `scratch`, `named:<weights>` (torchvision's, as IMAGENET1K_V1, or a timm tag), the path of a weights file, or
    the id of a tracked run, whose best checkpoint is fetched. image_size: pixels per side, for networks that take
    images of one size only (None: the size their library has them at). width: factor of the channels inside, which
    small networks and our own ResNets have. head: False leaves the last linear layer out, so that features come out.
    Running statistics can't be frozen from scratch, where they are those of nothing.

    Raises UsageError before anything is created when name or init is wrong, and when weights, size, channels or width
    don't go with the architecture; Failure when named weights can't be fetched. A classifier for another number of
    classes stays at its fresh initialisation, which is logged.
    """
    architecture = resolve(name)
    check_init(name, init)
    backbone, mean, std, only_size = create(architecture, Form(num_outputs, settings.channels, image_size, width))
    if init != "scratch":
        load_weights(backbone, read(architecture, init), f"init={init}", name)
        if settings.freeze_statistics:
            statistics.freeze_statistics(backbone)
    if settings.scale != "auto":
        mean, std = ([value] * settings.channels for value in SCALES[settings.scale])
        if hasattr(backbone, "transform_input"):  # torchvision's own shift of its input (Inception, GoogLeNet)
            setattr(backbone, "transform_input", False)  # noqa: B010 (a Module's attributes are Tensors to mypy)
    network = Network(backbone, mean, std, settings.dropout, head, only_size)
    if image_size is not None:
        _refuse_size(network, name, image_size)
    return network


def _refuse_size(network: Network, name: str, size: int) -> None:
    """UsageError where nothing can be computed of images of this size, as where they are pooled away."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with torch.no_grad():
            network(torch.zeros(1, network.channels, size, size))
    except Exception as error:  # each architecture has its own
        raise UsageError(f"{name} can't be made for images of {size} x {size} pixels: {first_line(error)}") from None
    finally:
        for module, mode in modes.items():
            module.training = mode
