"""Tables of layouts that the reader was not built with: right to the last cell, or refused with the cause."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from biasbed.analysis.tables.formats import grid_of_frame, read_grids
from biasbed.analysis.tables.grid import MANY_ROWS
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understand import understand
from biasbed.errors import UsageError

FOLDER = Path(__file__).parent / "held_out"
TRUTH: dict[str, Any] = yaml.safe_load((FOLDER / "truth.yaml").read_text(encoding="utf-8"))
ReadScore = tuple[
    str, str, str, str, float, float | None, bool
]  # method, block, data set, measure, score, deviation, is lower


def expected_scores(truth: dict[str, Any]) -> collections.Counter[ReadScore]:
    """Return the scores that a table holds; a measure that the truth does not name is empty."""
    scores: collections.Counter[ReadScore] = collections.Counter()
    for method, line in truth["rows"].items():
        for column, cell in zip(truth["columns"], str(line).split(), strict=True):
            parts = column.rstrip("!").split("|")
            block, dataset, measure = (
                ["", *parts, ""] if len(parts) == 1 else ([*parts, ""] if len(parts) == 2 else parts)
            )
            if len(parts) == 3 and not parts[1]:
                block, dataset, measure = "", parts[0], ""
            for score in cell.replace("-", "", 1).split(",") if cell == "-" else cell.split(","):
                if score:
                    value, _, spread = score.partition("±")
                    key = (str(method), block, dataset, measure, float(value), float(spread) if spread else None)
                    scores[(*key, column.endswith("!"))] += 1
    return scores


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if "rows" in truth])
def test_a_table_is_read_right_to_the_last_cell(name: str) -> None:
    table = understand(read_grids(FOLDER / name), ReaderSettings())
    expected = expected_scores(TRUTH[name])
    measures = {key[3] for key in expected}
    read: collections.Counter[ReadScore] = collections.Counter()
    for score in table.used:
        measure = score.metric if measures != {""} and score.metric in measures else ""
        key = (score.method, score.block, score.dataset, measure, score.value, score.spread)
        read[(*key, score.direction == "no")] += 1
    assert read == expected
    assert any(TRUTH[name].get("note", "") in note for note in ["", *table.notes])


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if "refused" in truth])
def test_a_table_that_holds_no_clear_scores_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=TRUTH[name]["refused"]) as refusal:
        understand(read_grids(FOLDER / name), ReaderSettings())
    assert "\n" not in str(refusal.value)


def test_a_name_to_leave_out_that_is_nowhere_is_refused() -> None:
    """And one with another arrow of the same direction, as printed, is found."""
    scores = {"photo ↘": [1.5, 2.5, 3.5], "sketch": [3.5, 4.5, 5.5], "edge": [6.5, 7.5, 8.5]}
    grid = grid_of_frame(pd.DataFrame({"method": ["erm", "mixup", "coral"], **scores}))
    used = understand([grid], ReaderSettings(leave_out=("photo ↘",))).used
    assert {score.dataset for score in used} == {"sketch", "edge"}
    with pytest.raises(UsageError, match=r"^leave_out=sketsh: no column or line has this name; did you mean 'sketch'"):
        understand([grid], ReaderSettings(leave_out=("sketsh",)))


def test_names_to_leave_out_are_looked_for_in_all_that_was_given(tmp_path: Path) -> None:
    """In columns of runs that become means, in names before their citations, and in the table that is read alone."""
    many = MANY_ROWS + 4
    runs = {"method": ["erm", "mixup"] * (many // 2), "seed": range(many), "score": [50.5, 60.5] * (many // 2)}
    grid = grid_of_frame(pd.DataFrame({**runs, "loss": [1.5, 2.5] * (many // 2)}))
    assert {score.metric for score in understand([grid], ReaderSettings(leave_out=("loss",))).used} <= {"", "score"}
    with pytest.raises(UsageError, match=r"^leave_out=los: no column or line has this name; did you mean 'loss'"):
        understand([grid], ReaderSettings(leave_out=("los",)))

    (tmp_path / "two.md").write_text(
        "| Method | Photo | Sketch | Edge |\n|---|---|---|---|\n| ERM [12] | 70.1 | 60.2 | 50.3 |\n"
        "| Mixup [3] | 71.1 | 61.2 | 51.3 |\n| CORAL [4] | 72.1 | 62.2 | 52.3 |\n\nWhere from:\n\n"
        "| Name | Where |\n|---|---|\n| a | b |\n"
    )
    table = understand(read_grids(tmp_path / "two.md"), ReaderSettings(leave_out=("ERM",)))
    assert {score.method for score in table.used} == {"Mixup", "CORAL"}
