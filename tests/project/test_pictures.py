"""Pages in a real browser: MLflow's after a study and after an import, and the report.

With BIASBED_SHOTS=<folder> the pictures are kept, to be looked at.
"""

from __future__ import annotations

import html
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

import pytest

from biasbed import record
from biasbed.analysis.command import Outcome
from biasbed.tracking import comparison
from biasbed.tracking.pages import Pages
from helpers.commands import ROOT
from helpers.toy_runs import THREE, Recorder, fill

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pictures = load_script()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("BIASBED_SHOTS", tmp_path / "shots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def browser(tmp_path: Path) -> object:
    return pictures.Browser(tmp_path / "profile")


def words(page: str) -> str:
    """Return the text of a page."""
    page = re.sub(r"<(style|script)\b.*?</\1>", " ", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.fixture
def studied(tracking: str, tmp_path: Path) -> Iterator[tuple[Outcome, Pages, str]]:
    """(analysis, pages, the study's run) of a study of three methods, as MLflow shows it."""
    recorder = Recorder(tracking, tmp_path)
    tags = {record.KIND: "study", record.STUDY: "main", record.SUITE: "toy"}
    own = recorder.client.create_run(recorder.experiment, tags=tags, run_name="study-main").info.run_id
    fill(recorder, THREE, seeds=2, study="main")
    for run in recorder.client.search_runs([recorder.experiment], "tags.`biasbed.kind` = 'train'"):
        for short in ("shape_bias", "plain", "edge", "val"):
            recorder.client.log_metric(run.info.run_id, f"best/{short}", 0.25 if short == "edge" else 0.75)
    outcome = recorder.analyze(study="main")
    with pictures.served(tracking) as pages:
        yield outcome, pages, own


def test_mlflow_answers_at_first_sight(studied: tuple[Outcome, Pages, str], browser: object, shots: Path) -> None:
    """Numbers without a click: above the table of runs, in the view, as curves, on the study's own page."""
    outcome, pages, own = studied
    (view,) = comparison.compare_study(outcome.analysis.tracking_uri, "main")
    table = pages.experiment(view.experiment, **view.query)
    curves = f"{table}&compareRunsMode=CHART"
    shown = {
        "runs": (pages.experiment(view.experiment), ["Study main", "Compare as a table", "study-main"]),
        "table": (table, ["erm", "infodrop"]),
        "curves": (curves, ["test/accuracy"]),
        "study": (pages.run(view.experiment, own), ["study-main", "Description", "mean/edge/erm"]),
        "analysis": (pages.run(view.experiment, outcome.run_id), ["analysis-toy-main", "Description"]),
    }
    for name, (address, expected) in shown.items():
        text = words(browser.text(address))  # type: ignore[attr-defined]
        assert not [part for part in expected if part not in text], (name, text[:1500])
        browser.picture(address, shots / f"{name}.png", 1400, 1000)  # type: ignore[attr-defined]
        assert (shots / f"{name}.png").stat().st_size > 10_000


@pytest.mark.usefixtures("studied")
def test_the_report_is_read_on_any_screen(studied: tuple[Outcome, Pages, str], browser: object, shots: Path) -> None:
    outcome, _, _ = studied
    address = f"file://{quote(str(outcome.output_dir / 'report.html'))}"
    for name, width, more in (("report", 1400, ()), ("phone", 500, ()), ("dark", 1400, ("--force-dark-mode",))):
        browser.picture(address, shots / f"{name}.png", width, 900, *more)  # type: ignore[attr-defined]
    browser.paper(address, shots / "report.pdf")  # type: ignore[attr-defined]
    number = len(re.findall(rb"/Type\s*/Page\b", (shots / "report.pdf").read_bytes()))
    assert 2 <= number <= 10
