"""The Align-Conflict paper's tables: what is in them, which cells are marked, and what is left out with a reason."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from biasbed import record
from biasbed.algorithms.erm import ERM
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report import data_files, html, paper_tables, report_tables, summary
from biasbed.analysis.report.paper_tables import PaperCell, PaperTable, TableRow
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.statistics import pairwise
from biasbed.errors import UsageError
from biasbed.record import Derived, SetRecord
from biasbed.settings import build
from biasbed.suites.debiasing import RULES
from helpers.sizes import without_sizes
from helpers.toy_runs import Recorder, fill

pytestmark = pytest.mark.usefixtures("without_evidence")

KINDS, CLASSES = ("aligned", "conflicting"), ("cow", "camel")
PARTS = tuple(f"{kind}_accuracy" for kind in KINDS)
GROUPS = [f"{name}-{kind}" for name in CLASSES for kind in ("conflicting", "aligned")]


def derived(phase: str) -> list[Derived]:
    name = f"herds_{phase}"
    parts = tuple(f"{phase}/{part}/{name}" for part in PARTS)
    by_class = tuple(f"{phase}/accuracy/{name}:{group}" for group in GROUPS)
    return [
        Derived(phase, "ac_score", name, "harmonic_mean", parts),
        Derived(phase, "accuracy_difference", name, "difference", parts, higher_is_better=False),
        Derived(phase, "equality_of_opportunity", name, "mean_ratio", by_class, unit="ratio"),
    ]


PROTOCOL = record.Protocol(
    suite="own",
    sets=(
        SetRecord(
            *("herds_test", "accuracy", 400, 2, 0.5),
            measures=("accuracy", *PARTS),
            groups=dict.fromkeys(GROUPS, 100),
            block="herds",
        ),
    ),
    training_sets=("herds",),
    validation_sets=("herds_val",),
    monitor="val/ac_score/herds_val",
    derived=(*derived("val"), *derived("test")),
    selection_rules=RULES,
)
Parts = tuple[float, float]  # accuracy of aligned and of conflicting images
# On two severities, the same for each of two seeds but for a point; at the second of three epochs, the AC score's.
SCORES: Mapping[str, Parts] = {
    "erm": (0.9, 0.3),
    "lff": (0.8, 0.5),
    "lnl": (0.8, 0.6),
    "told": (0.8, 0.6),
}


class Told(ERM):
    """A method that somebody made: it says that it must know the type of the bias, and no more."""

    @classmethod
    def needs(cls, hparams: Any) -> frozenset[str]:
        return super().needs(hparams) | {"bias_type"}


NEEDS = {"lnl": ("bias",), "told": tuple(Told.needs(None))}


def metrics(parts: Parts, seed: int) -> dict[str, list[float]]:
    """Of three epochs: before, the best AC score on validation, the best accuracy on validation."""
    found: dict[str, list[float]] = {}
    aligned, conflicting = parts[0], parts[1] + 0.01 * seed
    epochs = [(0.5, 0.1), (aligned, conflicting), (aligned + 0.05, conflicting - 0.1)]
    for a, c in epochs:
        for phase, whole in (("val", 0.9 * a + 0.1 * c), ("test", (a + c) / 2)):
            name = f"herds_{phase}"
            found.setdefault(f"{phase}/accuracy/{name}", []).append(whole)
            for measure, value in zip(PARTS, (a, c), strict=True):
                found.setdefault(f"{phase}/{measure}/{name}", []).append(value)
            for group in GROUPS:
                share = (a if group.endswith("-aligned") else c) + (0.02 if group.startswith("cow") else -0.02)
                found.setdefault(f"{phase}/accuracy/{name}:{group}", []).append(share)
    return found


def add(recorder: Recorder, algorithm: str, cell: str, seed: int, parts: Parts, **more: Any) -> None:
    own = metrics(parts, seed)
    values: dict[str, Any] = dict(protocol=PROTOCOL, study="own", cell=cell, monitor=(0.0,) * 3, **more)
    values["metrics"] = {**own, **more.get("metrics", {})}
    recorder.train(algorithm, seed, {"herds_test": own["test/accuracy/herds_test"]}, **values)


@pytest.fixture(scope="module")
def herds(_empty_store: Path, once: Callable[..., Any]) -> Recorder:
    """Four methods at two severities, the second of which has no bias labels; tests only read it."""

    def make(folder: Path) -> Recorder:
        (folder / "mlflow.db").write_bytes(_empty_store.read_bytes())
        recorder = Recorder(f"sqlite:///{folder / 'mlflow.db'}", folder)
        for cell, provides in (("herds-1", ("bias_type", "bias")), ("herds-20", ("bias_type",))):
            for algorithm, parts in SCORES.items():
                needs: Sequence[str] = NEEDS.get(algorithm, ())
                for seed in range(2) if set(needs) <= set(provides) else ():
                    add(recorder, algorithm, cell, seed, parts, needs=needs, provides=provides)
        return recorder

    found: Recorder = once("paper", make)
    return found


def analysis_of(recorder: Recorder, **options: Any) -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(study="own", bootstrap=200, **options))


@pytest.fixture(scope="module")
def analysis(herds: Recorder, once: Callable[..., Any]) -> Analysis:
    def make(folder: Path) -> Analysis:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BIASBED_HOME", str(folder / "home"))
            patch.setattr(pairwise, "computing", without_sizes(pairwise.computing))
            return analysis_of(herds)

    found: Analysis = once("analysis_of_paper_tables", make)
    return found


def asking(analysis: Analysis, *names: str) -> Analysis:
    """The same, asked for these tables."""
    return replace(analysis, options=replace(analysis.options, tables=names))


def table(analysis: Analysis, name: str) -> PaperTable:
    return next(one for one in paper_tables.make_tables(analysis).tables if one.name == name)


def marked(table: PaperTable, column: str, panel: int = 0) -> tuple[set[str], set[str]]:
    """The rows that are the best of a column, and the best without knowledge of the bias."""
    cells = {row.name: table.panels[panel].cells[row.name, column] for row in table.rows}
    return {n for n, c in cells.items() if c.best}, {n for n, c in cells.items() if c.unaided}


# --- tables 2 and 3 ---------------------------------------------------------------------------------------------------


def test_accuracies_are_means_and_deviations_of_the_epoch_that_was_chosen(analysis: Analysis) -> None:
    for name, of in (("unbiased", lambda a, c: (a + c) / 2), ("conflicting", lambda a, c: c)):
        found = table(analysis, name)
        assert found.columns == ("herds-1", "herds-20")
        for algorithm, (a, c) in SCORES.items():
            values = [100 * of(a, c + 0.01 * seed) for seed in range(2)]
            cell = found.panels[0].cells[algorithm, "herds-1"]
            assert (cell.mean, cell.num_runs) == (pytest.approx(statistics.fmean(values)), 2)
            assert cell.std == pytest.approx(statistics.stdev(values))
            assert (cell.text, cell.std_text) == (f"{statistics.fmean(values):.2f}", f"{statistics.stdev(values):.2f}")


def test_the_best_is_marked_and_the_best_of_those_that_know_nothing_and_ties_are_all(analysis: Analysis) -> None:
    found = table(analysis, "conflicting")
    assert marked(found, "herds-1") == ({"lnl", "told"}, {"lff"})
    assert marked(found, "herds-20") == ({"told"}, {"lff"})
    absent = found.panels[0].cells["lnl", "herds-20"]
    assert (absent.text, absent.std_text, absent.best) == ("-", "", False)


def test_check_marks_are_what_methods_declare(analysis: Analysis) -> None:
    """Of a run, what its method's class says that it needs; who has labels of the bias knows what it is."""
    rows = {row.name: row for row in table(analysis, "unbiased").rows}
    assert {name: row.about for name, row in rows.items()} == {
        "erm": (False, False),
        "lff": (False, False),
        "lnl": (True, True),
        "told": (False, True),
    }
    assert {name for name, row in rows.items() if row.is_unaided} == {"erm", "lff"}


