"""Conclusions that flip: another pool of algorithms, one thing less, other rules."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from biasbed.analysis.statistics import friedman, pairs, rank_sets, stability
from helpers.demsar import DEMSAR, matrix

# Two methods, once among three that lie between them and once among three that are far below both
# (the point of Benavoli, Corani and Mangili 2016, in ten numbers).
A = np.array([72, 68, 71, 75, 70, 69, 74, 73, 66, 71.0])
B = A - [2, 1.5, 2, 1, 2.5, 2, -1, 1.5, 2, 1]
BETWEEN = pd.DataFrame({"A": A, "B": B, **{f"between{i}": B + (A - B) * i / 4 for i in (1, 2, 3)}})
BELOW = pd.DataFrame({"A": A, "B": B, **{f"below{i}": np.minimum(A, B) - 10 * i for i in (1, 2, 3)}})


def conclusions(
    scores: pd.DataFrame, alpha: float = 0.05, control: str | None = None
) -> dict[stability.PairClaim, str]:
    """Return every claim on a matrix of scores with its verdict."""
    verdicts = stability.judge(stability.make_variant("", "", scores, alpha), control)
    signs = verdicts.signs[0].tolist()
    return {claim: stability.in_words(claim, sign) for claim, sign in zip(verdicts.claims, signs, strict=True)}


def verdict(scores: pd.DataFrame, test: str) -> str:
    return conclusions(scores)[test, "A", "B"]


# --- the pool ---------------------------------------------------------------------------------------------------------


def test_nemenyis_verdict_depends_on_the_pool_and_wilcoxons_p_does_not() -> None:
    assert verdict(BETWEEN, stability.NEMENYI) == "A before B"
    assert verdict(BELOW, stability.NEMENYI) == stability.SAME
    p = {float(pairs.compare_pairs(scores).iloc[0]["p"]) for scores in (BETWEEN, BELOW)}
    assert len(p) == 1
    assert p.pop() < 0.01


def test_leaving_out_one_weak_method_flips_the_union_of_both_pools() -> None:
    union = pd.concat([BETWEEN, BELOW.drop(columns=["A", "B"])], axis=1)
    assert verdict(union, stability.NEMENYI) == stability.SAME
    changed = stability.variants(union, {}, {}, 0.05)
    flips, _ = stability.flips(union, 0.05, changed)
    of_pair = flips[(flips["test"] == stability.NEMENYI) & (flips["a"] == "A") & (flips["b"] == "B")]
    of_pair = of_pair[of_pair["change"] == "leave_one_algorithm_out"]
    assert set(of_pair["what"]) == {"below1", "below2", "below3"}
    assert set(of_pair["after"]) == {"A before B"}


# --- one thing less ---------------------------------------------------------------------------------------------------


def test_conclusions_are_those_of_the_analysis() -> None:
    comparison = friedman.compare(DEMSAR, 0.1)
    said = conclusions(DEMSAR, 0.1)
    assert said[stability.OMNIBUS, "", ""] == "they differ"
    for a, b in itertools.combinations(DEMSAR, 2):
        assert (said[stability.NEMENYI, a, b] != stability.SAME) == (comparison.p(a, b) < 0.1)
    tests = pairs.compare_pairs(DEMSAR).set_index(["a", "b"])
    assert {pair: p < 0.1 for pair, p in tests["p_holm"].items()} == {
        (a, b): said[stability.WILCOXON, a, b] != stability.SAME for a, b in itertools.combinations(DEMSAR, 2)
    }


def test_the_winner_is_named_first() -> None:
    """Higher is better, and lower ranks are."""
    scores = matrix([[5 + i, 9 + 2 * i, 1 + i / 2] for i in range(9)])
    said = conclusions(scores, 0.05)
    for test in (stability.NEMENYI, stability.WILCOXON):
        assert said[test, "alg0", "alg2"] in ("alg0 before alg2", stability.SAME)
        assert said[test, "alg1", "alg2"] == "alg1 before alg2"
    assert said[stability.WILCOXON, "alg0", "alg1"] == "alg1 before alg0"


def test_pairs_are_told_apart_under_the_omnibus_test_only() -> None:
    """`a` leads by a hair on nearly all sets: Wilcoxon's test of the pair sees it, Friedman's of nine doesn't."""
    generator = np.random.default_rng(3)
    scores = pd.DataFrame({f"noise{i}": generator.normal(0, 10, 9) for i in range(7)})
    scores["b"] = generator.normal(0, 10, 9)
    scores["a"] = scores["b"] + 0.01 * np.arange(1, 10)
    scores = scores[["a", "b", *(f"noise{i}" for i in range(7))]]
    assert pairs.compare_pairs(scores, "b").set_index("a").loc["a", "p_holm"] < 0.05
    said = conclusions(scores, 0.05, "b")
    assert said[stability.OMNIBUS, "", ""] == stability.NOT_SHOWN
    assert {text for claim, text in said.items() if claim[2]} == {stability.SAME}


