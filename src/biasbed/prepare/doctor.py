"""The data doctor, `prepare what=check`: which of a suite's data sets are there, and whether they are whole."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from biasbed import suites
from biasbed.data import listing_cache
from biasbed.data.decoding import DEEP, FORMATS, PROBLEMS, TOO_DEEP, open_file, reading_file
from biasbed.data.listing import THREADS, counting_unread, unread_words
from biasbed.datasets.base import Contents, OnDisk, some
from biasbed.errors import CorruptImage, Failure, UsageError
from biasbed.options import PrepareOptions
from biasbed.prepare.maker import Maker
from biasbed.settings import setting
from biasbed.suites.suite import choose
from biasbed.system.terminal import ProgressBar, aligned

CHUNK = 128  # files that are in memory at a time when contents are hashed
COLUMNS = ("data set", "found in", "layout", "images", "classes", "unreadable", "size", "fingerprint", "licence")


@dataclass(frozen=True)
class Finding:
    """What the doctor found out about one data set."""

    data_set: OnDisk
    folder: Path | None = None
    layout: str = "-"
    contents: Contents | None = None  # None where it doesn't fit
    problem: str = ""  # why it is missing or doesn't fit
    unreadable: Mapping[str, str] = field(default_factory=dict)  # id -> reason
    size: int = 0  # of all files in bytes
    sha256: str = ""  # of the contents of all files, one after the other

    def problems(self) -> list[str]:
        """In words; none where all is as in the release."""
        found = [self.problem] if self.problem else []
        found += self.contents.differences if self.contents else ()
        if self.unreadable:
            named = [f"{name} ({reason})" for name, reason in self.unreadable.items()]
            found.append(f"{len(named)} unreadable: {some(named)}")
        return found


@dataclass(frozen=True)
class CheckOptions(PrepareOptions):
    """What the doctor can be told."""

    hash: bool = setting(False, "read, decode and hash every file, not only its header")


class Check(Maker[CheckOptions]):
    """Makes nothing: says what is there."""

    Settings = CheckOptions

    def run(self) -> None:
        """Print a table of the suite's data sets, and what is wrong with them.

        Raises Failure where one that is there is not whole, where one that was asked for by `sets` is missing, or where
        there is none at all.
        """
        suite = suites.make_suite(self.config)
        data_sets = suite.data_sets()
        if not data_sets:
            print(f"the suite '{suite.name}' has no data sets on disk: nothing to check")
            return
        sets, data_dir = self.config.sets, suite.data_root
        chosen = choose([data_set.name for data_set in data_sets], sets, "data set")
        findings = [examine(data_set, data_dir, self.options.hash) for data_set in data_sets if data_set.name in chosen]
        print("\n".join([*_table(findings, data_dir), *_notes(findings)]))
        _judge(findings, data_dir, asked=sets != "auto")


def examine(data_set: OnDisk, data_dir: Path, whole: bool = False) -> Finding:
    """Look for the data set, open it and look at each of its files: its header, or with `whole` all of it."""
    folder = None
    try:
        folder = data_set.find(data_dir)
        if folder is not None:
            for listed in data_set.listed(folder):
                listing_cache.forget(listed)
        with counting_unread() as unread:
            contents = data_set.contents(data_dir)
        layout = data_set.layout(contents.folder)
    except UsageError as error:
        return Finding(data_set, folder, problem=str(error))
    if unread:
        contents = replace(contents, remarks=(*contents.remarks, unread_words(unread)))
    unreadable, size, sha = {}, 0, hashlib.sha256()
    with ProgressBar(len(contents.files), "image" if contents.are_images else "file") as bar:
        for name, look in _looks(contents, whole):
            size += look.size
            sha.update(look.content)
            if look.problem:
                unreadable[name] = look.problem
            bar.tick()
    return Finding(data_set, folder, layout, contents, "", unreadable, size, sha.hexdigest() if whole else "")


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Look:
    """At one file."""

    size: int = 0
    content: bytes = b""  # where all of it is wanted
    problem: str = ""


def _looks(contents: Contents, whole: bool) -> Iterator[tuple[str, _Look]]:
    """Each file in its order, looked at in threads: reading and decoding let go of Python's lock."""
    look: Callable[[Path], _Look] = functools.partial(_read, whole=whole)
    if contents.are_images:
        look = functools.partial(_decode if whole else _open, side=contents.side)
    threads = os.cpu_count() or 1 if whole else THREADS
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(contents.files), CHUNK):
            names = contents.files[start : start + CHUNK]
            yield from zip(names, pool.map(look, [contents.folder / name for name in names]), strict=True)