CELLS = {"a": 70.001, "b": 70.004, "c": 60.0, "d": float("nan")}


@pytest.mark.parametrize(("measure", "best", "unaided"), [("accuracy", "ab", "c"), ("accuracy_difference", "c", "c")])
def test_marks_go_by_what_is_printed(measure: str, best: str, unaided: str) -> None:
    """a and b print alike; of the difference less is better; what has no value is no best, though it is unaided."""
    rows = [TableRow(name, is_unaided=name in "cd") for name in CELLS]
    found = paper_tables._mark_best({(name, "x"): PaperCell(value) for name, value in CELLS.items()}, rows, measure)
    assert "".join(name for name in CELLS if found[name, "x"].best) == best
    assert "".join(name for name in CELLS if found[name, "x"].unaided) == unaided


# --- tables 4, 5, 7 ---------------------------------------------------------------------------------------------------


def test_difference_and_opportunity_are_means_over_runs_of_each_run_s_value(analysis: Analysis) -> None:
    found = table(analysis, "fairness")
    difference, opportunity = found.panels
    a, c = SCORES["lff"]
    conflicting = [c, c + 0.01]
    ratios = [statistics.fmean([(x + 0.02) / (a + 0.02), (x - 0.02) / (a - 0.02)]) for x in conflicting]
    cell = difference.cells["lff", "herds-1"]
    assert cell.mean == pytest.approx(100 * statistics.fmean([a - x for x in conflicting]))
    cell = opportunity.cells["lff", "herds-1"]
    assert (cell.mean, cell.std) == (pytest.approx(statistics.fmean(ratios)), pytest.approx(statistics.stdev(ratios)))
    assert marked(found, "herds-1", 0) == ({"lnl", "told"}, {"lff"})  # the smallest difference
    assert marked(found, "herds-1", 1) == ({"lnl", "told"}, {"lff"})  # the largest ratio


