"""Provenance of initial weights: names and content hashes that identify what a training starts from."""

from __future__ import annotations

from typing import Any, NamedTuple

from biasbed.networks.backbones import Architecture, resolve, timm_config
from biasbed.networks.fitting import Fitted
from biasbed.networks.network import content_hash
from biasbed.networks.weights import (
    check_init,
    comes_from_file,
    find_weights_file,
    is_run_id,
    read_weights,
    resolve_weights,
)
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


def start(name: str, init: str) -> str:
    """Return initial weights as `<library>:<architecture>:<weights>` or `file:<content hash>`.

    Equal weights give equal results, whatever their file's name and folder. Raises the errors of `check_init`, and
    UsageError if the file holds no weights.
    """
    check_init(name, init)
    architecture = resolve(name)
    if init.startswith("named:") and not architecture.is_local:
        named = resolve_weights(architecture, init)
        return f"{named.library}:{named.name}:{named.tag or 'default'}"
    return f"file:{_remembered(architecture, init).sha256[:16]}"


def origin(name: str, init: str) -> dict[str, Any]:
    """Return what is known about initial weights as JSON values.

    The tensors' SHA-256 (`sha256`, see `content_hash`), and one of: their name and address (`weights`, `url`); the
    file's name (`file`); the run whose best checkpoint they are (`run`).
    """
    architecture = resolve(name)
    facts = {}
    if init.startswith("named:"):
        named = resolve_weights(architecture, init)
        facts = {"weights": named.tag or "default", **_url(named)}
    elif is_run_id(init) and not files.split_setting(init).path.is_file():
        facts["run"] = init
    else:
        facts["file"] = find_weights_file(init).name
    return {**facts, "sha256": _remembered(architecture, init).sha256}


def describe_file(architecture: Architecture, init: str) -> Fitted | None:
    """Return what a file of initial weights says of images, without its tensors; None for a library's weights.

    Reads the file once.
    """
    return _remembered(architecture, init).fitted if comes_from_file(init) else None


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
