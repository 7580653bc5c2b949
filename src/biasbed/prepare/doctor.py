"""Data doctor, `prepare what=check`: checks which of a suite's data sets are there, and that they are complete.

Answers: Which data are there, and are they whole?
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from biasbed import suites
from biasbed.data import listing_cache
from biasbed.data.decoding import (
    DEEP,
    FORMATS,
    MOST_BYTES,
    PROBLEMS,
    TOO_DEEP,
    UPRIGHT,
    open_content,
    read_orientation,
)
from biasbed.data.listing import THREADS
from biasbed.datasets.base import Contents, OnDisk
from biasbed.errors import CorruptImage, Failure, UnreadableFile, UsageError, listed
from biasbed.options import PrepareOptions
from biasbed.prepare.maker import Maker
from biasbed.settings import setting
from biasbed.suites.suite import choose
from biasbed.system.strict import open_regular
from biasbed.system.terminal import ProgressBar, aligned

CHUNK = 128  # files in memory at a time while contents are hashed
COLUMNS = ("data set", "found in", "layout", "images", "classes", "unreadable", "size", "fingerprint", "licence")


@dataclass(frozen=True)
class Finding:
    """State of one data set on disk."""

    data_set: OnDisk
    folder: Path | None = None
    layout: str = "-"
    contents: Contents | None = None  # None if the data set is missing or doesn't fit
    problem: str = ""  # why it is missing or doesn't fit
    unreadable: Mapping[str, str] = field(default_factory=dict)  # id -> reason
    size: int = 0  # of all files in bytes
    sha256: str = ""  # of the contents of all files, one after the other

    def problems(self) -> list[str]:
        """Return what differs from the release, as text; empty if nothing does."""
        problems = [self.problem] if self.problem else []
        if self.contents is not None:
            problems += self.contents.differences
        if self.unreadable:
            files = [f"{name} ({reason})" for name, reason in self.unreadable.items()]
            problems.append(f"{len(files)} unreadable: {listed(files, 5)}")
        return problems


@dataclass(frozen=True)
class CheckOptions(PrepareOptions):
    """Settings of the doctor."""

    hash: bool = setting(False, "read, decode and hash every file, not only its header")


class Check(Maker[CheckOptions]):
    """Check of the data sets on disk; nothing is made."""

    Settings = CheckOptions

    def run(self) -> None:
        """Print a table of the suite's data sets and their problems.

        Raises Failure if a data set is not complete, if one that `sets` names is missing, or if all are.
        """
        suite = suites.make_suite(self.config)
        data_sets = suite.data_sets()
        if not data_sets:
            print(f"the suite '{suite.name}' has no data sets on disk: nothing to check")
            return
        sets, data_dir = suite.config.sets, suite.data_root
        chosen = choose([data_set.name for data_set in data_sets], sets, "data set")
        findings = [examine(data_set, data_dir, self.options.hash) for data_set in data_sets if data_set.name in chosen]
        print("\n".join([*_format_table(findings, data_dir), *_list_notes(findings)]))
        _refuse_problems(findings, data_dir, are_named=sets != "auto")


def examine(data_set: OnDisk, data_dir: Path, full: bool = False) -> Finding:
    """Find and open a data set and check each of its files: the header, or with `full` all of its content."""
    folder = None
    try:
        folder = data_set.find(data_dir)
        if folder is not None:
            for listed in data_set.listed_folders(folder):
                listing_cache.forget(listed)
        contents = data_set.contents(data_dir)
        layout = data_set.layout(contents.folder)
    except UsageError as error:
        return Finding(data_set, folder, problem=str(error))
    unreadable, others, turned, size, sha = {}, [], 0, 0, hashlib.sha256()
    with ProgressBar(len(contents.files), "image" if contents.are_images else "file") as bar:
        for name, check in _check_files(contents, full):
            size += check.size
            sha.update(check.content)
            turned += check.is_turned
            if check.problem:
                unreadable[name] = check.problem
            released = data_set.release.md5.get(name)
            md5 = hashlib.md5(check.content, usedforsecurity=False).hexdigest()
            if full and released not in (None, md5):
                others.append(f"{name} is not the released file: its MD5 is {md5}, not {released}")
            bar.tick()
    contents = replace(contents, differences=(*contents.differences, *others))
    if turned:
        remark = f"{turned:,} images have an EXIF orientation, which is not applied: they are read as they are stored"
        contents = replace(contents, remarks=(*contents.remarks, remark))
    return Finding(data_set, folder, layout, contents, "", unreadable, size, sha.hexdigest() if full else "")


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FileCheck:
    """Result of checking one file."""

    size: int = 0
    content: bytes = b""  # empty unless all content is checked
    problem: str = ""
    is_turned: bool = False  # shown in another orientation than it is stored in


def _check_files(contents: Contents, full: bool) -> Iterator[tuple[str, _FileCheck]]:
    """Yield (name, check) of each file in order. Files are checked in threads: reading and decoding release the GIL."""
    check: Callable[[Path], _FileCheck] = functools.partial(_check_bytes, full=full)
    if contents.are_images:
        check = functools.partial(_check_pixels if full else _check_header, side=contents.side)
    threads = os.cpu_count() or 1 if full else THREADS
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(contents.files), CHUNK):
            names = contents.files[start : start + CHUNK]
            yield from zip(names, pool.map(check, [contents.folder / name for name in names]), strict=True)


def _check_bytes(path: Path, full: bool) -> _FileCheck:
    """Check a file that is not an image: opening the data set has read it."""
    try:
        with open_regular(path) as file:
            return _FileCheck(os.fstat(file.fileno()).st_size, file.read() if full else b"")
    except (OSError, UnreadableFile) as error:
        return _FileCheck(problem=_describe_error(error))


def _check_header(path: Path, side: int | None = None) -> _FileCheck:
    """Check an image's header. side: the size that a square image must have; None for any size."""
    size = 0
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return _FileCheck(problem="is empty")
            image = Image.open(file, formats=FORMATS)
            is_turned = read_orientation(image) != UPRIGHT
        problem = TOO_DEEP if image.mode.startswith(DEEP) else _find_size_problem(*image.size, side)
        return _FileCheck(size, problem=problem, is_turned=is_turned)
    except PROBLEMS as error:
        return _FileCheck(size, problem=_describe_error(error))


