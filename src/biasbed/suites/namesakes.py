"""Whether data sets of one name are one: what stands in one table, cell by cell, may not mix two."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from biasbed import record


@dataclass(frozen=True)
class TestedOn:
    """What a run of some cell is tested on."""

    run: str  # as messages call it
    cell: str
    protocol: record.Protocol
    images: str  # hash of all that it is tested on, images too; empty where a run from before doesn't say


def namesakes(tests: Iterable[TestedOn]) -> str:
    """Why these can't stand in one table: the first name under which two cells have unlike data sets; empty if none.

    Of unlike records, or of other images where all else is alike; or versions of the same images under two names.
    Within a cell runs are held against each other as rows are.
    """
    seen: dict[str, TestedOn] = {}
    versions: dict[str, tuple[str, TestedOn]] = {}
    for one in tests:
        for entry in one.protocol.sets:
            name, other = versions.setdefault(entry.version_of or entry.name, (entry.block, one))
            if entry.version_of and name != entry.block:
                return f"'{name}' and '{entry.block}' are versions of the same images ({_runs(other, one)}): {_APART}"
        for name, data in _data_sets(one.protocol).items():
            other = seen.setdefault(name, one)
            if other.cell == one.cell:
                continue
            alike = one.protocol.tested == other.protocol.tested
            other_images = alike and one.images and other.images and one.images != other.images
            if other_images or (not alike and data != _data_sets(other.protocol)[name]):
                return (
                    f"two data sets of one table are called '{name}' ({_runs(other, one)}): "
                    f"rename the folder of one, or {_APART}"
                )
    return ""


_APART = "give each a study of its own"


def _runs(one: TestedOn, other: TestedOn) -> str:
    return f"runs {one.run} and {other.run}"


def _data_sets(protocol: record.Protocol) -> dict[str, list[Any]]:
    """Data set -> what is tested of it, and derived; a set that is no part of one is one by itself.

    How images are brought to a model's size is the model's own affair, and how many they are may be the cell's.
    """
    found: dict[str, list[Any]] = {}
    for entry in protocol.sets:
        data = dataclasses.replace(entry, preprocessing="")
        if data.by_cell:
            data = dataclasses.replace(data, images=0, groups=dict.fromkeys(data.groups, 0))
        found.setdefault(entry.block or entry.name, []).append(data)
    for derived in protocol.derived:
        if derived.block and derived.phase == "test":
            found.setdefault(derived.block, []).append(derived)
    return found
