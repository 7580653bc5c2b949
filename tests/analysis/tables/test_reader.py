"""Tables of layouts that the reader was not built with: right to the last cell, or refused with the cause."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from biasbed.analysis.tables.formats import grid_of_frame, read_grids
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
        key = (score.method, score.block, score.dataset, measure, score.score, score.spread)
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
