"""DomainBed's two published sets of tables: every cell, and what tests over the seven data sets say of them."""

from __future__ import annotations

import statistics

import pytest

from biasbed.analysis.statistics import friedman
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.datasets import domains as domain_data
from biasbed.published import printed_tables
from biasbed.published.printed_tables import PaperOfCells

PREPRINT, CONFERENCE = "domainbed", "domainbed_iclr2021"


@pytest.fixture(scope="module")
def papers() -> dict[str, PaperOfCells]:
    return {name: printed_tables.read(name) for name in (PREPRINT, CONFERENCE)}


def data_sets(paper: PaperOfCells) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for set_record in paper.protocol.sets:
        names.setdefault(set_record.block, []).append(set_record.name)
    return names


def means(paper: PaperOfCells, rule: str) -> dict[str, dict[str, float]]:
    """Row -> data set -> mean over its domains, in percent."""
    return {
        row: {
            data: 100 * statistics.fmean(of_row[name, "accuracy"]["value"] for name in names)
            for data, names in data_sets(paper).items()
        }
        for (selection, row), of_row in paper.cells.items()
        if selection == rule
    }


def rank_tests(paper: PaperOfCells, rule: str) -> RankTests:
    import pandas as pd

    return friedman.compare(pd.DataFrame(means(paper, rule)), alpha=0.05, noun="data set")


@pytest.mark.parametrize(("name", "methods", "numbers"), [(PREPRINT, 9, 837), (CONFERENCE, 14, 1302)])
def test_every_cell_is_there(papers: dict[str, PaperOfCells], name: str, methods: int, numbers: int) -> None:
    paper = papers[name]
    assert len(paper.runs()) == 3 * methods
    assert sum(len(of_row) for of_row in paper.cells.values()) == numbers
    assert all(
        cell["num_runs"] == 3 and "std_over_runs" in cell
        for cells_of_row in paper.cells.values()
        for cell in cells_of_row.values()
    )
    assert paper.description.summary == {"spread": "standard_error", "ddof": 0}


@pytest.mark.parametrize("name", [PREPRINT, CONFERENCE])
def test_domains_are_called_as_the_suite_calls_them(papers: dict[str, PaperOfCells], name: str) -> None:
    """By which published columns stand beside one's own."""
    of_suites = {data: domain_data.DATA_SETS.load(data)().domains(None) for data in domain_data.DATA_SETS}
    of_paper: dict[str, list[str]] = {}
    for set_record in papers[name].protocol.sets:
        assert set_record.name == f"{set_record.block}-{set_record.domain}"
        of_paper.setdefault(set_record.block, []).append(set_record.domain)
    assert of_paper == {data: list(domains) for data, domains in of_suites.items()}


# Some of the averages that the papers print beside their domains; all others follow from the same cells.
AVERAGES = {
    (PREPRINT, "training_domain_validation", "erm"): {"colored_mnist": 52.0},
    (CONFERENCE, "training_domain_validation", "erm"): {"colored_mnist": 51.5, "pacs": 85.5, "domainnet": 40.9},
    (CONFERENCE, "training_domain_validation", "coral"): {"vlcs": 78.8, "office_home": 68.7, "terra_incognita": 47.6},
}


@pytest.mark.parametrize(("name", "rule", "row"), AVERAGES)
def test_means_over_domains_are_those_printed(papers: dict[str, PaperOfCells], name: str, rule: str, row: str) -> None:
    """To what rounded cells allow: half a unit of the last digit, and as much again of the printed mean."""
    for data, printed in AVERAGES[name, rule, row].items():
        assert means(papers[name], rule)[row][data] == pytest.approx(printed, abs=0.1)


@pytest.mark.parametrize(
    ("name", "rule", "f", "p"),
    [
        (PREPRINT, "training_domain_validation", 1.0721, 0.398),
        (PREPRINT, "leave_one_domain_out", 2.0895, 0.0553),
        (PREPRINT, "test_domain_oracle", 1.5943, 0.152),
        (CONFERENCE, "training_domain_validation", 2.8398, 0.00220),
        (CONFERENCE, "leave_one_domain_out", 2.2399, 0.0149),
        (CONFERENCE, "test_domain_oracle", 1.8269, 0.0532),
    ],
)
def test_what_the_omnibus_test_says(papers: dict[str, PaperOfCells], name: str, rule: str, f: float, p: float) -> None:
    test = rank_tests(papers[name], rule).friedman
    assert test is not None
    assert test.f == pytest.approx(f, abs=5e-5)
    assert test.p == pytest.approx(p, rel=5e-3)
    if (name, rule) == (PREPRINT, "training_domain_validation"):
        assert test.chi2 == pytest.approx(8.489, abs=5e-4)


def separated(tests: RankTests) -> dict[tuple[str, str], float]:
    """The pairs that Nemenyi's test tells apart, where the omnibus test lets one speak of pairs."""
    names = tests.algorithms
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return {pair: tests.p(*pair) for pair in pairs if tests.significant and tests.p(*pair) < 0.05}


def test_what_pairs_can_be_told_apart(papers: dict[str, PaperOfCells]) -> None:
    conference = papers[CONFERENCE]
    assert separated(rank_tests(conference, "training_domain_validation")) == {}
    assert rank_tests(conference, "training_domain_validation").significant
    assert separated(rank_tests(conference, "leave_one_domain_out")) == {
        ("coral", "vrex"): pytest.approx(0.0170, abs=5e-5),
        ("irm", "coral"): pytest.approx(0.0407, abs=5e-5),
    }
    assert not rank_tests(conference, "test_domain_oracle").significant


@pytest.mark.parametrize(("name", "difference", "most"), [(PREPRINT, 4.54, 8), (CONFERENCE, 7.499, 13)])
def test_the_power_of_seven_data_sets(papers: dict[str, PaperOfCells], name: str, difference: float, most: int) -> None:
    reach = rank_tests(papers[name], "training_domain_validation").reach
    assert reach is not None
    assert reach.critical_difference == pytest.approx(difference, abs=5e-3 if difference < 5 else 5e-4)
    assert reach.largest_difference == most
    assert f"{difference:.2f}" in reach.sentence
