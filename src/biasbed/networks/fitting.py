"""Choice of the state dict in a weights file that fits a network, whatever containers and wrappers enclose it.

`renaming` translates keys and resizes position embeddings.

Answers: Which tensors of a weights file become the network's weights?
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from biasbed.errors import UsageError
from biasbed.networks.form import MeanStd
from biasbed.networks.weight_files import TensorGroup, WeightsFile, describe_foreign, is_plain, join
from biasbed.settings import nearest

# Parts of keys that PyTorch's wrappers add at any depth: DataParallel and torch.compile.
WRAPPERS = ("module", "_orig_mod")
# Paths of the classifying network in our own checkpoints.
OUR_NETWORKS = ("pair.network.backbone", "network.backbone")
# Names of a classifier that is saved beside its features; `1` follows them in a Sequential.
CLASSIFIERS = ("classifier", "fc", "head", "heads", "last_linear", "linear", "1")


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
        return self.name == part or self.name.startswith(f"{part}.") or strip_wrappers(self.name) == part

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors behind the prefix, keyed by the rest of their names."""
        before = f"{self.prefix}." if self.prefix else ""
        return {key.removeprefix(before): value for key, value in self.keys.items() if key.startswith(before)}


def fit(
    file: WeightsFile, state: Mapping[str, Tensor], optional: Iterable[str], part: str, source: str, head: str = ""
) -> Fitted:
    """Return the tensors of a file that belong to a network.

    state: the network's state dict; shapes are not compared. optional: keys that the file may lack. part: dotted path
    of the container to take; empty if there is one. source: name of the file in messages. head: name of the network's
    classifier, which the file may hold in its place or beside the network under a usual name.

    Raises UsageError if the file holds no tensors, if several containers fit equally well and differ in values, or if
    values can't be loaded.
    """
    needed = state.keys() - set(optional)
    matches: list[_Match] = []
    for group in file.groups:
        matches += _find_matches(group, needed)
    chosen = [match for match in matches if not part or match.is_part(part)]
    if not chosen:
        largest = _find_largest_group(file, source, part)
        return Fitted(largest.name, _strip_common_wrappers(largest.tensors))
    counts = [len(match.tensors().keys() & state.keys()) for match in chosen]
    fitting = [match for match, count in zip(chosen, counts, strict=True) if count == max(counts)]
    if file.is_ours and not part:
        fitting = _prefer_classifying_network(fitting)
    match = _choose_match(fitting, source)
    tensors = match.tensors()
    if file.is_ours:
        return Fitted(match.name, tensors, _own_mean_std(file))
    if f"{head}.weight" in state and f"{head}.weight" not in tensors:
        tensors = _rename_head(match, tensors, head, state, source)
    return Fitted(match.name, tensors, beside=_name_other_tensors(file, match, matches, tensors.values()))


def _choose_match(matches: Sequence[_Match], source: str) -> _Match:
    """Return the first of several matches with equal tensors. Raises UsageError if others have other values."""
    different: list[_Match] = []
    for match in matches:
        tensors = match.tensors()
        _refuse_unusable(tensors, match.name, source)
        if not any(_are_equal(tensors, earlier.tensors()) for earlier in different):
            different.append(match)
    if len(different) > 1:
        names = [match.name or "(the file itself)" for match in different]
        raise UsageError(
            f"{source}: several sets of weights fit ({', '.join(names)}): say which, as <file>#{different[-1].name}"
        )
    return different[0]


def _refuse_unusable(tensors: Mapping[str, Tensor], name: str, source: str) -> None:
    """Raise UsageError if tensors hold no real numbers that can be copied."""
    for key, value in tensors.items():
        if not is_plain(value):
            raise UsageError(
                f"{source}: '{join(name, key)}' is quantized, sparse, complex, expanded or without values: save plain "
                "tensors, {k: v.dequantize().to_dense().contiguous() for k, v in net.state_dict().items()}"
            )


