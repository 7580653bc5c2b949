"""Backbones by name: torchvision's, timm's, small ResNets of torchvision's classes, and small networks.

`resnet18` and `torchvision:resnet18` are the same. timm's are `timm:resnet50` or, with the tag of a set of weights,
`timm:resnet50.a1_in1k`. `timm:hf-hub:<org>/<name>` and `timm:local-dir:<folder>` are models of a hub and of a folder.
Optional libraries have names such as `open_clip:ViT-B-32` (`model_libraries`). `resnet50+se` and `resnet50+cbam` have
gates in their blocks (`attention`). The libraries take seconds to import and are imported only when a name needs them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from biasbed.errors import Failure, UsageError, first_line
from biasbed.networks import layers, model_libraries, resnet_parts
from biasbed.networks.form import IMAGENET, USUAL_SIZE, Backbone, Form, MeanStd
from biasbed.networks.library_names import list_builders
from biasbed.plugin_loader import Offered
from biasbed.settings import nearest, refuse_unknown

USUAL_OUTPUTS = 1000


# Blocks of ResNets that torchvision does not name: one per stage, for small images and quick studies.
RESNETS = {"resnet10": "BasicBlock", "resnet14": "Bottleneck"}


def _own_resnet(block: str, form: Form) -> Backbone:
    from torchvision.models import resnet

    from biasbed.networks.resnet import ResNet

    network = ResNet(getattr(resnet, block), form.outputs, form.width)
    _set_input_channels(network, form.channels)
    return Backbone(network, IMAGENET.repeat(form.channels))


def _small_network(make: str, form: Form) -> Backbone:
    """Return the network that a function of `small` makes."""
    from biasbed.networks import small

    network: Backbone = getattr(small, make)(form)
    return network


_OWN: Mapping[str, Callable[[Form], Backbone]] = {
    **{name: functools.partial(_own_resnet, block) for name, block in RESNETS.items()},
    "mlp": functools.partial(_small_network, "make_mlp"),
    "simple_conv": functools.partial(_small_network, "make_simple_conv"),
    "simple_conv_1x1": functools.partial(_small_network, "make_simple_conv_1x1"),
    "mnist_convnet": functools.partial(_small_network, "make_mnist_convnet"),
    "bagnet18": functools.partial(_small_network, "make_bagnet18"),
}
OWN: Offered[Callable[[Form], Backbone]] = Offered("backbone", _OWN)
# Stand-ins for timm's names in a hint: listing all of them takes the import of timm.
TIMM_EXAMPLES = ("timm:resnet18", "timm:resnet50", "timm:resnet50.a1_in1k")
# Arguments that tell torchvision the image size, by module, for networks that take images of one size only.
SIZED: Mapping[str, Callable[[int], Mapping[str, Any]]] = {
    "vision_transformer": lambda size: {"image_size": size},
    "maxvit": lambda size: {"input_size": (size, size)},
}
# Auxiliary classifiers of Inception and GoogLeNet, used in training only. Without them the network returns logits.
AUXILIARY = ("aux1", "aux2", "AuxLogits")


@dataclass(frozen=True)
class Architecture:
    """Resolved name. `tag` names a set of timm weights, `gates` the modules inserted into a ResNet's blocks."""

    library: str  # own, torchvision, timm or one of `LIBRARIES`
    name: str
    tag: str = ""
    gates: str = ""

    @property
    def tagged(self) -> str:
        """Name with the tag, if there is one."""
        return f"{self.name}.{self.tag}" if self.tag else self.name

    @property
    def gated(self) -> str:
        """Name with the gates, if there are any."""
        return f"{self.name}+{self.gates}" if self.gates else self.name

    @property
    def is_optional(self) -> bool:
        """True for a model of an optional library (`model_libraries.LIBRARIES`)."""
        return self.library in model_libraries.LIBRARIES

    @property
    def optional_library(self) -> model_libraries.ModelLibrary:
        """Optional library. Raises UsageError, which says what to install, if it is not there."""
        return model_libraries.library(self.library)

    @property
    def has_own_config(self) -> bool:
        """True for a model of a hub or a folder, which brings its configuration."""
        return model_libraries.is_of_hub(self.library) or self.name.startswith(model_libraries.SOURCES)

    @property
    def is_local(self) -> bool:
        """True for a model in a folder of this machine."""
        return self.has_own_config and model_libraries.is_folder(self.name)


def sources() -> tuple[str, ...]:
    """Return what the names of models with weights begin with."""
    return ("torchvision:", "timm:", *(f"{name}:" for name in model_libraries.LIBRARIES), *model_libraries.SOURCES)


class NamedModel(NamedTuple):
    """Backbone of a library, and the name of its weights."""

    backbone: str
    weights: str  # empty if none are named