def test_every_rule_has_a_row_of_means_over_methods_of_the_same_runs(analysis: Analysis) -> None:
    found = table(analysis, "criteria")
    names = [row.name for row in found.rows]
    assert names[0] == "best_validation"
    assert {"validation_accuracy", "last", "best_epoch"} <= set(names)
    cells = next(panel.cells for panel in found.panels if panel.measure == "conflicting_accuracy")
    by_score = 100 * statistics.fmean(c + 0.005 for _, c in SCORES.values())
    assert cells["best_validation", "herds-1"].mean == pytest.approx(by_score)
    assert cells["validation_accuracy", "herds-1"].mean == pytest.approx(by_score - 10)
    three = 100 * statistics.fmean(c + 0.005 for name, (_, c) in SCORES.items() if name != "lnl")
    assert cells["last", "herds-20"].mean == pytest.approx(three - 10)
    best, unaided = marked(found, "herds-1", [panel.measure for panel in found.panels].index("conflicting_accuracy"))
    assert best == {"best_validation"}  # an oracle is as good, and not marked
    assert unaided == {"validation_accuracy", "last"}


def test_methods_stand_by_what_their_biased_classifier_is(recorder: Recorder) -> None:
    """A predictor of its own is looked at where the epoch was chosen, the network of a stage when that was over."""
    for seed in range(2):
        own = {f"biased/{kind}_accuracy/herds_val": [0.1, 0.9 - 0.4 * i, 0.2] for i, kind in enumerate(KINDS)}
        settings = {"backbone": "resnet18", "hparams.biased_backbone": "mlp", "epochs": "3"}
        add(recorder, "lff", "herds-1", seed, (0.8, 0.5), row="lff-mlp", metrics=own, settings=settings)
        plain = {"backbone": "resnet18", "hparams.biased_backbone": "none", "epochs": "3"}
        add(recorder, "erm", "herds-1", seed, (0.7, 0.5))
        staged = own | {"biased/loss": [2.0, 1.0, 0.5]}
        add(recorder, "softcon", "herds-1", seed, (0.7, 0.5), metrics=staged, settings=plain)
    found = table(analysis_of(recorder, sets=("herds-1",)), "biased")
    assert {row.name: row.about[-1] for row in found.rows} == {"lff-mlp": "mlp", "softcon": "resnet18"}
    values = {panel.measure: panel.cells for panel in found.panels}
    assert [name for name in values if name.startswith("biased/")] == [f"biased/{kind}_accuracy" for kind in KINDS]
    assert values["accuracy"]["lff-mlp", "herds-1"].mean == pytest.approx(65.25)
    means = {kind: values[f"biased/{kind}_accuracy"] for kind in KINDS}
    assert [means[kind]["lff-mlp", "herds-1"].text for kind in KINDS] == ["90.00", "50.00"]
    assert [means[kind]["softcon", "herds-1"].text for kind in KINDS] == ["20.00", "20.00"]


