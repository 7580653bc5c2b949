"""Initial weights by a library's name or from a file, and loading them into a backbone."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from torch import Tensor, nn

from biasbed.errors import Failure, UsageError, first_line
from biasbed.networks import heads, model_libraries, renaming, resnet_parts, weight_files
from biasbed.networks.backbones import (
    AUXILIARY,
    Architecture,
    resolve,
    skeleton,
    timm_config,
    timm_tags,
)
from biasbed.networks.fitting import Fitted, fit, largest_group_without_wrappers
from biasbed.settings import refuse_unknown
from biasbed.system import files, places

log = logging.getLogger(__name__)

ALIASES = {"timm": "default", "torchvision": "DEFAULT"}  # of the weights that a library takes by default


def check_init(name: str, init: str) -> None:
    """Raise UsageError if `init` can't belong to this backbone. Reads no weights.

    Named weights must be the library's. A file must exist, and so must a run's checkpoint, which is fetched.
    """
    if comes_from_file(init):
        find_weights_file(init)
        return
    weights, architecture = init.removeprefix("named:"), resolve(name)
    names = weight_names(architecture)
    if names and architecture.library in ALIASES:
        names = [*names, ALIASES[architecture.library]]
    if not names:
        raise UsageError(f"init={init}: '{name}' has no named weights; use init=scratch or init=<file>")
    refuse_unknown(weights, names, f"init={init}: '{name}' has no such weights")
    if architecture.tag and weights not in (architecture.tag, "default"):
        raise UsageError(f"init={init} and backbone={name} name different weights")


def find_weights_file(init: str) -> Path:
    """Return the file that `init` names (`system.files.find_file`), or the best checkpoint of the tracked run it names.

    A checkpoint is fetched once and kept on this machine. Raises UsageError if there is neither file nor run, or if the
    file has another checksum; Failure if the run has no checkpoint or the tracking server can't be used.
    """
    path = files.find_file(init, "init")
    if path is not None:
        return path
    if not is_run_id(init):
        raise UsageError(f"init={init}: no such file; valid: scratch, named:<weights>, a weights file, a run's id")
    from biasbed.tracking.server import download_checkpoint, resolve_uri

    kept = places.home(resolve_uri()) / "weights" / f"{init}.ckpt"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with files.atomic_file(kept) as temporary, tempfile.TemporaryDirectory() as folder:
            try:
                shutil.copyfile(download_checkpoint(init, Path(folder)), temporary)
            except (UsageError, Failure) as error:
                raise error.with_place(f"init={init}") from None
    return kept


def comes_from_file(init: str) -> bool:
    """Return True if initial weights are those of a file, or a tracked run's checkpoint; False for a library's."""
    return not init.startswith("named:")


def is_run_id(word: str) -> bool:
    """Return True if a word looks like MLflow's id of a run."""
    return re.fullmatch("[0-9a-f]{32}", word) is not None


def resolve_weights(architecture: Architecture, init: str) -> Architecture:
    """Return the architecture with the library's own name of the weights in `named:<weights>` as its tag.

    Resolves aliases (torchvision's DEFAULT, timm's `default`) in the installed library.
    """
    word = init.removeprefix("named:")
    if architecture.has_own_config:
        return architecture
    if architecture.is_optional:
        return replace(architecture, tag=word)
    if architecture.library == "timm":
        if word != "default":
            return replace(architecture, tag=word)
        usual = timm_config(architecture.tagged)
        tag = None if usual is None else usual.tag
        return replace(architecture, tag=tag or "")
    from torchvision import models

    return replace(architecture, tag=models.get_model_weights(architecture.name)[word].name)


def read_weights(architecture: Architecture, init: str) -> Fitted:
    """Return the tensors with the backbone's own keys. Raises Failure if the hub can't be reached."""
    if not init.startswith("named:"):
        return fit_file(find_weights_file(init), files.split_setting(init).part, architecture, "init")
    tensors = fetch_weights(resolve_weights(architecture, init), init)
    if architecture.is_optional:
        tensors = model_libraries.select_tensors(tensors, skeleton(architecture))
    return Fitted("", tensors)


def fetch_weights(architecture: Architecture, init: str) -> dict[str, Tensor]:
    """Return named weights, which their library downloads and caches. Raises Failure if they can't be fetched."""
    try:
        return _fetch_from_library(architecture)
    except Exception as error:  # each library and version raises its own for an unreachable hub
        reason = first_line(error)
        raise Failure(f"init={init}: the weights could not be fetched ({reason}); use init=<file>") from error


def fit_file(path: Path, part: str, architecture: Architecture, option: str) -> Fitted:
    """Return the tensors of a weights file that fit the architecture. option: the setting that named the file.

    part: dotted path of the container to take; empty if there is one. Raises UsageError if the file holds no weights.
    """
    backbone = skeleton(architecture)
    state, head = backbone.state_dict(), heads.find(backbone) or ""
    file = weight_files.read(path, option)
    fitted = fit(file, state, optional_keys(backbone), part, f"{option}={path}", head)
    hint = architecture.optional_library.file_hint(architecture.name) if architecture.is_optional else ""
    if hint:
        log.warning("%s=%s: %s", option, path, hint)
    if getattr(backbone, "is_part_of_file", False):  # the other parts are loaded by themselves
        fitted = fitted._replace(tensors=model_libraries.select_tensors(fitted.tensors, backbone), beside=())
    return fitted


