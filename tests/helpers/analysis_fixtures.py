"""Temporary tracking servers: an empty one for each test, one with runs that are analysed for all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from biasbed.analysis.command import Outcome
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections import all_sections
from biasbed.settings import build
from helpers.sizes import draw_few, without_sizes
from helpers.toy_runs import THREE, Recorder, fill


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's MLflow settings or writes into the user's home."""
    for name in ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture
def recorder(_empty_store: Path, tmp_path: Path) -> Recorder:
    """Return an empty tracking server."""
    shutil.copy(_empty_store, tmp_path / "mlflow.db")
    return Recorder(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)


@pytest.fixture(scope="session")
def full(_empty_store: Path, once: Callable[..., Any]) -> tuple[Outcome, Recorder]:
    """Return seven runs of four algorithms, analysed with everything; tests only look at it."""
    outcome: tuple[Outcome, Recorder] = once("full", lambda folder: _make_full(_empty_store, folder))
    return outcome


def _make_full(_empty_store: Path, folder: Path) -> tuple[Outcome, Recorder]:
    shutil.copy(_empty_store, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIASBED_HOME", str(folder / "home"))
        patch.delenv("MLFLOW_RUN_ID", raising=False)
        recorder = Recorder(f"sqlite:///{folder / 'mlflow.db'}", folder)
        fill(recorder, THREE)
        recorder.train("stylized_erm", 0, (0.6, 0.4, 0.5, 0.6, 0.5, 0.55), training_data={"stylized": 1.0})
        return recorder.analyze(drawn=True), recorder


@pytest.fixture(scope="session")
def published(published_uri: str, once: Callable[..., Any]) -> Analysis:
    """Return the imported BiasBed results, analysed with everything; tests only look at it."""

    def make(folder: Path) -> Analysis:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BIASBED_HOME", str(folder / "home"))
            options = build(AnalyzeOptions, {"tracking_uri": published_uri, "study": "published_biasbed"})
            return compute(RunStore(published_uri), options, all_sections())

    analysis: Analysis = once("analysis_of_published", make)
    return analysis


@pytest.fixture
def outcome(full: tuple[Outcome, Recorder]) -> Outcome:
    return full[0]


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take seconds; tests of other things do without."""
    from biasbed.analysis.report import figures

    monkeypatch.setattr(figures, "_without_marks", lambda analysis: iter(()))


@pytest.fixture
def one_figure(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`one_figure(beginning)`: of the figures, those whose names begin so are saved."""
    from biasbed.analysis.report import figures

    every = figures._without_marks

    def keep(beginning: str) -> None:
        def kept(analysis: Analysis) -> Iterator[tuple[str, Any, str]]:
            return (one for one in every(analysis) if one[0].startswith(beginning))

        monkeypatch.setattr(figures, "_without_marks", kept)

    return keep


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations take most of an analysis of few runs; where their numbers are not the subject, coarse ones do."""
    draw_few(monkeypatch)


@pytest.fixture
def without_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Effects, stability and power take most of an analysis; tests of what is compared do without."""
    monkeypatch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
