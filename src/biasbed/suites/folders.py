"""Suite of a user's own image folders: train on one, test on the others, same classes in all.

Images are `data_dir/<folder>/<class>/<image>`. `train=` names the training folder, `sets=` the test folders (default:
all others). A seeded part of the training images is held out for validation
(`data/folders.py`, `split`). A folder `<folder>/<shape's class>/<texture's class>/<image>` is tested as cue conflicts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbed import record
from biasbed.config import Config
from biasbed.data import folders, transforms
from biasbed.data.folders import FolderSource
from biasbed.data.listing import report_unreadable, scan
from biasbed.datasets.base import DataSet, OwnFolder
from biasbed.errors import UsageError, listed
from biasbed.settings import refuse_unknown
from biasbed.suites.files import FileSettings, FileSuite
from biasbed.suites.sets import CUE_MEASURES, EvaluationSet
from biasbed.suites.suite import OpenSuite


class ImageFolder(OwnFolder, DataSet):
    """User's own folder of class folders. Nothing is known of what it should hold."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.name = folder.name

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(folders.class_folders(self._folder))


class Folders(FileSuite[FileSettings]):
    """Suite of the folders in a user's `data_dir`."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "backbone": "resnet18",
        "image_size": 112,
        "epochs": 30,
        "batch_size": 64,
        "optim.warmup": 1.0,
    }

    def data_sets(self) -> tuple[DataSet, ...]:
        """Return every folder as it is: nothing is known of what it should hold."""
        root = self.data_root
        return tuple(ImageFolder(root / name) for name in _folder_names(root, self.config))

    def open(self) -> OpenSuite:
        """Return the suite with its images open.

        With `train=none` (testing a given model) there are no training images, and the first test folder's classes
        count. Raises UsageError if folders are missing, empty or disagree on the classes.
        """
        config, root = self.config, self.data_root
        names = _folder_names(root, config)
        train_name = None if config.train == "none" else _find_folder(config.train, names, root)
        tests = self._test_folders(names, train_name)
        problem = self._find_test_problem(names, tests, train_name)
        if problem:
            raise UsageError(problem)
        try:
            slugs = record.slugs(sorted({*filter(None, [train_name]), *tests}))
        except ValueError as error:
            raise UsageError(f"{root}: {error}") from None
        classes = tuple(folders.class_folders(root / (train_name or tests[0])))
        transform, description = transforms.make_photo_transform(config.image_size, config.preprocess)
        test_as = partial(EvaluationSet, transform=transform, preprocessing=description)
        sets = []
        for name in tests:
            source = with_textures(folders.open_folder(root / name, slugs[name], classes))
            named = () if source.bias is None else CUE_MEASURES
            sets.append(test_as(slugs[name], source, measures=named))
        images = folders.open_folder(root / train_name, slugs[train_name], classes) if train_name else None
        held_out = "val" if "val" not in slugs.values() else "held_out"
        suite = self.of_files(classes, sets, images, partial(test_as, held_out))
        return replace(suite, remarks=nested_remarks(root / (train_name or tests[0]), classes))

    def _test_folders(self, names: Sequence[str], train_name: str | None) -> list[str]:
        """Return the folders that `sets` names, in order; by default all but the training folder."""
        if self.config.sets in ("auto", "all"):
            return [name for name in names if name != train_name]
        selected = {_find_folder(name, names, self.data_root) for name in self.config.sets}
        return [name for name in names if name in selected]

    def _find_test_problem(self, names: Sequence[str], tests: Sequence[str], train_name: str | None) -> str:
        """Return why the test folders can't be tested on after the training, as text; empty if they can."""
        if train_name in tests or (not tests and names != [train_name]):
            return f"name folders other than the training folder '{train_name}' with sets="
        if train_name is None:
            return ""
        train = self.data_root / train_name
        if not tests:
            domains = f"data_dir={train} train=<one of {listed(folders.class_folders(train))}>"
            problem = f"'{train_name}' is the only folder of {self.data_root}, so none is left to test on"
            return f"{problem}; if its folders are domains: {domains}"
        for name in tests:
            if os.path.realpath(self.data_root / name) == os.path.realpath(train):
                same = f"'{name}' and the training folder '{train_name}' of {self.data_root} are one folder"
                return f"{same}: name others with sets="
        return ""


def with_textures(source: FolderSource) -> FolderSource:
    """Return images whose folders name a class twice, as `cat/dog/1.png`, with the second one, the texture's, as bias.

    Other images are returned as they are.
    """
    numbers = {name: number for number, name in enumerate(source.classes)}
    textures = []
    for image in source.ids:
        folders_above = image.split("/")[:-1]
        if len(folders_above) != 2 or folders_above[1] not in numbers:
            return source
        textures.append(numbers[folders_above[1]])
    return replace(source, bias=np.array(textures, dtype=np.int64))


def nested_remarks(folder: Path, classes: Sequence[str]) -> tuple[str, ...]:
    """Return a remark if each class holds the same folders and no image: classes may then be domains.

    Folders named after the classes are the textures of cue conflicts.
    """
    inside: list[str] = []
    with report_unreadable():
        for name in classes:
            subfolders, images, _ = scan(folder / name)
            if images or len(subfolders) < 2:
                return ()
            if inside and inside != subfolders:
                return ()
            inside = subfolders
    if set(inside) == set(classes):
        return ()
    return (
        f"each class of {folder} ({listed(classes, 5)}) holds the folders {listed(inside, 5)}: if these are the "
        f"classes, it is a data set of domains: suite=domains train={folder.name}",
    )


def holds_runs(folder: Path, config: Config) -> bool:
    """Return True if runs are kept in a folder or below it, as when a user works in the folder of the data."""
    homes = [os.environ.get("BIASBED_HOME", "")]
    if config.output_dir != "auto":
        homes.append(config.output_dir)
    paths = [Path(home).expanduser().resolve() for home in homes if home]
    return any(path.is_relative_to(folder.resolve()) for path in paths)


def _folder_names(root: Path, config: Config) -> list[str]:
    with report_unreadable():
        names = [name for name in scan(root).folders if not holds_runs(root / name, config)]
    if not names:
        raise UsageError(f"data_dir={root} is empty: expected {root}/<folder>/<class>/<image>")
    return names


def _find_folder(name: str, names: Sequence[str], root: Path) -> str:
    """Return the folder with this name or identifier. Raises UsageError if there is none."""
    if name == "auto":
        raise UsageError(f"say which folder of {root} trains: train=<one of {listed(names)}>")
    folder_of = {**{record.slug(folder): folder for folder in names}, **{folder: folder for folder in names}}
    refuse_unknown(name, folder_of, f"{root} has no folder '{name}'")
    return folder_of[name]
