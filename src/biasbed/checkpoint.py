"""Checkpoints: written whole or not at all, checked when read, with a previous one to fall back to."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from biasbed.errors import Failure

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write `last.ckpt`; what stood there becomes `previous.ckpt`. A kill at any moment leaves one whole file."""
    temporary = write(folder / "saving.tmp", state)
    if (folder / LAST).exists():
        os.replace(folder / LAST, folder / PREVIOUS)
    os.replace(temporary, folder / LAST)
    _flush_folder(folder)


def save_best(folder: Path, state: dict[str, Any]) -> None:
    """Write `best.ckpt`."""
    os.replace(write(folder / "saving.tmp", state), folder / BEST)


def write(path: Path, state: dict[str, Any]) -> Path:
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    return path


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """A checkpoint's content; Failure where the file is damaged. Only plain values and tensors are ever loaded.

    torch's format is a zip archive, which holds a CRC-32 of every tensor: reading all of it checks the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is None:
            state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
            return state
    except (OSError, zipfile.BadZipFile, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Failure(f"the checkpoint {path} can't be read: {error}") from None
    raise Failure(f"the checkpoint {path} is damaged (checksum of {damaged})")


def load_newest(folder: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Any] | None, list[str]]:
    """The newest whole checkpoint of a run, or None, and what was wrong with newer ones."""
    problems: list[str] = []
    for name in (LAST, PREVIOUS):
        if (folder / name).exists():
            try:
                return load(folder / name, device), problems
            except Failure as failure:
                problems.append(str(failure))
    return None, problems


def _flush_folder(folder: Path) -> None:
    """Make the renames themselves durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
