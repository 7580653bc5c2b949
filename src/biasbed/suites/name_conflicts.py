"""Name conflicts between data sets: a table must not mix two data sets of one name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from biasbed import record

SEPARATE_STUDIES = "give each a study of its own"


@dataclass(frozen=True)
class TestedCell:
    """Evaluation sets of a run's cell."""

    run: str  # the run's name in messages
    cell: str
    protocol: record.Protocol
    images: str  # hash of everything that the run is tested on, images included; empty if the run has none


def find_name_conflict(cells: Iterable[TestedCell]) -> str:
    """Return why the cells can't share a table, or an empty string if they can.

    Two cells conflict if sets of one name have unlike records, or if only their images differ. They also conflict if
    they show versions of the same images under two names. Runs of one cell are compared elsewhere, as rows are.
    """
    first_cells: dict[str, TestedCell] = {}
    versions: dict[str, tuple[str, TestedCell]] = {}
    for cell in cells:
        for set_record in cell.protocol.sets:
            version = set_record.version_of or set_record.name
            block, earlier = versions.setdefault(version, (set_record.block, cell))
            if set_record.version_of and block != set_record.block:
                names = f"'{block}' and '{set_record.block}'"
                return f"{names} are versions of the same images ({_runs(earlier, cell)}): {SEPARATE_STUDIES}"
        for name in _data_sets(cell.protocol):
            earlier = first_cells.setdefault(name, cell)
            if earlier.cell != cell.cell and _is_conflict(earlier, cell, name):
                return (
                    f"two data sets of one table are called '{name}' ({_runs(earlier, cell)}): "
                    f"rename the folder of one, or {SEPARATE_STUDIES}"
                )
    return ""


def _is_conflict(first: TestedCell, second: TestedCell, name: str) -> bool:
    if first.protocol.tested != second.protocol.tested:
        return _data_sets(first.protocol)[name] != _data_sets(second.protocol)[name]
    return bool(first.images and second.images) and first.images != second.images


def _runs(first: TestedCell, second: TestedCell) -> str:
    return f"runs {first.run} and {second.run}"


def _data_sets(protocol: record.Protocol) -> dict[str, list[Any]]:
    """Return the records and derived values of each data set; a set outside any block is a data set by itself.

    Preprocessing is left out because it depends on the model, and numbers of images if they depend on the cell.
    """
    data_sets: dict[str, list[Any]] = {}
    for set_record in protocol.sets:
        comparable = dataclasses.replace(set_record, preprocessing="")
        if comparable.by_cell:
            comparable = dataclasses.replace(comparable, images=0, groups=dict.fromkeys(comparable.groups, 0))
        data_sets.setdefault(set_record.block or set_record.name, []).append(comparable)
    for derived in protocol.derived:
        if derived.block and derived.phase == "test":
            data_sets.setdefault(derived.block, []).append(derived)
    return data_sets
