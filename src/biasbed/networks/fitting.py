"""State dict in a weights file that fits a network, whatever containers and wrappers enclose it.

`renaming` translates keys and resizes position embeddings.

Answers: Which tensors of a weights file become the network's weights?
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from biasbed.errors import UsageError
from biasbed.networks.form import MeanStd
from biasbed.networks.weight_files import TensorGroup, WeightsFile, join, repeats_storage, unusable
from biasbed.settings import nearest

# Parts of keys that PyTorch's wrappers add at any depth: DataParallel and torch.compile.
WRAPPERS = ("module", "_orig_mod")
# Paths of the classifying network in our own checkpoints.
OUR_NETWORKS = ("pair.network.backbone", "network.backbone")
# Names of a classifier that is saved beside its features.
CLASSIFIERS = ("classifier", "fc", "head", "heads", "last_linear", "linear")
# Networks of DomainBed's checkpoints (its `Featurizer`), by the images' size.
DOMAINBED_NETWORKS = {
    28: "mnist_convnet, with network.channels of its images",
    32: "a WideResNet-16-2, which biasbed does not have",
    224: "resnet18 or resnet50 (its hparams say which), or a ViT",
}
MANY = 20  # sets of weights that fit; more are refused before their values are compared


class Fitted(NamedTuple):
    """Tensors of a weights file with a network's own keys, and unknown ones behind the same prefix."""

    name: str  # dotted path in the file
    tensors: dict[str, Tensor]
    mean_std: MeanStd | None = None  # of the images that our own checkpoint was trained on
    beside: tuple[str, ...] = ()  # tensors around the network that it does not take: they may normalise its images


class _Match(NamedTuple):
    """Prefix in a container of a file behind which keys of a network were found."""

    group: TensorGroup
    prefix: str
    keys: Mapping[str, Tensor]  # the container's tensors, perhaps without wrappers in their names

    @property
    def name(self) -> str:
        return join(self.group.name, self.prefix)

    def is_part(self, part: str) -> bool:
        """Return True if the match is in the part of the file with this dotted path."""
        names = (join(name, self.prefix) for name in (self.group.name, *self.group.aliases))
        return any(name == part or name.startswith(f"{part}.") or bare(name) == part for name in names)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors behind the prefix, keyed by the rest of their names."""
        before = f"{self.prefix}." if self.prefix else ""
        return {key.removeprefix(before): value for key, value in self.keys.items() if key.startswith(before)}


def fit(
    file: WeightsFile,
    state: Mapping[str, Tensor],
    optional: Iterable[str],
    part: str,
    source: str,
    head: str = "",
    other_names: Mapping[str, str] | None = None,
) -> Fitted:
    """Return the tensors of a file that belong to a network.

    state: the network's state dict; shapes are not compared. optional: keys that the file may lack. part: dotted path
    of the container to take; empty if there is one. source: name of the file in messages. head: name of the network's
    classifier, which the file may hold in its place or beside the network under a usual name, as DomainBed's do.
    other_names: the network's layers by the names that another program gives them.

    Raises UsageError if the file holds no tensors, if several containers fit equally well and differ in values, if
    values can't be loaded, or if it is a checkpoint of DomainBed for another network.
    """
    needed = state.keys() - set(optional)
    matches: list[_Match] = []
    for group in file.groups:
        matches += _matches(group, needed, other_names or {})
    chosen = [match for match in matches if not part or match.is_part(part)]
    if not chosen:
        _refuse_other_network(file, source)
        largest = _largest(file, source, part)
        return Fitted(largest.name, _without_wrappers(largest.tensors))
    counts = [len(match.tensors().keys() & state.keys()) for match in chosen]
    fitting = [match for match, count in zip(chosen, counts, strict=True) if count == max(counts)]
    if file.is_ours and not part:
        fitting = _ours(fitting)
    match, tensors = _only_one(fitting, source)
    if file.is_ours:
        return Fitted(match.name, tensors, _own_mean_std(file))
    weight = f"{head}.weight"
    if weight in state and weight not in tensors:
        tensors = _with_own_head(tensors, head, state) | _head_beside(match, head, state[weight].shape[1:], source)
    return Fitted(match.name, tensors, beside=_beside(file, match, matches, tensors.values()))


def _only_one(matches: Sequence[_Match], source: str) -> tuple[_Match, dict[str, Tensor]]:
    """Return the only match and its tensors. Raises UsageError if others have other values."""
    kept: list[tuple[_Match, dict[str, Tensor]]] = []
    for match in matches[:MANY]:
        tensors = match.tensors()
        _refuse_unusable(tensors, match.name, source)
        if not any(_are_equal(tensors, earlier) for _, earlier in kept):
            kept.append((match, tensors))
    if len(kept) > 1 or len(matches) > MANY:
        names = [match.name or "(the file itself)" for match, _ in kept]
        more = f", and more: {len(matches)} in all" if len(matches) > MANY else ""
        raise UsageError(
            f"{source}: several sets of weights fit ({', '.join(names)}{more}): say which, as <file>#{kept[-1][0].name}"
        )
    return kept[0]


def _refuse_unusable(tensors: Mapping[str, Tensor], name: str, source: str) -> None:
    """Raise UsageError if tensors hold no numbers that can be copied, or describe far more than the file stores."""
    for key, value in tensors.items():
        problem = unusable(value)
        if problem:
            raise UsageError(
                f"{source}: '{join(name, key)}' {problem}: save a plain tensor for each key, with "
                "{k: v.dequantize().to_dense().contiguous() for k, v in net.state_dict().items()}"
            )
    if repeats_storage(tensors.values()):
        where = f"'{name}'" if name else "the state dict"
        raise UsageError(f"{source}: the tensors of {where} share their memory and describe far more than is stored")


def _with_own_head(tensors: dict[str, Tensor], head: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with the network's own name of a linear layer that stands in place of its classifier.

    Fine-tuned networks have `fc.1` (a Sequential of dropout and a linear layer) in place of `fc`, or `heads` in place
    of `heads.head`. Several layers with weights are no classifier of one layer, and stay as they are.
    """
    strange = {key.rpartition(".")[0] for key in tensors.keys() - state.keys()}
    layers = [layer for layer in strange if layer.startswith(f"{head}.") or head.startswith(f"{layer}.")]
    weight = tensors.get(f"{layers[0]}.weight") if len(layers) == 1 else None
    if weight is None or weight.shape[1:] != state[f"{head}.weight"].shape[1:]:
        return tensors
    before = f"{layers[0]}."
    return {key.replace(before, f"{head}.", 1) if key.startswith(before) else key: v for key, v in tensors.items()}


