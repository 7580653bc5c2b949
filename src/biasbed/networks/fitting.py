"""State dicts of a weights file that fit a network, whatever container or wrapper the network's keys are behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from biasbed.errors import UsageError
from biasbed.networks.weight_files import WeightsFile, WeightsGroup
from biasbed.settings import nearest

# Parts of keys that PyTorch's own wrappers add, at any depth: DataParallel and torch.compile.
WRAPPERS = ("module", "_orig_mod")
# Where checkpoints of ours keep the network that classifies.
OUR_NETWORKS = ("pair.network.backbone", "network.backbone")
# Means and standard deviations of the input, by the last part of their key.
MEAN = re.compile(r"(?!\w*running_)_?(?:\w+_)?(?:means?|mu)")
STD = re.compile(r"(?!\w*running_)_?(?:\w+_)?(?:stds?|sigma|sd)")
NORMALISER = re.compile(r"(?:\w+_)?(?:normali[sz]\w*|preprocess\w*)")
FEW = 64  # numbers of a tensor that may normalise an image's channels


class MeanStd(NamedTuple):
    """Mean and standard deviation by channel, of images in [0,1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Inside(NamedTuple):
    """Normalisation that a weights file holds beside a network's tensors."""

    keys: tuple[str, ...]
    values: MeanStd | None
    problem: str = ""  # why the values can't be used


class FittedWeights(NamedTuple):
    """Tensors of a weights file by a network's own keys, and unknown ones behind the same prefix."""

    name: str  # dotted path in the file
    tensors: dict[str, Tensor]
    inside: Inside | None = None


class _Candidate(NamedTuple):
    group: WeightsGroup
    prefix: str
    tensors: dict[str, Tensor]
    score: tuple[bool, int]  # whether nothing is missing; number of keys that the network has

    @property
    def name(self) -> str:
        return ".".join(filter(None, (self.group.name, self.prefix)))


def fit(file: WeightsFile, own: Mapping[str, Tensor], optional: Iterable[str], part: str, source: str) -> FittedWeights:
    """Return the tensors of a file that belong to a network with these keys.

    own: the network's state dict, of which shapes are not compared. optional: keys that a file may lack. part: dotted
    path of the container to take; empty if there is one. Raises UsageError if the file holds no tensors, or if several
    containers fit equally well and have other values.
    """
    if not file.groups:
        raise UsageError(f"{source}: holds no state dict{file.contents()}")
    needed = own.keys() - set(optional)
    candidates = [candidate for group in file.groups for candidate in _candidates(group, own, needed)]
    candidates = [candidate for candidate in candidates if not part or _is_below(candidate.name, part)]
    if not candidates:
        if part:
            names = [group.name for group in file.groups if group.name and len(group.tensors) > 1]
            raise UsageError(f"{source}: no such part has weights of the network{nearest(part, names)}")
        largest = max(file.groups, key=lambda group: len(group.tensors))
        return FittedWeights(largest.name, dict(largest.tensors))
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
    return FittedWeights(chosen.name, chosen.tensors, _inside(file, chosen, own))


def without_wrappers(file: WeightsFile, source: str) -> dict[str, Tensor]:
    """Return the largest group of tensors of a file without the names that wrappers put before all its keys."""
    if not file.groups:
        raise UsageError(f"{source}: holds no state dict{file.contents()}")
    tensors = dict(max(file.groups, key=lambda group: len(group.tensors)).tensors)
    while {key.partition(".")[0] for key in tensors} & {*WRAPPERS, "model"} and len(_first_parts(tensors)) == 1:
        tensors = {key.partition(".")[2]: value for key, value in tensors.items()}
    return tensors


def _first_parts(keys: Iterable[str]) -> set[str]:
    return {key.partition(".")[0] for key in keys}


def _candidates(group: WeightsGroup, own: Mapping[str, Tensor], needed: Iterable[str]) -> list[_Candidate]:
    """Return a candidate for each prefix behind which the group has keys of the network."""
    found = _by_prefix(group, group.tensors, own, needed)
    if any(candidate.score[0] for candidate in found):
        return found
    bare = {_bare(key): value for key, value in group.tensors.items()}
    if len(bare) < len(group.tensors) or bare.keys() == group.tensors.keys():
        return found
    return [*found, *_by_prefix(group, bare, own, needed)]


def _bare(key: str) -> str:
    """Return the key without the parts that PyTorch's wrappers add."""
    return ".".join(part for part in key.split(".") if part not in WRAPPERS)


def _by_prefix(
    group: WeightsGroup, tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], needed: Iterable[str]
) -> list[_Candidate]:
    hits: dict[str, set[str]] = {}
    for key in tensors:
        parts = key.split(".")
        for start in range(len(parts)):
            rest = ".".join(parts[start:])
            if rest in own:
                hits.setdefault(".".join(parts[:start]), set()).add(rest)
    found = []
    for prefix, keys in hits.items():
        before = f"{prefix}." if prefix else ""
        inner = {key.removeprefix(before): value for key, value in tensors.items() if key.startswith(before)}
        found.append(_Candidate(group, prefix, inner, (keys.issuperset(needed), len(keys))))
    return found


