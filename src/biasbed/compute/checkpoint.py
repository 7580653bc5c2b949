"""Checkpoints: written whole or not at all, checked when read, with a previous one to fall back to."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any

import torch

from biasbed.errors import Failure, first_line, shown
from biasbed.system.files import whole

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"
DESCRIPTION: Mapping[str, type] = {"config": dict, "classes": list, "train_data": dict, "algorithm": dict}
# Described too, where there is something to say: the labels, by their name in `tasks.TASKS`; what the method froze and
# released; mean and std of its images, where they are not the backbone's usual ones.
TASK, MARKS, NORMALISATION = "task", "marks", "normalisation"
# What training goes on from besides; `Engine.save` says what is in it.
PROGRESS: Mapping[str, type | UnionType] = {
    **{"optimizers": dict, "precision": dict, "random": list, "tallies": list, "position": dict, "history": list},
    **{"seconds": float, "waited": float, "skipped": dict, "evaluated": int | None, "best": dict | None},
}


def described(state: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a state that are needed to build what it is of, without what training goes on from."""
    return {part: state[part] for part in (*DESCRIPTION, TASK, MARKS, NORMALISATION) if part in state}


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write `last.ckpt`; what stood there becomes `previous.ckpt`. A kill at any moment leaves one whole file."""
    with whole(folder / LAST, kept=folder / PREVIOUS) as temporary:
        write(temporary, state)


def save_whole(path: Path, state: dict[str, Any]) -> None:
    """Write a file of tensors that is never there in half."""
    with whole(path) as temporary:
        write(temporary, state)


def write(path: Path, state: dict[str, Any]) -> None:
    """Write a file; OSError where the disk is full."""
    with path.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # torch hides it behind the part that it broke
                raise error.__context__ from None
            raise


def load(
    path: Path, device: torch.device | str = "cpu", parts: Mapping[str, type | UnionType] = {}, where: str = ""
) -> dict[str, Any]:
    """A checkpoint's content; Failure where the file is damaged. Only plain values and tensors are ever loaded.

    torch's format is a zip archive, which holds a CRC-32 of every tensor: reading all of it checks the file. parts:
    what it must hold, and as what. where: what messages call it, in place of its path.
    """
    where = where or f"the checkpoint {path}"
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_packed(archive, path.stat().st_size)
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"checksum of {damaged}")
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        if not isinstance(state, dict):
            raise TypeError(f"it holds a {type(state).__name__}, no parts by name")
        require(state, parts)
    except pickle.UnpicklingError:  # torch would advise to run whatever is in the file
        raise Failure(f"{where} holds more than values and tensors; nothing in it was run") from None
    except Exception as error:  # of bytes that are no checkpoint, an unpickler raises nearly anything
        raise Failure(f"{where} can't be read: {brief(error)}") from None
    return state


def require(state: Mapping[str, Any], parts: Mapping[str, type | UnionType]) -> None:
    """TypeError where a checkpoint's content lacks one of these parts, or has it as something else."""
    for name, kind in parts.items():
        if name not in state or not isinstance(state[name], kind):
            raise TypeError(f"its part '{name}' is {'of another kind' if name in state else 'missing'}")


def brief(error: Exception) -> str:
    """The first line of what somebody else's code says of a file's content, which may be anything."""
    return shown(first_line(error))


def _refuse_packed(archive: zipfile.ZipFile, size: int) -> None:
    """ValueError where the parts are said to be larger than the file: torch packs none, and unpacking has no end."""
    parts = archive.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts) or sum(part.file_size for part in parts) > size:
        raise ValueError("its parts are packed")


def load_newest(folder: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Any] | None, list[str]]:
    """The newest whole checkpoint of a run, and what was wrong with a newer one; None before the first.

    Raises Failure where there are checkpoints and none can be read: what was computed is not given up unasked.
    """
    problems: list[str] = []
    for name in (LAST, PREVIOUS):
        if (folder / name).exists():
            try:
                return load(folder / name, device, {**DESCRIPTION, **PROGRESS}), problems
            except Failure as failure:
                problems.append(str(failure))
    if problems:
        raise Failure(f"no checkpoint can be read ({'; '.join(problems)}): resume=never starts anew")
    return None, problems
