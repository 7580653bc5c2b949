"""The Align-Conflict paper's tables: every cell of two measures, what follows from them, and what tests say of them."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from biasbed import derived_values, record
from biasbed.analysis import load
from biasbed.analysis.report.table_model import Links, ReportTable
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.biased_data import BIASED_DATA
from biasbed.analysis.sections.published_card import PUBLISHED_CARD
from biasbed.datasets import biased
from biasbed.plugins.layouts import layout_file
from biasbed.plugins.layouts.section import LAYOUTS, lay_out
from biasbed.published import import_runs, printed_tables
from biasbed.published.printed_tables import PaperOfCells
from biasbed.suites import derived
from helpers.sizes import without_sizes
from helpers.toy_runs import Recorder, make_protocol

BAR = ["bar_ac-1", "bar_ac-5", "bar_ac-20"]


@pytest.fixture(scope="module")
def paper() -> PaperOfCells:
    return printed_tables.read("debiasing")


@pytest.fixture(scope="module")
def values(paper: PaperOfCells) -> Mapping[str, dict[str, float]]:
    """Method -> metric -> value, with those that follow."""
    stored = {run.algorithm: run.metrics(paper.protocol) for run in paper.runs()}
    return {name: metrics | derived.derive_values(paper.protocol.derived, metrics) for name, metrics in stored.items()}


def test_every_cell_has_both_measures_with_their_spread(paper: PaperOfCells) -> None:
    assert len(paper.runs()) == 9
    assert [set_record.name for set_record in paper.protocol.sets] == [
        *(f"{name}-{s}" for name in ("colored_mnist_10", "bffhq_ac", "waterbirds_ac") for s in ("0_5", 1, 2, 5, 20)),
        *BAR,
    ]  # fmt: skip
    for measure in ("accuracy", "conflicting_accuracy"):
        cells_of_measure = [c for of_row in paper.cells.values() for (_, name), c in of_row.items() if name == measure]
        assert len(cells_of_measure) == 156
        assert all(cell["num_runs"] == 5 and "std_over_runs" in cell for cell in cells_of_measure)
    metrics = next(run for run in paper.runs() if run.algorithm == "lff").metrics(paper.protocol)
    assert metrics["test/accuracy/colored_mnist_10-0_5"] == 0.6201
    assert metrics["test/std_over_runs/colored_mnist_10-0_5"] == pytest.approx(0.0676)
    assert metrics["test/conflicting_accuracy/waterbirds_ac-20"] == 0.7204
    assert metrics["test/std_over_runs/waterbirds_ac-20:conflicting_accuracy"] == pytest.approx(0.0382)
    assert metrics["test/num_runs/waterbirds_ac-20:conflicting_accuracy"] == 5


def test_what_is_on_neither_table_is_that_bar_has_no_bias_labels(paper: PaperOfCells) -> None:
    every = {set_record.name for set_record in paper.protocol.sets}
    lacking = {row: every - {column for column, _ in of_row} for (_, row), of_row in paper.cells.items()}
    assert {row: sorted(lost) for row, lost in lacking.items() if lost} == dict.fromkeys(("lnl", "end"), sorted(BAR))
    tags = {run.algorithm: paper.tags(run).get(record.NEEDS) for run in paper.runs()}
    assert tags == {
        **dict.fromkeys(("erm", "lff", "disent", "biasensemble")),
        **dict.fromkeys(("lnl", "end"), "bias,bias_type"),
        **dict.fromkeys(("hex", "rebias", "softcon"), "bias_type"),
    }


def test_aligned_accuracy_and_ac_score_follow_and_are_not_stored(
    paper: PaperOfCells, values: Mapping[str, dict[str, float]]
) -> None:
    """LfF on Colored MNIST at 0.5 %: 62.01 % of 10,000 images are right; of these 8,963 are conflicting."""
    stored = paper.runs()[0].metrics(paper.protocol)
    assert not any(name.startswith(("test/aligned_accuracy", "test/ac_score")) for name in stored)
    metrics, column = values["lff"], "colored_mnist_10-0_5"
    conflicting = metrics[f"test/conflicting_accuracy/{column}"]
    aligned = (0.6201 * 10_000 - conflicting * 8_963) / 1_037
    assert metrics[f"test/aligned_accuracy/{column}"] == pytest.approx(aligned)
    assert metrics[f"test/ac_score/{column}"] == pytest.approx(2 * aligned * conflicting / (aligned + conflicting))
    assert metrics[f"test/accuracy_difference/{column}"] == pytest.approx(aligned - conflicting)


def test_one_aligned_accuracy_would_be_beyond_all_images(values: Mapping[str, dict[str, float]]) -> None:
    """By the rounding of what it follows from: 100.04 % as printed; it is kept at 100."""
    derivations = {derivation.metric: derivation for derivation in printed_tables.read("debiasing").protocol.derived}
    beyond = []
    for metrics in values.values():
        for name, value in metrics.items():
            if name.startswith("test/aligned_accuracy"):
                accuracy, part = (metrics[metric] for metric in derivations[name].inputs)
                rest, images = derivations[name].references
                unkept = 100 * (accuracy * (rest + images) - part * images) / rest
                assert 0 <= value <= 1
                beyond += [f"{unkept:.2f}"] if unkept > 100 + 1e-9 else []
    assert beyond == ["100.04"]


@pytest.mark.parametrize(("values", "expected"), [((0.5, 0.2), 0.8), ((0.99, 0.9), 1.0), ((0.1, 0.9), 0.0)])
def test_the_mean_of_the_rest(values: tuple[float, float], expected: float) -> None:
    assert derived_values.derive("remainder", values, (50.0, 50.0)) == pytest.approx(expected)
    assert derived_values.derive("remainder", values, (50.0,)) is None


# --- imported and analysed --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def imported(once: Callable[..., Any]) -> str:
    """A tracking server that has the paper; tests only read it."""

    def make(folder: Path) -> str:
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BIASBED_HOME", str(folder / "home"))
            import_runs("debiasing", uri)
        return uri

    tracking_uri: str = once("imported_debiasing", make)
    return tracking_uri


@pytest.fixture(scope="module")
def analysed(imported: str, once: Callable[..., Any]) -> Analysis:
    def make(folder: Path) -> Analysis:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BIASBED_HOME", str(folder / "home"))
            patch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
            return load(imported, study="published_debiasing", bootstrap=200)

    analysis: Analysis = once("analysis_of_debiasing", make)
    return analysis


def test_the_report_says_that_no_difference_is_shown_and_what_could_have_been(analysed: Analysis) -> None:
    from biasbed.analysis.report import summary

    by_setting = {comparison.setting: comparison for comparison in analysed.comparisons}
    text = " ".join(summary.render(analysed).split())
    chi2 = {
        name: comparison_of.friedman.chi2
        for name, comparison_of in by_setting.items()
        if comparison_of.friedman is not None
    }
    assert sorted(round(value, 3) for value in chi2.values()) == [0.857, 3.111]
    assert not any(comparison.significant for comparison in analysed.comparisons)
    reach = by_setting["all"].reach
    assert reach is not None
    assert f"Power: {reach.sentence}" in text
    assert "it is not shown that the algorithms differ" in text
    assert "no number was published of EnD, LNL on bar_ac-1, bar_ac-20, bar_ac-5" in text
    assert "only means were published" in text
    assert re.search(r"not printed, but follow.*: aligned accuracy, ac score, accuracy difference", text)


def printed(measure: str) -> Mapping[tuple[str, str], tuple[str, str]]:
    """(method, column) -> mean and deviation as the paper prints them, from the file of its numbers."""
    path = resources.files("biasbed.published") / "debiasing.csv"
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    of_measure = (row for row in rows if row["measure"] == measure)
    return {(r["row"], r["column"]): (f"{float(r['value']):.2f}", f"{float(r['spread']):.2f}") for r in of_measure}


@pytest.mark.parametrize(("name", "measure"), [("debiasing_2", "accuracy"), ("debiasing_3", "conflicting_accuracy")])
def test_tables_2_and_3_come_out_as_printed(analysed: Analysis, name: str, measure: str) -> None:
    options = replace(analysed.options, report=(name,))
    layout = layout_file.read(name)
    values = LAYOUTS.compute(replace(analysed, options=options)).values
    table = lay_out(layout, values, analysed, Links(analysed))
    columns = {head: column.set for head, column in layout.columns.items()}
    cells: dict[tuple[str, str], str] = {}
    for row, (_, *numbers) in zip(layout.rows, table.rows, strict=True):
        cells |= {
            (row, column): shown_cell.published for column, shown_cell in zip(columns.values(), numbers, strict=True)
        }
    expected = printed(measure)
    assert len(expected) == 156
    shown = {cell: text for cell, text in cells.items() if text}
    assert shown == {cell: value for cell, (value, _) in expected.items()}
    assert {cell for cell, text in cells.items() if not text} == {(m, c) for m in ("lnl", "end") for c in BAR}


@pytest.mark.parametrize(
    ("measure", "mean", "std"),
    [("conflicting_accuracy", 72.04, 3.82), ("accuracy_difference", 1.80, float("nan"))],
)
def test_another_measure_is_compared(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: str, mean: float, std: float
) -> None:
    """LfF on Waterbirds at 20 %: conflicting accuracy as printed, and what follows, of which no spread is known."""
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    monkeypatch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
    analysis = load(imported, study="published_debiasing", bootstrap=200, measure=measure, sets=("waterbirds_ac-20",))
    row = analysis.scores.set_index("algorithm").loc["lff"]
    assert row["mean"] == pytest.approx(mean, abs=0.05)
    assert row["std"] == pytest.approx(std, nan_ok=True)
    assert row["num_runs"] == 5
    assert analysis.sets[0].higher_is_better == (measure == "conflicting_accuracy")


def test_own_runs_stand_beside_the_published_ones(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two severities of one's own: in one table with the paper's, and as a card."""
    shutil.copy(imported.removeprefix("sqlite:///"), tmp_path / "mlflow.db")
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
    recorder = Recorder(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)
    protocol = make_protocol(["colored_mnist_10_test"], suite="debiasing", training_sets=("colored_mnist_10",))
    for seed in range(2):
        for cell, score in (("colored_mnist_10-0_5", 0.34), ("colored_mnist_10-2", 0.55)):
            recorder.train("erm", seed, (score + 0.01 * seed,), protocol=protocol, cell=cell, study="main")
    options: dict[str, Any] = dict(study="main", bootstrap=200, compare="published", with_published=True)
    analysis = load(recorder.uri, **options)
    assert set(analysis.algorithms) == {
        "erm",
        *(f"{run.algorithm}@debiasing" for run in printed_tables.read("debiasing").runs()),
    }
    card = analysis.data(PUBLISHED_CARD).set_index("dataset")
    assert card["published_mean"].to_dict() == {"colored_mnist_10-0_5": 34.61, "colored_mnist_10-2": 66.84}
    assert card["verdict"].to_dict() == {"colored_mnist_10-0_5": "agrees", "colored_mnist_10-2": "differs"}
    assert list(card["judged_by"]) == ["published spread"] * 2


