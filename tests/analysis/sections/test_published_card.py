"""Was a number reproduced? By the published spread, by one's own, or by how it is printed; all worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from biasbed import record
from biasbed.analysis.columns import Column
from biasbed.analysis.runs.run import Run
from biasbed.analysis.sections import published_card
from biasbed.analysis.sections.published_card import (
    AGREES,
    DIFFERS,
    DOUBTFUL,
    NOT_JUDGED,
    OWN_SPREAD,
    ROUNDING,
    THEIR_SPREAD,
)
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.published import PublishedStudy

EDGE = record.SetRecord("edge", "accuracy", 10, 2, 0.5)
OF_RUN = {"experiment": "0", "status": "FINISHED", "started": 0, "ended": 0, "kind": "published", "suite": "s"}
OF_STUDY = {"study": "published_x", "protocol": "p", "algorithm": "erm"}


def a_study(
    values: Sequence[Mapping[str, float]], selection: str = "last", **of_run: Mapping[str, str | int]
) -> tuple[PublishedStudy, dict[str, History]]:
    """A paper with these runs of erm, each by its measures on edge."""
    runs = [Run(id=str(i), name=str(i), **OF_RUN, **OF_STUDY, **of_run) for i in range(len(values))]  # type: ignore[arg-type]
    histories = {
        run.id: History(run.id, [(f"test/{measure}/edge", 0, value) for measure, value in of_run.items()])
        for run, of_run in zip(runs, values, strict=True)
    }
    column = Column("edge", EDGE)
    return PublishedStudy("published_x", ((column, EDGE),), {selection: tuple(runs)}, (), (), {}), histories


def card_of(ours: Sequence[float], theirs: Sequence[float], alpha: float = 0.05) -> pd.Series:
    """The one row of a card against published runs."""
    return _row(ours, *a_study([{"accuracy": value / 100} for value in theirs]), alpha)


def card_of_mean(ours: Sequence[float], printed: Mapping[str, float], tested: Sequence[str] = ()) -> pd.Series:
    """The same against a published mean, whose paper names no rule."""
    return _row(ours, *a_study([printed], "", summary={"spread": "x"}), 0.05, tested)


def _row(ours: Sequence[float], study: PublishedStudy, histories: Mapping[str, History], *how: object) -> pd.Series:
    own_runs = pd.DataFrame({"algorithm": "erm", "dataset": "edge", "score": list(ours)})
    return published_card.card_table([study], "last", own_runs, histories, *how).iloc[0]  # type: ignore[arg-type]


def a_mean(value: float, rounding: float, num_runs: int = 1, std: float = math.nan) -> dict[str, float]:
    """A printed mean as it is stored; in percent."""
    spread = {} if math.isnan(std) else {"std_over_runs": std / 100}
    return {"accuracy": value / 100, "rounding": rounding / 100, "num_runs": num_runs, **spread}


# --- by the published spread ------------------------------------------------------------------------------------------


def test_p_is_that_of_a_prediction_interval() -> None:
    """A mean of m further runs at the end of the 95 % interval has p = 0.05 (Hahn and Meeker 1991, chapter 4)."""
    theirs = [50.0, 51.0, 52.5, 49.0, 50.5]
    spread, n, m = float(np.std(theirs, ddof=1)), 5, 3
    end = float(np.mean(theirs)) + stats.t.ppf(0.975, n - 1) * spread * math.sqrt(1 / m + 1 / n)
    row = card_of([end] * m, theirs)
    assert row["p"] == pytest.approx(0.05)
    assert row["judged_by"] == THEIR_SPREAD
    assert card_of([end + 0.01] * m, theirs)["verdict"] == DIFFERS  # one cell: Holm changes nothing
    assert card_of([end - 0.01] * m, theirs)["verdict"] == AGREES


def test_a_published_mean_is_judged_as_its_runs_would_be() -> None:
    theirs = [50.0, 51.0, 52.5, 49.0, 50.5]
    ours = [52.0, 53.5, 53.1]
    printed = a_mean(float(np.mean(theirs)), 0.05, len(theirs), float(np.std(theirs, ddof=1)))
    of_runs, of_mean = card_of(ours, theirs), card_of_mean(ours, printed)
    columns = [name for name in published_card.CARD_COLUMNS if name != "published_rounding"]
    pd.testing.assert_series_equal(of_mean[columns], of_runs[columns])
    assert (of_mean["published_rounding"], of_mean["published_num_runs"]) == (0.05, 5)


@pytest.mark.slow
def test_how_often_equal_runs_are_doubted_is_alpha() -> None:
    generator = np.random.default_rng(0)
    p = [card_of(generator.normal(50, 2, 2).tolist(), generator.normal(50, 2, 4).tolist())["p"] for _ in range(400)]
    assert abs(np.mean(np.array(p) < 0.1) - 0.1) < 4 * math.sqrt(0.09 / 400)


# --- by one's own -----------------------------------------------------------------------------------------------------


def test_without_a_published_spread_ones_own_decides() -> None:
    """63.9 against 64.2, 64.6, 64.7: 0.6 less the rounding of 0.05 leaves 0.55; deviation 0.26458 of three runs.

    One further run: t = 0.55 / (0.26458 sqrt(1/3 + 1)) = 1.80030, with two degrees of freedom p = 0.21362.
    """
    row = card_of_mean([64.2, 64.6, 64.7], a_mean(63.9, 0.05))
    assert row["p"] == pytest.approx(2 * stats.t.sf(1.800298, 2), abs=1e-6)
    assert row["p"] == pytest.approx(0.2136, abs=1e-4)
    assert (row["verdict"], row["judged_by"]) == (AGREES, OWN_SPREAD)
    assert math.isnan(row["difference_in_std"])
    assert card_of_mean([64.2, 64.6, 64.7], a_mean(53.9, 0.05))["verdict"] == DIFFERS


def test_a_printed_spread_of_zero_says_nothing_but_the_number_of_runs_does() -> None:
    """10.0 ± 0.0 of three runs: one's own deviation of 0.1, for a mean of three further runs."""
    row = card_of_mean([10.1, 10.2, 10.3], a_mean(10.0, 0.05, 3, 0.0))
    assert row["judged_by"] == OWN_SPREAD
    assert row["p"] == pytest.approx(2 * stats.t.sf(0.15 / (0.1 * math.sqrt(2 / 3)), 2), abs=1e-6)