def _head_beside(match: _Match, head: str, features: Sequence[int], source: str) -> dict[str, Tensor]:
    """Return the classifier beside a network of features, with the network's own keys. Empty if there is not one.

    It is a linear layer of these features that has a classifier's name, or that follows the network in a Sequential.
    """
    layers: list[dict[str, Tensor]] = []
    for key, weight in match.keys.items():
        layer, _, name = key.rpartition(".")
        if name != "weight" or weight.ndim != 2 or weight.shape[1:] != features or not _is_classifier(layer, match):
            continue
        tensors = {f"{head}.weight": weight}
        if f"{layer}.bias" in match.keys:
            tensors[f"{head}.bias"] = match.keys[f"{layer}.bias"]
        _refuse_unusable(tensors, layer, source)
        if not any(_are_equal(tensors, earlier) for earlier in layers):
            layers.append(tensors)
    return layers[0] if len(layers) == 1 else {}


def _is_classifier(layer: str, match: _Match) -> bool:
    """Return True if a layer outside the network has a classifier's name, or follows the network in a Sequential."""
    outer, _, name = layer.rpartition(".")
    if layer == match.prefix or layer.startswith(f"{match.prefix}.") or not match.prefix:
        return False
    before = f"{outer}." if outer else ""
    if not match.prefix.startswith(before):
        return False
    position = match.prefix.removeprefix(before).split(".")[0]
    return name in CLASSIFIERS or (position.isdecimal() and name == str(int(position) + 1))


def _beside(file: WeightsFile, match: _Match, matches: Sequence[_Match], loaded: Iterable[Tensor]) -> tuple[str, ...]:
    """Return the names of numbers around the network that it does not take, which may normalise its images.

    These are tensors of the same container, and arrays in the containers around it. Left out are copies of loaded
    tensors, other networks that fit (matches), and integers (counters).
    """
    storages = {value.data_ptr() for value in loaded}
    networks = [f"{peer.prefix}." if peer.prefix else "" for peer in matches if peer.group is match.group]
    names = []
    for key, value in match.keys.items():
        if not key.startswith(tuple(networks)) and (unusable(value) or value.data_ptr() not in storages):
            names += [join(match.group.name, key)] * value.is_floating_point()
    for outer in file.groups:
        if outer is not match.group and (not outer.name or match.group.name.startswith(f"{outer.name}.")):
            names += [join(outer.name, key) for key, value in outer.tensors.items() if _is_array(value)]
    return tuple(names)


