"""Papers that print means: each number with its spread, number of runs and rounding, or one line that says where."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from biasbed import record
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import UsageError
from biasbed.published import description, find, import_runs, names, printed_tables
from helpers.commands import ROOT
from helpers.papers import DOMAINS, DOMAINS_CSV, SHIFTS, SHIFTS_CSV, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of papers in this test."""
    papers = tmp_path / "papers"
    papers.mkdir()
    monkeypatch.setattr(printed_tables, "FOLDER", papers)
    write(papers, "domains", DOMAINS, DOMAINS_CSV)
    write(papers, "shifts", SHIFTS, SHIFTS_CSV)
    return papers


@pytest.mark.usefixtures("folder")
def test_a_standard_error_becomes_the_deviation_with_n_minus_1() -> None:
    """0.4 / sqrt(n) with n: sqrt(3) 0.4 is the deviation with n; times sqrt(3 / 2) the one with n - 1."""
    run = find("domains").runs()[0]
    assert (run.rule, run.algorithm, run.name) == ("best_validation", "erm", "erm-best_validation")
    assert run.scores["pacs-art_painting"] == 0.847
    assert run.further["std_over_runs"]["pacs-art_painting"] == pytest.approx(0.004 * math.sqrt(3) * math.sqrt(3 / 2))
    assert run.further["num_runs"]["pacs-art_painting"] == 3
    assert run.further["rounding"]["pacs-art_painting"] == pytest.approx(0.0005)
    assert run.summary == {"spread": "standard_error", "ddof": 0}


@pytest.mark.parametrize(
    ("spread", "ddof", "expected"),
    [
        ("standard_deviation", 1, 0.004),
        ("standard_deviation", 0, 0.004 * math.sqrt(4 / 3)),
        ("standard_error", 1, 0.004 * 2),
        ("standard_error", 0, 0.004 * 2 * math.sqrt(4 / 3)),
    ],
)
def test_every_spread_is_converted(folder: Path, spread: str, ddof: int, expected: float) -> None:
    text = f"citation: c\nsuite: s\ntraining_sets: [t]\nspread: {spread}\nddof: {ddof}\ncolumns: {{a: {{}}}}"
    write(folder, "four", text, "row,column,value,spread,n\nerm,a,50,0.4,4\n")
    assert find("four").runs()[0].further["std_over_runs"]["a"] == pytest.approx(expected)


@pytest.mark.usefixtures("folder")
def test_rows_have_unlike_sets_measures_and_units() -> None:
    paper = find("shifts")
    runs = {run.algorithm: run for run in paper.runs()}
    assert runs["resnet50"].scores == {"imagenet_r": 0.361, "imagenet_a": 0.022, "gap_r": 56.0, "imagenet_c": 0.767}
    assert set(runs["deepaug"].scores) == {"imagenet_r", "gap_r", "imagenet_c"}
    assert runs["deepaug"].further["rounding"] == {"imagenet_r": 0.0005, "gap_r": 0.05, "imagenet_c": 0.005}
    assert runs["deepaug"].metrics(paper.protocol)["test/mce/imagenet_c"] == 0.6
    sets = {set_record.name: set_record for set_record in paper.protocol.sets}
    assert [(e.headline, e.unit, e.higher_is_better) for e in sets.values()] == [
        *[("accuracy", "", True)] * 2, ("lost_on_r", "points", False), ("mce", "%", False),
    ]  # fmt: skip
    assert sets["imagenet_a"].aliases == ("natural_adversarial",)
    assert (sets["imagenet_a"].chance, sets["imagenet_c"].chance) == (1 / 200, 0)


