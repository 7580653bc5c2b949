"""State dict in a weights file that fits a network, whatever containers and wrappers enclose it.

`renaming` translates keys and resizes position embeddings; `file_normalisation` finds mean and std.

Answers: Which tensors of a weights file become the network's weights?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from biasbed.errors import UsageError
from biasbed.networks import file_normalisation
from biasbed.networks.file_normalisation import WRAPPERS, Inside, bare
from biasbed.networks.weight_files import TensorGroup, WeightsFile, join, repeats_storage, unusable
from biasbed.settings import nearest

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
    inside: Inside | None = None
    beside: str = ""  # clause on tensors of the same state dict that are not loaded; empty if there are none


class _Match(NamedTuple):
    """Prefix in a container of a file behind which keys of a network were found."""

    group: TensorGroup
    prefix: str
    keys: Mapping[str, Tensor]  # the container's tensors, perhaps without wrappers in their names
    score: tuple[bool, int]  # True if nothing is missing; number of the network's keys

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
    classifier, which the file may hold beside the network under a usual name, as DomainBed's do. other_names: the
    network's layers by the names that another program gives them. Raises UsageError if the file holds no tensors, if
    several containers fit equally well and differ in values, if values can't be loaded, or if it is a checkpoint of
    DomainBed for another network.
    """
    needed = state.keys() - set(optional)
    matches: list[_Match] = []
    for group in file.groups:
        group_matches = _matches(group, state, needed, other_names or {})
        matches += [match for match in group_matches if not part or match.is_part(part)]
    if not any(match.score[0] for match in matches):
        _refuse_other_network(file, source)
    if not matches:
        if part and file.groups:
            names = [group.name for group in file.groups if group.name and len(group.tensors) > 1]
            raise UsageError(f"{source}: no such part has weights of the network{nearest(part, names)}")
        largest = _largest(file, source)
        return Fitted(largest.name, dict(largest.tensors))
    best = max(match.score for match in matches)
    fitting = [match for match in matches if match.score == best]
    if file.is_ours and not part:
        fitting = _ours(fitting)
    match, tensors = _only_one(fitting, source)
    weight = f"{head}.weight"
    if weight in state and weight not in tensors and not file.is_ours:
        tensors |= _head_beside(match, head, state[weight].shape[1:], source)
    kept = {key: value for key, value in tensors.items() if key in state}
    inside = file_normalisation.find(file, match.group, match.prefix, kept)
    beside = "" if file.is_ours else _beside(match, inside, kept)
    return Fitted(match.name, tensors, inside, beside)


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


def _beside(match: _Match, inside: Inside | None, loaded: Mapping[str, Tensor]) -> str:
    """Return a clause on the tensors of a state dict that are not loaded. Copies of loaded ones are left out."""
    used = set(inside.keys) if inside is not None else set()
    storages = {value.data_ptr() for value in loaded.values()}
    before = f"{match.prefix}." if match.prefix else ""
    counts: dict[str, int] = {}
    for key, value in match.keys.items():
        is_used = key.startswith(before) or bare(join(match.group.name, key)) in used
        is_used = is_used or key.endswith("num_batches_tracked")
        if not is_used and (unusable(value) or value.data_ptr() not in storages):
            module = bare(key).split(".")[0] or key
            counts[module] = counts.get(module, 0) + 1
    listed = [f"{module} ({count})" for module, count in list(counts.items())[:5]]
    more = ", ..." if len(counts) > 5 else ""
    return f"tensors beside the network are not loaded: {', '.join(listed)}{more}" if listed else ""


def without_wrappers(file: WeightsFile, source: str) -> dict[str, Tensor]:
    """Return the largest group of tensors in a file without the prefixes that wrappers put before all its keys."""
    tensors = dict(_largest(file, source).tensors)
    while {key.partition(".")[0] for key in tensors} & {*WRAPPERS, "model"} and len(_first_parts(tensors)) == 1:
        tensors = {key.partition(".")[2]: value for key, value in tensors.items()}
    return tensors


def _largest(file: WeightsFile, source: str) -> TensorGroup:
    """Return the group with most tensors. Raises UsageError if there is none, or if its values can't be loaded."""
    if not file.groups:
        raise UsageError(f"{source}: holds no state dict{file.contents()}")
    largest = max(file.groups, key=lambda group: len(group.tensors))
    _refuse_unusable(largest.tensors, largest.name, source)
    return largest


def _first_parts(keys: Iterable[str]) -> set[str]:
    return {key.partition(".")[0] for key in keys}


def _matches(
    group: TensorGroup, state: Mapping[str, Tensor], needed: Iterable[str], other_names: Mapping[str, str]
) -> list[_Match]:
    """Return a match for each prefix behind which the group has keys of the network."""
    matches = _by_prefix(group, group.tensors, state, needed)
    unwrapped = {bare(key): value for key, value in group.tensors.items()}
    if len(unwrapped) < len(group.tensors):
        return matches
    renamed = {_with_own_name(key, other_names): value for key, value in unwrapped.items()}
    earlier = group.tensors.keys()
    for tensors in (unwrapped, renamed):
        is_fitted = any(match.score[0] for match in matches)
        if not is_fitted and len(tensors) == len(unwrapped) and tensors.keys() != earlier:
            matches += _by_prefix(group, tensors, state, needed)
            earlier = tensors.keys()
    return matches


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


def _by_prefix(
    group: TensorGroup, tensors: Mapping[str, Tensor], state: Mapping[str, Tensor], needed: Iterable[str]
) -> list[_Match]:
    longest = max((key.count(".") + 1 for key in state), default=0)
    hits: dict[str, set[str]] = {}
    for key in tensors:
        parts = key.split(".")
        for start in range(max(0, len(parts) - longest), len(parts)):
            rest = ".".join(parts[start:])
            if rest in state:
                hits.setdefault(".".join(parts[:start]), set()).add(rest)
    return [_Match(group, prefix, tensors, (keys.issuperset(needed), len(keys))) for prefix, keys in hits.items()]


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


def without_normalisation(fitted: Fitted, network_keys: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors without the file's normalisation, unless the network has keys of these names."""
    if fitted.inside is None:
        return fitted.tensors
    kept, paths = set(network_keys), fitted.inside.keys
    return {k: v for k, v in fitted.tensors.items() if k in kept or not any(_ends(path, k) for path in paths)}


def _ends(path: str, key: str) -> bool:
    name = bare(key)
    return path == name or path.endswith(f".{name}")