def optional_keys(backbone: nn.Module) -> set[str]:
    """Return the keys that a weights file may lack: classifier, gates, batch norm's counters."""
    head = heads.find(backbone)
    return {
        key
        for key in backbone.state_dict()
        if key.rpartition(".")[0] == head or resnet_parts.gate_kind(key) or key.endswith("num_batches_tracked")
    }


def load_weights(
    backbone: nn.Module, tensors: Mapping[str, Tensor], source: str, name: str, *, has_use_for_head: bool = True
) -> None:
    """Load every tensor, or raise UsageError with some of the keys that don't fit.

    The backbone's library translates names and position embeddings of another image size (`renaming`). The last linear
    layer stays as it is if it is missing or differs in the number of classes only. Gates (`attention`) stay as they are
    if all of them are missing. has_use_for_head: False if that layer is left out, so that nothing is said of it.
    """
    state = backbone.state_dict()
    tensors = renaming.translate(backbone, tensors)
    loaded = {key: value for key, value in tensors.items() if key in state or key.partition(".")[0] not in AUXILIARY}
    fresh = _other_classifier_keys(backbone, state, loaded)
    gates = [key for key in state if resnet_parts.gate_kind(key)]
    fresh_gates = [] if loaded.keys() & set(gates) else gates
    loaded |= {key: state[key] for key in (*fresh, *fresh_gates)}
    # Files from before torch counted batches lack the counters, which matter only without momentum.
    counters = [key for key in state if key.endswith("num_batches_tracked") and key not in loaded]
    loaded |= {key: state[key] for key in counters}
    problems = {
        "missing": state.keys() - loaded.keys(),
        "unknown": loaded.keys() - state.keys(),
        "of another shape": {key for key in state.keys() & loaded.keys() if state[key].shape != loaded[key].shape},
        "of integers (quantized?)": {key for key, value in loaded.items() if _is_integer_for(state.get(key), value)},
    }
    clauses = [f"{name_some(keys)} {problem}" for problem, keys in problems.items() if keys]
    if clauses:
        advice = _advise_gates(loaded, gates, name)
        raise UsageError(f"{source}: not the weights of {name}: {'; '.join(clauses)}{advice}")
    try:
        renaming.load(backbone, loaded)
    except RuntimeError as error:  # of a type that torch can't convert
        raise UsageError(f"{source}: not the weights of {name}: {first_line(error)}") from None
    if fresh_gates:
        log.warning("%s has no gates: those of %s keep their fresh initialisation", source, name)
    if fresh and has_use_for_head:
        classifier, outputs = tensors.get(fresh[0]), state[fresh[0]].shape[0]
        problem = "has no classifier"
        if classifier is not None:
            problem = f"has a classifier of {len(classifier)} classes, not {outputs}, which is not loaded"
        log.warning("%s %s: the last layer begins with random weights for %d classes", source, problem, outputs)


def _advise_gates(keys: Iterable[str], gates: Sequence[str], name: str) -> str:
    """Return a hint at the backbone's name with gates if only the weights have gates."""
    kinds = {resnet_parts.gate_kind(key) for key in keys} - {""}
    return "" if gates or not kinds else f"; they have gates: did you mean backbone={name}+{min(kinds)}?"


def weight_names(architecture: Architecture) -> list[str]:
    """Return the names of a library's weights for an architecture, without aliases; none for our own networks."""
    if architecture.library == "own":
        return []
    if architecture.is_optional:
        return architecture.optional_library.weights(architecture.name)
    if architecture.has_own_config:
        return ["default"]
    if architecture.library == "timm":
        return timm_tags(architecture.name)
    from torchvision import models

    return [weights.name for weights in models.get_model_weights(architecture.name)]


def _fetch_from_library(architecture: Architecture) -> dict[str, Tensor]:
    """Return the weights of the tag. Raises what the library raises."""
    if architecture.is_optional:
        return architecture.optional_library.fetch(architecture.name, architecture.tag)
    if architecture.library == "timm":
        import timm

        # Built with all its classes: `load_weights` decides whether the classifier fits, alike for both libraries.
        return cast(dict[str, Tensor], timm.create_model(architecture.tagged, pretrained=True).state_dict())
    from torchvision import models

    weights = models.get_model_weights(architecture.name)[architecture.tag]
    return dict(weights.get_state_dict(progress=False, check_hash=True))


def read_file(path: Path, option: str) -> dict[str, Tensor]:
    """Return the state dict of a file for a network that is no backbone, without the prefixes that wrappers add.

    Raises UsageError if the file holds no state dict. Runs no pickled code.
    """
    return largest_group_without_wrappers(weight_files.read(path, option), f"{option}={path}")


def _other_classifier_keys(backbone: nn.Module, state: Mapping[str, Tensor], loaded: Mapping[str, Tensor]) -> list[str]:
    """Return the classifier's keys if they are missing, or if weight and bias differ in the number of rows only."""
    head = heads.find(backbone)
    keys = [key for key in state if key.rpartition(".")[0] == head]
    if not loaded.keys() & set(keys):
        return keys
    if any(key not in loaded or state[key].shape[1:] != loaded[key].shape[1:] for key in keys):
        return []
    return keys if any(len(state[key]) != len(loaded[key]) for key in keys) else []


def name_some(keys: Iterable[str]) -> str:
    """Return at most three names, and their number if there are more."""
    names = sorted(keys)
    more = f", ... ({len(names)} in all)" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more


def _is_integer_for(parameter: Tensor | None, value: Tensor) -> bool:
    """Return True if integers are given for a parameter of real numbers."""
    return parameter is not None and parameter.is_floating_point() and not value.is_floating_point()
