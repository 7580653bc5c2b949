"""Initial weights: by the name a library gives them, or from a file, and how they get into a backbone."""

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
from biasbed.networks import attention, heads, renaming, weight_files
from biasbed.networks.backbones import AUXILIARY, Architecture, resolve, skeleton, timm_tags
from biasbed.networks.fitting import FittedWeights, fit, without_wrappers
from biasbed.settings import nearest
from biasbed.system import files, places

log = logging.getLogger(__name__)


def check_init(name: str, init: str) -> None:
    """Raise UsageError when `init` can't belong to this backbone; reads no weights.

    A name of weights must be the library's, a file must exist, and so must a run's checkpoint, which is fetched.
    """
    if init == "scratch":
        return
    if not init.startswith("named:"):
        weights_file(init)
        return
    word, architecture = init.removeprefix("named:"), resolve(name)
    words = _named_weights(architecture)
    if not words:
        raise UsageError(f"init={init}: '{name}' has no named weights; use init=scratch or init=<file>")
    if word not in words:
        raise UsageError(f"init={init}: '{name}' has no such weights{nearest(word, words)}")
    if architecture.tag and word not in (architecture.tag, "default"):
        raise UsageError(f"init={init} and backbone={name} name different weights")


def weights_file(init: str) -> Path:
    """The file of `init`: the one it names (`system.files.named`), or the best checkpoint of the tracked run it names.

    That is fetched once and kept on this machine. Raises UsageError where there is neither file nor run, or a file with
    another checksum, Failure where the run has no checkpoint or the tracking server can't be used.
    """
    path = files.named(init, "init")
    if path is not None:
        return path
    if not is_run_id(init):
        raise UsageError(f"init={init}: no such file; valid: scratch, named:<weights>, a weights file, a run's id")
    from biasbed.tracking.server import download_checkpoint, resolve_uri

    kept = places.home(resolve_uri()) / "weights" / f"{init}.ckpt"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(kept) as temporary, tempfile.TemporaryDirectory() as folder:
            try:
                shutil.copyfile(download_checkpoint(init, Path(folder)), temporary)
            except UsageError as error:
                raise UsageError(f"init={init}: {error}") from None
            except Failure as failure:
                raise Failure(f"init={init}: the run has no best checkpoint to start from: {failure}") from None
    return kept


def is_run_id(word: str) -> bool:
    """Whether a word looks like MLflow's id of a run."""
    return re.fullmatch("[0-9a-f]{32}", word) is not None


def exact(architecture: Architecture, init: str) -> Architecture:
    """The architecture with the library's own name of the weights that `named:<weights>` means.

    An alias (torchvision's DEFAULT, timm's `default`) becomes what it stands for in the library that is installed.
    """
    word = init.removeprefix("named:")
    if architecture.library == "timm":
        import timm

        if word != "default":
            return replace(architecture, tag=word)
        usual = timm.models.get_pretrained_cfg(architecture.tagged)
        return replace(architecture, tag=usual.tag or "" if usual else "")
    from torchvision import models

    return replace(architecture, tag=models.get_model_weights(architecture.name)[word].name)


def read_weights(architecture: Architecture, init: str) -> FittedWeights:
    """Return the tensors by their names in the backbone. Raises Failure if the hub can't be reached."""
    if not init.startswith("named:"):
        return fit_file(weights_file(init), files.split(init).part, architecture, "init")
    try:
        return FittedWeights("", _fetch(exact(architecture, init)))
    except Exception as error:  # each library, and each of its versions, has its own for an unreachable hub
        reason = first_line(error)
        raise Failure(f"init={init}: the weights could not be fetched ({reason}); use init=<file>") from error


def fit_file(path: Path, part: str, architecture: Architecture, option: str) -> FittedWeights:
    """Return what fits the architecture of a weights file that was given with `option`.

    part: dotted path of the container to take; empty if there is one. Raises UsageError for a file of anything else.
    """
    backbone = skeleton(architecture)
    return fit(
        weight_files.read(path, option), backbone.state_dict(), optional_keys(backbone), part, f"{option}={path}"
    )


