"""A study on tiny image folders, as it is typed."""

from __future__ import annotations

from pathlib import Path


def settings(image_root: Path, **more: str) -> dict[str, str]:
    """Of trainings of 6 steps an epoch."""
    found = {"data_dir": str(image_root), "train": "photo", "image_size": "16", "batch_size": "8"}
    found |= {"backbone": "resnet10", "optim.lr": "0.02", "optim.lr_batch": "none", "device": "cpu"}
    return {**found, "log_model": "false", "epochs": "2", **more}


def words(image_root: Path, *more: str, **changed: str) -> list[str]:
    flags = [word for name, value in settings(image_root, **changed).items() for word in (f"--{name}", value)]
    return ["benchmark", "--suite", "folders", "--loader_workers", "0", *flags, *more]
