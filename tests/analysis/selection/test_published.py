"""Published results beside one's own: marked, only where they fit, and a card that judges what was reproduced."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from biasbed import record
from biasbed.analysis import frames, load
from biasbed.analysis.columns import Column
from biasbed.analysis.report import data_files, summary
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.published_card import AGREES, DIFFERS, PUBLISHED_CARD
from biasbed.analysis.selection import published
from biasbed.errors import Failure, UsageError
from biasbed.published import BIASBED
from helpers.toy_runs import PROTOCOL, Recorder, make_protocol

METHODS = ("erm", "infodrop", "padain")
OWN = dataclasses.replace(BIASBED.protocol, selection_rules=record.SELECTION_RULES, monitor=PROTOCOL.monitor)


@pytest.fixture
def beside(published_uri: str, tmp_path: Path) -> Recorder:
    """A server with the imported BiasBed results and no run of one's own."""
    shutil.copy(published_uri.removeprefix("sqlite:///"), tmp_path / "mlflow.db")
    # The copy's artifacts stay where they were; new runs go to an experiment of their own.
    return Recorder(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)


def train_copies(recorder: Recorder, shift: Mapping[str, float] | None = None, num_runs: int = 3) -> None:
    """Own runs with the published numbers, `shift` points higher on some sets, at the epoch that validation chooses."""
    for run in BIASBED.runs():
        if run.rule == "best_validation" and run.algorithm in METHODS and int(run.number) <= num_runs:
            scores = {name: value + (shift or {}).get(name, 0) / 100 for name, value in run.scores.items()}
            curves = {name: (value, value - 0.1) for name, value in scores.items()}
            recorder.train(run.algorithm, int(run.number), curves, monitor=(0.7, 0.6), protocol=OWN, study="own")


def own(recorder: Recorder, **options: object) -> Analysis:
    return load(recorder.uri, **{"study": "own", "bootstrap": 200, **options})


# --- the card ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_published_runs_against_themselves_agree_in_every_cell(beside: Recorder) -> None:
    train_copies(beside, num_runs=10)
    card = own(beside, compare="published").data(PUBLISHED_CARD)
    assert len(card) == 3 * 10
    assert set(card["verdict"]) == {AGREES}
    assert card["difference"].tolist() == [0.0] * 30
    assert card["p"].tolist() == [1.0] * 30
    pd.testing.assert_series_equal(card["std"], card["published_std"], check_names=False)


@pytest.mark.slow
@pytest.mark.usefixtures("without_evidence")
def test_a_perturbed_copy_differs_where_it_was_perturbed(beside: Recorder) -> None:
    train_copies(beside, shift={"imagenet": -2.0, "edge": 0.1}, num_runs=10)
    card = own(beside, compare="published").data(PUBLISHED_CARD)
    differing = card[card["verdict"] == DIFFERS]
    assert set(differing["dataset"]) == {"imagenet"}
    assert len(differing) == 3
    assert differing["difference"].tolist() == pytest.approx([-2.0] * 3)
    assert (differing["difference_in_std"] * differing["published_std"]).tolist() == pytest.approx([-2.0] * 3)
    assert set(card[card["dataset"] != "imagenet"]["verdict"]) == {AGREES}


@pytest.mark.usefixtures("few_draws")
def test_the_card_is_written_printed_and_returned(beside: Recorder) -> None:
    train_copies(beside)
    analysis = own(beside, compare="published", sets="imagenet,edge")
    pd.testing.assert_frame_equal(frames(analysis)["reproduction"], analysis.data(PUBLISHED_CARD))
    assert data_files.write(analysis, beside.folder)["reproduction.csv"]
    assert len(pd.read_csv(beside.folder / "reproduction.csv")) == 6
    text = summary.render(analysis)
    assert "Reproduction of published numbers" in text
    assert "6 cells: 6 agrees" in text
    assert not analysis.published_algorithms  # a card puts nothing into the tables
    assert analysis.algorithms == METHODS