def _find_size_problem(width: int, height: int, side: int | None) -> str:
    if side is None or width == height == side:
        return ""
    return f"is {width} x {height} pixels, not {side} x {side}"


def _check_pixels(path: Path, side: int | None = None) -> _FileCheck:
    """Check an image's content by decoding it to pixels."""
    content = b""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                return _FileCheck(size, problem=f"has more than {MOST_BYTES:,} bytes")
            content = file.read()
        height, width = open_content(path, content).pixels().shape[-2:]
        is_turned = read_orientation(Image.open(io.BytesIO(content), formats=FORMATS)) != UPRIGHT
        return _FileCheck(len(content), content, _find_size_problem(width, height, side), is_turned)
    except CorruptImage as error:
        reason = str(error).removeprefix(f"can't read the image {path}: ")
        return _FileCheck(len(content), content, reason.removeprefix("it "))
    except (OSError, UnreadableFile) as error:
        return _FileCheck(problem=_describe_error(error))


def _describe_error(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "is no image"
    return (getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)).removeprefix("it ")


# --- output -----------------------------------------------------------------------------------------------------------


def _format_table(findings: Sequence[Finding], data_dir: Path) -> list[str]:
    return aligned([COLUMNS, *(_format_row(finding, data_dir) for finding in findings)])


def _format_row(finding: Finding, data_dir: Path) -> tuple[str, ...]:
    data_set, folder, contents = finding.data_set, finding.folder, finding.contents
    where = folder.relative_to(data_dir).as_posix() if folder else "not found"
    release = data_set.release
    released, classes = f"{release.images:,}" if release.images else "any", release.classes or "any"
    if contents is None:
        return data_set.name, where, "-", f"- / {released}", f"- / {classes}", "-", "-", "-", release.licence
    counts = f"{contents.images:,} / {released}", f"{contents.labels} / {classes}"
    files = str(len(finding.unreadable)), f"{finding.size:,}", _format_fingerprint(contents)
    return data_set.name, where, finding.layout, *counts, *files, release.licence


def _format_fingerprint(contents: Contents) -> str:
    """Return the fingerprint that runs record; `-` if a file can't be read."""
    try:
        return contents.fingerprint()
    except UsageError:
        return "-"


def _list_notes(findings: Sequence[Finding]) -> list[str]:
    """Return the lines below the table: problems, remarks, missing data sets, checksums."""
    problems, remarks, missing, checksums = [], [], [], []
    for finding in findings:
        name = finding.data_set.name
        if finding.folder is None:
            missing.append(finding.problem)
        else:
            problems += [f"{name}: {problem}" for problem in finding.problems()]
        if finding.contents is not None:
            remarks += [f"{name}: {remark}" for remark in finding.contents.remarks]
        if finding.sha256:
            checksums.append(f"{name}: SHA-256 of all files {finding.sha256}")
    lines = [*problems, *remarks, *missing, *checksums]
    return ["", *lines] if lines else []


def _refuse_problems(findings: Sequence[Finding], data_dir: Path, are_named: bool) -> None:
    """Raise Failure if a data set has a problem, or if all are missing. are_named: one that is missing is a problem."""
    wrong, missing = [], []
    for finding in findings:
        if finding.folder is None:
            missing.append(finding.data_set.name)
        elif finding.problems():
            wrong.append(finding.data_set.name)
    problems = [f"{listed(wrong, 20)} not as released"] if wrong else []
    if missing and are_named:
        problems.append(f"{listed(missing, 20)} not found, or a part of it is missing")
    elif len(missing) == len(findings):
        problems.append(f"none of these data sets is in {data_dir}")
    if problems:
        raise Failure("; ".join(problems))