def split_model(model: str) -> NamedModel | None:
    """Split the name of a library's model, as `torchvision:resnet50:IMAGENET1K_V2`.

    None if the word does not begin with a library's name. Hub ids and folders have one set of weights, and none is
    named.
    """
    if not model.startswith(sources()):
        return None
    source, _, name = model.partition(":")
    is_of_hub = f"{source}:" in model_libraries.SOURCES or model_libraries.is_of_hub(source)
    if is_of_hub or name.startswith(model_libraries.SOURCES):
        return NamedModel(model, "")
    name, _, weights = name.partition(":")
    return NamedModel(f"{source}:{name}", weights)


def resolve(name: str) -> Architecture:
    """Return the architecture with this name. Raises UsageError, with the nearest valid one, if there is none.

    Builds and loads nothing.
    """
    source, _, model = name.partition(":")
    if source in model_libraries.LIBRARIES:
        model_libraries.library(source).check(model)
        return Architecture(source, model)
    if name.startswith(model_libraries.SOURCES) or model.startswith(model_libraries.SOURCES):
        name = name if source != "timm" else model
        timm_config(name)  # raises an error if there is no such model
        return Architecture("timm", name)
    plain, mark, gates = name.partition("+")
    if mark:
        return _with_gates(resolve(plain), gates, name)
    if name in OWN:
        return Architecture("own", name)
    library, _, rest = name.rpartition(":")
    if library == "timm":
        return _resolve_timm(rest)
    names = list(list_builders("torchvision"))
    if library in ("", "torchvision") and rest in names:
        return Architecture("torchvision", rest)
    names = [*OWN, *names, *(f"torchvision:{n}" for n in names), *TIMM_EXAMPLES, *model_libraries.name_examples()]
    raise UsageError(f"unknown backbone '{name}'{nearest(name, names)}")


def _with_gates(architecture: Architecture, gates: str, name: str) -> Architecture:
    refuse_unknown(gates, resnet_parts.GATES, f"backbone={name}: there are no gates '{gates}'")
    return replace(architecture, gates=gates)


def create(architecture: Architecture, form: Form) -> Backbone:
    """Return a freshly initialised backbone. Raises UsageError if the architecture does not support the form."""
    backbone = _create_without_gates(architecture, form)
    if architecture.gates:
        from biasbed.networks import attention

        attention.insert(backbone.module, architecture.gates)
    return backbone


@functools.lru_cache(maxsize=4)
def skeleton(architecture: Architecture) -> nn.Module:
    """Return a backbone of the library's default size on the meta device, for its keys and shapes."""
    form = Form(USUAL_OUTPUTS)
    try:
        with torch.device("meta"):
            return create(architecture, form).module
    except Exception:  # some architectures compute with their values while they are made
        return create(architecture, form).module.to("meta")


def _create_without_gates(architecture: Architecture, form: Form) -> Backbone:
    if architecture.library == "own":
        if form.drop_path:
            raise layers.no_drop_path_error(architecture.name, form.drop_path)
        return OWN[architecture.name](form)
    if form.width != 1:
        raise UsageError(f"{architecture.name} has one width: only {', '.join(OWN)} have others")
    create_from_library = {"timm": _create_timm, "torchvision": _create_torchvision}.get(
        architecture.library, _create_optional
    )
    try:
        return create_from_library(architecture, form)
    except (UsageError, Failure):
        raise
    except Exception as error:  # each architecture raises its own for a size or number of channels it can't have
        size = "" if form.image_size is None else f"{form.image_size} pixels and "
        raise UsageError(
            f"{architecture.tagged} can't be made for images of {size}{form.channels} channels: {first_line(error)}"
        ) from None


def _create_optional(architecture: Architecture, form: Form) -> Backbone:
    if form.drop_path:
        raise layers.no_drop_path_error(architecture.name, form.drop_path)
    return architecture.optional_library.create(architecture.name, architecture.tag, form)


def _create_timm(architecture: Architecture, form: Form) -> Backbone:
    options: dict[str, Any] = {} if form.channels == 3 else {"in_chans": form.channels}
    config: Any = timm_config(architecture.tagged)
    size = None  # of the only images that the network takes
    if config is not None and config.fixed_input_size:
        default_size = config.input_size[-1]
        size = form.image_size or default_size
        if size != default_size:
            options["img_size"] = size
    model = _make_timm_model(architecture.tagged, form, options)
    return Backbone(model, tag_mean_std(architecture).repeat(form.channels), size)


def _make_timm_model(name: str, form: Form, options: Mapping[str, Any]) -> nn.Module:
    """Return timm's model. Raises UsageError if it should have stochastic depth and has none."""
    import timm

    def make(**more: Any) -> nn.Module:
        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=form.outputs, **options, **more)
        return model

    if form.drop_path is None:
        return make()
    try:
        model = make(drop_path_rate=form.drop_path)
    except TypeError as error:
        if "drop_path_rate" not in str(error):
            raise
        model = make()
    if form.drop_path and not layers.has_drop_path(model):
        raise layers.no_drop_path_error(name, form.drop_path)
    return model


