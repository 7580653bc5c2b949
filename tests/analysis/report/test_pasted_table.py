"""Tables to paste: read back as they were, whatever names they hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import biasbed
from biasbed import cli
from biasbed.analysis.report.pasted_table import TableFormat
from biasbed.errors import UsageError

NAMES = ("plain", "a_b|c", "50% & more", "p < q", "*z*", "nan", "[link](x)", "$5")
SUFFIXES = {"markdown": "md", "html": "html", "latex": "tex"}


@pytest.fixture
def scores() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(60, 3, (len(NAMES), 6)).round(1), columns=[f"set {letter}" for letter in "uvwxyz"])
    frame.insert(0, "method", NAMES)
    return frame


@pytest.mark.parametrize("table_format", ["markdown", "html", "latex"])
def test_a_table_is_read_back_with_its_names_and_scores(
    table_format: TableFormat, scores: pd.DataFrame, tmp_path: Path
) -> None:
    """Ranks and means are left out."""
    path = tmp_path / f"table.{SUFFIXES[table_format]}"
    path.write_text(biasbed.compare(scores).table(table_format))
    again = biasbed.compare(path).scores.pivot(index="algorithm", columns="dataset", values="mean")
    wanted = scores.set_index("method")
    assert sorted(again.columns) == sorted(wanted.columns)
    assert sorted(again.index) == sorted(NAMES)
    for name in NAMES:
        assert again.loc[name, wanted.columns].tolist() == pytest.approx(wanted.loc[name].tolist())


@pytest.mark.parametrize("table_format", ["markdown", "html", "latex"])
@pytest.mark.parametrize("settings", [{}, {"seeds": 3}, {"seeds": 3, "spread": "standard_error"}])
def test_printed_deviations_are_printed_again(
    table_format: TableFormat, settings: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / f"table.{SUFFIXES[table_format]}"
    table = {"method": ["a", "b"], "u": ["77.5 ± 0.4", "78.2 ± 0.0"], "v": ["65.1", "66.2 ± 1.5"], "w": ["1", "2"]}
    result = biasbed.compare(pd.DataFrame(table), **settings)
    path.write_text(result.table(table_format))
    again = biasbed.compare(path).scores.set_index(["algorithm", "dataset"])["std"].dropna()
    assert again.to_dict() == {("a", "u"): 0.4, ("b", "u"): 0.0, ("b", "v"): 1.5}
    assert ("standard error" in str(result)) == ("spread" in settings)
    assert "means and ± of all rows are printed ones" in str(result)


def test_the_command_prints_the_table_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who may be first, notes and files that are written are said on the other stream."""
    path = tmp_path / "scores.csv"
    path.write_text("method,u,v,w\na,1,2,3\nb,2,3,5\nc,5,4,1\n")
    words = ["compare", str(path), "--format", "html", "--output_dir", str(tmp_path / "out")]
    assert cli.main(words) == 0
    printed = capsys.readouterr()
    assert printed.out == biasbed.compare(path).table("html") + "\n"
    for said in ("may be first", "lines are methods", "Tables, figures and report: "):
        assert said in printed.err


@pytest.mark.parametrize("table_format", ["markdown", "html", "latex"])
def test_who_may_be_first_has_a_star_and_the_best_score_is_bold(table_format: TableFormat) -> None:
    draw = np.random.default_rng(2)
    leads = {"good": 0, "poor": -20, "bad": -40}
    rows = {name: (60 + lead + draw.normal(0, 1, 8)).round(1) for name, lead in leads.items()}
    scores = pd.DataFrame(rows, index=[f"set {letter}" for letter in "stuvwxyz"]).T
    table = biasbed.compare(scores.rename_axis("method").reset_index()).table(table_format)
    (first,) = [line for line in table.splitlines() if "good" in line]
    assert re.search(r"\b1(\\\*|\*|\\textsuperscript\{\*\})", first)
    assert len(re.findall(r"\*\*\d|<b>\d|\\textbf\{\d", first)) == 9  # the mean and eight scores
    assert "*" not in next(line for line in table.splitlines() if "bad" in line)


@pytest.mark.parametrize(("table_format", "arrow"), [("markdown", "↑↓"), ("html", "↑↓"), ("latex", "up down")])
def test_heads_have_arrows_where_the_direction_is_known(table_format: TableFormat, arrow: str) -> None:
    scores = pd.DataFrame({"method": ["a", "b"], "u acc": [1, 2], "v error": [2.5, 3], "w": [3, 5]})
    up, down = arrow if len(arrow) == 2 else (rf"$\{name}arrow$" for name in arrow.split())
    table = biasbed.compare(scores, blocks="none").table(table_format)
    assert f"u {up}" in table
    assert f"v {down}" in table
    assert table.count(up) == table.count(down) == 1
    assert biasbed.compare(scores, lower="none").table(table_format).count(up) == 3


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    result = biasbed.compare(pd.DataFrame({"method": ["a", "b"], "x": [1, 2], "y": [2, 3], "z": [3, 5]}))
    with pytest.raises(UsageError, match=r"^format=word: there is no such format; valid: markdown, html, latex"):
        result.table("word")  # type: ignore[arg-type]
