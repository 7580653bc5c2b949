"""What a training starts from, in full: the record by which runs from the same weights are told from all others."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from biasbed.networks.backbones import Architecture, resolve
from biasbed.networks.fitting import FittedWeights, Inside
from biasbed.networks.weights import check_init, exact, is_run_id, read_weights, weights_file
from biasbed.system import files


class _Record(NamedTuple):
    """What is kept of weights that this process has read, so that a record of them costs no second reading."""

    sha256: str
    inside: Inside | None


_read: dict[tuple[Any, ...], _Record] = {}


def read(architecture: Architecture, init: str) -> FittedWeights:
    """Return `read_weights`, whose content hash and normalisation are remembered."""
    fitted = read_weights(architecture, init)
    _read[_key(architecture, init)] = _Record(content_hash(fitted.tensors), fitted.inside)
    return fitted


def content_hash(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256, in hexadecimal, of names, types, shapes and values; equal whatever the order or the kind of file.

    Without batch norm's counters of batches, which many files lack and no network with a momentum reads.
    """
    sha = hashlib.sha256()
    for name in sorted(name for name in tensors if not name.endswith("num_batches_tracked")):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def start(name: str, init: str) -> str:
    """How training starts, in a word: `scratch`, `<library>:<architecture>:<weights>` or `file:<content hash>`.

    Equal for equal weights, whatever their file is called and wherever it lies. Errors as in `check_init`, and
    UsageError for a file that holds no weights.
    """
    check_init(name, init)
    if init == "scratch":
        return init
    architecture = resolve(name)
    if init.startswith("named:"):
        named = exact(architecture, init)
        return f"{named.library}:{named.name}:{named.tag}"
    return f"file:{_hash(architecture, init)[:16]}"


def origin(name: str, init: str) -> dict[str, Any]:
    """The start with all that is known of it, as JSON values.

    Always `start`, `library`, `library_version` and `architecture`. From weights also the SHA-256 of the tensors
    (`sha256`, see `content_hash`), and their name and address (`weights`, `url`), or the file's name (`file`), or the
    run whose best checkpoint it is (`run`).
    """
    architecture = resolve(name)
    package = "timm" if architecture.library == "timm" else "torchvision"  # whose classes our own networks are made of
    found = {
        "start": start(name, init),
        "library": architecture.library,
        "library_version": importlib.metadata.version(package),
        "architecture": architecture.gated,
    }
    if init == "scratch":
        return found
    if init.startswith("named:"):
        named = exact(architecture, init)
        found |= {"weights": named.tag, "url": _url(named)}
    elif is_run_id(init) and not files.split(init).path.is_file():
        found["run"] = init
    else:
        found["file"] = weights_file(init).name
    return {**found, "sha256": _hash(architecture, init)}


def normalisation_inside(architecture: Architecture, init: str) -> Inside | None:
    """Return the normalisation that a file of initial weights holds beside them. None if there is none."""
    return None if init == "scratch" or init.startswith("named:") else _record(architecture, init).inside


def _url(named: Architecture) -> str:
    """Where the library fetches the weights from."""
    if named.library == "timm":
        import timm

        source = timm.models.get_pretrained_cfg(named.tagged)
        assert source is not None
        return f"https://huggingface.co/{source.hf_hub_id}" if source.hf_hub_id else str(source.url)
    from torchvision import models

    return str(models.get_model_weights(named.name)[named.tag].url)


def _hash(architecture: Architecture, init: str) -> str:
    return _record(architecture, init).sha256


def _record(architecture: Architecture, init: str) -> _Record:
    key = _key(architecture, init)
    if key not in _read:
        read(architecture, init)
    return _read[key]


def _key(architecture: Architecture, init: str) -> tuple[Any, ...]:
    """Of named weights the exact name; of a file its state, as it may be written anew, and what is taken of it."""
    if init.startswith("named:"):
        return (exact(architecture, init),)
    path = weights_file(init).absolute()
    state = path.stat()
    return path, state.st_size, state.st_mtime_ns, files.split(init).part, architecture
