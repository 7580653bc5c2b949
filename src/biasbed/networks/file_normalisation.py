"""Normalisation of images that a weights file holds beside a network's tensors: found by name, position, shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from torch import Tensor

from biasbed.networks.weight_files import FEW, NumberList, TensorGroup, WeightsFile, join, unusable

# Parts of keys that PyTorch's wrappers add at any depth: DataParallel and torch.compile.
WRAPPERS = ("module", "_orig_mod")
# Words in names of the mean and standard deviation of images, and those that may stand beside them.
MEAN = {"mean", "means", "mu"}
STD = {"std", "stds", "stdev", "stddev", "sd", "sigma", "sigmas"}
NEUTRAL = {"channel", "channels", "data", "dataset", "image", "images", "imagenet", "img", "input", "inputs", "norm"}
NEUTRAL |= {"normalize", "normalise", "normalizer", "pixel", "pixels", "preprocess", "rgb", "train", "transform", "x"}
# Modules that normalise images. A module `norm` normalises features, as a container of settings it is for images.
MODULE = re.compile(r"(?:\w+_)?(?:normali[sz]\w*|preprocess\w*)")
# Containers of a normalisation, and containers of settings, which may hold one.
NORMALISER = re.compile(r"(?:\w+_)?(?:norm|normali[sz]\w*|preprocess\w*|pre_process\w*|transforms?)(?:_cfg|_config)?")
SETTINGS = re.compile(
    r"(?:\w+_)?(?:args?|cfg|conf|config|data|dataset|hparams|hyper_parameters|meta|opts?|params|settings)"
)

Role = Literal["mean", "std", "unclear", ""]


class MeanStd(NamedTuple):
    """Mean and standard deviation by channel, of images in [0,1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Inside(NamedTuple):
    """Normalisation that a weights file holds beside a network's tensors."""

    keys: tuple[str, ...]
    values: MeanStd | None
    problem: str = ""  # why the values can't be used


class _Suspect(NamedTuple):
    """Value in a file that may normalise images."""

    path: tuple[str, ...]
    values: tuple[float, ...] | None
    problem: str = ""  # why there are no values

    @property
    def role(self) -> Role:
        return _role(self.path[-1])


def bare(key: str) -> str:
    """Return the key without the parts that PyTorch's wrappers add."""
    return ".".join(part for part in key.split(".") if part not in WRAPPERS)


def find(file: WeightsFile, group: TensorGroup, prefix: str, network: Mapping[str, Tensor]) -> Inside | None:
    """Return the normalisation that the file holds for a network. None if there is none.

    group, prefix: where the network's tensors are. network: the tensors with its own keys. Searches the tensors of the
    group that are not the network's, then the containers around and beside it. If several are at different distances
    in the group, the nearest to the network counts.
    """
    network_path = _parts(join(group.name, prefix))
    channels = _channels(network)
    nearby = [] if file.is_ours else _in_group(group, network_path, network, channels)
    nearby += _around(file, group, network_path, channels)
    if nearby:
        nearest = max(_count_shared(suspect.path, network_path) for suspect in nearby)
        return _mean_std([suspect for suspect in nearby if _count_shared(suspect.path, network_path) == nearest])
    return _agreed(_beside(file, group, channels))


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a path without wrappers. Empty for an empty name."""
    return tuple(part for part in name.split(".") if part not in (*WRAPPERS, ""))


def _path(container: str, key: str) -> tuple[str, ...]:
    """Return the parts of a key's path without wrappers. A key that is a wrapper's name stays."""
    return (*_parts(container), *(_parts(key) or (key,)))


def _role(key: str) -> Role:
    """Return what a key's words say of its value: a mean, a std, something made of one, or nothing."""
    parts = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()))
    if not parts & (MEAN | STD):
        return ""
    if parts - MEAN - STD - NEUTRAL or (parts & MEAN and parts & STD):
        return "unclear"
    return "mean" if parts & MEAN else "std"


def _channels(network: Mapping[str, Tensor]) -> int:
    """Return the number of input channels of the first convolution, or 3 if there is none."""
    return next((value.shape[1] for value in network.values() if value.ndim == 4), 3)


