"""Provenance of initial weights: names and content hashes that identify what a training starts from."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from biasbed.networks.backbones import Architecture, resolve, timm_config
from biasbed.networks.fitting import Fitted
from biasbed.networks.weights import check_init, find_weights_file, is_run_id, read_weights, resolve_weights
from biasbed.system import files


class _WeightFacts(NamedTuple):
    """Facts about weights that this process has read, so that recording them needs no second reading."""

    sha256: str
    fitted: Fitted  # without its tensors


_facts: dict[tuple[Any, ...], _WeightFacts] = {}


def read_and_remember(architecture: Architecture, init: str) -> Fitted:
    """Read initial weights, and remember their content hash and what their file says of images."""
    fitted = read_weights(architecture, init)
    _facts[_cache_key(architecture, init)] = _WeightFacts(content_hash(fitted.tensors), fitted._replace(tensors={}))
    return fitted


def content_hash(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 in hexadecimal of names, dtypes, shapes and values, whatever their order and file format.

    Leaves out batch norm's counters of batches: many files lack them, and no network with a momentum uses them.
    """
    sha = hashlib.sha256()
    for name in sorted(name for name in tensors if not name.endswith("num_batches_tracked")):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def start(name: str, init: str) -> str:
    """Return the start of training as `scratch`, `<library>:<architecture>:<weights>` or `file:<content hash>`.

    Equal weights give equal results, whatever their file's name and folder. Raises the errors of `check_init`, and
    UsageError if the file holds no weights.
    """
    check_init(name, init)
    if init == "scratch":
        return init
    architecture = resolve(name)
    if init.startswith("named:") and not architecture.is_local:
        named = resolve_weights(architecture, init)
        return f"{named.library}:{named.name}:{named.tag or 'default'}"
    return f"file:{_remembered(architecture, init).sha256[:16]}"


def origin(name: str, init: str) -> dict[str, Any]:
    """Return everything known about the initial weights as JSON values.

    Always `start`, `library`, `library_version` and `architecture`. Unless training starts from scratch, also the
    tensors' SHA-256 (`sha256`, see `content_hash`), and one of: their name and address (`weights`, `url`); the file's
    name (`file`); the run whose best checkpoint they are (`run`).
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
    if init.startswith("named:"):
        named = resolve_weights(architecture, init)
        facts |= {"weights": named.tag or "default", **_url(named)}
    elif is_run_id(init) and not files.split_setting(init).path.is_file():
        facts["run"] = init
    else:
        facts["file"] = find_weights_file(init).name
    return {**facts, "sha256": _remembered(architecture, init).sha256}


def describe_file(architecture: Architecture, init: str) -> Fitted:
    """Return what a file of initial weights says of images, without its tensors. Reads the file once."""
    return _remembered(architecture, init).fitted


def _url(named: Architecture) -> dict[str, str]:
    """Return the address from which the library downloads the weights, as `url`; nothing if it is not known."""
    if named.has_own_config or named.is_optional:
        return {}
    if named.library == "timm":
        source = timm_config(named.tagged)
        assert source is not None
        return {"url": f"https://huggingface.co/{source.hf_hub_id}" if source.hf_hub_id else str(source.url)}
    from torchvision import models

    return {"url": str(models.get_model_weights(named.name)[named.tag].url)}


def _remembered(architecture: Architecture, init: str) -> _WeightFacts:
    """Return the facts about initial weights, which are read unless this process has read them already."""
    key = _cache_key(architecture, init)
    if key not in _facts:
        read_and_remember(architecture, init)
    return _facts[key]


def _cache_key(architecture: Architecture, init: str) -> tuple[Any, ...]:
    """Return a cache key: the exact name of named weights; path, size, time and part of a file, which may change."""
    if init.startswith("named:"):
        return (resolve_weights(architecture, init),)
    path = find_weights_file(init).absolute()
    state = path.stat()
    return path, state.st_size, state.st_mtime_ns, files.split_setting(init).part, architecture