def optional_keys(backbone: nn.Module) -> set[str]:
    """Return the keys that a file of weights may lack: classifier, gates, batch norm's counters."""
    head = heads.find(backbone)
    return {
        key
        for key in backbone.state_dict()
        if key.rpartition(".")[0] == head or attention.is_gates(key) or key.endswith("num_batches_tracked")
    }


def load_weights(backbone: nn.Module, tensors: Mapping[str, Tensor], source: str, name: str) -> None:
    """Load every tensor, or raise UsageError with some of the keys that don't fit.

    Names and position embeddings of another image size are translated as the backbone's library does (`renaming`).
    The last linear layer stays as it is when it differs in the number of classes only, or is not there; so do a
    backbone's gates (`attention`) when none of them is there.
    """
    own = backbone.state_dict()
    tensors = renaming.translate(backbone, tensors)
    given = {key: value for key, value in tensors.items() if key in own or key.partition(".")[0] not in AUXILIARY}
    fresh = _other_classes(backbone, own, given)
    gates = [key for key in own if attention.is_gates(key)]
    fresh_gates = [] if given.keys() & set(gates) else gates
    given |= {key: own[key] for key in (*fresh, *fresh_gates)}
    # Files from before torch counted batches lack the counters, which matter only without momentum.
    counters = {key: value for key, value in own.items() if key.endswith("num_batches_tracked") and key not in given}
    given |= counters
    problems = {
        "missing": own.keys() - given.keys(),
        "unknown": given.keys() - own.keys(),
        "of another shape": {key for key in own.keys() & given.keys() if own[key].shape != given[key].shape},
    }
    found = [f"{_some(keys)} {what}" for what, keys in problems.items() if keys]
    if found:
        raise UsageError(f"{source}: not the weights of {name}: {'; '.join(found)}{_gates_hint(given, gates, name)}")
    renaming.load(backbone, given)
    if fresh_gates:
        log.warning("%s has no gates: those of %s keep their fresh initialisation", source, name)
    if fresh:
        there, here = tensors.get(fresh[0]), own[fresh[0]].shape[0]
        what = "no classifier" if there is None else f"{len(there)} classes, not {here}"
        log.warning("%s has %s: the classifier keeps its fresh initialisation", source, what)


def _gates_hint(given: Iterable[str], gates: Sequence[str], name: str) -> str:
    """What a backbone without gates should be called where the weights have some."""
    kinds = {attention.is_gates(key) for key in given} - {""}
    return "" if gates or not kinds else f"; they have gates: did you mean backbone={name}+{min(kinds)}?"


def _named_weights(architecture: Architecture) -> list[str]:
    if architecture.library == "own":
        return []
    if architecture.library == "timm":
        tags = timm_tags(architecture.name)
        return [*tags, "default"] if tags else []
    from torchvision import models

    return list(models.get_model_weights(architecture.name).__members__)


def _fetch(architecture: Architecture) -> dict[str, Tensor]:
    """By the library's own download and cache."""
    if architecture.library == "timm":
        import timm

        # Built at its full width: whether the classifier fits is for `load_weights` to say, for both libraries alike.
        return cast(dict[str, Tensor], timm.create_model(architecture.tagged, pretrained=True).state_dict())
    from torchvision import models

    weights = models.get_model_weights(architecture.name)[architecture.tag]
    return dict(weights.get_state_dict(progress=False, check_hash=True))


def read_file(path: Path, option: str) -> dict[str, Tensor]:
    """Return the state dict of a file for a network that is no backbone, without the names that wrappers add.

    Raises UsageError for anything else; runs no pickled code.
    """
    return without_wrappers(weight_files.read(path, option), f"{option}={path}")


def _other_classes(backbone: nn.Module, own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """The classifier's keys, if weight and bias differ from the given ones in the number of rows and nothing else.

    Also if none is given.
    """
    head = heads.find(backbone)
    keys = [key for key in own if key.rpartition(".")[0] == head]
    if not given.keys() & set(keys):
        return keys
    if any(key not in given or own[key].shape[1:] != given[key].shape[1:] for key in keys):
        return []
    return keys if any(len(own[key]) != len(given[key]) for key in keys) else []


def _some(keys: Iterable[str]) -> str:
    """At most three names, and how many there are."""
    names = sorted(keys)
    more = f", ... ({len(names)} in all)" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more