def _rename_head(
    match: _Match, tensors: dict[str, Tensor], head: str, state: Mapping[str, Tensor], source: str
) -> dict[str, Tensor]:
    """Return the tensors with the network's own name of its classifier, if the file has one under another name.

    That is the only linear layer of the network's features in place of the classifier (`fc.1`, a Sequential of dropout
    and a linear layer, for `fc`), or beside the network under a usual name.
    """
    features = state[f"{head}.weight"].shape[1:]
    strange = {key.rpartition(".")[0] for key in tensors.keys() - state.keys()}
    layers = [layer for layer in strange if layer.startswith(f"{head}.") or head.startswith(f"{layer}.")]
    keys: Mapping[str, Tensor] = tensors
    if not layers and match.prefix:
        keys, outer = match.keys, match.prefix.rpartition(".")[0]
        beside = [join(outer, name) for name in CLASSIFIERS]
        shapes = {layer: keys[f"{layer}.weight"].shape for layer in beside if f"{layer}.weight" in keys}
        layers = [layer for layer, shape in shapes.items() if shape[1:] == features and layer != match.prefix]
    weight = keys.get(f"{layers[0]}.weight") if len(layers) == 1 else None
    if weight is None or weight.shape[1:] != features:
        return tensors
    layer = layers[0]
    head_tensors = {
        f"{head}.{name}": keys[f"{layer}.{name}"] for name in ("weight", "bias") if f"{layer}.{name}" in keys
    }
    _refuse_unusable(head_tensors, layer, source)
    return {key: value for key, value in tensors.items() if not key.startswith(f"{layer}.")} | head_tensors


def _name_other_tensors(
    file: WeightsFile, match: _Match, matches: Sequence[_Match], loaded: Iterable[Tensor]
) -> tuple[str, ...]:
    """Return the names of numbers around the network that it does not take, which may normalise its images.

    These are tensors of the same container, and arrays in the containers around it. Left out are copies of loaded
    tensors, other networks that fit (matches), and integers (counters).
    """
    storages = {value.data_ptr() for value in loaded}
    networks = tuple(f"{peer.prefix}." if peer.prefix else "" for peer in matches if peer.group is match.group)
    names = []
    for key, value in match.keys.items():
        is_loaded = is_plain(value) and value.data_ptr() in storages
        if value.is_floating_point() and not is_loaded and not key.startswith(networks):
            names.append(join(match.group.name, key))
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
        values = file.content.get(container) or {}
        mean, std = values.get("mean"), values.get("std")
        if isinstance(mean, list | tuple) and isinstance(std, list | tuple):
            return MeanStd(tuple(mean), tuple(std))
    return None


def largest_group_without_wrappers(file: WeightsFile, source: str) -> dict[str, Tensor]:
    """Return the largest group of tensors in a file without the prefixes that wrappers put before all its keys."""
    return _strip_common_wrappers(_find_largest_group(file, source).tensors)


def _strip_common_wrappers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    while len(first := {key.partition(".")[0] for key in tensors}) == 1 and first & {*WRAPPERS, "model"}:
        tensors = {key.partition(".")[2]: value for key, value in tensors.items()}
    return dict(tensors)


def _find_largest_group(file: WeightsFile, source: str, part: str = "") -> TensorGroup:
    """Return the group with most tensors, in this part of the file.

    Raises UsageError if there is none, or if its values can't be loaded.
    """
    if not file.groups:
        raise UsageError(f"{source}: holds no state dict{describe_foreign(file.foreign)}")
    groups = [group for group in file.groups if part in ("", group.name)]
    if not groups:
        names = [group.name for group in file.groups if group.name and len(group.tensors) > 1]
        raise UsageError(f"{source}: no such part has weights of the network{nearest(part, names)}")
    largest = max(groups, key=lambda group: len(group.tensors))
    _refuse_unusable(largest.tensors, largest.name, source)
    return largest


def strip_wrappers(key: str) -> str:
    """Return the key without the parts that PyTorch's wrappers add."""
    return ".".join(part for part in key.split(".") if part not in WRAPPERS)


def _find_matches(group: TensorGroup, needed: Collection[str]) -> list[_Match]:
    """Return a match for each prefix behind which the group has all needed keys of the network.

    Names are taken as they are, else without wrappers.
    """
    for rename in (str, strip_wrappers):
        tensors = {rename(key): value for key, value in group.tensors.items()}
        prefixes = _find_prefixes(tensors, needed)
        if prefixes and len(tensors) == len(group.tensors):
            return [_Match(group, prefix, tensors) for prefix in prefixes]
    return []


def _find_prefixes(keys: Collection[str], needed: Collection[str]) -> list[str]:
    """Return the prefixes, without their last dot, behind which all needed keys are."""
    anchor = min(needed)
    ends = [key.removesuffix(anchor) for key in keys if key == anchor or key.endswith(f".{anchor}")]
    return [before.removesuffix(".") for before in ends if all(before + key in keys for key in needed)]


def _are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        value is second[key] or torch.equal(value, second[key]) for key, value in first.items()
    )


def _prefer_classifying_network(matches: list[_Match]) -> list[_Match]:
    """Return the classifying network of our own checkpoint if it is among the matches, else all of them."""
    for path in OUR_NETWORKS:
        chosen = [match for match in matches if match.name == f"algorithm.{path}"]
        if chosen:
            return chosen
    return matches
