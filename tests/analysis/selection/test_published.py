"""Published runs and means beside one's own: marked, only where they fit; and a card of what was reproduced."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from biasbed import record
from biasbed.analysis import frames, load
from biasbed.analysis.columns import Column
from biasbed.analysis.report import data_files, html, summary
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.published_card import AGREES, DIFFERS, NOT_JUDGED, PUBLISHED_CARD
from biasbed.analysis.selection import published
from biasbed.errors import Failure, UsageError
from biasbed.published import BIASBED, import_runs, printed_tables
from helpers.papers import DOMAINS, DOMAINS_CSV, SHADES, SHADES_CSV, SHIFTS, SHIFTS_CSV, write
from helpers.toy_runs import PROTOCOL, Recorder, make_protocol

pytestmark = pytest.mark.usefixtures("few_draws")

METHODS = ("erm", "infodrop", "padain")
OWN = dataclasses.replace(BIASBED.protocol, selection_rules=record.SELECTION_RULES, monitor=PROTOCOL.monitor)


@pytest.fixture
def beside(published_uri: str, tmp_path: Path) -> Recorder:
    """A server with the imported BiasBed results and no run of one's own."""
    shutil.copy(published_uri.removeprefix("sqlite:///"), tmp_path / "mlflow.db")
    # The copy's artifacts stay where they were; new runs go to an experiment of their own.
    return Recorder(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)


def train_copies(recorder: Recorder, num_runs: int = 3) -> None:
    """Own runs with the published numbers at the epoch that validation chooses."""
    for run in BIASBED.runs():
        if run.rule == "best_validation" and run.algorithm in METHODS and int(run.number) <= num_runs:
            curves = {name: (value, value - 0.1) for name, value in run.scores.items()}
            recorder.train(run.algorithm, int(run.number), curves, monitor=(0.7, 0.6), protocol=OWN, study="own")


def load_own(recorder: Recorder, **options: object) -> Analysis:
    return load(recorder.uri, **{"study": "own", "bootstrap": 200, **options})


# --- the card ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_published_runs_against_themselves_agree_in_every_cell(beside: Recorder) -> None:
    train_copies(beside, num_runs=10)
    card = load_own(beside, compare="published").data(PUBLISHED_CARD)
    assert len(card) == 3 * 10
    assert set(card["verdict"]) == {AGREES}
    assert card["difference"].tolist() == [0.0] * 30
    assert card["p"].tolist() == [1.0] * 30
    pd.testing.assert_series_equal(card["std"], card["published_std"], check_names=False)


def test_the_card_is_written_printed_and_returned(beside: Recorder) -> None:
    train_copies(beside)
    analysis = load_own(beside, compare="published", sets="imagenet,edge")
    pd.testing.assert_frame_equal(frames(analysis)["reproduction"], analysis.data(PUBLISHED_CARD))
    assert data_files.write(analysis, beside.folder)["reproduction.csv"]
    assert len(pd.read_csv(beside.folder / "reproduction.csv")) == 6
    text = summary.render(analysis)
    assert "Reproduction of published numbers" in text
    assert "6 cells: 6 agrees" in text
    assert analysis.algorithms == METHODS  # a card puts nothing into the tables


# --- in the same tables -----------------------------------------------------------------------------------------------


def test_published_runs_stand_beside_ones_own_marked(beside: Recorder, published: Analysis) -> None:
    train_copies(beside)
    analysis = load_own(beside, with_published=True, control="erm@biasbed")
    assert len(analysis.algorithms) == 3 + 8
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
    algorithms = load_own(beside, with_published=True, algorithms=names, sets="imagenet,edge,sketch").algorithms
    assert algorithms == ("deepaug_edsr@biasbed", "erm", "erm@biasbed", "padain", "padain@biasbed")
    with pytest.raises(UsageError, match="no published 'ermm@biasbed'; did you mean 'erm@biasbed'"):
        load_own(beside, with_published=True, algorithms="erm,ermm@biasbed")


# --- what does not fit ------------------------------------------------------------------------------------------------


