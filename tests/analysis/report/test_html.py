"""The report: self-contained, escaped, traceable, marked, and read in a real browser."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import shlex
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from biasbed.analysis.command import Outcome
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report import html as report
from biasbed.analysis.report import provenance
from biasbed.analysis.result import Analysis
from biasbed.analysis.selection.rules import BestEpoch
from biasbed.api.comparison import compare
from biasbed.settings import build
from biasbed.system import commands
from helpers.changed import with_inputs
from helpers.toy_runs import SETS, THREE, Recorder, fill

EVIL = "<script>alert(1)</script>"
VOID = {"meta", "br", "img", "link", "hr", "input", "wbr"}


class Page(HTMLParser):
    """Tags, their attributes and text; AssertionError where tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attributes}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


def html(outcome: Outcome) -> str:
    return (outcome.output_dir / "report.html").read_text(encoding="utf-8")


def rendered(analysis: Analysis, folder: Path) -> str:
    """The report of an analysis, without figures."""
    report.prepare(analysis, folder).write()
    return (folder / "report.html").read_text(encoding="utf-8")


def test_it_needs_nothing_else_and_runs_one_script_only(outcome: Outcome) -> None:
    text = html(outcome)
    page = Page(text)
    for source in page.values("src"):
        assert source.startswith("data:image/png;base64,")
        base64.b64decode(source.split(",", 1)[1], validate=True)
    assert page.values("viewbox")
    files = {link for link in page.values("href") if not link.startswith("#")}
    assert {"scores.csv", "tables/scores.tex", "figures/critical_difference.pdf"} <= files
    assert all((outcome.output_dir / name).is_file() for name in files)
    assert not re.search(r"@import|url\((?!#)|xmlns", text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert len(scripts) == 1
    assert f"script-src 'sha256-{digest}'" in policy


def test_every_number_leads_to_its_runs(outcome: Outcome) -> None:
    text, analysis = html(outcome), outcome.analysis
    page = Page(text)
    ids = Counter(page.values("id"))
    assert max(ids.values()) == 1
    assert {link[1:] for link in page.values("href") if link.startswith("#")} <= set(ids)
    for algorithm, name in ((a, s) for a in analysis.algorithms for s in analysis.set_names):
        cell = analysis.cells[algorithm, name]
        link = re.search(rf'href="#(runs-\d+)">(?:<[^>]+>)*{re.escape(cell.mean_text)}<', text)
        assert link, (algorithm, name)
    for position, algorithm in enumerate(analysis.algorithms):
        row = re.search(rf'<tr id="runs-{position}">.*', text)
        assert row
        assert algorithm in row[0].replace("<wbr>", "")
    for run in analysis.collection.runs:
        row = re.search(rf'<tr id="(run-\d+)">[^\n]*{run.id}[^\n]*', text)
        assert row
        assert f'href="#{row[1]}"' in text
        assert run.git_commit[:10] in row[0]
        assert run.data_fingerprint in row[0]


def test_runs_of_a_web_server_are_linked_and_of_nothing_else(outcome: Outcome, tmp_path: Path) -> None:
    run = outcome.analysis.collection.runs[0]
    assert provenance.run_url("https://host:5000/", run).startswith("https://host:5000/#/experiments/")
    assert provenance.run_url("javascript:alert(1)//http://", run) == ""
    assert provenance.run_url("sqlite:///mlflow.db", run) == ""
    web = with_inputs(outcome.analysis, origin='https://host"><script>alert(1)</script>')
    text = rendered(web, tmp_path)
    assert text.count("<script") == 1
    assert f"runs/{run.id}" in text


@pytest.mark.usefixtures("without_figures", "few_draws")
def test_nothing_from_the_server_is_read_as_html(recorder: Recorder) -> None:
    fill(recorder, {EVIL: THREE["erm"], **THREE}, study=EVIL, **{"biasbed.git_commit": EVIL})
    outcome = recorder.analyze()
    sets = tuple(
        dataclasses.replace(column, set_record=dataclasses.replace(column.set_record, made_by=EVIL))
        for column in outcome.analysis.sets
    )
    hostile = dataclasses.replace(outcome.analysis, sets=sets, notes=(EVIL,))
    vars(hostile)["versions"] = {"biasbed": EVIL, EVIL: "1"}
    for text in (html(outcome), rendered(hostile, recorder.folder)):
        Page(text)
        assert text.count("<script") == 1
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert EVIL not in text


def test_names_in_a_user_s_table_are_not_read_as_html(tmp_path: Path) -> None:
    scores = pd.DataFrame({EVIL: [50.0, 60.0, 70.0], "b": [60.0, 50.0, 80.0]}, index=[f"{EVIL} {i}" for i in range(3)])
    text = rendered(compare(scores, rows="datasets").analysis, tmp_path)
    Page(text)
    assert text.count("<script") == 1
    assert text.count("&lt;script&gt;") > 5
    assert EVIL not in text


def test_oracle_numbers_are_marked_in_every_table(outcome: Outcome, tmp_path: Path) -> None:
    captions = re.findall(r'<p class="caption">(.*?)</p>', html(outcome))
    marked = [caption for caption in captions if "ORACLE" in caption]
    assert len(captions) > len(marked) == 1
    assert all("own best epoch" in caption for caption in marked)
    text = rendered(with_inputs(outcome.analysis, rule=BestEpoch(outcome.analysis.collection.protocol, 1)), tmp_path)
    captions = re.findall(r'<p class="caption">(.*?)</p>', text)
    assert [caption for caption in captions if "ORACLE" not in caption] == [
        caption for caption in captions if caption.startswith(("What is compared", "Every run: its MLflow id"))
    ]
    assert "ORACLE numbers" in text


@pytest.mark.usefixtures("without_figures", "few_draws")
def test_the_command_of_the_report_computes_the_same(recorder: Recorder) -> None:
    fill(recorder, THREE)
    options = {"alpha": "0.1", "control": "erm", "sets": "edge,sketch,plain", "order": "padain", "rope": "2.0"}
    outcome = recorder.analyze(**options)
    typed = shlex.split(provenance.command(outcome.analysis))
    words = commands.parse_settings(typed[typed.index("analyze") + 1 :])
    assert {name: words[name] for name in options} == options
    assert set(words) == {*options, "suite", "study", "protocol"}
    again = recorder.analyze(**words)
    assert again.analysis.scores.equals(outcome.analysis.scores)
    assert build(AnalyzeOptions, {"alpha": "0.1"}).alpha == again.analysis.alpha


# --- in a browser -----------------------------------------------------------------------------------------------------

PROBE = """<script>
const page = document.documentElement;
const wide = (e) => e.getBoundingClientRect().right > page.clientWidth + 1 && !e.closest(".scroll, .wide");
const outside = [...document.querySelectorAll("main *")].filter(wide).map((e) => e.tagName + "." + e.className);
const table = document.querySelector("table");
table.tHead.rows[0].cells[3].click();
const column = [...table.tBodies[0].rows].map((row) => Number(row.cells[3].dataset.v));
const result = [page.clientWidth, page.scrollWidth, column.join(","), outside.slice(0, 5).join(" ")];
parent.postMessage(result.join("|"), "*");
</script></body>"""
FRAME = """<script>addEventListener("message", (e) => { document.title = `PROBE ${e.data} END`; });</script>
<iframe src="page.html" style="width: WIDTHpx; height: 900px; border: 0"></iframe>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser_nothing_is_wider_than_the_page_and_tables_sort(
    outcome: Outcome, tmp_path: Path, width: int
) -> None:
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html(outcome))
    (tmp_path / "page.html").write_text(text.replace("</body>", PROBE), encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")  # as narrow as a phone
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    words = ["chromium", *options, "--virtual-time-budget=5000", "--dump-dom", (tmp_path / "frame.html").as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    title = re.search(r"<title>PROBE (.*?) END</title>", done.stdout)
    assert title, done.stderr[-1000:]
    page_width, content_width, column, outside = title[1].split("|")
    assert int(page_width) <= width
    assert int(content_width) <= int(page_width)
    assert outside == ""
    values = [float(value) for value in column.split(",")]
    assert values == sorted(values)
    assert len(set(values)) > 1


# --- how much is read before anything unfolds -------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    return re.sub(r"<[^>]+>", " ", text).split()


def test_the_scores_come_soon_and_the_prose_is_short(outcome: Outcome) -> None:
    """Under 120 words before their table; at most 300 in the four answers, under either choice of sets."""
    page = html(outcome)
    body = re.sub(r'<details class="contents">.*?</details>', "", page[page.index("<main>") :])  # folded
    assert len(words_of(body[: body.index('<div class="table">')])) < 120
    answers = body[body.index('<h2 id="concluded">') : body.index('<h2 id="details">')]
    shown = re.sub(r"<details.*?</details>", "", answers, flags=re.S)
    for setting in range(len(outcome.analysis.comparisons)):
        parts = [part for part in re.split(r'(?=<div class="of of-)', shown) if f"of of-{setting}" in part[:25]]
        assert parts
        assert 0 < len(words_of(" ".join(parts))) <= 300


@pytest.mark.usefixtures("without_figures", "few_draws")
def test_of_a_column_of_ties_none_is_the_best(recorder: Recorder) -> None:
    for name in ("erm", "mine"):
        for seed in range(2):
            recorder.train(name, seed, (0.5, *(0.5 + 0.1 * (name == "mine") for _ in SETS[1:])))
    analysis = recorder.analyze().analysis
    tied, *others = analysis.set_names
    assert not any(analysis.cells[name, tied].best for name in analysis.algorithms)
    assert [analysis.cells["mine", name].best for name in others] == [True] * len(others)