def _in_group(
    group: TensorGroup, network_path: Sequence[str], network: Mapping[str, Tensor], channels: int
) -> list[_Suspect]:
    """Return the suspects among a group's tensors that are not the network's."""
    others: dict[tuple[str, ...], Tensor] = {}
    for key, value in group.tensors.items():
        path = _path(group.name, key)
        is_behind = path[: len(network_path)] == tuple(network_path)
        if not (is_behind and ".".join(path[len(network_path) :]) in network):
            others[path] = value
    on_images = _on_images(others, network_path, channels)
    suspects = []
    for path, value in others.items():
        # Behind the network's prefix, other names may be older ones of its own layers.
        is_behind = path[: len(network_path)] == tuple(network_path)
        is_layer = path in on_images or (_in_module(path, value) and not is_behind)
        if _role(path[-1]) in ("mean", "std") or is_layer:
            suspects.append(_from_tensor(path, value, channels))
    return suspects


def _on_images(
    others: Mapping[tuple[str, ...], Tensor], network_path: Sequence[str], channels: int
) -> set[tuple[str, ...]]:
    """Return the paths of tensors outside the network whose shapes are those of a layer on images.

    Such a layer (batch norm, convolution, shift and scale) has only tensors with a value per channel.
    """
    layers: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for path in others:
        if path[: len(network_path)] != tuple(network_path) and path[-1] != "num_batches_tracked":
            encloses = tuple(network_path[: len(path) - 1]) == path[:-1]
            layers.setdefault(path if encloses else path[:-1], []).append(path)
    paths: set[tuple[str, ...]] = set()
    for members in layers.values():
        if all(_is_on_image(others[path], channels) for path in members):
            paths.update(members)
    return paths


def _is_on_image(value: Tensor, channels: int) -> bool:
    """Return True for real numbers per channel or pixel, or a convolution from channels to channels."""
    if not value.is_floating_point() or not value.ndim:
        return False
    shape = tuple(value.shape)
    if value.ndim == 4 and shape[0] == channels and shape[1] in (1, channels):
        return True
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape[0] == channels and (len(shape) == 3 or all(size == 1 for size in shape[1:]))


def _in_normaliser(path: Sequence[str]) -> bool:
    return any(NORMALISER.fullmatch(part.lower()) for part in path[:-1])


def _in_module(path: Sequence[str], value: Tensor) -> bool:
    """Return True for a small tensor of a module that normalises images by its name."""
    is_small = value.numel() <= FEW and path[-1] != "num_batches_tracked"
    return is_small and any(MODULE.fullmatch(part.lower()) for part in path[:-1])


def _in_settings(path: Sequence[str]) -> bool:
    return any(SETTINGS.fullmatch(part.lower()) for part in path[:-1])


def _from_tensor(path: tuple[str, ...], value: Tensor, channels: int) -> _Suspect:
    """Return a suspect with one value per channel, or with the reason why it has none."""
    problem = unusable(value)
    if problem:
        return _Suspect(path, None, problem)
    if value.numel() > channels and value.ndim >= 3:
        first = value[..., :1, :1]
        if bool((value == first).all()):
            value = first
    if not 0 < value.numel() <= FEW:
        return _Suspect(path, None, f"has {value.numel()} numbers, not one per channel")
    return _Suspect(path, tuple(value.double().flatten().tolist()))


def _around(file: WeightsFile, group: TensorGroup, network_path: Sequence[str], channels: int) -> list[_Suspect]:
    """Return the suspects that the containers around a group hold directly, or in a container of a normalisation."""
    suspects = []
    for outer in file.groups:
        if outer is not group and _encloses(outer.name, group.name):
            for key, value in outer.tensors.items():
                path = _path(outer.name, key)
                if _role(path[-1]) in ("mean", "std") or _in_module(path, value):
                    suspects.append(_from_tensor(path, value, channels))
    numbers = [listed for listed in file.numbers if _encloses(listed.container, group.name) or not listed.container]
    return suspects + _from_numbers(numbers, channels)


def _encloses(outer: str, inner: str) -> bool:
    return not outer or inner == outer or inner.startswith(f"{outer}.")


