"""Ranks that algorithms can have: in the table, in the first sentence, in the CSV file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import biasbed
from biasbed import cli


def some_scores(num_sets: int, **leads: float) -> pd.DataFrame:
    """Make a table, a line for each method, whose scores lie around 60 plus the method's lead."""
    draw = np.random.default_rng(2)
    rows = {name: (60 + lead + draw.normal(0, 1, num_sets)).round(1) for name, lead in leads.items()}
    frame = pd.DataFrame(rows, index=[f"set{number}" for number in range(num_sets)]).T
    return frame.rename_axis("method").reset_index()


def test_who_may_be_first_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`poor` is worse on all eight sets, by far; two others differ by chance."""
    some_scores(8, good=0.0, fair=0.0, poor=-20.0).to_csv(tmp_path / "scores.csv", index=False)
    assert cli.main(["compare", str(tmp_path / "scores.csv"), "--output_dir", str(tmp_path / "out")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "2 of 3 algorithms may be first (*): " in text
    assert "good (ranks 1 to 2)" in text
    assert "fair (ranks 1 to 2)" in text
    assert "the other is shown to be worse than some algorithm (over 8 sets, 95% confidence" in text
    found = pd.read_csv(tmp_path / "out" / "rank_sets.csv").set_index("algorithm")
    assert found.loc["poor", ["best_rank", "worst_rank"]].tolist() == [3, 3]
    assert found.loc["good", ["best_rank", "worst_rank"]].tolist() == [1, 2]
    assert found["average_rank"].sum() == 6


@pytest.mark.parametrize(
    ("num_sets", "sentence"),
    [(4, "4 sets can show no other rank"), (8, "none is shown to be worse by average rank")],
)
def test_where_nothing_is_shown_the_sentence_says_why(num_sets: int, sentence: str) -> None:
    text = " ".join(str(biasbed.compare(some_scores(num_sets, a=0.0, b=0.1, c=0.2))).split())
    assert "Any of the 3 algorithms may be first (*): " in text
    assert sentence in text


def test_pairs_that_only_nemenyi_s_test_tells_apart_are_said_beside_ranks_that_show_nothing() -> None:
    """Six methods in the same order on five sets: signs of five sets can show nothing, average ranks can."""
    leads = {name: 20.0 * number for number, name in enumerate("abcdef")}
    text = " ".join(str(biasbed.compare(some_scores(5, **leads), bootstrap=200)).split())
    first, last = text.index("Any of the 6 algorithms may be first (*)"), text.index(" Notes")
    assert re.search(r"Nemenyi's test, exact only if .*, puts \d of these behind another", text[first:last])


def test_of_two_algorithms_wilcoxon_s_test_decides() -> None:
    """Seven clear wins and a narrow loss: p = 4/256 by Wilcoxon's test, 18/256 by the signs."""
    leads = [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, -1.0]
    scores = pd.DataFrame([[60 + lead for lead in leads], [60.0] * 8], columns=[f"set{number}" for number in range(8)])
    result = biasbed.compare(scores.assign(method=["good", "fair"]), bootstrap=200)
    assert result.verdict.startswith("One of 2 algorithms is first (*): good (rank 1); the other is shown to be worse")


def test_a_pool_with_more_sets_is_told_with_the_ranks() -> None:
    scores = some_scores(8, good=20.0, fair=0.0, lacking=0.0)
    scores.loc[scores["method"] == "lacking", [f"set{number}" for number in range(5)]] = None
    text = " ".join(str(biasbed.compare(scores, bootstrap=200)).split())
    answer = "3 sets can show no other rank (over 3 sets, 95% confidence in all ranks together)."
    assert f"{answer} The 2 algorithms that have all 8 sets differ: good is better than fair." in text


def test_of_many_methods_some_are_named_and_pairs_are_counted() -> None:
    leads = {f"good{number}": 0.0 for number in range(10)} | {f"poor{number}": -20.0 for number in range(10)}
    text = " ".join(str(biasbed.compare(some_scores(10, **leads))).split())
    assert "10 of 20 algorithms may be first (*): " in text
    assert "and 4 more; the others" in text
    assert re.search(r"Nemenyi's test tells \d\d of 190 pairs apart\.", text)
    assert len(re.findall("is better than", text)) == 0


def test_the_table_stands_first_with_a_star_for_who_may_be_first() -> None:
    """By average rank; the mean is that of the row."""
    scores = some_scores(8, poor=-20.0, good=0.0, fair=0.0)
    _, _, table, answer, notes, *_ = str(biasbed.compare(scores)).split("\n\n")
    assert "may be first" in answer
    assert notes.startswith("Notes")
    heads, *rows = table.splitlines()[1:]
    assert heads.split()[:2] == ["ranks", "mean"]
    ranks = {row.split()[0]: re.findall(r"\d(?: to \d)?[* ]", row)[0].strip() for row in rows}
    assert ranks == {"good": "1 to 2*", "fair": "1 to 2*", "poor": "3"}
    means = scores.set_index("method").mean(axis=1)
    for row in rows:
        assert f"  {means[row.split()[0]]:.1f}  " in row
    assert rows[-1].startswith("  poor")


def test_sets_of_several_directions_have_ranks_and_no_mean() -> None:
    scores = some_scores(8, good=0.0, poor=-20.0, worse=-40.0)
    assert "  mean" in str(biasbed.compare(scores))
    assert "  mean" not in str(biasbed.compare(scores, lower="set7"))
