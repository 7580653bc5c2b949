"""Networks: backbones by name, initial weights, and the one place that inserts modules into a ResNet (`surgery`)."""

from __future__ import annotations

from biasbed.networks.backbones import check_name, create, resolve
from biasbed.networks.lineage import origin, read, start
from biasbed.networks.network import Network, Normalise, as_input
from biasbed.networks.weights import check_init, load_weights

__all__ = ["Network", "Normalise", "as_input", "build", "check_init", "check_name", "origin", "start"]


def build(name: str, num_outputs: int, init: str = "scratch") -> Network:
    """A network by name that maps images [N,3,H,W] in [0,1] to logits [N,num_outputs].

    init: `scratch`, `named:<weights>` (torchvision's, as IMAGENET1K_V1, or a timm tag), the path of a weights file, or
    the id of a tracked run, whose best checkpoint is fetched. Raises UsageError before anything is created when name or
    init is wrong, and when the weights belong to another architecture; Failure when named weights can't be fetched. A
    classifier for another number of classes stays at its fresh initialisation, which is logged.
    """
    architecture = resolve(name, resnet=False)
    check_init(name, init)
    backbone, mean, std = create(architecture, num_outputs)
    if init != "scratch":
        load_weights(backbone, read(architecture, init), f"init={init}", name)
    return Network(backbone, mean, std)