def test_sets_of_other_classes_are_left_out_and_others_counted(beside: Recorder) -> None:
    theirs = BIASBED.protocol.sets
    changed = dataclasses.replace(theirs[2], classes=3)
    fewer = dataclasses.replace(theirs[3], images=799)
    ours = [Column(set_record.name, set_record) for set_record in (theirs[1], changed, fewer, make_protocol().sets[0])]
    shared, notes = published._find_shared_sets(ours, BIASBED.protocol, ())
    assert [column.name for column, _ in shared] == ["silhouette", "sketch"]
    assert notes == [
        "edge is not compared: accuracy of 3 classes here, accuracy of 16 classes there",
        "sketch has 799 images here and 800 there",
    ]


@pytest.mark.usefixtures("without_evidence")
def test_without_something_in_common_it_is_said_why(beside: Recorder) -> None:
    for algorithm in METHODS:
        beside.train(algorithm, 0, (0.5, 0.1, 0.2, 0.3, 0.4, 0.6), study="own")
    beside.train("mine", 0, [0.5] * 10, protocol=OWN, study="mine")
    refused: list[tuple[dict[str, object], str]] = [
        ({"with_published": True}, "has none of your sets .*edge is not compared: .*10 classes"),
        (
            {"compare": "published", "selection": "best_epoch"},
            "has the rules best_validation and last_n",
        ),
        ({"compare": "published", "study": "mine"}, "you have mine, .*: no algorithm is among both"),
        ({"compare": "published", "study": "published_biasbed"}, "these are published results already"),
    ]
    for options, message in refused:
        with pytest.raises((Failure, UsageError), match=message):
            load_own(beside, **options).data(PUBLISHED_CARD)


def test_nothing_imported_says_how_to_import(recorder: Recorder) -> None:
    recorder.train("erm", 0, protocol=PROTOCOL)
    with pytest.raises(Failure, match=r"no published results are on .* biasbed import --source biasbed"):
        load(recorder.uri, with_published=True)


# --- papers that print means -----------------------------------------------------------------------------------------

PACS = ("art", "cartoon", "photo", "sketch")  # the first is called otherwise than in the paper