def _is_below(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.") or _bare(name) == part


def _without_copies(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the candidates without those that repeat another's values."""
    kept: list[_Candidate] = []
    for candidate in candidates:
        if not any(_are_equal(candidate.tensors, other.tensors) for other in kept):
            kept.append(candidate)
    return kept


def _are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        value is second[key] or torch.equal(value, second[key]) for key, value in first.items()
    )


def _ours(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return the classifying network of a checkpoint of ours if it is among the candidates."""
    for place in OUR_NETWORKS:
        chosen = [candidate for candidate in candidates if candidate.name == f"algorithm.{place}"]
        if chosen:
            return chosen
    return candidates


def _inside(file: WeightsFile, chosen: _Candidate, own: Mapping[str, Tensor]) -> Inside | None:
    """Return the normalisation that the file holds for the chosen network. None if there is none.

    It is looked for among all tensors of the network's container that the network does not have, and directly in the
    containers around it. Of several the one nearest to the network counts.
    """
    place = _bare(chosen.name).split(".") if chosen.name else []
    loose: dict[int, dict[str, Tensor]] = {}
    for group in file.groups:
        if group is not chosen.group and not _is_below(chosen.group.name, group.name) and group.name:
            continue
        for key, value in group.tensors.items():
            path = _bare(".".join(filter(None, (group.name, key)))).split(".")
            is_own = path[: len(place)] == place and ".".join(path[len(place) :]) in own
            if not is_own and value.numel() <= FEW and _names_normalisation(path):
                shared = _shared(path, place)
                loose.setdefault(shared, {})[".".join(path)] = value
    if not loose:
        return None
    return _mean_std(loose[max(loose)])


def _names_normalisation(path: Sequence[str]) -> bool:
    last = path[-1]
    in_normaliser = any(NORMALISER.fullmatch(part) for part in path) and last != "num_batches_tracked"
    return bool(MEAN.fullmatch(last) or STD.fullmatch(last) or in_normaliser)


def _shared(path: Sequence[str], place: Sequence[str]) -> int:
    """Return the number of leading parts that two paths share."""
    number = 0
    for one, other in zip(path, place, strict=False):
        if one != other:
            break
        number += 1
    return number


def _mean_std(tensors: Mapping[str, Tensor]) -> Inside:
    """Return the mean and the standard deviation among these tensors, or why there are none."""
    keys = tuple(tensors)
    means = [value for key, value in tensors.items() if MEAN.fullmatch(key.rpartition(".")[2])]
    stds = [value for key, value in tensors.items() if STD.fullmatch(key.rpartition(".")[2])]
    if len(means) != 1 or len(stds) != 1 or len(tensors) != 2:
        return Inside(keys, None, "are not one mean and one std")
    mean, std = (tuple(value.double().flatten().tolist()) for value in (means[0], stds[0]))
    if len(mean) != len(std) or not all(-2 <= number <= 2 for number in mean) or not all(0 < s <= 4 for s in std):
        return Inside(keys, None, f"are not the mean and std of images in [0,1]: {mean}, {std}")
    return Inside(keys, MeanStd(mean, std))


def without_normalisation(fitted: FittedWeights, own: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors without those of a normalisation that lie behind the network's own prefix."""
    if fitted.inside is None:
        return fitted.tensors
    known, keys = set(own), fitted.inside.keys
    return {k: v for k, v in fitted.tensors.items() if k in known or not any(_ends(key, k) for key in keys)}


def _ends(path: str, key: str) -> bool:
    bare = _bare(key)
    return path == bare or path.endswith(f".{bare}")
