"""The frames and files beyond Friedman and Nemenyi, and the options that shape them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from biasbed import compare, record
from biasbed.analysis.report import data_files
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.statistics import pairs, pairwise, per_set, stability
from helpers.commands import ROOT
from helpers.toy_runs import SETS, THREE, Recorder, fill, make_protocol

PAGES = ("analysis.md", "selection.md", "report.md")

# What they say of each file.
COLUMNS = {
    "wilcoxon_holm.csv": ("setting", *pairs.TEST_COLUMNS, "omnibus_significant", "significant"),
    "effects.csv": ("setting", *pairwise.EFFECT_COLUMNS),
    "per_set.csv": per_set.SET_COLUMNS,
    "per_set_pairs.csv": per_set.PAIR_COLUMNS,
    "sensitivity.csv": ("setting", *stability.FLIP_COLUMNS),
    "sensitivity_checks.csv": ("setting", *stability.CHECK_COLUMNS),
}
TWELVE = tuple(f"set{i}" for i in range(12))


def result(recorder: Recorder, **values: Any) -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(**values))


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    return data_files.write(analysis, folder)


@pytest.fixture(scope="session")
def many(_empty_store: Path, once: Callable[..., Any]) -> Recorder:
    """Three algorithms, three runs each, on twelve sets: b is a little better than a, c much better; only read."""
    recorder: Recorder = once("many", lambda folder: _make_many(_empty_store, folder))
    return recorder


def _make_many(store: Path, folder: Path) -> Recorder:
    shutil.copy(store, folder / "mlflow.db")
    recorder = Recorder(f"sqlite:///{folder / 'mlflow.db'}", folder)
    protocol = make_protocol(TWELVE)
    for lead, name in enumerate(("a", "b", "c")):
        for seed in range(3):
            scores = [0.3 + i / 40 + 0.02 * lead**2 + 0.004 * ((i * 7 + seed * 3 + lead) % 5) for i in range(12)]
            recorder.train(name, seed, scores, protocol=protocol)
    return recorder


@pytest.fixture(scope="module")
def found_of_many(many: Recorder) -> Analysis:
    return result(many)


@pytest.fixture(scope="module")
def planned(many: Recorder) -> Analysis:
    """With what another study would have to be like."""
    return result(many, plan="true", difference=3)


def test_every_file_has_its_columns_and_they_are_documented(planned: Analysis, tmp_path: Path) -> None:
    files = write(planned, tmp_path / "files")
    text = "".join((ROOT / "docs" / page).read_text() for page in PAGES)
    for name, columns in COLUMNS.items():
        assert name in files
        assert tuple(pd.read_csv(tmp_path / "files" / name).columns) == columns
    for name in files:
        assert f"`{name}`" in text or f"**{name}**" in text, name
        if name.endswith(".csv") and name != "ranks.csv":
            for column in pd.read_csv(tmp_path / "files" / name).columns:
                assert f"`{column}`" in text or name == "runs.csv", f"{name}: {column}"


def test_the_clear_winner_wins_everywhere(found_of_many: Analysis) -> None:
    pairwise_results = found_of_many.pairwise
    tests = pairwise_results.wilcoxon.set_index(["a", "b"])
    assert tests.loc[("a", "c"), "significant"]
    assert tests.loc[("a", "c"), "wins"] == 0
    effects = pairwise_results.effects.set_index(["a", "b"])
    assert effects.loc[("a", "c"), "hodges_lehmann"] == pytest.approx(-8, abs=0.5)
    assert effects.loc[("a", "c"), "high"] < -7
    assert effects.loc[("a", "c"), "rank_biserial"] == -1
    assert effects.loc[("a", "c"), "probability_of_improvement"] == 0
    verdicts = pairwise_results.bayesian.set_index(["a", "b"])["verdict"]
    assert verdicts["a", "c"] == "b better"
    assert pairwise_results.on_sets.sets["significant"].all()


def test_pairs_are_marked_under_an_insignificant_omnibus_test(recorder: Recorder) -> None:
    """a is a little better than b everywhere, and c now far above, now far below them."""
    protocol = make_protocol(TWELVE[:8])
    for name, scores in {
        "a": [0.5 + 0.011 * i for i in range(8)],
        "b": [0.49 + 0.01 * i for i in range(8)],
        "c": [0.9 if i % 2 else 0.1 for i in range(8)],
    }.items():
        recorder.train(name, 0, scores, protocol=protocol)
    row = result(recorder).pairwise.wilcoxon.set_index(["a", "b"]).loc[("a", "b")]
    assert row["p_holm"] == pytest.approx(3 / 2**7)
    assert not row["omnibus_significant"]
    assert not row["significant"]


def test_a_control_leaves_its_pairs_only(many: Recorder) -> None:
    pairwise_results = result(many, control="a").pairwise
    for frame in (
        pairwise_results.wilcoxon,
        pairwise_results.effects,
        pairwise_results.bayesian,
        pairwise_results.on_sets.pairs,
    ):
        assert set(zip(frame["a"], frame["b"], strict=True)) == {("b", "a"), ("c", "a")}
    assert pairwise_results.wilcoxon["num_tests"].unique().tolist() == [2]
    assert (pairwise_results.effects["hodges_lehmann"] > 0).all()


def test_every_mean_is_traced_to_its_runs(found_of_many: Analysis) -> None:
    analysis = found_of_many
    frame = analysis.pairwise.intervals
    ids = {run.id: run.algorithm for run in analysis.collection.runs}
    for algorithm, mentioned in zip(frame["algorithm"], frame["run_ids"], strict=True):
        assert {ids[run_id] for run_id in mentioned.split()} == {algorithm}
    of_sets = frame[frame["dataset"] != "(mean over sets)"].set_index(["algorithm", "dataset"])["mean"]
    means = analysis.scores.set_index(["algorithm", "dataset"])["mean"]
    assert of_sets.to_dict() == pytest.approx(means.to_dict())


def test_power_says_what_could_not_be_seen(planned: Analysis, tmp_path: Path) -> None:
    write(planned, tmp_path / "files")
    content = json.loads((tmp_path / "files" / "power.json").read_text())
    about = content["all"]
    assert (about["num_sets"], about["num_algorithms"], about["num_runs"]) == (12, 3, 3)
    assert about["procedures"]["wilcoxon_holm"]["smallest_num_sets"] == 7
    assert 0 < about["procedures"]["wilcoxon_holm"]["minimum_detectable_difference"] < 8
    assert "one algorithm must be better than all others by" in about["sentence"]
    assert content["plan"]["difference"] == 3
    assert content["plan"]["cheapest"]["wilcoxon_holm"]["num_sets"] >= 7
    assert about["false_positives"]["iman_davenport"]["rate"] < 0.2
    plan = pd.read_csv(tmp_path / "files" / "plan.csv")
    assert set(plan["procedure"]) == set(about["procedures"])


def test_without_repeated_runs_what_needs_them_is_empty(recorder: Recorder, tmp_path: Path) -> None:
    fill(recorder, THREE, seeds=1)
    analysis = result(recorder, plan="true")
    files = write(analysis, tmp_path / "files")
    assert "per_set_pairs.csv" not in files
    content = json.loads((tmp_path / "files" / "power.json").read_text())["all"]
    assert content["run_sd"] is None
    assert content["false_positives"] is None
    assert (analysis.pairwise.on_sets.sets["skipped"] == "fewer than two runs: erm, infodrop, padain").all()
    assert "one_run_less" not in set(analysis.pairwise.stability.checks["change"])


def test_lower_is_better_turns_differences_round_and_not_means(recorder: Recorder) -> None:
    hard = record.SetRecord("hard", "loss", 200, 10, 2.3, ("loss",), higher_is_better=False)
    others = [record.SetRecord(name, "loss", 200, 10, 2.3, ("loss",), higher_is_better=False) for name in "uvwxyz"]
    protocol = make_protocol(sets=SETS[:1], **{})
    protocol = record.Protocol(**{**vars(protocol), "sets": (hard, *others)})
    for lead, name in enumerate(("bad", "good")):
        for seed in (0, 1):
            metrics = {
                f"test/loss/{s.name}": [1.5 - lead + 0.01 * i + 0.001 * seed] * 4 for i, s in enumerate(protocol.sets)
            }
            recorder.train(name, seed, {}, protocol=protocol, metrics=metrics)
    pairwise_results = result(recorder, n=2).pairwise
    row = pairwise_results.effects.iloc[0]
    assert (row["a"], row["hodges_lehmann"], row["wins"]) == ("bad", pytest.approx(-1), 0)
    assert row["probability_of_improvement"] == 0
    assert pairwise_results.wilcoxon["p"].iloc[0] == pytest.approx(2 / 2**7)
    means = pairwise_results.intervals.set_index(["algorithm", "dataset"])["mean"]
    assert means["good", "hard"] == pytest.approx(0.5005)
    assert means["good", "(mean over sets)"] == pytest.approx(0.5305)
    assert pairwise_results.on_sets.pairs["difference"].max() < 0


def test_too_few_sets_have_no_interval(recorder: Recorder) -> None:
    fill(recorder, THREE)
    pairwise_results = result(recorder, sets=",".join(SETS[:5])).pairwise
    assert pairwise_results.effects["low"].tolist() == [-math.inf] * len(pairwise_results.effects)
    assert pairwise_results.effects["detectable"].tolist() == [math.inf] * len(pairwise_results.effects)
    assert (pairwise_results.wilcoxon["smallest_p"] > 0.05).all()


def test_many_sets_have_ranks_and_no_tests_of_every_two_sets() -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.random((4, pairwise.MOST_SETS + 1)) * 100).rename(columns=lambda number: f"set{number}")
    table.insert(0, "method", ["a", "b", "c", "d"])
    analysis = compare(table, blocks="none").analysis
    assert "more than 300 sets" in analysis.pairwise.skipped
    assert sum(analysis.comparisons[0].mean_ranks.values()) == pytest.approx(1 + 2 + 3 + 4)
    assert analysis.pairwise.effects.empty
