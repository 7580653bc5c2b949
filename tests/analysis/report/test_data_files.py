"""No CSV file of an analysis runs a formula in a spreadsheet, and its numbers stay numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from biasbed.analysis.report import data_files
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from helpers.toy_runs import Recorder

NAME = '=HYPERLINK("http://x")'


@pytest.mark.usefixtures("few_draws")
def test_names_of_others_are_no_formulas(recorder: Recorder, tmp_path: Path) -> None:
    for algorithm, score in (("erm", 0.4), ("infodrop", 0.5), ("padain", 0.6)):
        recorder.train(algorithm, 0, (score,) * 6, row=NAME if algorithm == "erm" else "")
    analysis = compute(RunStore(recorder.uri), recorder.options())
    data_files.write(analysis, tmp_path)
    cells = [cell for path in tmp_path.glob("*.csv") for row in csv.reader(path.open(newline="")) for cell in row]
    assert f"'{NAME}" in cells
    assert not [cell for cell in cells if cell[:1] in ("=", "@", "\t", "\r")]
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {float(row["score"]) for row in rows} == {40.0, 50.0, 60.0}