# --- by how it is printed ---------------------------------------------------------------------------------------------


def test_a_model_that_is_only_tested_must_print_the_same() -> None:
    for ours, verdict in {63.95: AGREES, 63.85: AGREES, 63.951: DIFFERS, 63.8: DIFFERS}.items():
        row = card_of_mean([ours], a_mean(63.9, 0.05), tested=["erm"])
        assert (row["verdict"], row["judged_by"]) == (verdict, ROUNDING)
        assert math.isnan(row["p"])
        assert math.isnan(row["p_holm"])
    assert card_of_mean([76.5], a_mean(77, 0.5), tested=["erm"])["verdict"] == AGREES
    assert card_of_mean([76.4], a_mean(77, 0.5), tested=["erm"])["verdict"] == DIFFERS


def test_one_training_is_not_judged() -> None:
    assert card_of_mean([63.9], a_mean(63.9, 0.05))["verdict"] == NOT_JUDGED  # nobody said how far runs may lie apart


def test_equal_runs_of_ones_own_have_no_spread_either() -> None:
    assert card_of_mean([63.9, 63.9], a_mean(63.9, 0.05))["verdict"] == NOT_JUDGED
    assert card_of([50.0], [50.0])["verdict"] == NOT_JUDGED


# --- the whole card ---------------------------------------------------------------------------------------------------


def test_between_doubtful_and_different_stands_holm() -> None:
    frame = pd.DataFrame({name: [0.0] * 4 for name in published_card.CARD_COLUMNS})
    frame["verdict"], frame["p_holm"] = [NOT_JUDGED, NOT_JUDGED, NOT_JUDGED, DIFFERS], math.nan
    frame["p"] = [0.01, 0.04, math.nan, math.nan]
    judged = published_card.with_verdicts(frame.copy(), 0.05)
    assert judged["verdict"].tolist() == [DIFFERS, DIFFERS, NOT_JUDGED, DIFFERS]
    frame["p"] = [0.03, 0.04, 0.9, math.nan]
    assert published_card.with_verdicts(frame, 0.05)["verdict"].tolist() == [DOUBTFUL, DOUBTFUL, AGREES, DIFFERS]
