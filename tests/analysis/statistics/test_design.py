"""Columns and blocks: what several columns of one data set are to the tests, and that one column is what it was."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed import record
from biasbed.analysis import scores
from biasbed.analysis.columns import Column, blocks, make_design
from biasbed.analysis.statistics import bootstrap, friedman, pairs, simulation
from biasbed.analysis.statistics.design import Design, row_from_runs, rows_of, single_column_blocks
from helpers.demsar import matrix

TABLES = st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=6, max_size=8)


def columns(**of_block: Sequence[str]) -> list[Column]:
    """`pacs=("art", "photo")`: two columns of one block, each of a cell of its own."""
    return [
        Column(name, record.SetRecord(name, "accuracy", 10, 2, 0.5, ("accuracy",), block=block), name)
        for block, names in of_block.items()
        for name in names
    ]


def run_table(values: dict[str, dict[str, Sequence[float]]], crossed: bool = False) -> pd.DataFrame:
    """Row -> column -> score by seed; a run for each column, or crossed: one for all columns."""
    rows = [
        (row, name, "" if crossed else name, f"{row}{seed}" + ("" if crossed else f"-{name}"), seed, score)
        for row, of_columns in values.items()
        for name, of_seeds in of_columns.items()
        for seed, score in enumerate(of_seeds)
    ]
    frame = pd.DataFrame(rows, columns=["algorithm", "dataset", "cell", "run_id", "seed", "score"])
    return frame.assign(replicate=frame["run_id"] if crossed else "seed " + frame["seed"].astype(str))


# --- two blocks by hand -----------------------------------------------------------------------------------------------

TWO = columns(pacs=("art", "photo"), office=("clip",))
BY_HAND = {
    "a": {"art": (50.0, 54.0), "photo": (70.0, 72.0), "clip": (40.0, 46.0)},
    "b": {"art": (40.0, 40.0), "photo": (60.0, 70.0), "clip": (50.0, 50.0)},
}


def test_a_blocks_value_is_the_mean_of_its_columns_and_its_deviation_that_of_the_replicates_means() -> None:
    runs = run_table(BY_HAND)
    table = scores.score_table(runs, ["a", "b"], ["art", "photo", "clip"])
    means = scores.mean_matrix(table)
    assert scores.block_matrix(means, TWO).T.to_dict() == {
        "pacs": {"a": (52 + 71) / 2, "b": (40 + 65) / 2},
        "office": {"a": 43.0, "b": 50.0},
    }
    blocks_of_rows = scores.block_scores(runs, means, TWO)
    assert blocks_of_rows.to_dict("records") == [  # a: seeds have means 60 and 63; b: 50 and 55
        {"algorithm": "a", "dataset": "pacs", "mean": 61.5, "std": pytest.approx(3 / math.sqrt(2)), "num_runs": 2},
        {"algorithm": "b", "dataset": "pacs", "mean": 52.5, "std": pytest.approx(5 / math.sqrt(2)), "num_runs": 2},
    ]


def test_rows_know_their_replicates_runs_and_which_columns_share_trainings() -> None:
    design = make_design(TWO)
    row = rows_of(run_table(BY_HAND), design.columns)["a"]
    assert row.scores.loc["a seed 1"].to_dict() == {"art": 54.0, "photo": 72.0, "clip": 46.0}
    assert row.together == (("art",), ("photo",), ("clip",))
    assert row.ids(["photo"]) == ("a0-photo", "a1-photo")
    assert design.means(row.scores).to_numpy().tolist() == [[60.0, 40.0], [63.0, 46.0]]
    crossed = rows_of(run_table(BY_HAND, crossed=True), design.columns)["a"]
    assert crossed.together == (("art", "photo", "clip"),)
    assert list(crossed.scores.index) == ["a0", "a1"]


def test_a_tested_model_is_one_run_in_all_cells() -> None:
    runs = run_table({"a": {"art": (50.0,), "photo": (70.0,)}}).assign(run_id="tested")
    assert rows_of(runs, ("art", "photo"))["a"].together == (("art", "photo"),)


def test_a_replicate_without_a_column_has_no_value_on_the_block() -> None:
    runs = run_table(BY_HAND)
    runs = runs[~((runs["dataset"] == "photo") & (runs["seed"] == 1) & (runs["algorithm"] == "a"))]
    design = make_design(TWO)
    means = design.means(rows_of(runs, design.columns)["a"].scores)
    assert means["pacs"].isna().tolist() == [False, True]
    table = scores.score_table(runs, ["a", "b"], ["art", "photo", "clip"])
    spread = scores.block_scores(runs, scores.mean_matrix(table), TWO).set_index("algorithm")["std"]
    assert math.isnan(spread["a"])


def test_no_run_stands_behind_a_block_that_a_row_does_not_have() -> None:
    runs = run_table(BY_HAND)
    runs = runs[(runs["dataset"] != "photo") | (runs["algorithm"] != "a")]
    table = scores.score_table(runs, ["a", "b"], ["art", "photo", "clip"])
    blocks_of_rows = scores.block_scores(runs, scores.mean_matrix(table), TWO).set_index("algorithm")
    assert math.isnan(blocks_of_rows.loc["a", "mean"])
    assert blocks_of_rows["num_runs"].to_dict() == {"a": 0, "b": 2}


# --- the levels of the bootstrap --------------------------------------------------------------------------------------


def test_a_drawn_block_draws_its_columns_anew_each_time() -> None:
    design = make_design(TWO)
    rows = rows_of(run_table(BY_HAND), design.columns)
    draws = bootstrap.resample(rows, design, 4000)
    pacs, office = draws.columns[:, :2], draws.columns[:, 2]
    assert pacs.sum(axis=1) == pytest.approx(draws.blocks[:, 0])
    assert (office == draws.blocks[:, 1]).all()
    shares = {round(float(v), 6) for v in pacs[:, 0]}
    assert shares == {0.0, 0.5, 1.0, 1.5, 2.0}  # drawn twice, each time two of two columns
    once = pacs[draws.blocks[:, 0] == 1][:, 0]
    assert [float((once == v).mean()) for v in (0, 0.5, 1)] == pytest.approx([0.25, 0.5, 0.25], abs=0.04)
    assert draws.mean(np.ones((4000, 3))) == pytest.approx(np.ones(4000))


def test_runs_of_different_cells_are_drawn_by_themselves() -> None:
    """One seed far above the other on both columns: together the mean has three values, apart five."""
    values = {"a": {"art": (0.0, 1.0), "photo": (0.0, 1.0)}}
    for crossed, number in ((True, 3), (False, 5)):
        row = rows_of(run_table(values, crossed), ("art", "photo"))["a"]
        draws = bootstrap.resample({"a": row}, single_column_blocks(("art", "photo")), 500)
        means = bootstrap.column_means(row, draws.runs["a"]).mean(axis=1)
        assert len(set(means.round(6).tolist())) == number


def test_every_level_has_its_interval() -> None:
    design = make_design(TWO)
    rows = rows_of(run_table(BY_HAND), design.columns)
    frame = bootstrap.intervals(rows, design, bootstrap.resample(rows, design, 2000), 0.05)
    levels = frame[frame["algorithm"] == "a"].set_index("dataset")
    assert list(levels.index) == ["(mean over sets)", "(mean over pacs)", "art", "photo", "clip"]
    assert levels["mean"].tolist() == [(61.5 + 43) / 2, 61.5, 52.0, 71.0, 43.0]
    assert levels["num_runs"].tolist() == [2] * 5
    assert levels.loc["(mean over pacs)", "run_ids"] == "a0-art a0-photo a1-art a1-photo"
    assert levels.loc["art", ["low", "high"]].tolist() == [50.0, 54.0]
    assert 50 <= levels.loc["(mean over pacs)", "low"] < levels.loc["(mean over pacs)", "high"] <= 72


def test_improvement_is_averaged_within_blocks_first() -> None:
    """a beats b always on art, in 3.5 of 4 pairs of runs on photo, never on clip."""
    design = make_design(TWO)
    rows = rows_of(run_table(BY_HAND), design.columns)
    frame = bootstrap.improvements(rows, design, bootstrap.resample(rows, design, 300), 0.05, (("a", "b"),))
    assert frame["probability_of_improvement"].iloc[0] == ((1 + 3.5 / 4) / 2 + 0) / 2


def test_power_takes_replicates_on_blocks() -> None:
    """Run part and noise of the blocks' means, not of the columns."""
    design = make_design(TWO)
    rows = rows_of(run_table(BY_HAND), design.columns)
    runs = {name: design.means(row.scores) for name, row in rows.items()}
    means = pd.DataFrame({name: design.reduced(row.scores.mean()) for name, row in rows.items()})
    by_hand = {"a": np.array([[60.0, 40.0], [63.0, 46.0]]), "b": np.array([[50.0, 50.0], [55.0, 50.0]])}
    between = within = 0.0
    for values in by_hand.values():
        deviations = values - values.mean(axis=0)
        between += 2 * (deviations.mean(axis=1) ** 2).sum()
        within += ((deviations - deviations.mean(axis=1, keepdims=True)) ** 2).sum()
    model = simulation.estimate(means, runs)
    assert model.noise == pytest.approx(math.sqrt(within / 2))
    assert model.run == pytest.approx(math.sqrt(max(0.0, between / 2 - within / 2) / 2))
    assert model.interactions.shape == (2, 2)