def _read(path: Path, whole: bool) -> _Look:
    """Size, and content where it is wanted, of a file that is no image: opening the data set has read it."""
    try:
        with reading_file(path) as file:
            return _Look(os.fstat(file.fileno()).st_size, file.read() if whole else b"")
    except OSError as error:
        return _Look(problem=_reason(error))


def _open(path: Path, side: int | None = None) -> _Look:
    """Size and header. side: pixels of a square image, where only that fits."""
    size = 0
    try:
        with reading_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return _Look(problem="is empty")
            image = Image.open(file, formats=FORMATS)
        return _Look(size, problem=TOO_DEEP if image.mode.startswith(DEEP) else _misfit(*image.size, side))
    except PROBLEMS as error:
        return _Look(size, problem=_reason(error))


def _misfit(width: int, height: int, side: int | None) -> str:
    """What is wrong with the size of an image, if it should have so many pixels per side."""
    return "" if side is None or width == height == side else f"is {width} x {height} pixels, not {side} x {side}"


def _decode(path: Path, side: int | None = None) -> _Look:
    """The whole content, decoded to pixels."""
    content = b""
    try:
        with reading_file(path) as file:
            content = file.read()
        height, width = open_file(path).pixels().shape[-2:]
        return _Look(len(content), content, _misfit(width, height, side))
    except CorruptImage as error:
        reason = str(error).removeprefix(f"can't read the image {path}: ")
        return _Look(len(content), content, reason.removeprefix("it "))
    except OSError as error:
        return _Look(problem=_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "is no image"
    return (getattr(error, "strerror", None) or str(error)).removeprefix("it ")


# --- words ------------------------------------------------------------------------------------------------------------


def _table(findings: Sequence[Finding], data_dir: Path) -> list[str]:
    return aligned([COLUMNS, *(_row(finding, data_dir) for finding in findings)])


def _row(finding: Finding, data_dir: Path) -> tuple[str, ...]:
    data_set, folder, contents = finding.data_set, finding.folder, finding.contents
    where = folder.relative_to(data_dir).as_posix() if folder else "not found"
    released, classes = f"{data_set.images:,}" if data_set.images else "any", data_set.num_classes or "any"
    if contents is None:
        return data_set.name, where, "-", f"- / {released}", f"- / {classes}", "-", "-", "-", data_set.licence
    counts = f"{contents.images:,} / {released}", f"{contents.labels} / {classes}"
    files = str(len(finding.unreadable)), f"{finding.size:,}", _fingerprint(contents)
    return data_set.name, where, finding.layout, *counts, *files, data_set.licence


def _fingerprint(contents: Contents) -> str:
    """As runs record it; none where a file is not to be had."""
    try:
        return contents.fingerprint()
    except UsageError:
        return "-"


def _notes(findings: Sequence[Finding]) -> list[str]:
    """What a table has no room for."""
    lines = [f"{f.data_set.name}: {problem}" for f in findings if f.folder for problem in f.problems()]
    lines += [f"{f.data_set.name}: {remark}" for f in findings if f.contents for remark in f.contents.remarks]
    lines += [f.problem for f in findings if f.folder is None]
    lines += [f"{f.data_set.name}: SHA-256 of all files {f.sha256}" for f in findings if f.sha256]
    return ["", *lines] if lines else []


def _judge(findings: Sequence[Finding], data_dir: Path, asked: bool) -> None:
    """Failure where something is wrong. asked: the data sets were named, so that they must be there."""
    wrong = [f.data_set.name for f in findings if f.folder is not None and f.problems()]
    missing = [f.data_set.name for f in findings if f.folder is None]
    if len(missing) == len(findings):
        raise Failure(f"none of these data sets is in {data_dir}")
    found = [f"{some(wrong, 20)} not as released"] if wrong else []
    found += [f"{some(missing, 20)} not found"] if missing and asked else []
    if found:
        raise Failure("; ".join(found))
