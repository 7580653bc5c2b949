"""State dict in a weights file that fits a network, whatever containers and wrappers enclose it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from biasbed.errors import UsageError
from biasbed.networks.weight_files import TensorGroup, WeightsFile
from biasbed.settings import nearest

# Parts of keys that PyTorch's wrappers add at any depth: DataParallel and torch.compile.
WRAPPERS = ("module", "_orig_mod")
# Paths of the classifying network in our own checkpoints.
OUR_NETWORKS = ("pair.network.backbone", "network.backbone")
# Patterns for the mean and standard deviation of the input, matched with the last part of a key.
MEAN = re.compile(r"(?!\w*running_)_?(?:\w+_)?(?:means?|mu)")
STD = re.compile(r"(?!\w*running_)_?(?:\w+_)?(?:stds?|sigma|sd)")
NORMALISER = re.compile(r"(?:\w+_)?(?:normali[sz]\w*|preprocess\w*)")
FEW = 64  # largest number of values that may normalise an image's channels


class MeanStd(NamedTuple):
    """Mean and standard deviation by channel, of images in [0,1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Inside(NamedTuple):
    """Normalisation that a weights file holds beside a network's tensors."""

    keys: tuple[str, ...]
    values: MeanStd | None
    problem: str = ""  # why the values can't be used


class Fitted(NamedTuple):
    """Tensors of a weights file with a network's own keys, and unknown ones behind the same prefix."""

    name: str  # dotted path in the file
    tensors: dict[str, Tensor]
    inside: Inside | None = None


class _Candidate(NamedTuple):
    """Container and prefix in a file behind which a network's keys were found."""

    group: TensorGroup
    prefix: str
    tensors: dict[str, Tensor]
    score: tuple[bool, int]  # True if nothing is missing; number of the network's keys

    @property
    def name(self) -> str:
        return ".".join(filter(None, (self.group.name, self.prefix)))


def fit(file: WeightsFile, state: Mapping[str, Tensor], optional: Iterable[str], part: str, source: str) -> Fitted:
    """Return the tensors of a file that belong to a network.

    state: the network's state dict; shapes are not compared. optional: keys that the file may lack. part: dotted path
    of the container to take; empty if there is one. source: name of the file in messages. Raises UsageError if the file
    holds no tensors, or if several containers fit equally well and differ in values.
    """
    if not file.groups:
        raise UsageError(f"{source}: holds no state dict{file.contents()}")
    needed = state.keys() - set(optional)
    candidates: list[_Candidate] = []
    for group in file.groups:
        candidates += _candidates(group, state, needed)
    candidates = [candidate for candidate in candidates if not part or _is_below(candidate.name, part)]
    if not candidates:
        if part:
            names = [group.name for group in file.groups if group.name and len(group.tensors) > 1]
            raise UsageError(f"{source}: no such part has weights of the network{nearest(part, names)}")
        largest = max(file.groups, key=lambda group: len(group.tensors))
        return Fitted(largest.name, dict(largest.tensors))
    best = max(candidate.score for candidate in candidates)
    fitting = _without_copies([candidate for candidate in candidates if candidate.score == best])
    if file.is_ours and not part:
        fitting = _ours(fitting)
    if len(fitting) > 1:
        names = [candidate.name or "(the file itself)" for candidate in fitting]
        raise UsageError(
            f"{source}: several sets of weights fit ({', '.join(names)}): say which, as <file>#{fitting[-1].name}"
        )
    (chosen,) = fitting
    return Fitted(chosen.name, chosen.tensors, _inside(file, chosen, state))


def without_wrappers(file: WeightsFile, source: str) -> dict[str, Tensor]:
    """Return the largest group of tensors in a file without the prefixes that wrappers put before all its keys."""
    if not file.groups:
        raise UsageError(f"{source}: holds no state dict{file.contents()}")
    tensors = dict(max(file.groups, key=lambda group: len(group.tensors)).tensors)
    while {key.partition(".")[0] for key in tensors} & {*WRAPPERS, "model"} and len(_first_parts(tensors)) == 1:
        tensors = {key.partition(".")[2]: value for key, value in tensors.items()}
    return tensors


def _first_parts(keys: Iterable[str]) -> set[str]:
    return {key.partition(".")[0] for key in keys}


def _candidates(group: TensorGroup, state: Mapping[str, Tensor], needed: Iterable[str]) -> list[_Candidate]:
    """Return a candidate for each prefix behind which the group has keys of the network."""
    candidates = _by_prefix(group, group.tensors, state, needed)
    if any(candidate.score[0] for candidate in candidates):
        return candidates
    bare = {_bare(key): value for key, value in group.tensors.items()}
    if len(bare) < len(group.tensors) or bare.keys() == group.tensors.keys():
        return candidates
    return [*candidates, *_by_prefix(group, bare, state, needed)]


def _bare(key: str) -> str:
    """Return the key without the parts that PyTorch's wrappers add."""
    return ".".join(part for part in key.split(".") if part not in WRAPPERS)


def _by_prefix(
    group: TensorGroup, tensors: Mapping[str, Tensor], state: Mapping[str, Tensor], needed: Iterable[str]
) -> list[_Candidate]:
    hits: dict[str, set[str]] = {}
    for key in tensors:
        parts = key.split(".")
        for start in range(len(parts)):
            rest = ".".join(parts[start:])
            if rest in state:
                hits.setdefault(".".join(parts[:start]), set()).add(rest)
    candidates = []
    for prefix, keys in hits.items():
        before = f"{prefix}." if prefix else ""
        inner = {key.removeprefix(before): value for key, value in tensors.items() if key.startswith(before)}
        candidates.append(_Candidate(group, prefix, inner, (keys.issuperset(needed), len(keys))))
    return candidates


def _is_below(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.") or _bare(name) == part


def _without_copies(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the candidates without those that repeat the values of an earlier one."""
    kept: list[_Candidate] = []
    for candidate in candidates:
        if not any(_are_equal(candidate.tensors, earlier.tensors) for earlier in kept):
            kept.append(candidate)
    return kept


def _are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        value is second[key] or torch.equal(value, second[key]) for key, value in first.items()
    )


def _ours(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return the classifying network of our own checkpoint if it is among the candidates, else all of them."""
    for path in OUR_NETWORKS:
        chosen = [candidate for candidate in candidates if candidate.name == f"algorithm.{path}"]
        if chosen:
            return chosen
    return candidates


def _inside(file: WeightsFile, chosen: _Candidate, state: Mapping[str, Tensor]) -> Inside | None:
    """Return the normalisation that the file holds for the chosen network. None if there is none.

    Searches the chosen container for tensors that are not the network's, and the containers around it directly. If
    several match, the one nearest to the network counts.
    """
    prefix = _bare(chosen.name).split(".") if chosen.name else []
    matches: dict[int, dict[str, Tensor]] = {}  # by the number of leading parts shared with the network's path
    for group in file.groups:
        if group is not chosen.group and not _is_below(chosen.group.name, group.name) and group.name:
            continue
        for key, value in group.tensors.items():
            path = _bare(".".join(filter(None, (group.name, key)))).split(".")
            is_networks = path[: len(prefix)] == prefix and ".".join(path[len(prefix) :]) in state
            if not is_networks and value.numel() <= FEW and _names_normalisation(path):
                matches.setdefault(_count_shared(path, prefix), {})[".".join(path)] = value
    if not matches:
        return None
    return _mean_std(matches[max(matches)])


def _names_normalisation(path: Sequence[str]) -> bool:
    last = path[-1]
    in_normaliser = any(NORMALISER.fullmatch(part) for part in path) and last != "num_batches_tracked"
    return bool(MEAN.fullmatch(last) or STD.fullmatch(last) or in_normaliser)


def _count_shared(path: Sequence[str], prefix: Sequence[str]) -> int:
    """Return the number of leading parts that two paths share."""
    number = 0
    for part, expected in zip(path, prefix, strict=False):
        if part != expected:
            break
        number += 1
    return number


def _mean_std(tensors: Mapping[str, Tensor]) -> Inside:
    """Return the mean and the standard deviation among these tensors, or the reason why they are unusable."""
    keys = tuple(tensors)
    means = [value for key, value in tensors.items() if MEAN.fullmatch(key.rpartition(".")[2])]
    stds = [value for key, value in tensors.items() if STD.fullmatch(key.rpartition(".")[2])]
    if len(means) != 1 or len(stds) != 1 or len(tensors) != 2:
        return Inside(keys, None, "are not one mean and one std")
    mean, std = (tuple(value.double().flatten().tolist()) for value in (means[0], stds[0]))
    if len(mean) != len(std) or not all(-2 <= number <= 2 for number in mean) or not all(0 < s <= 4 for s in std):
        return Inside(keys, None, f"are not the mean and std of images in [0,1]: {mean}, {std}")
    return Inside(keys, MeanStd(mean, std))


def without_normalisation(fitted: Fitted, network_keys: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors without the file's normalisation, unless the network has keys of these names."""
    if fitted.inside is None:
        return fitted.tensors
    kept, paths = set(network_keys), fitted.inside.keys
    return {k: v for k, v in fitted.tensors.items() if k in kept or not any(_ends(path, k) for path in paths)}


def _ends(path: str, key: str) -> bool:
    bare = _bare(key)
    return path == bare or path.endswith(f".{bare}")
