"""Tests from printed means and deviations: Welch's test, with the numbers of SciPy."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

import biasbed
from biasbed.analysis.comparisons.printed_tests import welch
from biasbed.analysis.sections import study_design

TABLE = """method,u,v,w
erm,77.5 ± 0.4,85.5 ± 0.2,66.5 ± 0.3
irm,78.5 ± 0.5,83.5 ± 0.8,64.3 ± 2.2
mix,77.4 ± 0.6,84.6 ± 0.6,68.1 ± 0.3
"""


@pytest.mark.parametrize(("first", "second"), [((77.5, 0.4, 3), (78.5, 0.5, 3)), ((85.5, 0.2, 5), (83.5, 0.8, 3))])
def test_welch_s_test_is_scipy_s(first: tuple[float, float, int], second: tuple[float, float, int]) -> None:
    ours = welch(*first, *second, alpha=0.05)
    theirs = stats.ttest_ind_from_stats(*first, *second, equal_var=False)
    assert ours.t == pytest.approx(theirs.statistic, rel=1e-12)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-12)
    assert ours.low < first[0] - second[0] < ours.high


def test_printed_deviations_give_tests_if_the_number_of_runs_is_known(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE, encoding="utf-8")
    unknown = biasbed.compare(tmp_path / "t.csv", bootstrap=200)
    assert unknown.printed_tests.empty
    assert "say it as seeds=3" in str(unknown)
    result = biasbed.compare(tmp_path / "t.csv", bootstrap=200, seeds=3)
    table = result.printed_tests
    assert len(table) == 9
    assert (table["p_holm"] >= table["p"]).all()
    assert "From printed means and deviations, not from runs" in str(result)
    assert "3 runs of each algorithm, of 3 algorithms printed means alone" in study_design.describe(result.analysis)[0]
    assert result.scores["std"].tolist() == [0.4, 0.2, 0.3, 0.5, 0.8, 2.2, 0.6, 0.6, 0.3]
    errors = biasbed.compare(tmp_path / "t.csv", bootstrap=200, seeds=3, spread="standard_error").printed_tests
    assert (errors["p"] > table["p"]).all()
    assert errors["deviation_a"].iloc[0] == pytest.approx(0.4 * 3**0.5)


@pytest.mark.parametrize(
    ("lower", "sentence"), [(False, "u: b better than a by 1.85 to 2.15"), (True, "u: a better than b by 1.85 to 2.15")]
)
def test_a_sentence_says_who_is_better_and_not_who_has_more(lower: bool, sentence: str) -> None:
    """The interval is 2 ± 2.306 (Student's t, 8 degrees of freedom) x sqrt(2 x 0.1^2 / 5)."""
    scores = pd.DataFrame({"method": ["a", "b", "c"], "u": ["70 ± 0.1", "72 ± 0.1", "69 ± 0.1"], "v": [70, 71, 69]})
    text = " ".join(str(biasbed.compare(scores, bootstrap=200, seeds=5, higher_is_better=not lower)).split())
    assert sentence in text
    assert "has a single run" not in text


def test_pairs_whose_deviations_are_both_printed_as_zero_are_counted_as_untested(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE.replace("± 0.4", "± 0.0").replace("± 0.5", "± 0.0"), encoding="utf-8")
    result = biasbed.compare(tmp_path / "t.csv", bootstrap=200, seeds=3)
    assert result.printed_tests["p_holm"].isna().sum() == 1
    text = " ".join(str(result).split())
    assert "over 8 comparisons" in text
    assert "1 comparison has no test, as both deviations are printed as 0." in text