def test_a_set_that_decides_is_found() -> None:
    scores = matrix([[3, 2, 1]] * 3 + [[1, 2, 3]])
    flips, checks = stability.flips(scores, 0.3, stability.variants(scores, {}, {}, 0.3))
    omnibus = flips[(flips["test"] == stability.OMNIBUS) & (flips["change"] == "leave_one_set_out")]
    assert omnibus["what"].tolist() == ["set3"]
    assert omnibus[["before", "after"]].to_numpy().tolist() == [["not shown to differ", "they differ"]]
    row = checks.set_index(["change", "test"]).loc[("leave_one_set_out", stability.OMNIBUS)]
    assert (row["variants"], row["claims"], row["flips"], row["claims_that_flip"]) == (4, 4, 1, 1)


def test_who_may_be_first_is_judged_anew_as_the_rank_sets_are() -> None:
    """Without each set, each algorithm and each run, and at other levels."""
    scores = matrix(np.random.default_rng(1).normal([60, 61, 62, 63.5], 1.5, (9, 4)))
    runs = {"alg3": pd.DataFrame([scores["alg3"] - 4, scores["alg3"] + 4], ["bad", "good"])}
    changed = list(stability.variants(scores, runs, {}, 0.05))
    flips, checks = stability.flips(scores, 0.05, changed)
    of_ranks = flips[flips["test"] == stability.RANK_SETS]
    expected = set()
    for block in changed:
        for subject, table in zip(block.subjects, block.tables, strict=True):
            now = _not_first(matrix(table).set_axis(block.algorithms, axis=1), block.alpha)
            shared = _not_first(scores, 0.05) & set(block.algorithms)
            expected |= {(block.change, subject, name) for name in now ^ shared}
    assert set(of_ranks[["change", "what", "a"]].itertuples(index=False, name=None)) == expected
    assert {"leave_one_algorithm_out", "leave_one_set_out", "one_run_less", "alpha"} == set(of_ranks["change"])
    assert set(of_ranks["b"]) == {""}
    assert checks.loc[checks["test"] == stability.RANK_SETS, "claims"].tolist()[:2] == [4 * 3, 9 * 4]


def _not_first(scores: pd.DataFrame, alpha: float) -> set[str]:
    ranks = rank_sets.ranks_over_sets(scores.rank(axis=1, ascending=False), alpha)
    return {name for name, of_algorithm in ranks.items() if of_algorithm.best > 1}


def test_a_run_that_decides_is_found_by_its_id() -> None:
    scores = matrix([[10 + i, 9 + i] for i in range(6)])
    runs = {"alg0": pd.DataFrame([scores["alg0"] - 3, scores["alg0"] + 3], ["bad", "good"]), "alg1": scores[["alg1"]].T}
    flips, _ = stability.flips(scores, 0.05, stability.variants(scores, runs, {}, 0.05))
    of_runs = flips[flips["change"] == "one_run_less"]
    assert of_runs[["what", "before", "after"]].to_numpy().tolist() == [
        ["good", "alg0 before alg1", "alg1 before alg0"]
    ]


def test_another_rule_and_another_alpha() -> None:
    scores = matrix([[10 + i, 9 + i] for i in range(6)])
    rules = {"last_n": scores[["alg1", "alg0"]].set_axis(scores.columns, axis=1)}
    flips, _ = stability.flips(scores, 0.05, stability.variants(scores, {}, rules, 0.05))
    rows = flips.set_index(["change", "what"])["after"].to_dict()
    assert rows["selection_rule", "last_n"] == "alg1 before alg0"
    assert rows["alpha", "0.01"] == stability.SAME
    assert ("alpha", "0.1") not in rows


def test_clear_cut_results_are_stable() -> None:
    scores = matrix([[90 - i, 50 - i, 10 + i / 2] for i in range(24)])
    flips, checks = stability.flips(scores, 0.05, stability.variants(scores, {}, {}, 0.05))
    assert flips.empty
    assert checks.loc[checks["change"] != "leave_one_algorithm_out", "claims"].min() > 0
    # Of two algorithms there is Wilcoxon's test alone.
    alone = checks[checks["change"] == "leave_one_algorithm_out"].set_index("test")["claims"]
    of_three = dict.fromkeys((stability.RANK_SETS, stability.OMNIBUS, stability.NEMENYI), 0)
    assert alone.to_dict() == {**of_three, stability.WILCOXON: 3}
    assert checks["flips"].sum() == 0


def test_a_variant_that_cannot_be_tested_is_counted() -> None:
    scores = matrix([[1, 2, 3], [2, 3, 1]])
    _, checks = stability.flips(scores, 0.05, stability.variants(scores, {}, {}, 0.05))
    assert checks.loc[checks["change"] == "leave_one_set_out", "claims"].tolist() == [0] * 4  # one set is left
    three = matrix([[1, 1, 3], [2, 2, 1], [5, 5, 5]])
    _, checks = stability.flips(three, 0.05, stability.variants(three, {}, {}, 0.05))
    row = checks.set_index(["change", "test"]).loc[("leave_one_algorithm_out", stability.WILCOXON)]
    assert (row["variants"], row["not_testable"]) == (3, 1)


def test_without_the_control_there_are_no_pairs_with_it() -> None:
    scores = matrix(np.random.default_rng(0).normal(size=(8, 4)))
    assert not any(claim[0] == stability.WILCOXON for claim in conclusions(scores.drop(columns="alg0"), 0.05, "alg0"))
    assert sum(claim[0] == stability.WILCOXON for claim in conclusions(scores, 0.05, "alg0")) == 3
