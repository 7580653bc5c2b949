"""A table of scores and the runs that it was made of: the same numbers."""

from __future__ import annotations

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from biasbed.analysis import frames
from biasbed.analysis.command import Outcome
from biasbed.analysis.options import AnalyzeOptions, CompareOptions
from biasbed.analysis.report import wording
from biasbed.analysis.result import Analysis, compute_from
from biasbed.analysis.score_inputs import gather_scores
from biasbed.analysis.sections.power import limits_fields
from biasbed.analysis.tables.scores import Score
from biasbed.analysis.tables.user_scores import UserScores, make_scores
from biasbed.api.comparison import read_scores
from biasbed.errors import UsageError
from helpers.toy_runs import Recorder


def scores_of(table: pd.DataFrame) -> UserScores:
    """Return the scores of a table with columns method, dataset, perhaps seed, and one more."""
    (measure,) = set(table.columns) - {"method", "dataset", "seed"}
    lines = []
    for row in table.to_dict("records"):
        seed = str(row.get("seed", ""))
        lines.append(Score(row["method"], row["dataset"], seed, row[measure], "the table"))
    return make_scores(lines, "the table", (), measure)


def analyse(table: pd.DataFrame, lower: tuple[str, ...] | None = None, unit: str = "auto") -> Analysis:
    settings = AnalyzeOptions(bootstrap=200)
    scores = scores_of(table)
    return compute_from(gather_scores(scores, settings, lower, unit), settings)  # type: ignore[arg-type]


# What follows from the scores alone, whatever the runs are called.
SAME = ("scores", "ranks", "nemenyi", "wilcoxon_holm", "effects", "bayesian", "intervals", "per_set")


def test_numbers_are_those_of_analyze(full: tuple[Outcome, Recorder]) -> None:
    """To the last digit: the table holds the logged fractions of the same runs."""
    tracked = full[0].analysis
    runs = tracked.runs
    table = pd.DataFrame({"method": runs["algorithm"], "dataset": runs["dataset"], "seed": runs["seed"]})
    table["score"] = runs["score"] / 100
    options = AnalyzeOptions()
    computed = compute_from(gather_scores(read_scores(table, CompareOptions()), options), options)
    ours, theirs = frames(computed), frames(tracked)
    for name in SAME:
        left, right = ours[name], theirs[name]
        if "setting" in right:
            right = right[right["setting"] == "all"].reset_index(drop=True)
            left = left[left["setting"] == "all"].reset_index(drop=True)
        shared = [column for column in right if column in left and column not in ("run_ids", "images")]
        shared = [column for column in shared if not column.startswith("binomial")]
        assert {"algorithm", "dataset", "a"} & set(shared)
        assert_frame_equal(left[shared], right[shared], check_exact=True, obj=name)
    assert computed.comparisons[0].friedman == tracked.comparisons[0].friedman
    limits = [limits_fields(analysis.pairwise.limits[0], 0.05) for analysis in (computed, tracked)]
    assert limits[0] == limits[1]


def rows(scores: dict[str, list[float]], head: str = "score") -> pd.DataFrame:
    lines = [(m, f"s{j}", value) for m, values in scores.items() for j, value in enumerate(values)]
    return pd.DataFrame(lines, columns=["method", "dataset", head])


@pytest.mark.usefixtures("few_draws")
def test_direction_follows_from_names_and_from_the_user() -> None:
    table = {"a": [0.1, 0.2, 0.3] * 2, "b": [0.4, 0.5, 0.6, 0.7, 0.5, 0.6], "c": [0.9, 0.8] * 3}
    best = {"score": "c", "test_loss": "a"}
    for head, name in best.items():
        result = analyse(rows(table, head))
        assert next(iter(result.comparisons[0].mean_ranks)) == name
    assert any("lower is better, as the scores are called 'test_loss'" in note for note in result.notes)
    flipped = analyse(rows(table), lower=tuple(f"s{j}" for j in range(6)))
    assert next(iter(flipped.comparisons[0].mean_ranks)) == "a"
    with pytest.raises(UsageError, match="lower=t1: there is no such data set"):
        analyse(rows(table), lower=("t1",))


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    ("factor", "unit", "shown", "has_rope"),
    [(1, "auto", 90.0, True), (100, "auto", 90.0, True), (1000, "auto", 900.0, False), (1, "plain", 0.9, False)],
)
def test_units(factor: float, unit: str, shown: float, has_rope: bool) -> None:
    table = rows({"a": [0.9 * factor, 0.5 * factor, 0.25 * factor], "b": [0.7 * factor, 0.4 * factor, 0.3 * factor]})
    result = analyse(table, unit=unit)
    assert result.cells["a", "s0"].mean == pytest.approx(shown, abs=1e-9)
    assert bool(len(result.pairwise.bayesian)) == has_rope


@pytest.mark.parametrize(
    ("errors", "digits"), [((23.9, 24.25), 2), ((23, 24), 1), ((0.12345, 0.2), 3)], ids=["two", "whole", "many"]
)
def test_scores_that_are_no_percentages_have_the_digits_of_the_table(errors: tuple[float, ...], digits: int) -> None:
    table = rows({"a": [90, errors[0]], "b": [80, errors[1]]})
    result = analyse(table, lower=("s1",))
    assert result.cells["a", "s1"].mean_text == f"{errors[0]:.{digits}f}"
    assert result.cells["a", "s0"].mean_text == "90.0"
    assert result.units == "percent; s1 as printed"


@pytest.mark.usefixtures("few_draws")
def test_missing_cells_and_unequal_seeds_are_said() -> None:
    table = rows({"a": [1, 2, 3, 4], "b": [2, 4, 4, 6], "c": [5, 5, 5, 9]}).drop(index=4)
    result = analyse(table)
    assert "no score is there of b on s0: the tests use the sets that all methods have" in result.notes
    assert [(c.setting, c.sets) for c in result.comparisons] == [
        ("all", ("s1", "s2", "s3")),
        ("complete", ("s0", "s1", "s2", "s3")),
    ]
    seeds = pd.concat([table.assign(seed=0), table[table["method"] == "b"].assign(seed=1)])
    assert "unequal numbers of runs: a 1, b 2, c 1" in analyse(seeds).notes
    sentences = [wording.setting_sentence(result, comparison) for comparison in result.comparisons]
    assert sentences[0] == "Left out: s0, on which some algorithm has no score (3 algorithms x 3 sets)."
    assert sentences[1] == "Left out: b, without a score on some set (2 algorithms x 4 sets)."


@pytest.mark.usefixtures("few_draws")
def test_fractions_beside_percentages_are_noted() -> None:
    mixed = analyse(rows({"a": [0.84, 80, 70], "b": [81, 79, 0.71]})).notes
    assert any("look like fractions" in note and "(0.84 on s0, 0.71 on s2)" in note for note in mixed)
    for scores in ({"a": [0.5, 80, 70], "b": [1.5, 79, 71]}, {"a": [0.84, 0.8, 0.7], "b": [0.81, 0.7, 0.7]}):
        assert not any("look like fractions" in note for note in analyse(rows(scores)).notes)