def test_a_row_becomes_a_tracked_run(folder: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_runs("domains", tracking) == 4
    assert import_runs("domains", tracking) == 0
    assert import_runs("shifts", tracking) == 3
    assert "biasbed analyze --study published_shifts" in capsys.readouterr().out
    runs = {run.info.run_name: run for run in RunStore(tracking).runs("published")}
    run = runs["irm-best_validation"].data
    assert run.metrics["test/accuracy/vlcs-sun"] == 0.734
    assert run.metrics["test/std_over_runs/vlcs-sun"] == pytest.approx(0.006 * math.sqrt(4.5))
    assert run.metrics["test/num_runs/vlcs-sun"] == 3
    assert run.tags[record.SELECTION] == "best_validation"
    assert runs["erm-last"].data.tags[record.SELECTION] == "last"
    assert json.loads(run.tags[record.SUMMARY]) == {"spread": "standard_error", "ddof": 0}
    assert "ICLR 2021" in run.tags[record.SOURCE]
    assert (run.tags[record.ALGORITHM], run.tags[record.ROW]) == ("irm", "irm")
    row = runs["deepaug"].data.tags
    assert (row[record.ALGORITHM], row[record.ROW], row[record.SELECTION]) == ("deepaug_cae", "deepaug", "")
    assert json.loads(row[record.TRAINING_DATA]) == {"imagenet": 0.5, "deepaug_cae": 0.5}
    assert json.loads(runs["resnet50"].data.tags[record.TRAINING_DATA]) == {"imagenet": 1.0}
    assert json.loads(row[record.SUMMARY]) == {"spread": "none"}


def test_every_paper_that_is_listed_can_be_read() -> None:
    assert {"biasbed", "domainbed", "robustness"} <= set(names())
    for name in names():
        assert find(name).runs()


def test_the_example_of_the_docs_is_a_description() -> None:
    text = (ROOT / "docs/published.md").read_text(encoding="utf-8")
    example = text.split("```yaml\n")[1].split("```")[0]
    assert len(description.read(example, "example").protocol.sets) == 4


def test_a_wrong_description_is_told_with_its_place(folder: Path) -> None:
    write(folder, "domains", DOMAINS.replace("suite: domains", "suit: domains"), DOMAINS_CSV)
    with pytest.raises(UsageError, match=r"^domains.yaml: unknown entry 'suit'; did you mean 'suite'"):
        find("domains")


@pytest.mark.parametrize("name", printed_tables.names())
def test_the_files_of_a_paper_fit_together(name: str) -> None:
    """Every number is described, and there once; every description has a number."""
    paper = printed_tables.read(name)
    text = printed_tables.FOLDER.joinpath(f"{name}.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    about = paper.description
    assert sum(map(len, paper.cells.values())) == len(lines) > 0
    assert {line["column"] for line in lines} == set(about.columns)
    assert {line.get("selection", "") for line in lines} == set(about.rules or {""})
    assert set(about.rows) <= {line["row"] for line in lines}
    for line in lines:
        assert line["row"] == record.slug(line["row"])
        assert line.get("measure", "") in ("", *about.printed(line["column"]))
        assert float(line.get("spread") or 0) >= 0
    assert all(cell["num_runs"] > 1 for row in paper.cells.values() for cell in row.values() if "std_over_runs" in cell)
    for column in paper.protocol.sets:
        assert record.parse_metric(f"test/{column.headline}/{column.name}") is not None
        block = [other for other in paper.protocol.sets if other.block and other.block == column.block]
        assert {other.headline for other in block} <= {column.headline}
        domains = [other.domain for other in block if other.domain]
        assert len(set(domains)) == len(domains)


SEVERAL = """
citation: c
suite: s
training_sets: [t]
further: [conflicting_accuracy]
derived: {aligned_accuracy: {function: remainder, of: [accuracy, conflicting_accuracy], groups: [rest, few]}}
columns: {a: {groups: {rest: 30, few: 10}}}
"""
SEVERAL_CSV = "row,column,measure,value\nerm,a,accuracy,50\nerm,a,conflicting_accuracy,20\n"


def test_a_column_may_have_several_measures_and_others_follow(folder: Path) -> None:
    write(folder, "several", SEVERAL, SEVERAL_CSV)
    paper = find("several")
    metrics = paper.runs()[0].metrics(paper.protocol)
    assert (metrics["test/accuracy/a"], metrics["test/conflicting_accuracy/a"]) == (0.5, 0.2)
    assert metrics["test/rounding/a:conflicting_accuracy"] == 0.005
    (derived,) = paper.protocol.derived
    assert (derived.metric, derived.references) == ("test/aligned_accuracy/a", (30.0, 10.0))
