"""A user's own image folders: train on one, test on the others, same classes in all.

`data_dir/<folder>/<class>/<image>`; `train=` names the training folder, `sets=` the test folders (all others unless
named). A seeded part of the training images is held out, for validation only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from biasbed import record
from biasbed.config import Config
from biasbed.data import folders, transforms
from biasbed.data.listing import reading, scan
from biasbed.datasets.base import DataSet, some
from biasbed.errors import UsageError, listed
from biasbed.settings import nearest
from biasbed.suites.files import FileSettings, FileSuite
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite


class ImageFolder(DataSet):
    """A user's own folder of class folders, of which nothing is known."""

    images = 0
    licence = "yours"
    source = "your own"

    def __init__(self, folder: Path) -> None:
        self.name, self.places, self._folder = folder.name, (folder.name,), folder

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(folders.class_folders(self._folder))

    def find(self, data_dir: Path) -> Path | None:
        return self._folder


class Folders(FileSuite[FileSettings]):
    """The suite of a user's `data_dir`."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "backbone": "resnet18",
        "image_size": 112,
        "epochs": 30,
        "batch_size": 64,
        "optim.warmup": 1.0,
    }

    def data_sets(self) -> tuple[DataSet, ...]:
        """Every folder, as it is: nothing is known of what it should hold."""
        root = self.data_root
        return tuple(ImageFolder(root / name) for name in _folder_names(root, self.config))

    def open(self) -> OpenSuite:
        """UsageError where folders are missing, empty or disagree on the classes.

        With `train=none` (testing a model that is trained already) there are no training images, and the first test
        folder's classes count.
        """
        config, root = self.config, self.data_root
        names = _folder_names(root, config)
        train_name = None if config.train == "none" else _chosen(config.train, names, root)
        wanted = [n for n in names if n != train_name] if config.sets in ("auto", "all") else config.sets
        chosen = {_chosen(name, names, root) for name in wanted}
        tests = [name for name in names if name in chosen]
        if train_name and names == [train_name]:
            domains = f"train=<one of {listed(folders.class_folders(root / train_name))}>"
            raise UsageError(
                f"'{train_name}' is the only folder of {root}, so none is left to test on; "
                f"if its folders are domains: data_dir={root / train_name} {domains}"
            )
        if train_name in tests or not tests:
            raise UsageError(f"name folders other than the training folder '{train_name}' with sets=")
        linked = [name for name in tests if train_name and os.path.samefile(root / name, root / train_name)]
        if linked:
            raise UsageError(
                f"'{linked[0]}' and the training folder '{train_name}' of {root} are one folder: name others with sets="
            )
        try:
            slugs = record.slugs(sorted({*([train_name] if train_name else []), *tests}))
        except ValueError as error:
            raise UsageError(f"{root}: {error}") from None
        classes = tuple(folders.class_folders(root / (train_name or tests[0])))
        transform, words = transforms.natural(config.image_size, config.preprocess)
        test_as = partial(EvaluationSet, transform=transform, preprocessing=words)
        sets = [test_as(slugs[name], folders.open_folder(root / name, slugs[name], classes)) for name in tests]
        whole = folders.open_folder(root / train_name, slugs[train_name], classes) if train_name else None
        held_out = "val" if "val" not in slugs.values() else "held_out"
        suite = self.of_files(classes, sets, whole, partial(test_as, held_out))
        return replace(suite, remarks=nested(root / (train_name or tests[0]), classes))


def nested(folder: Path, classes: Sequence[str]) -> tuple[str, ...]:
    """What to say where each class holds the same folders and no image: then it may be a domain, and those classes."""
    inside: list[str] = []
    with reading():
        for name in classes:
            found, images = scan(folder / name)
            if images or len(found) < 2 or inside not in ([], found):
                return ()
            inside = found
    return (
        f"each class of {folder} ({some(classes)}) holds the folders {some(inside)}: if these are the classes, it is a "
        f"data set of domains: suite=domains train={folder.name}",
    )


def holds_runs(folder: Path, config: Config) -> bool:
    """Return True if runs are kept in a folder or below it: somebody works in the folder of the data."""
    kept = [os.environ.get("BIASBED_HOME", ""), "" if config.output_dir == "auto" else config.output_dir]
    homes = [Path(path).expanduser().resolve() for path in kept if path]
    return any(home.is_relative_to(folder.resolve()) for home in homes)


def _folder_names(root: Path, config: Config) -> list[str]:
    with reading():
        names = [name for name in scan(root)[0] if not holds_runs(root / name, config)]
    if not names:
        raise UsageError(f"data_dir={root} is empty: expected {root}/<folder>/<class>/<image>")
    return names


def _chosen(name: str, names: list[str], root: Path) -> str:
    """A folder's name as given, or the one whose identifier was given."""
    if name == "auto":
        raise UsageError(f"say which folder of {root} trains: train=<one of {listed(names)}>")
    if name in names:
        return name
    matching = [n for n in names if record.slug(n) == name]
    if not matching:
        raise UsageError(f"{root} has no folder '{name}'{nearest(name, names)}")
    return matching[0]