@pytest.fixture(scope="module")
def papers_uri(_empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tracking server with the imported papers; tests only read it."""
    folder = tmp_path_factory.mktemp("papers")
    shutil.copy(_empty_store, folder / "mlflow.db")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    write(folder, "domains", DOMAINS.replace("[A]", "[A, art]"), DOMAINS_CSV)
    write(folder, "shifts", SHIFTS, SHIFTS_CSV)
    write(folder, "shades", SHADES, SHADES_CSV)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(printed_tables, "FOLDER", folder)
        patch.setenv("BIASBED_HOME", str(folder / "home"))
        for name in ("domains", "shifts", "shades"):
            import_runs(name, uri)
    return uri


@pytest.fixture
def papers(papers_uri: str, tmp_path: Path) -> Recorder:
    """The same server, to put one's own runs on."""
    shutil.copy(papers_uri.removeprefix("sqlite:///"), tmp_path / "mlflow.db")
    return Recorder(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)


def alone(uri: str, study: str, **options: object) -> Analysis:
    return load(uri, study=f"published_{study}", bootstrap=200, **options)


def page(analysis: Analysis, folder: Path) -> str:
    """The report."""
    html.prepare(analysis, folder).write()
    return (folder / "report.html").read_text(encoding="utf-8")


def table(analysis: Analysis) -> pd.DataFrame:
    return analysis.scores.set_index(["algorithm", "dataset"])


# --- one's own runs ---------------------------------------------------------------------------------------------------


def train(recorder: Recorder, row: str, cell: str, protocol: record.Protocol, values: Mapping[str, Sequence[float]]):
    """A run for each of the values of its metrics, in percent."""
    for seed in range(len(next(iter(values.values())))):
        recorder.train(
            row,
            seed,
            {},
            monitor=[0.1, 0.2],
            protocol=protocol,
            study="own",
            metrics={name: [0.0, of_seeds[seed] / 100] for name, of_seeds in values.items()},
            **{
                record.CELL: cell,
                record.RUN_KEY: record.digest([row, cell, seed]),
                record.TESTED: protocol.tested,
                record.TEST_DOMAINS: ",".join(cell.split("-")[1:]),
            },
        )


def pacs() -> record.Protocol:
    sets = [record.SetRecord(f"pacs-{name}", "accuracy", 100, 7, 1 / 7, block="pacs", domain=name) for name in PACS]
    return record.Protocol("domains", tuple(sets), ("pacs",), ("val",), monitor="val/accuracy/val")


def hold_out(recorder: Recorder, row: str, *domains: str, scores: Sequence[float]) -> None:
    """Runs of a row that hold these domains out together; the first of them scores so."""
    metrics = {f"test/accuracy/pacs-{name}": [s - i for s in scores] for i, name in enumerate(domains)}
    train(recorder, row, "-".join(("pacs", *domains)), pacs(), metrics)


# --- a paper alone ----------------------------------------------------------------------------------------------------


def test_a_paper_alone_is_a_table_with_its_own_spread(papers_uri: str, tmp_path: Path) -> None:
    analysis = alone(papers_uri, "domains")
    assert analysis.rule.name == "best_validation"  # its first
    assert analysis.algorithms == ("erm", "irm", "sagnet")
    cell = table(analysis).loc["erm", "pacs-sketch"]
    assert (cell["mean"], cell["num_runs"]) == (79.3, 3)
    assert cell["std"] == pytest.approx(1.0 * math.sqrt(3) * math.sqrt(3 / 2))
    assert "79.3 ±2.1" in summary.render(analysis)
    assert "79.3" in page(analysis, tmp_path)
    runs = analysis.runs.set_index(["algorithm", "dataset"]).loc["irm", "vlcs-caltech"]
    assert (runs["num_runs"], runs["rounding"]) == (3, pytest.approx(0.05))


def test_its_blocks_are_data_sets_and_tests_over_them_take_the_means(papers_uri: str) -> None:
    """Means over domains: on PACS sagnet, erm, irm; on VLCS irm 86.0, erm 85.55, sagnet 84.65."""
    (comparison,) = alone(papers_uri, "domains").comparisons
    assert comparison.sets == ("pacs", "vlcs")
    ranks = comparison.ranks.loc[["pacs", "vlcs"], ["erm", "irm", "sagnet"]]
    assert ranks.to_numpy().tolist() == [[2, 3, 1], [2, 1, 3]]
    assert comparison.friedman is not None
    assert comparison.friedman.chi2 == pytest.approx(0)


def test_tests_over_runs_are_skipped_with_one_reason(papers_uri: str) -> None:
    analysis = alone(papers_uri, "domains")
    (note,) = [note for note in analysis.notes if "tests over runs" in note]
    assert note.startswith("only means were published of all rows: tests over sets take them, tests over runs")
    assert analysis.pairwise.on_sets.pairs.empty
    assert analysis.pairwise.on_sets.sets["p"].isna().all()


def test_the_other_rule_has_its_own_numbers(papers_uri: str) -> None:
    analysis = alone(papers_uri, "domains", selection="last")
    assert table(analysis).loc["erm", "pacs-sketch"]["mean"] == 74.8
    assert analysis.rule.label == "as published: the last epoch"
    with pytest.raises(UsageError, match="not published under this rule; valid: best_validation, last"):
        alone(papers_uri, "domains", selection="best_epoch")


def test_what_a_row_lacks_is_a_dash_and_tests_say_which_pool_they_take(papers_uri: str, tmp_path: Path) -> None:
    analysis = alone(papers_uri, "shifts", sets="imagenet_r,imagenet_a,imagenet_c")
    assert analysis.rule.name == "as_published"
    lost = analysis.cells["deepaug", "imagenet_a"]
    assert (lost.mean_text, lost.num_runs) == ("-", 0)
    assert "no number was published of DeepAugment on ImageNet-A" in analysis.notes
    settings = {comparison.setting: comparison for comparison in analysis.comparisons}
    assert (settings["all"].sets, settings["all"].left_out) == (("imagenet_r", "imagenet_c"), ("imagenet_a",))
    assert settings["complete"].algorithms == ("deepaug_augmix", "resnet50")
    assert settings["complete"].sets == ("imagenet_r", "imagenet_a", "imagenet_c")
    # mCE is better where it is lower
    assert settings["all"].ranks.loc["imagenet_c"].to_dict() == {"deepaug": 2, "deepaug_augmix": 1, "resnet50": 3}
    page(analysis, tmp_path)


def test_units_and_errors_are_shown_as_they_are_stored(papers_uri: str) -> None:
    scores = table(alone(papers_uri, "shifts", selection="best_epoch"))  # the paper names no rule, so any is as good
    assert scores.loc["resnet50", "imagenet_r"]["mean"] == pytest.approx(36.1)
    assert scores.loc["resnet50", "gap_r"]["mean"] == 56.0
    assert scores.loc["resnet50", "imagenet_c"]["mean"] == pytest.approx(76.7)
    assert scores.loc["resnet50", "imagenet_c"]["num_runs"] == 1
    assert np.isnan(scores.loc["resnet50", "imagenet_c"]["std"])


# --- means beside one's own runs -------------------------------------------------------------------------------------


def test_cells_are_joined_by_block_and_domain_and_judged(papers: Recorder, tmp_path: Path) -> None:
    """Two rows on the four domains of PACS, each held out alone: near the paper's numbers, but sagnet on art."""
    values = {
        "erm": (84.7, 80.8, 97.2, 79.3),
        "sagnet": (60.0, 80.7, 97.1, 80.0),
    }
    for row, of_row in values.items():
        for domain, value in zip(PACS, of_row, strict=True):
            hold_out(papers, row, domain, scores=(value - 0.2, value + 0.2))
    analysis = load_own(papers, with_published=True, compare="published")
    assert analysis.set_names == ("pacs-art", "pacs-cartoon", "pacs-photo", "pacs-sketch")
    assert {name for name in analysis.algorithms if "@" in name} == {"erm@domains", "irm@domains", "sagnet@domains"}
    scores = table(analysis)
    assert scores.loc["irm@domains", "pacs-art"]["mean"] == 84.8
    assert scores.loc["irm@domains", "pacs-art"]["std"] == pytest.approx(1.3 * math.sqrt(4.5))
    assert scores.loc["sagnet", "pacs-art"].tolist() == [pytest.approx(60.0), pytest.approx(0.4 / math.sqrt(2)), 2]
    assert analysis.comparisons[0].sets == ("pacs",)
    assert any("left out" not in note and "only means were published of erm@domains" in note for note in analysis.notes)
    rules = analysis.selection[analysis.selection["algorithm"] == "erm@domains"]
    assert set(rules["rule"]) == {"best_validation", "last"}
    page(analysis, tmp_path)
    # Tests over runs have one's own rows alone.
    evidence = analysis.pairwise
    assert set(evidence.on_sets.pairs["a"]) | set(evidence.on_sets.pairs["b"]) == {"erm", "sagnet"}
    assert (evidence.on_sets.sets["num_algorithms"] == 2).all()
    intervals = evidence.intervals[evidence.intervals["dataset"] == "pacs-art"].set_index("algorithm")
    assert intervals["low"].notna().to_dict() == {name: "@" not in name for name in intervals.index}
    # The card is of held-out domains.
    card = analysis.data(PUBLISHED_CARD)
    assert card["study"].unique().tolist() == ["published_domains"]
    assert set(card["judged_by"]) == {"published spread"}
    cards = card.set_index(["algorithm", "dataset"])
    assert len(cards) == 8
    assert cards.loc["erm", "pacs-art"]["published_mean"] == 84.7
    assert cards.loc["sagnet", "pacs-art"]["verdict"] == DIFFERS
    assert set(cards.drop(("sagnet", "pacs-art"))["verdict"]) == {AGREES}


def test_domains_that_are_held_out_together_are_not_those_of_the_paper(papers: Recorder) -> None:
    hold_out(papers, "erm", "art", "sketch", scores=[80.0, 81.0])
    with pytest.raises(Failure, match=r"published_domains has none of your sets \(pacs-art_painting, "):
        load_own(papers, with_published=True)


def shades(name: str, suite: str = "toy") -> record.Protocol:
    set_record = record.SetRecord("shades", "ac_score", 100, 2, 0.0, ("ac_score",), block="shades")
    return record.Protocol(suite, (set_record,), (name,), ("val",), monitor="val/accuracy/val")


def test_of_several_papers_each_has_its_own_columns(papers: Recorder) -> None:
    for domain in PACS:
        hold_out(papers, "mine", domain, scores=(80.0, 81.0))
    train(papers, "mine", "shades_1", shades("shades_1", "domains"), {"test/ac_score/shades": (50.0, 51.0)})
    both = load_own(papers, with_published=True)
    assert both.set_names == ("pacs-art", "pacs-cartoon", "pacs-photo", "pacs-sketch", "shades_1")
    assert both.cells["erm@shades", "pacs-art"].mean_text == "-"
    assert both.cells["erm@domains", "shades_1"].mean_text == "-"
    assert both.cells["erm@shades", "shades_1"].mean_text == "49.9"
    single = load_own(papers, with_published=True, algorithms="mine,irm@domains,erm@domains")
    assert single.algorithms == ("erm@domains", "irm@domains", "mine")
    assert single.set_names == ("pacs-art", "pacs-cartoon", "pacs-photo", "pacs-sketch")


def shifts(**changes: object) -> record.Protocol:
    sets = (
        record.SetRecord("imagenet_r", "accuracy", 30_000, 200, 1 / 200),
        record.SetRecord("natural_adversarial", "accuracy", 7_500, 200, 1 / 200),
    )
    return record.Protocol("shifts", sets, ("imagenet",), ("val",), monitor="val/accuracy/val", **changes)


def test_names_of_ones_own_and_errors_that_were_printed(papers: Recorder) -> None:
    """An error of 63.9 is an accuracy of 36.1. A model that is only tested, and trainings, against single numbers."""
    for row, kind, values in (
        ("resnet50", "evaluate", (36.14, 2.3)),
        ("deepaug_augmix", "train", (46.8, 3.9)),
        ("mine", "train", (50.0, 5.0)),
    ):
        metrics = zip(("test/accuracy/imagenet_r", "test/accuracy/natural_adversarial"), values, strict=True)
        tags = {record.KIND: kind, record.ROW: row}
        curves = {name: [value / 100] * 2 for name, value in metrics}
        papers.train(row, 0, {}, monitor=[0.1, 0.2], protocol=shifts(), study="own", metrics=curves, **tags)
    analysis = load_own(papers, compare="published", with_published=True)
    assert table(analysis).loc["resnet50@shifts", "natural_adversarial"]["mean"] == pytest.approx(2.2)
    assert analysis.cells["deepaug@shifts", "natural_adversarial"].mean_text == "-"
    card = analysis.data(PUBLISHED_CARD).set_index(["algorithm", "dataset"])
    assert card["verdict"].to_dict() == {
        ("resnet50", "imagenet_r"): AGREES,  # 36.14 prints as 36.1
        ("resnet50", "natural_adversarial"): DIFFERS,  # 2.3, and 2.2 was printed
        ("deepaug_augmix", "imagenet_r"): NOT_JUDGED,  # nobody knows how far trainings lie apart
        ("deepaug_augmix", "natural_adversarial"): NOT_JUDGED,
    }
    text = summary.render(analysis)
    assert "2.2 ±" not in text


def test_a_measure_of_another_unit_is_named_and_left_out(papers: Recorder) -> None:
    sets = (
        record.SetRecord("imagenet_r", "accuracy", 30_000, 200, 1 / 200),
        record.SetRecord("imagenet_c", "accuracy", 50_000, 1000, 1 / 1000),
    )
    protocol = record.Protocol("shifts", sets, ("imagenet",), ("val",), monitor="val/accuracy/val")
    for row in ("resnet50", "deepaug"):
        scores = {"imagenet_r": (0.3, 0.4), "imagenet_c": (0.3, 0.4)}
        papers.train(row, 0, scores, monitor=[0.1, 0.2], protocol=protocol, study="own")
    analysis = load_own(papers, with_published=True)
    assert analysis.set_names == ("imagenet_r",)
    assert any("imagenet_c is not compared: accuracy of 1000 classes here, mce there" in n for n in analysis.notes)


def test_a_paper_without_a_rule_stands_under_each_and_has_no_regret(papers: Recorder) -> None:
    for row in ("resnet50", "deepaug_augmix"):
        scores = {"imagenet_r": (0.3, 0.4, 0.35), "natural_adversarial": (0.05, 0.04, 0.02)}
        papers.train(row, 0, scores, monitor=[0.1, 0.2, 0.1], protocol=shifts(), study="own")
    analysis = load_own(papers, with_published=True, algorithms="resnet50,deepaug_augmix", selection="last")
    frame = analysis.selection[analysis.selection["skipped"] == ""].set_index(["rule", "algorithm", "dataset"])
    for rule in ("last", "best_validation", "best_epoch"):
        assert frame.loc[rule, "resnet50@shifts", "imagenet_r"]["mean"] == pytest.approx(36.1)
        assert np.isnan(frame.loc[rule, "resnet50@shifts", "imagenet_r"]["gap"])
    assert frame.loc["last", "resnet50", "imagenet_r"]["gap"] == pytest.approx(5.0)
