"""Checkpoints: written atomically, and verified when read.

A folder may hold the description of a model as JSON and its tensors as safetensors, in place of one file.

Answers: What is in a checkpoint, and when is it whole?
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any

import torch

from biasbed.errors import Failure, first_line, shown
from biasbed.system.files import atomic_file, write_whole
from biasbed.system.strict import read_json

LAST, BEST = "last.ckpt", "best.ckpt"
DESCRIPTION: Mapping[str, type] = {"config": dict, "classes": list, "train_data": dict, "algorithm": dict}
# Optional parts of the description: the kind of labels (a name in `tasks.TASKS`); the modules that the method froze and
# released; mean and std of its images, if they are not the backbone's defaults.
TASK, MARKS, NORMALISATION = "task", "marks", "normalisation"
# Files of a folder with the same description, and what the JSON says that it is.
FOLDER_FILE, TENSORS_FILE = "biasbed_model.json", "model.safetensors"
FORMAT, VERSION = "biasbed-model", 1
# Parts that training resumes from; `Engine.save` says what they hold.
PROGRESS: Mapping[str, type | UnionType] = {
    **{"optimizers": dict, "precision": dict, "random": list, "tallies": list, "position": dict, "history": list},
    **{"seconds": float, "waited": float, "skipped": dict, "best": dict | None},
}


def model_parts(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a checkpoint that rebuild the model, without those that resume training."""
    return {part: state[part] for part in (*DESCRIPTION, TASK, MARKS, NORMALISATION) if part in state}


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a file of tensors atomically."""
    with atomic_file(path) as temporary:
        write(temporary, state)


def write(path: Path, state: dict[str, Any]) -> None:
    """Write a file. Raises OSError if the disk is full."""
    with path.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # torch hides the full disk behind its own error
                raise error.__context__ from None
            raise


def save_folder(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the description of a model to a folder, as JSON and safetensors: nothing in it is ever run.

    Raises Failure if the method keeps something else than tensors.
    """
    from safetensors.torch import save_file

    parts = model_parts(state)
    tensors = parts.pop("algorithm")
    others = [name for name, value in tensors.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise Failure(f"the method keeps more than tensors ({others[0]}), which safetensors can't hold")
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomic_file(folder / TENSORS_FILE) as temporary:
        save_file(copies, temporary, metadata={"format": "pt"})
    text = json.dumps({"format": FORMAT, "version": VERSION, **parts}, indent=1, allow_nan=False)
    write_whole(folder / FOLDER_FILE, text + "\n")
    # As readable as any other new file: safetensors lets nobody but the owner read its own.
    (folder / TENSORS_FILE).chmod((folder / FOLDER_FILE).stat().st_mode & 0o777)


def _load_folder(folder: Path, device: torch.device | str) -> dict[str, Any]:
    """Read the description in a folder. Raises ValueError or an error of safetensors if it is damaged."""
    from safetensors.torch import load_file

    values = read_json(folder / FOLDER_FILE)
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise ValueError(f"{FOLDER_FILE} is of another format")
    version = values.pop("version", None)
    if version != VERSION:
        raise ValueError(f"{FOLDER_FILE} is of version {version}; this biasbed reads version {VERSION}")
    return {**model_parts(values), "algorithm": load_file(folder / TENSORS_FILE, device=str(device))}


def load(
    path: Path, device: torch.device | str = "cpu", parts: Mapping[str, type | UnionType] = {}, where: str = ""
) -> dict[str, Any]:
    """Return a checkpoint's content. Loads plain values and tensors only; raises Failure if the file is damaged.

    torch's format is a zip archive with a CRC-32 of every tensor, so reading all of it verifies the file. parts: the
    required parts and their types. where: name of the file in messages, instead of its path. A folder is one that
    `save_folder` wrote.
    """
    where = where or f"the checkpoint {path}"
    try:
        state = _load_folder(path, device) if path.is_dir() else _load_file(path, device)
        check_parts(state, parts)
    except pickle.UnpicklingError:  # torch's message would advise to run whatever is in the file
        raise Failure(f"{where} holds more than values and tensors; nothing in it was run") from None
    except Exception as error:  # the unpickler raises nearly anything on damaged bytes
        raise Failure(f"{where} can't be read: {first_line_of(error)}") from None
    return state


def _load_file(path: Path, device: torch.device | str) -> dict[str, Any]:
    """Read a checkpoint file, and all of its checksums. Raises an error of any kind if it is damaged."""
    with zipfile.ZipFile(path) as archive:
        _refuse_compressed(archive, path.stat().st_size)
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"checksum of {damaged}")
    state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    if not isinstance(state, dict):
        raise TypeError(f"it holds a {type(state).__name__}, not a dict of parts")
    return state


def check_parts(state: Mapping[str, Any], parts: Mapping[str, type | UnionType]) -> None:
    """Raise TypeError if a part is missing or has another type."""
    for name, kind in parts.items():
        if name not in state or not isinstance(state[name], kind):
            raise TypeError(f"its part '{name}' is {'of another kind' if name in state else 'missing'}")


def first_line_of(error: Exception) -> str:
    """Return the first line of a library's error about a file, escaped, because a file's content may be anything."""
    return shown(first_line(error))


def _refuse_compressed(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ValueError if parts are compressed: torch compresses none, and a bomb could unpack without end."""
    parts = archive.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts) or sum(part.file_size for part in parts) > size:
        raise ValueError("its parts are packed")


def load_last(folder: Path, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """Return the checkpoint that a training goes on from; None before the first.

    Raises Failure if it can't be read, so that training never restarts from scratch unasked.
    """
    if not (folder / LAST).exists():
        return None
    try:
        return load(folder / LAST, device, {**DESCRIPTION, **PROGRESS})
    except Failure as failure:
        raise Failure(f"{failure}: resume=never starts anew") from None


def trim(folder: Path, keep: str) -> None:
    """Keep only the checkpoints of an ended training that the setting `keep` names, with weights alone."""
    if keep == "all":
        return
    if keep == "none":
        (folder / BEST).unlink(missing_ok=True)
    if keep != "best_last":
        (folder / LAST).unlink(missing_ok=True)
    if (folder / LAST).exists():
        save(folder / LAST, model_parts(load(folder / LAST)))
