"""DomainBed's three rules, on sweeps whose choices and tables its own code has made."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest

from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report.groups import averages
from biasbed.analysis.report.tables import average_rows
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.statistics import evidence
from biasbed.published.sweeps import identifier
from helpers.commands import ROOT
from helpers.sizes import without_sizes
from helpers.sweep_store import SweepStore, of_csv

VECTORS = ROOT / "tests" / "vectors" / "domainbed"
RULES = {
    "training_domain_validation": "training_domain_validation",
    "leave_one_domain_out": "leave_one_domain_out",
    "oracle": "test_domain_oracle",
}
DOMAINS = {
    "colored_mnist": ("plus_90", "plus_80", "minus_90"),
    "pacs": ("art_painting", "cartoon", "photo", "sketch"),
    "vlcs": ("caltech101", "labelme", "sun09", "voc2007"),
}


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((VECTORS / name).read_text().splitlines()))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SweepStore]:
    names = ("test_sweep", "synthetic_sweep")
    return {name: of_csv(VECTORS / f"{name}.csv", tmp_path_factory.mktemp(name)) for name in names}


def analysed(store: SweepStore, rule: str, **options: object) -> Analysis:
    return compute(store, AnalyzeOptions(selection=rule, error="paper", bootstrap=200, **options))


@pytest.fixture(scope="module")
def results(stores: dict[str, SweepStore]) -> Iterator[dict[tuple[str, str], Analysis]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "gather", without_sizes(evidence.gather))
        yield {
            (name, rule): analysed(store, ours, allow=("unfinished",))
            for name, store in stores.items()
            for rule, ours in RULES.items()
        }


def column(row: dict[str, str], env: str) -> str:
    data = identifier(row["dataset"], DOMAINS)
    return f"{data}-{DOMAINS[data][int(env)]}"


@pytest.mark.parametrize("name", ["test_sweep", "synthetic_sweep"])
@pytest.mark.parametrize("rule", list(RULES))
def test_choices_are_those_of_the_original(results: dict[tuple[str, str], Analysis], name: str, rule: str) -> None:
    expected = {
        (row["algorithm"].lower(), row["trial_seed"], column(row, row["test_env"])): (
            f"r{row['trial_seed']}-{row['hparams_seed']}",
            int(row["step"]),
            pytest.approx(100 * float(row["test_acc"]), abs=1e-9),
        )
        for row in rows(f"{name}_choices.csv")
        if row["selection"] == rule
    }
    analysis = results[name, rule]
    choices = analysis.choices[analysis.choices["rule"] == RULES[rule]]
    scores = {(r.run_id, r.dataset): r.score for r in analysis.runs.itertuples()}
    found = {
        (row.algorithm, row.repeat, row.dataset): (row.trial, row.last_step, scores[row.run_id, row.dataset])
        for row in choices.itertuples()
    }
    assert len(expected) in (4, 28)
    assert found == expected


@pytest.mark.parametrize("name", ["test_sweep", "synthetic_sweep"])
@pytest.mark.parametrize("rule", list(RULES))
def test_tables_are_those_of_the_original(results: dict[tuple[str, str], Analysis], name: str, rule: str) -> None:
    analysis = results[name, rule]
    table = {(row.algorithm, row.dataset): row for row in average_rows(analysis).itertuples()}
    expected = [row for row in rows(f"{name}_expected.csv") if row["selection"] == rule]
    assert expected
    for row in expected:
        place = (
            identifier(row["dataset"], DOMAINS)
            if row["test_env"].startswith("average")
            else column(row, row["test_env"])
        )
        found = table[row["algorithm"].lower(), place]
        assert found.mean == pytest.approx(float(row["mean"]), abs=1e-9)
        if row["standard_error"]:
            assert found.error == pytest.approx(float(row["standard_error"]), abs=1e-9)
            assert (found.kind, found.ddof) == ("standard error", 0)
        cell = (analysis.averages if place in DOMAINS else analysis.cells)[row["algorithm"].lower(), place]
        printed = f"{cell.mean_text} +/- {cell.std_text}" if row["standard_error"] else cell.mean_text
        assert printed == row["printed"]
    overall = averages(analysis)
    if name == "synthetic_sweep":
        assert overall is not None
        for algorithm, mean in overall.means.items():
            of_sets = [
                float(r["mean"])
                for r in expected
                if r["test_env"] == "average_of_domains" and r["algorithm"].lower() == algorithm
            ]
            assert mean == pytest.approx(sum(of_sets) / 2, abs=1e-9)
