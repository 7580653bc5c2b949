"""The report's text, kept as it is for five studies, and its numbers beside those of the CSV files."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from biasbed.analysis.report import data_files, html, summary
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from helpers.report_studies import ALL, Study
from helpers.report_text import pieces
from helpers.toy_runs import Recorder

KEPT = Path(__file__).with_name("sentences")
NAME = r"([a-z](?:@\w+)?)"
NUMBER = r"([+-]?\d+(?:\.\d+)?)"
PAIR = (
    rf"{NAME} is better than {NAME} by {NUMBER} points? on average over the sets \(\d+% interval {NUMBER} to {NUMBER}\)"
)


class Report(NamedTuple):
    text: str  # a line for each paragraph of the page's running text
    effects: pd.DataFrame  # effects.csv; no rows without tests over sets
    summary: str  # in one line
    omnibus: set[tuple[str, str]]  # Friedman's chi-square and Kendall's W of each choice of sets


@pytest.fixture(scope="module", params=ALL, ids=[study.name for study in ALL])
def study(request: pytest.FixtureRequest) -> Study:
    parameter: Study = request.param
    return parameter


@pytest.fixture(scope="module")
def report(study: Study, _empty_store: Path, once: Callable[..., Any]) -> Report:
    """Text that a reader of the page reads, and the numbers behind it; without figures."""
    return once(f"report_of_{study.name}", functools.partial(render, study, _empty_store))


def render(study: Study, empty_store: Path, folder: Path) -> Report:
    (folder / "mlflow.db").write_bytes(empty_store.read_bytes())
    recorder = Recorder(f"sqlite:///{folder / 'mlflow.db'}", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIASBED_HOME", str(folder / "home"))
        study.log(recorder)
        analysis = compute(RunStore(recorder.uri), recorder.options(**{"names": "none"} | study.options))
        html.prepare(analysis, folder).write()
    page = (folder / html.REPORT).read_text(encoding="utf-8")
    lines: list[str] = []
    section = ""
    for piece in pieces(page):
        if piece.section != section:
            section = piece.section
            lines.append("")
        lines.append(piece.text)
    effects = data_files.frames(analysis).get("effects.csv", (pd.DataFrame(columns=["a", "b"]), ""))[0]
    tests = [comparison.friedman for comparison in analysis.comparisons if comparison.friedman is not None]
    omnibus = {(f"{test.chi2:.3f}", f"{test.kendall_w:.2f}") for test in tests}
    return Report("\n".join(lines).strip() + "\n", effects, " ".join(summary.render(analysis).split()), omnibus)


def without_hashes(text: str) -> str:
    """The text without ids of runs, hashes, dates and versions, which differ each time."""
    text = re.sub(r"\b[0-9a-f]{6,32}\b", "<hash>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?", "<date>", text)
    return re.sub(r"\b\d+\.\d+\.\d+(\.?\w+)?", "<version>", text)


def test_the_text_is_the_one_that_is_kept(study: Study, report: Report, renew: bool) -> None:
    path, text = KEPT / f"{study.name}.txt", without_hashes(report.text)
    if renew:
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_the_differences_in_the_sentences_are_those_of_the_file(report: Report) -> None:
    """Every pair is checked that a sentence names with its difference and interval."""
    effects = report.effects
    for better, worse, *numbers in re.findall(PAIR, report.text):
        rows = effects[(effects["a"] == better) & (effects["b"] == worse)].assign(sign=1)
        turned = effects[(effects["a"] == worse) & (effects["b"] == better)].assign(sign=-1)
        candidates = []
        for row in pd.concat([rows, turned]).to_dict("records"):
            bounds = sorted(row["sign"] * row[name] for name in ("bootstrap_low", "bootstrap_high"))
            candidates.append([f"{value:.1f}" for value in (row["sign"] * row["mean_difference"], *bounds)])
        assert numbers in candidates


def test_the_omnibus_test_in_the_summary_is_that_of_the_analysis(report: Report) -> None:
    shown = re.findall(rf"chi-square = {NUMBER}, .*?Kendall's W = {NUMBER}", report.summary)
    assert set(shown) == report.omnibus
