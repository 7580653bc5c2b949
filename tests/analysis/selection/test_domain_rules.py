"""DomainBed's three rules, on sweeps whose choices and tables its own code has made."""

from __future__ import annotations

import csv
import dataclasses
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from biasbed import record
from biasbed.analysis import scores
from biasbed.analysis.comparisons import rule_comparison
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report import latex, score_tables
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.collect import read_run
from biasbed.analysis.runs.comparable import cells_of, columns_of, split_evidence, with_protocols
from biasbed.analysis.runs.run import Run
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections.averages import average, average_rows
from biasbed.analysis.selection.domain_rules import TrainingDomainValidation
from biasbed.analysis.selection.pools import Candidate, History, Pool
from biasbed.analysis.selection.published import _find_shared_sets
from biasbed.errors import Failure
from biasbed.published import printed_tables, sweeps
from biasbed.published.sweep_runs import import_sweep
from biasbed.published.sweeps import SweepJob, match_name
from helpers.commands import ROOT
from helpers.sizes import without_sizes
from helpers.sweep_store import SweepStore, of_csv
from helpers.toy_runs import Recorder

VECTORS = ROOT / "tests" / "vectors" / "domainbed"
Results = dict[tuple[str, str], Analysis]  # (sweep, rule as the original calls it) -> the analysis
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
def stores(_empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunStore]:
    """The real sweep imported to a tracking server; the large one as it would be there."""
    folder = tmp_path_factory.mktemp("sweeps")
    with pytest.MonkeyPatch.context() as patch:
        shutil.copy(_empty_store, folder / "mlflow.db")
        patch.setenv("BIASBED_HOME", str(folder / "home"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        assert import_sweep(str(VECTORS / "recorded_sweep.csv")) == 20
        assert import_sweep(str(VECTORS / "recorded_sweep.csv")) == 0
    return {
        "recorded_sweep": RunStore(f"sqlite:///{folder / 'mlflow.db'}"),
        "synthetic_sweep": of_csv(VECTORS / "synthetic_sweep.csv", folder),
    }


def analysed(store: RunStore, rule: str, **options: object) -> Analysis:
    return compute(store, AnalyzeOptions(selection=rule, error="paper", bootstrap=200, **options))


@pytest.fixture(scope="module")
def results(stores: dict[str, RunStore]) -> Iterator[Results]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
        patch.setattr(rule_comparison, "rule_names", lambda protocol: ())  # no other rule is scored
        yield {
            (name, rule): analysed(store, ours, allow=("unfinished",))
            for name, store in stores.items()
            for rule, ours in RULES.items()
        }


def column(row: dict[str, str], env: str) -> str:
    data = match_name(row["dataset"], DOMAINS)
    return f"{data}-{DOMAINS[data][int(env)]}"


@pytest.mark.parametrize("name", ["recorded_sweep", "synthetic_sweep"])
@pytest.mark.parametrize("rule", list(RULES))
def test_choices_are_those_of_the_original(results: Results, name: str, rule: str) -> None:
    expected = {
        (row["algorithm"].lower(), row["trial_seed"], column(row, row["test_env"])): (
            f"r{row['trial_seed']}-{row['hparams_seed']}",
            int(row["step"]),
            pytest.approx(100 * float(row["test_acc"]), abs=1e-9),
            pytest.approx(100 * float(row["val_acc"]), abs=1e-9),
        )
        for row in rows(f"{name}_choices.csv")
        if row["selection"] == rule
    }
    analysis = results[name, rule]
    choices = analysis.choices[analysis.choices["rule"] == RULES[rule]]
    shown = {(r.run_id, r.dataset): (r.score, r.selection_value) for r in analysis.runs.itertuples()}
    chosen = {
        (row.algorithm, row.repeat, row.dataset): (row.trial, row.last_step, *shown[row.run_id, row.dataset])
        for row in choices.itertuples()
    }
    assert len(expected) in (4, 28)
    assert chosen == expected


@pytest.mark.parametrize("name", ["recorded_sweep", "synthetic_sweep"])
@pytest.mark.parametrize("rule", list(RULES))
def test_tables_are_those_of_the_original(results: Results, name: str, rule: str) -> None:
    analysis = results[name, rule]
    table = {(row.algorithm, row.dataset): row for row in average_rows(analysis).itertuples()}
    expected = [row for row in rows(f"{name}_expected.csv") if row["selection"] == rule]
    assert expected
    for row in expected:
        dataset = (
            match_name(row["dataset"], DOMAINS)
            if row["test_env"].startswith("average")
            else column(row, row["test_env"])
        )
        average_row = table[row["algorithm"].lower(), dataset]
        assert average_row.mean == pytest.approx(float(row["mean"]), abs=1e-9)
        if row["standard_error"]:
            assert average_row.standard_error == pytest.approx(float(row["standard_error"]), abs=1e-9)
            assert average_row.ddof == 0
        cell = (analysis.averages if dataset in DOMAINS else analysis.cells)[row["algorithm"].lower(), dataset]
        printed = f"{cell.mean_text} +/- {cell.std_text}" if row["standard_error"] else cell.mean_text
        assert printed == row["printed"]
    overall = average(analysis)
    if name == "synthetic_sweep":
        assert overall is not None
        for algorithm, mean in overall.means.items():
            of_sets = [
                float(r["mean"])
                for r in expected
                if r["test_env"] == "average_of_domains" and r["algorithm"].lower() == algorithm
            ]
            assert mean == pytest.approx(sum(of_sets) / 2, abs=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("without_evidence")
def test_the_large_sweep_on_a_server(recorder: Recorder, results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests read its runs from their file; here they are imported and read back."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", recorder.uri)
    assert import_sweep(str(VECTORS / "synthetic_sweep.csv"), "large") == 256
    with pytest.raises(Failure, match="allow=unfinished"):
        compute(RunStore(recorder.uri), recorder.options(study="large"))
    for rule, ours in RULES.items():
        imported = analysed(RunStore(recorder.uri), ours, allow=("unfinished",), study="large")
        pd.testing.assert_frame_equal(average_rows(imported), average_rows(results["synthetic_sweep", rule]))
        chosen = [
            frame[frame["rule"] == ours]["run_name"]
            for frame in (imported.choices, results["synthetic_sweep", rule].choices)
        ]
        assert sorted(chosen[0]) == sorted(chosen[1])


def test_a_sweep_stands_beside_the_published_tables(stores: dict[str, RunStore]) -> None:
    """Domain by domain; how many classes and images there are a sweep does not tell."""
    counted, _ = split_evidence([read_run(run) for run in stores["synthetic_sweep"].runs("trial")])
    of_cells = cells_of(counted, with_protocols(stores["synthetic_sweep"], counted)[1])
    shared, notes = _find_shared_sets(columns_of(of_cells), printed_tables.read("domainbed").protocol, of_cells)
    assert [ours.name for ours, _ in shared] == [theirs.name for _, theirs in shared]
    assert len(shared) == 7
    assert not notes


# --- what is not there ------------------------------------------------------------------------------------------------


@pytest.fixture
def mnist() -> list[SweepJob]:
    """The finished jobs of one data set, each of two methods with four draws, twice."""
    jobs = [job for job in sweeps.read_sweep(VECTORS / "synthetic_sweep.csv") if job.dataset == "ColoredMNIST"]
    steps = {step for job in jobs for step in job.records}
    for job in jobs:
        last = job.records[max(job.records)]
        job.records = {step: job.records.get(step, last) for step in sorted(steps)}
        job.is_done = True
    return jobs


def refusal(jobs: Sequence[SweepJob], folder: Path, **options: object) -> str:
    with pytest.raises(Failure) as caught:
        compute(SweepStore(jobs, folder), AnalyzeOptions(bootstrap=200, **options))
    return str(caught.value)


def is_of(job: SweepJob, algorithm: str, trial: int, draw: int, *envs: int) -> bool:
    return (job.algorithm, job.trial_seed, job.hparams_seed, job.test_envs) == (algorithm, trial, draw, envs)


def test_unfinished_runs_stop_with_what_to_do(stores: dict[str, RunStore]) -> None:
    with pytest.raises(Failure) as caught:
        compute(stores["synthetic_sweep"], AnalyzeOptions())
    text = str(caught.value)
    assert "\n  [unfinished] erm: 9 unfinished run(s): erm-colored_mnist-" in text
    assert text.endswith("or accept it: allow=unfinished")


def test_a_pruned_trial_is_no_gap(mnist: list[SweepJob], tmp_path: Path) -> None:
    """A search that ends trials early has left nothing undone, and chooses among the others."""
    cut = [dataclasses.replace(job, is_done=not is_of(job, "IRM", 1, 2, 0)) for job in mnist]
    assert "[unfinished] irm: 1 unfinished run(s)" in refusal(cut, tmp_path)
    store = SweepStore(cut, tmp_path)
    (pruned,) = [run for run in store.trials if run.data.tags[record.TRIAL_STATE] == "failed"]
    pruned.data.tags[record.TRIAL_STATE] = "pruned"
    analysis = compute(store, AnalyzeOptions(bootstrap=200))
    assert pruned.info.run_id not in {run.id for run in analysis.collection.runs}


def test_draws_that_some_cells_lack(mnist: list[SweepJob], tmp_path: Path) -> None:
    jobs = [job for job in mnist if not is_of(job, "IRM", 1, 2, 0) and not is_of(job, "IRM", 0, 3, 0, 1)]
    text = refusal(jobs, tmp_path)
    assert text.startswith(
        "selection=training_domain_validation: [missing_draws] irm on colored_mnist-plus_90 repeat 1: no trial 2\n"
    )
    text = refusal(jobs, tmp_path, selection="leave_one_domain_out")
    assert "\n  [missing_draws] irm on colored_mnist-plus_80-plus_90 repeat 0: no trial 3\n" in text
    assert "\n  [missing_pairs] irm: none on colored_mnist-plus_80-plus_90 of r0-3\n" in text
    assert "\nor accept it: allow=missing_draws,missing_pairs" in text


@pytest.mark.usefixtures("without_evidence")
def test_what_was_accepted_to_be_missing_is_an_x(mnist: list[SweepJob], tmp_path: Path) -> None:
    """Without the pairs of IRM that hold out the first two domains neither of these has a score."""
    jobs = [job for job in mnist if job.algorithm == "ERM" or job.test_envs != (0, 1)]
    allow = ("missing_draws", "missing_pairs")
    options = AnalyzeOptions(selection="leave_one_domain_out", allow=allow, bootstrap=200)
    analysis = compute(SweepStore(jobs, tmp_path), options)
    columns = [f"colored_mnist-{name}" for name in DOMAINS["colored_mnist"]]
    assert [analysis.cells["irm", name].mean_text for name in columns[:2]] == ["X", "X"]
    assert "X" not in [analysis.cells[cell].mean_text for cell in (("irm", columns[2]), ("erm", columns[0]))]
    assert analysis.averages["irm", "colored_mnist"].mean_text == "X"
    assert any(note.startswith("accepted [missing_pairs]: irm: none on") for note in analysis.notes)
    table = latex.render(score_tables.scores(analysis, Links(analysis)))
    assert " X & " in table
    assert "X: runs are missing, which was accepted." in table


def keep_single(jobs: list[SweepJob]) -> list[SweepJob]:
    return [job for job in jobs if len(job.test_envs) == 1]


def keep_two_domains(jobs: list[SweepJob]) -> list[SweepJob]:
    jobs = [job for job in jobs if job.test_envs in ((0,), (1,))]
    for job in jobs:
        job.records = {s: {k: v for k, v in of.items() if k[0] < 2} for s, of in job.records.items()}
    return jobs


@pytest.mark.parametrize(
    ("change", "rule", "message"),
    [
        (
            keep_single,
            "leave_one_domain_out",
            "[missing_pairs] no run of erm, irm holds out two domains; train ",
        ),
        (
            keep_two_domains,
            "leave_one_domain_out",
            "with both domains of colored_mnist held out none is left",
        ),
    ],
)
def test_a_sweep_that_cannot_be_analysed_is_refused(
    mnist: list[SweepJob], tmp_path: Path, change: Callable[[list[SweepJob]], list[SweepJob]], rule: str, message: str
) -> None:
    assert message in refusal(change(mnist), tmp_path, selection=rule)


# --- without a search -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_evidence")
def test_without_a_search_each_seed_is_its_own_trial(mnist: list[SweepJob], tmp_path: Path) -> None:
    """With one draw alone the choice is of steps, and the same as of trainings that are no trials."""
    store = SweepStore([job for job in mnist if job.hparams_seed == 2], tmp_path)
    options = AnalyzeOptions(selection="leave_one_domain_out", bootstrap=200)
    searched = compute(store, options)
    for run in store.trials:
        tags = run.data.tags
        run.data.tags = {n: v for n, v in tags.items() if n not in (record.TRIAL, record.REPEAT)}
        run.data.tags[record.KIND] = "train"
    trained = compute(store, options)
    assert trained.collection.scope.kind == "train"
    assert len(trained.collection.evidence) == 12
    chosen = {(choice.run_id, choice.dataset): choice.last_step for choice in _chosen(searched)}
    assert chosen == {(choice.run_id, choice.dataset): choice.last_step for choice in _chosen(trained)}
    assert len(chosen) == 12
    assert trained.scores.equals(searched.scores)


def _chosen(analysis: Analysis) -> list[Any]:
    return list(analysis.choices[analysis.choices["rule"] == analysis.rule.name].itertuples())


@pytest.mark.parametrize(
    ("error", "number", "expected"),
    [
        ("standard_deviation", 3, 3.0),
        ("standard_error", 3, 3 / math.sqrt(3)),
        ("paper", 3, math.sqrt(9 * 2 / 3) / math.sqrt(3)),  # sum of squares by n
        ("paper", 1, 0.0),
        ("standard_error", 1, math.nan),
    ],
)
def test_what_an_error_is(error: str, number: int, expected: float) -> None:
    std = math.nan if number == 1 else 3.0
    assert scores.spread_of(std, number, error) == pytest.approx(expected, nan_ok=True)


# --- ties and what is no number ---------------------------------------------------------------------------------------


def curves(*values: Sequence[float]) -> Pool:
    """A search with these curves of the monitor, tested alike."""
    set_record = record.SetRecord("d-a", "accuracy", 1, 2, 0.5, block="d", domain="a")
    candidates = []
    for draw, curve in enumerate(values):
        run = Run(str(draw), str(draw), "", "FINISHED", 0, 0, "trial", "", "", "p", "erm", trial=f"r0-{draw}")
        rows = [(name, 10 * step, value) for name in ("val/m", "test/accuracy/d-a") for step, value in enumerate(curve)]
        candidates.append(Candidate(run, History(str(draw), rows)))
    protocol = record.Protocol("s", (set_record,), ("d",), (), "val/m")
    return Pool("erm", "d-a", "0", True, (set_record,), tuple(candidates), {}, protocol)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0.5, 0.7, 0.7], [0.7, 0.1, 0.2]], ("1", (0,))),  # of trials the last
        ([[0.5, 0.7, 0.7], [0.6, 0.1, 0.2]], ("0", (10,))),  # of steps the first
        ([[0.5, 0.6, 0.8], [0.7, 0.1, 0.7]], ("0", (20,))),
        ([[math.nan, 0.2, 0.3], [0.1, math.nan, 0.2]], ("0", (20,))),  # NaN hides no other step
        ([[0.1], [math.nan, math.nan]], ("0", (0,))),
        ([[math.nan], [math.nan]], ("1", (0,))),
    ],
)
def test_ties_and_nan(values: Sequence[Sequence[float]], expected: tuple[str, tuple[int, ...]]) -> None:
    rule = TrainingDomainValidation(record.Protocol("s", (), (), (), "val/m"), 1)
    choice = next(iter(rule.choices(curves(*values))))
    assert (choice.run, choice.steps) == expected
