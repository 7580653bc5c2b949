"""Networks: backbones by name, their initial weights, and `surgery`, which inserts modules into networks.

Networks from scratch are made without the modules of initial weights (`weights`, `provenance`).
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

import torch

from biasbed.config import NetworkSettings
from biasbed.errors import UsageError, first_line
from biasbed.networks.backbones import (
    Architecture,
    create,
    require_cached,
    resolve,
    skeleton,
    sources,
    split_model,
    tag_mean_std,
)
from biasbed.networks.form import Form, MeanStd
from biasbed.networks.network import Network, Normalise, as_input, freeze_statistics
from biasbed.networks.normalisation import Normalisation, choose_normalisation
from biasbed.networks.normalisation import from_json as normalisation_from_json
from biasbed.networks.patches import refuse_lost_border, refuse_size

__all__ = [
    "MeanStd",
    "Network",
    "Normalisation",
    "Normalise",
    "as_input",
    "build",
    "check_init",
    "find_normalisation",
    "normalisation_from_json",
    "origin",
    "refuse_lost_border",
    "refuse_size",
    "require_cached",
    "resolve",
    "skeleton",
    "sources",
    "split_model",
    "start",
    "usual_mean_std",
]


PLAIN = NetworkSettings()


def check_init(name: str, init: str) -> None:
    """Raise UsageError if `init` can't belong to this backbone. Reads no weights."""
    if init != "scratch":
        from biasbed.networks import weights

        weights.check_init(name, init)


def start(name: str, init: str) -> str:
    """Return the start of training as `scratch`, `<library>:<architecture>:<weights>` or `file:<content hash>`."""
    if init == "scratch":
        return init
    from biasbed.networks import provenance

    return provenance.start(name, init)


def origin(name: str, init: str) -> dict[str, Any]:
    """Return everything known about the start of training as JSON values.

    Always `start`, `library`, `library_version` and `architecture`; of initial weights what `provenance.origin` adds.
    """
    architecture = resolve(name)
    package = "timm" if architecture.library == "timm" else "torchvision"  # whose classes our own networks are made of
    if architecture.is_optional:
        package = architecture.optional_library.package
    facts = {
        "start": start(name, init),
        "library": architecture.library,
        "library_version": importlib.metadata.version(package),
        "architecture": architecture.gated,
    }
    if init == "scratch":
        return facts
    from biasbed.networks import provenance

    return facts | provenance.origin(name, init)


def build(
    name: str,
    num_outputs: int,
    init: str = "scratch",
    settings: NetworkSettings = PLAIN,
    *,
    image_size: int | None = None,
    width: float = 1.0,
    head: bool = True,
    mean_std: MeanStd | None = None,
) -> Network:
    """Return a network by name that maps images [N,C,H,W] in [0,1] to logits [N,num_outputs].

    init: `scratch`, `named:<weights>` (torchvision's, as IMAGENET1K_V1, or a timm tag), the path of a weights file, or
    the id of a tracked run, whose best checkpoint is fetched. image_size: pixels per side, for networks that take
    images of one size only (None: the library's default size). width: factor of the hidden channels, for small networks
    and our own ResNets. head: False leaves out the last linear layer, so that the network returns features. mean_std:
    mean and std of the images; by default they follow the weights (`normalisation`). Running statistics are never
    frozen with `scratch`, because they describe no data yet.

    Raises UsageError before anything is created if name or init is wrong, or if weights, size, channels or width don't
    fit the architecture; Failure if named weights can't be fetched. A classifier for another number of classes keeps
    its fresh initialisation, which is logged.
    """
    check_init(name, init)
    if image_size is not None:
        refuse_size(name, image_size, settings.channels)
    architecture = _tagged(name, init)
    form = Form(num_outputs, settings.channels, image_size, width, settings.drop_path)
    backbone, usual, only_size = create(architecture, form)
    fitted = None
    if init != "scratch":
        from biasbed.networks import provenance, weights

        initial = provenance.read_and_remember(resolve(name), init)
        fitted = initial if weights.comes_from_file(init) else None
        weights.load_weights(backbone, initial.tensors, f"init={init}", name, has_use_for_head=head)
        if settings.freeze_statistics:
            freeze_statistics(backbone)
    if settings.scale != "auto" and hasattr(backbone, "transform_input"):
        setattr(backbone, "transform_input", False)  # noqa: B010 (a Module's attributes are Tensors to mypy)
    how = choose_normalisation(
        architecture, usual, fitted=fitted, mean_std=mean_std, scale=settings.scale, source=f"init={init}"
    )
    network = Network(backbone, how.mean, how.std, settings.dropout, head, only_size)
    if image_size is not None:
        _refuse_size(network, name, image_size)
    return network


def find_normalisation(
    name: str, init: str, settings: NetworkSettings = PLAIN, mean_std: MeanStd | None = None
) -> Normalisation:
    """Return the mean and std of the network that `build` makes with these arguments, with their source.

    A weights file is read once. Raises UsageError as `build` does.
    """
    check_init(name, init)
    architecture = _tagged(name, init)
    usual = tag_mean_std(architecture).repeat(settings.channels)
    if architecture.library == "own":
        usual = create(architecture, Form(2, settings.channels, 32)).mean_std
    fitted = None
    if init != "scratch":
        from biasbed.networks import provenance

        fitted = provenance.describe_file(resolve(name), init)
    return choose_normalisation(
        architecture, usual, fitted=fitted, mean_std=mean_std, scale=settings.scale, source=f"init={init}"
    )


def usual_mean_std(name: str) -> MeanStd:
    """Return the mean and std of a backbone's default weights, whatever weights it starts from."""
    return tag_mean_std(resolve(name))


def _tagged(name: str, init: str) -> Architecture:
    """Return the architecture with the tag of its initial weights, if they have one."""
    architecture = resolve(name)
    if not init.startswith("named:"):
        return architecture
    from biasbed.networks import weights

    return weights.resolve_weights(architecture, init)


def _refuse_size(network: Network, name: str, size: int) -> None:
    """Raise UsageError if the network can't process images of this size, for example because pooling leaves none."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with torch.no_grad(), refuse_lost_border(network, network.channels):
            network(torch.zeros(1, network.channels, size, size))
    except Exception as error:  # the type depends on the architecture
        raise UsageError(f"{name} can't be made for images of {size} x {size} pixels: {first_line(error)}") from None
    finally:
        for module, mode in modes.items():
            module.training = mode