def _is_array(value: Tensor) -> bool:
    """Return True for real numbers with a dimension. A training's loss or best accuracy has none."""
    return value.is_floating_point() and value.ndim > 0


def _own_mean_std(file: WeightsFile) -> MeanStd | None:
    """Return the mean and std by which a checkpoint of ours normalises images; None if its settings do not say."""
    for container in ("normalisation", "config"):
        values = {numbers.key: numbers.values for numbers in file.numbers if numbers.container == container}
        if "mean" in values and "std" in values:
            return MeanStd(values["mean"], values["std"])
    return None


def without_wrappers(file: WeightsFile, source: str) -> dict[str, Tensor]:
    """Return the largest group of tensors in a file without the prefixes that wrappers put before all its keys."""
    return _without_wrappers(_largest(file, source).tensors)


def _without_wrappers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    while {key.partition(".")[0] for key in tensors} & {*WRAPPERS, "model"} and len(_first_parts(tensors)) == 1:
        tensors = {key.partition(".")[2]: value for key, value in tensors.items()}
    return dict(tensors)


def _largest(file: WeightsFile, source: str, part: str = "") -> TensorGroup:
    """Return the group with most tensors, in this part of the file.

    Raises UsageError if there is none, or if its values can't be loaded.
    """
    if not file.groups:
        raise UsageError(f"{source}: holds no state dict{file.contents()}")
    groups = [group for group in file.groups if not part or part in (group.name, *group.aliases)]
    if not groups:
        names = [group.name for group in file.groups if group.name and len(group.tensors) > 1]
        raise UsageError(f"{source}: no such part has weights of the network{nearest(part, names)}")
    largest = max(groups, key=lambda group: len(group.tensors))
    _refuse_unusable(largest.tensors, largest.name, source)
    return largest


def _first_parts(keys: Iterable[str]) -> set[str]:
    return {key.partition(".")[0] for key in keys}


def bare(key: str) -> str:
    """Return the key without the parts that PyTorch's wrappers add."""
    return ".".join(part for part in key.split(".") if part not in WRAPPERS)


def _matches(group: TensorGroup, needed: Collection[str], other_names: Mapping[str, str]) -> list[_Match]:
    """Return a match for each prefix behind which the group has all needed keys of the network.

    Names are taken as they are, else without wrappers, else without these and with the network's own names of layers.
    """
    renamings: tuple[Callable[[str], str], ...] = (str, bare, lambda key: _with_own_name(bare(key), other_names))
    for rename in renamings:
        tensors = {rename(key): value for key, value in group.tensors.items()}
        prefixes = _prefixes(tensors, needed)
        if prefixes and len(tensors) == len(group.tensors):
            return [_Match(group, prefix, tensors) for prefix in prefixes]
    return []


def _prefixes(keys: Collection[str], needed: Collection[str]) -> list[str]:
    """Return the prefixes, without their last dot, behind which all needed keys are."""
    anchor = min(needed)
    ends = [key.removesuffix(anchor) for key in keys if key == anchor or key.endswith(f".{anchor}")]
    return [before.removesuffix(".") for before in ends if all(before + key in keys for key in needed)]


def _with_own_name(key: str, other_names: Mapping[str, str]) -> str:
    """Return a key with the network's own name of its layer, if the key has the name of another program."""
    layer, _, leaf = key.rpartition(".")
    outer, _, name = layer.rpartition(".")
    return join(outer, other_names[name], leaf) if name in other_names else key


def _refuse_other_network(file: WeightsFile, source: str) -> None:
    """Raise UsageError if a file that does not fit is a checkpoint of DomainBed, which has a network by image size."""
    for numbers in file.numbers:
        if (numbers.container, numbers.key) == ("", "model_input_shape") and numbers.values:
            size = int(numbers.values[-1])
            network = DOMAINBED_NETWORKS.get(size, "a network that biasbed does not have")
            raise UsageError(f"{source}: does not fit: it is DomainBed's, for images of {size} pixels: of {network}")


def _are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        value is second[key] or torch.equal(value, second[key]) for key, value in first.items()
    )


def _ours(matches: list[_Match]) -> list[_Match]:
    """Return the classifying network of our own checkpoint if it is among the matches, else all of them."""
    for path in OUR_NETWORKS:
        chosen = [match for match in matches if match.name == f"algorithm.{path}"]
        if chosen:
            return chosen
    return matches