def tag_mean_std(architecture: Architecture) -> MeanStd:
    """Return the mean and std of the images for the weights that the tag names, or else for the default weights."""
    if architecture.is_optional:
        preprocessing = architecture.optional_library.preprocessing(architecture.name, architecture.tag)
        return MeanStd(preprocessing.mean, preprocessing.std)
    if architecture.library == "timm":
        config: Any = timm_config(architecture.tagged)
        return IMAGENET if config is None else MeanStd(tuple(config.mean), tuple(config.std))
    if architecture.library == "torchvision" and architecture.tag:
        from torchvision import models

        transforms: Any = models.get_model_weights(architecture.name)[architecture.tag].transforms()
        return MeanStd(tuple(transforms.mean), tuple(transforms.std))
    return IMAGENET


def _create_torchvision(architecture: Architecture, form: Form) -> Backbone:
    from torchvision import models

    module = models.get_model_builder(architecture.name).__module__.rpartition(".")[2]
    size = (form.image_size or USUAL_SIZE) if module in SIZED else None
    options = {} if size is None else SIZED[module](size)
    model: Any = models.get_model(architecture.name, weights=None, num_classes=form.outputs, **options)
    for name in AUXILIARY:
        if hasattr(model, name):
            setattr(model, name, None)
            model.aux_logits = False
    if hasattr(model, "transform_input"):  # torchvision turns it on with its own weights (Inception, GoogLeNet)
        model.transform_input = form.channels == 3
    if form.drop_path is not None:
        layers.set_drop_path(model, form.drop_path)
    _set_input_channels(model, form.channels)
    return Backbone(model, tag_mean_std(architecture).repeat(form.channels), size)


def _set_input_channels(model: nn.Module, channels: int) -> None:
    """Change the number of input channels of the first convolution, repeating its RGB filters in turn."""
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    if channels != first.in_channels:
        copied = [channel % first.in_channels for channel in range(channels)]
        first.weight = nn.Parameter(first.weight.detach()[:, copied].clone())
        first.in_channels = channels


@functools.cache
def timm_config(name: str) -> Any:
    """Return timm's configuration of a model's weights (`PretrainedCfg`); None if it has none.

    name: with the tag of weights, or a hub id or a folder with its source. Raises UsageError if a folder has no
    configuration, Failure if a hub's can't be fetched and is not in the cache.
    """
    import timm

    if not name.startswith(model_libraries.SOURCES):
        return timm.models.get_pretrained_cfg(name)
    from timm.models import PretrainedCfg, load_model_config_from_hf
    from timm.models._hub import load_model_config_from_path

    source, _, model_id = name.partition(":")
    try:
        if source == "local-dir":
            values, _, _ = load_model_config_from_path(model_libraries.folder_of(name))
        else:
            values, _, _ = load_model_config_from_hf(model_id)
    except Exception as error:  # each version raises its own for what is missing or out of reach
        if source == "local-dir":
            problem = f"timm finds no configuration there ({first_line(error)})"
            raise UsageError(f"backbone=timm:{name}: {problem}") from None
        raise model_libraries.out_of_reach_error(f"timm:{name}", error, "timm:local-dir:<folder>") from None
    return values if isinstance(values, PretrainedCfg) else PretrainedCfg(**values)


CONFIG_FILES = ("config.json", "open_clip_config.json")  # of a model on a hub, by which its network is built


def require_cached(name: str) -> None:
    """Raise UsageError for a model of a hub that is not in this machine's cache. name: a backbone's, from a file.

    What a file names is not fetched: whoever wrote it would choose where this machine connects to.
    """
    hubs = ("hf-hub:", *(f"{library}:" for library in model_libraries.LIBRARIES if model_libraries.is_of_hub(library)))
    source = next((source for source in hubs if source in name), None)
    if source is None:
        return
    model_id = name.partition(source)[2]
    if model_libraries.is_folder(model_id):
        return
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    with contextlib.suppress(HFValidationError):
        if any(isinstance(try_to_load_from_cache(model_id, file), str) for file in CONFIG_FILES):
            return
    raise UsageError(
        f"its network {name} is not in this machine's cache, and what a file names is not fetched: fetch it first, by "
        f"a command of yours with backbone={name}"
    )


def timm_tags(name: str) -> list[str]:
    """Return the tags of the weights that timm has for a model."""
    import timm

    return [full.partition(".")[2] for full in timm.list_models(f"{name}.*", pretrained=True)]


def _resolve_timm(name: str) -> Architecture:
    plain, _, tag = name.partition(".")
    problem = f"unknown backbone 'timm:{name}'"
    refuse_unknown(f"timm:{plain}", [f"timm:{valid}" for valid in list_builders("timm")], problem)
    if tag:
        refuse_unknown(f"timm:{name}", [f"timm:{plain}.{valid}" for valid in timm_tags(plain)], problem)
    return Architecture("timm", plain, tag)
