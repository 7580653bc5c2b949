"""A user's own image folders: train on one, test on the others, same classes in all.

`data_dir/<folder>/<class>/<image>`; `train=` names the training folder, `sets=` the test folders (all others unless
named). A seeded part of the training images is held out, for validation only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.config import Config
from biasbed.data import folders, transforms
from biasbed.errors import UsageError
from biasbed.evaluate import EvaluationSet
from biasbed.settings import nearest
from biasbed.suites import Suite
from biasbed.tasks import MultiClass

DEFAULTS: Mapping[str, Any] = {
    "backbone": "resnet18",
    "image_size": 112,
    "epochs": 30,
    "batch_size": 64,
    "optim.warmup": 1.0,
}


def build(config: Config) -> Suite:
    """The suite of `data_dir`; UsageError where folders are missing, empty or disagree on the classes.

    With `train=none` (testing a model that is trained already) there are no training images, and the first test
    folder's classes count.
    """
    if config.data_dir is None:
        raise UsageError("the suite 'folders' needs data_dir=<folder of image folders> and train=<one of them>")
    root = Path(config.data_dir).expanduser()
    names = _folder_names(root)
    train_name = None if config.train == "none" else _chosen(config.train, names, root)
    wanted = [n for n in names if n != train_name] if config.sets == "all" else config.sets
    chosen = {_chosen(name, names, root) for name in wanted}
    tests = [name for name in names if name in chosen]
    if train_name in tests or not tests:
        raise UsageError(f"name folders other than the training folder '{train_name}' with sets=")
    try:
        slugs = record.slugs(sorted({*([train_name] if train_name else []), *tests}))
    except ValueError as error:
        raise UsageError(f"{root}: {error}") from None
    classes = tuple(folders.class_folders(root / (train_name or tests[0])))
    sources = {name: folders.open_folder(root / name, slugs[name], classes) for name in tests}
    evaluation = transforms.centre_crop(config.image_size)
    held_out = "val" if "val" not in slugs.values() else "held_out"
    trained = _training(config, root / train_name, slugs[train_name], classes) if train_name else None
    fingerprints = [source.fingerprint() for source in sources.values()]
    return Suite(
        name="folders",
        classes=classes,
        task=MultiClass(),
        training={trained[1].name: lambda: trained[1]} if trained else {},
        whole=(lambda: trained[3]) if trained else None,
        train_name=trained[1].name if trained else "none",
        train_transform=transforms.training(config.image_size, config.augment),
        validation=(EvaluationSet(held_out, trained[2], evaluation),) if trained else (),
        sets=tuple(EvaluationSet(slugs[name], source, evaluation) for name, source in sources.items()),
        monitor=str(record.MetricName("val", "accuracy", held_out)),
        fingerprint=record.digest([*(trained[:1] if trained else ()), *fingerprints]),
    )


def _training(
    config: Config, folder: Path, name: str, classes: tuple[str, ...]
) -> tuple[str, folders.FolderSource, folders.FolderSource, folders.FolderSource]:
    """(fingerprint of all, images that train, images held out for validation, all)."""
    source = folders.open_folder(folder, name, classes)
    return source.fingerprint(), *folders.split(source, config.val_fraction, config.seed, (name, "held-out")), source


def _folder_names(root: Path) -> list[str]:
    if not root.is_dir():
        raise UsageError(f"data_dir={root}: there is no such folder")
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise UsageError(f"data_dir={root} is empty: expected {root}/<folder>/<class>/<image>")
    return names


def _chosen(name: str, names: list[str], root: Path) -> str:
    """A folder's name as given, or the one whose identifier was given."""
    if name == "auto":
        raise UsageError(f"say which folder of {root} trains: train=<one of {', '.join(names)}>")
    if name in names:
        return name
    matching = [n for n in names if record.slug(n) == name]
    if not matching:
        raise UsageError(f"{root} has no folder '{name}'{nearest(name, names)}")
    return matching[0]