# --- in the same tables -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_draws")
def test_published_runs_stand_beside_ones_own_marked(beside: Recorder, published: Analysis) -> None:
    train_copies(beside)
    analysis = own(beside, with_published=True, control="erm@biasbed")
    assert len(analysis.algorithms) == 3 + 8
    assert analysis.published_algorithms == {name for name in analysis.algorithms if name.endswith("@biasbed")}
    assert analysis.runs_sentence.startswith("9 train and 79 published runs of 11 algorithms on 10 sets")
    scores = analysis.scores.set_index(["algorithm", "dataset"])
    alone = published.scores.set_index(["algorithm", "dataset"])
    for name in ("erm", "sagnet", "deepaug_cae"):
        assert scores.loc[f"{name}@biasbed", "mean"].to_dict() == alone.loc[name, "mean"].to_dict()
    assert set(analysis.pairwise.wilcoxon["b"]) == {"erm@biasbed"}
    assert ("deepaug_cae@biasbed", "deepaug_cae") in analysis.daggers
    assert ("stylized_erm@biasbed", "stylized_imagenet") in analysis.daggers
    assert any("CVPR 2023" in note for note in analysis.notes)
    kinds = frames(analysis)["runs"].groupby("algorithm")["kind"].unique().to_dict()
    assert kinds["erm"].tolist() == ["train"]
    assert kinds["erm@biasbed"].tolist() == ["published"]


@pytest.mark.usefixtures("without_evidence")
def test_only_wanted_algorithms_come_along(beside: Recorder) -> None:
    train_copies(beside)
    names = "erm,padain,deepaug_edsr@biasbed"
    found = own(beside, with_published=True, algorithms=names, sets="imagenet,edge,sketch").algorithms
    assert found == ("deepaug_edsr@biasbed", "erm", "erm@biasbed", "padain", "padain@biasbed")
    with pytest.raises(UsageError, match="no published 'ermm@biasbed'; did you mean 'erm@biasbed'"):
        own(beside, with_published=True, algorithms="erm,ermm@biasbed")


@pytest.mark.slow
@pytest.mark.usefixtures("few_draws")
def test_rules_that_were_not_published_are_shown_for_ones_own_runs_only(beside: Recorder) -> None:
    train_copies(beside)
    analysis = own(beside, with_published=True, sets="imagenet,edge,sketch")
    by_rule = analysis.selection[analysis.selection["skipped"] == ""].groupby("rule")["algorithm"].unique()
    assert set(by_rule["best_epoch"]) == set(METHODS)
    assert len(by_rule["best_validation"]) == 11
    # Fewer algorithms are another pool: what flips there would not be the rule's doing.
    assert "selection_rule" not in set(analysis.pairwise.checks["change"])


# --- what does not fit ------------------------------------------------------------------------------------------------


def test_sets_of_other_classes_are_left_out_and_others_counted(beside: Recorder) -> None:
    theirs = BIASBED.protocol.sets
    changed = dataclasses.replace(theirs[2], classes=3)
    fewer = dataclasses.replace(theirs[3], images=799)
    ours = [Column(entry.name, entry) for entry in (theirs[1], changed, fewer, make_protocol().sets[0])]
    shared, notes = published._shared(ours, BIASBED.protocol, ())
    assert [column.name for column, _ in shared] == ["silhouette", "sketch"]
    assert notes == [
        "edge is not compared: accuracy of 3 classes here, accuracy of 16 classes there",
        "sketch has 799 images here and 800 there",
    ]


@pytest.mark.usefixtures("without_evidence")
def test_without_a_common_set_or_rule_it_is_said_why(beside: Recorder) -> None:
    for algorithm in METHODS:
        beside.train(algorithm, 0, (0.5, 0.1, 0.2, 0.3, 0.4, 0.6), study="own")
    with pytest.raises(Failure, match=r"published_biasbed has none of your sets .*edge is not compared: .*10 classes"):
        own(beside, with_published=True)
    with pytest.raises(
        Failure, match="published_biasbed has the rules best_validation and last_n with n=30, and yours"
    ):
        own(beside, compare="published", selection="best_epoch")


@pytest.mark.usefixtures("without_evidence")
def test_without_a_common_algorithm_there_is_no_card(beside: Recorder) -> None:
    beside.train("mine", 0, [0.5] * 10, protocol=OWN, study="own")
    with pytest.raises(Failure, match=r"you have mine, and published are debiased, .*: no algorithm is among both"):
        own(beside, compare="published").data(PUBLISHED_CARD)


def test_published_results_are_not_compared_with_themselves(published_uri: str) -> None:
    with pytest.raises(UsageError, match="these are published results already"):
        load(published_uri, study="published_biasbed", compare="published")


def test_nothing_imported_says_how_to_import(recorder: Recorder) -> None:
    recorder.train("erm", 0, protocol=PROTOCOL)
    with pytest.raises(Failure, match=r"no published results are on .* biasbed import --source biasbed"):
        load(recorder.uri, with_published=True)