def _from_numbers(numbers: Iterable[NumberList], channels: int) -> list[_Suspect]:
    """Return the suspects among numbers: lists by name, and single numbers if they are a mean and a std together."""
    by_container: dict[str, list[_Suspect]] = {}
    for listed in numbers:
        path = _path(listed.container, listed.key)
        role = _role(path[-1])
        is_list = listed.values is None or len(listed.values) > 1
        if role in ("mean", "std") or (role and is_list and _in_normaliser(path)):
            problem = "" if listed.values is not None else "is an object that is not loaded"
            by_container.setdefault(listed.container, []).append(_Suspect(path, listed.values, problem))
    suspects = []
    for members in by_container.values():
        lists = [member for member in members if member.values is None or len(member.values) > 1]
        if lists:
            suspects += [member for member in lists if _may_be_channels(member, channels)]
        elif {"mean", "std"} <= {member.role for member in members}:
            suspects += members
    return suspects


def _may_be_channels(suspect: _Suspect, channels: int) -> bool:
    """Return True for a list of one number per channel, and for any in a container of a normalisation."""
    return suspect.values is None or len(suspect.values) == channels or _in_normaliser(suspect.path)


def _beside(file: WeightsFile, group: TensorGroup, channels: int) -> list[_Suspect]:
    """Return the suspects in containers beside a group.

    A container that is named for neither a normalisation nor settings counts only with a value per channel.
    """
    suspects = []
    for group_beside in file.groups:
        if _encloses(group_beside.name, group.name):
            continue
        for key, value in group_beside.tensors.items():
            path = _path(group_beside.name, key)
            if _role(path[-1]) in ("mean", "std") and (_in_normaliser(path) or _is_on_image(value, channels)):
                suspects.append(_from_tensor(path, value, channels))
    for suspect in _from_numbers(file.numbers, channels):
        is_named = _in_normaliser(suspect.path) or _in_settings(suspect.path)
        if is_named or (suspect.values is not None and len(suspect.values) == channels > 1):
            suspects.append(suspect)
    return suspects


def _agreed(suspects: Iterable[_Suspect]) -> Inside | None:
    """Return the normalisation that all containers of suspects agree on, or one with a problem. None without any."""
    by_container: dict[tuple[str, ...], list[_Suspect]] = {}
    for suspect in suspects:
        by_container.setdefault(suspect.path[:-1], []).append(suspect)
    results = [_mean_std(members) for members in by_container.values()]
    if not results:
        return None
    keys: tuple[str, ...] = ()
    for result in results:
        keys += result.keys
    for result in results:
        if result.values is None:
            return Inside(result.keys, None, result.problem)
        if result.values != results[0].values:
            return Inside(keys, None, "differ from each other")
        if not any(_in_normaliser(key.split(".")) or _in_settings(key.split(".")) for key in result.keys):
            return Inside(result.keys, None, "are in a container that may hold something else")
    return Inside(keys, results[0].values)


def _mean_std(suspects: Sequence[_Suspect]) -> Inside:
    """Return the mean and the standard deviation among suspects, or the reason why they are unusable."""
    keys = tuple(".".join(suspect.path) for suspect in suspects)
    for key, suspect in zip(keys, suspects, strict=True):
        if suspect.values is None:
            return Inside(keys, None, f"can't be used ({key} {suspect.problem})")
    roles = sorted(suspect.role for suspect in suspects)
    if roles != ["mean", "std"]:
        layer = "" if all(roles) else "a layer on images, "
        return Inside(keys, None, f"are {layer}not one mean and one std")
    values = {suspect.role: suspect.values or () for suspect in suspects}
    mean, std = values["mean"], values["std"]
    if len(mean) != len(std) or not all(-2 <= number <= 2 for number in mean) or not all(0 < s <= 4 for s in std):
        return Inside(keys, None, f"are not the mean and std of images in [0,1]: {_shown(mean)}, {_shown(std)}")
    return Inside(keys, MeanStd(mean, std))


def _shown(numbers: Sequence[float]) -> str:
    """Return at most four numbers in parentheses."""
    more = ", ..." if len(numbers) > 4 else ""
    return f"({', '.join(f'{number:.6g}' for number in numbers[:4])}{more})"


def _count_shared(path: Sequence[str], network_path: Sequence[str]) -> int:
    """Return the number of leading parts that two paths share."""
    number = 0
    for part, expected in zip(path, network_path, strict=False):
        if part != expected:
            break
        number += 1
    return number