# --- one column is what it was ----------------------------------------------------------------------------------------


def p_values(scores_of: pd.DataFrame, layout: Sequence[Column]) -> tuple[object, ...]:
    """p-values of the tests over the blocks of a matrix of columns x algorithms."""
    table = scores.block_matrix(scores_of, layout)
    compared = friedman.compare(table, 0.05)
    wilcoxon = pairs.compare_pairs(table)["p_holm"].round(12).tolist()
    return (compared.skipped, compared.friedman and round(compared.friedman.p, 12), wilcoxon, len(compared.sets))


@given(TABLES, st.integers(2, 4))
@settings(max_examples=15)
def test_a_column_that_stands_twice_in_its_block_changes_no_p(table: list[list[int]], times: int) -> None:
    plain = matrix(table)
    single = columns(**{name: (name,) for name in plain.index})
    twice = columns(**{name: [f"{name}-{i}" for i in range(times)] for name in plain.index})
    repeated = plain.loc[[name for name in plain.index for _ in range(times)]].set_axis([c.name for c in twice])
    assert p_values(repeated, twice) == p_values(plain, single)


@given(TABLES, st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_order_of_blocks_and_of_their_columns_changes_no_p(table: list[list[int]], random: object) -> None:
    plain = matrix([[value * (1 + i / 10) for value in row] for i, row in enumerate(table)])
    names = list(plain.index)
    layout = columns(first=names[:2], second=names[2:3], **{name: (name,) for name in names[3:]})
    shuffled = list(layout)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert p_values(plain.loc[[c.name for c in shuffled]], shuffled) == p_values(plain, layout)


def test_blocks_of_unlike_columns_are_known_by_their_layout() -> None:
    loss = record.SetRecord("loss", "loss", 10, 2, 0.7, ("loss",), higher_is_better=False)
    design = make_design([*TWO, Column("loss", loss, unit="nats")])
    assert design.wide == {"pacs": ("art", "photo")}
    assert (design.noun, design.select_blocks(("office",)).noun) == ("data set", "set")
    assert design.units == {"pacs": "%", "office": "%", "loss": "nats"}
    assert design.lower == {"loss"}
    turned = Design({"loss": ("loss",)}, {"loss": "nats"}, design.lower, ("loss",)).oriented(
        {"a": row_from_runs(pd.DataFrame({"loss": [2.0]}))}
    )
    assert turned["a"].scores["loss"].tolist() == [-2.0]
    assert list(itertools.chain(*blocks(TWO).values())) == TWO