def test_a_layout_s_columns_are_cells_and_have_own_and_printed_numbers(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(imported.removeprefix("sqlite:///"), tmp_path / "mlflow.db")
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
    recorder = Recorder(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)
    name = "colored_mnist_10_test"
    kinds = ("test/aligned_accuracy", "test/conflicting_accuracy")
    follows = [
        record.Derived("test", "accuracy_difference", name, "difference", tuple(f"{kind}/{name}" for kind in kinds)),
        record.Derived(
            "test", "equality_of_opportunity", name, "mean_ratio", tuple(f"{k}/{name}" for k in kinds[::-1])
        ),
    ]
    protocol = make_protocol([name], suite="debiasing", training_sets=("colored_mnist_10",), derived=tuple(follows))
    measured = replace(protocol.sets[0], measures=("accuracy", "aligned_accuracy", "conflicting_accuracy"))
    protocol = replace(protocol, sets=(measured,))
    for seed in range(2):
        metrics = {f"{kind}/{name}": [value + 0.02 * seed] * 4 for kind, value in zip(kinds, (0.9, 0.3), strict=True)}
        more: dict[str, Any] = dict(protocol=protocol, cell="colored_mnist_10-0_5", study="main", metrics=metrics)
        recorder.train("erm", seed, (0.34 + 0.02 * seed,), **more)
    analysis = load(recorder.uri, study="main", bootstrap=200, with_published=True, report=("debiasing_3",))
    table = next(LAYOUTS.show(analysis.data(LAYOUTS), analysis, Links(analysis)))
    assert isinstance(table, ReportTable)
    cell = table.rows[0][1]
    assert (cell.text, cell.published) == ("31.0", "27.04")
    measured = analysis.data(BIASED_DATA)
    of_rule = measured[measured["rule"] == analysis.rule.name]
    ratios = of_rule.set_index(["algorithm", "measure"]).loc[("erm", "equality_of_opportunity"), "value"]
    assert ratios.tolist() == pytest.approx([100 * 30 / 90, 100 * 32 / 92])


def test_a_cell_is_called_as_the_suite_calls_it(paper: PaperOfCells) -> None:
    """By which published columns stand beside one's own: the data set, and the severity as it is written."""
    severities = {f"-{record.slug(f'{severity:g}')}" for severity in (0.5, 1.0, 2.0, 5.0, 20.0)}
    for set_record in paper.protocol.sets:
        assert set_record.name.removeprefix(set_record.block) in severities
    assert biased.DATA_SETS.identifier("Colored MNIST") == paper.protocol.sets[0].block