# --- files and what is left out ---------------------------------------------------------------------------------------


def test_files_and_the_report_have_them(analysis: Analysis, tmp_path: Path) -> None:
    files = {name for name in report_tables.write_latex(analysis, tmp_path) if "/paper_" in name}
    assert files == {f"tables/paper_{name}.tex" for name in ("unbiased", "conflicting", "criteria", "fairness")}
    text = (tmp_path / "tables" / "paper_conflicting.tex").read_text()
    assert r"LNL & $\checkmark$ & $\checkmark$ & \textbf{60.50} {\scriptsize$\pm$ 0.71} & -- \\" in text
    assert r"LfF & -- & -- & \underline{50.50}" in text
    frame, _ = data_files.frames(analysis)["paper_tables.csv"]
    assert set(frame["table"]) == {"unbiased", "conflicting", "criteria", "fairness"}
    own = frame[(frame["table"] == "conflicting") & (frame["row"] == "lff")]
    assert list(own["mean"]) == [pytest.approx(50.5)] * 2
    page = html.content(analysis, tmp_path)["tables"]["paper"]
    assert [one.caption[:8] for one in page.tables] == ["Table 2.", "Table 3.", *["Table 4."] * 5, *["Table 5."] * 2]
    assert page.reasons == [
        "Table 7 (biased) is left out: no run has recorded what a biased classifier of its own scores in validation."
    ]
    assert page.reasons[0] in " ".join(summary.render(analysis).split())


def test_only_what_was_asked_for_is_there(analysis: Analysis) -> None:
    found = paper_tables.make_tables(asking(analysis, "fairness", "unbiased"))
    assert ([one.name for one in found.tables], found.reasons) == (["unbiased", "fairness"], [])
    none = replace(analysis, options=replace(analysis.options, tables="none"))
    assert paper_tables.make_tables(none) == paper_tables.PaperTables()


def test_what_is_asked_for_and_can_t_be_made_is_refused(analysis: Analysis) -> None:
    with pytest.raises(UsageError, match="tables=biased: there is no table 'biased': no run has recorded"):
        paper_tables.check(asking(analysis, "biased"))
    with pytest.raises(UsageError, match="tables=fairnes: there is no such table; did you mean 'fairness'"):
        build(AnalyzeOptions, {"tables": "unbiased,fairnes"})


def test_other_data_have_none_and_no_empty_section(recorder: Recorder, tmp_path: Path) -> None:
    fill(recorder, {"erm": (0.9,) * 6, "irm": (0.8,) * 6}, study="own")
    analysis = analysis_of(recorder)
    assert analysis.measured.empty
    assert not any("/paper_" in name for name in report_tables.write_latex(analysis, tmp_path))
    assert "paper_tables.csv" not in data_files.frames(analysis)
    assert "Align-Conflict" not in summary.render(analysis)
    html.write(analysis, tmp_path)
    assert "Align-Conflict" not in (tmp_path / html.REPORT).read_text()
    with pytest.raises(UsageError, match="tables=unbiased: no compared set has images that agree"):
        paper_tables.check(asking(analysis, "unbiased"))
