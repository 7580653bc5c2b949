"""The results site: the analysis' numbers, links that resolve, nothing loaded from elsewhere, one protocol a table."""

from __future__ import annotations

import dataclasses
import html
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from biasbed import published, record
from biasbed.analysis.command import Outcome
from biasbed.analysis.report.answer import answer_sentences
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.shape_bias import SHAPE_BIAS
from biasbed.errors import Failure, UsageError
from biasbed.plugins.site import pages, ranking
from biasbed.plugins.site.command import site
from biasbed.plugins.site.options import SiteOptions
from biasbed.plugins.site.ranking import Ranking
from biasbed.settings import build
from helpers.changed import with_inputs
from helpers.sizes import draw_few
from helpers.toy_runs import SETS, THREE, Recorder, fill, make_protocol


class Page(HTMLParser):
    """Links, ids and tables of a page: a table is a list of rows, a row a list of (text, key, link)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.tables: list[list[list[tuple[str, str, str]]]] = []
        self.titles: list[str] = []
        self._cell: list[str] | None = None
        self._key = self._href = ""
        self._is_title = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids += [values["id"]] if "id" in values else []
        self.sources += [values[name] for name in ("src", "xlink:href") if name in values]
        if tag == "a":
            self.links.append(values["href"])
            self._href = values["href"]
        elif tag == "br" and self._cell is not None:
            self._cell.append(" ")
        elif tag == "link":
            self.sources.append(values["href"])
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell, self._key, self._href = [], values.get("data-v", ""), ""
        self._is_title = tag == "title"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append(("".join(self._cell).strip(), self._key, self._href))
            self._cell = None
        self._is_title = False

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        if self._is_title:
            self.titles.append(data)


def column(table: list[list[tuple[str, str, str]]], head: str) -> list[tuple[str, str, str]]:
    """Return a column's cells by its head."""
    heads = [text for text, _, _ in table[0]]
    return [row[heads.index(head)] for row in table[1:]]


def rows_of(table: list[list[tuple[str, str, str]]], analysis: Analysis) -> list[str]:
    """Return the ids of a table's rows, whose names may be marked as the baseline."""
    by_label = {analysis.label(name): name for name in analysis.algorithms}
    return [by_label[text.removesuffix(" baseline")] for text, _, _ in column(table, "algorithm")]


def first_number(text: str) -> str:
    return re.split(r"[ ±†]", text)[0]


@pytest.fixture(scope="session")
def analyses(full: tuple[Outcome, Recorder], published: Analysis) -> list[Analysis]:
    return [full[0].analysis, published]


@pytest.fixture(scope="session")
def folder(analyses: list[Analysis], once: Callable[..., Any]) -> Path:
    """A site of two studies; tests only look at it."""

    def make(folder: Path) -> str:
        rankings = [Ranking(analysis, {("erm", "sketch"): "3 of 4 right, 2 runs"}) for analysis in analyses]
        pages.write(rankings, ["other (toy): <b>no</b>"], folder)
        return str(folder)

    return Path(once("site", make))


def tables_of(folder: Path) -> Iterator[Page]:
    for path in sorted(folder.glob("table-*.html")):
        yield Page(path)


def test_scores_and_ranks_are_those_of_the_analysis(folder: Path, analyses: list[Analysis]) -> None:
    for page, analysis in zip(tables_of(folder), analyses, strict=True):
        scores = page.tables[0]
        rows = rows_of(scores, analysis)
        assert sorted(rows) == sorted(analysis.algorithms)
        for name in analysis.set_names:
            for algorithm, (text, key, link) in zip(rows, column(scores, analysis.label(name)), strict=True):
                cell = analysis.cells[algorithm, name]
                assert first_number(text) == cell.mean_text
                assert float(key) == cell.mean
                assert cell.std_text in text
                assert link.startswith(f"method-{algorithm}.html#")
        stars = {}
        for name, ranks in analysis.comparisons[0].rank_sets.items():
            stars[name] = f"{ranks}*" if ranks.best == 1 else str(ranks)
        assert dict(zip(rows, (text for text, _, _ in column(scores, "ranks")), strict=True)) == stars


def test_a_page_of_a_method_has_its_ranks_of_every_table(folder: Path, analyses: list[Analysis]) -> None:
    text = (folder / "method-erm.html").read_text()
    for analysis in analyses:
        ranks = analysis.comparisons[0].rank_sets["erm"]
        assert f"{ranks}</b> of {len(analysis.algorithms)}" in text


def test_pages_of_methods_and_sets_keep_protocols_apart(folder: Path, analyses: list[Analysis]) -> None:
    page = Page(folder / "method-erm.html")
    of_scores = [table for table in page.tables if table[0][0][0] == "set"]
    for table, analysis in zip(of_scores, analyses, strict=True):
        assert [row[0][0] for row in table[1:]] == [*map(analysis.label, analysis.set_names)]
        for name, (text, key, _) in zip(analysis.set_names, column(table, "score"), strict=True):
            assert (first_number(text), float(key)) == (
                analysis.cells["erm", name].mean_text,
                analysis.cells["erm", name].mean,
            )
    assert "3 of 4 right, 2 runs" in [text for text, _, _ in column(of_scores[0], "predictions")]
    for suite, analysis in zip(("toy", "biasbed"), analyses, strict=True):
        table = Page(folder / f"set-{suite}-sketch.html").tables[0]
        values = [float(key) for _, key, _ in column(table, "score")]
        assert values == [analysis.cells[name, "sketch"].mean for name in rows_of(table, analysis)]
        assert values == sorted(values, reverse=True)  # accuracies: the best first


def test_shape_bias_stands_on_the_pages_of_methods_and_sets(folder: Path, analyses: list[Analysis]) -> None:
    analysis = next(analysis for analysis in analyses if len(analysis.data(SHAPE_BIAS).table))
    suite = analysis.collection.scope.suite
    for row in analysis.data(SHAPE_BIAS).table.to_dict("records"):
        name, shown = analysis.label(row["dataset"]), f"{row['mean']:.1f}"
        method = Page(folder / f"method-{record.slug(row['algorithm'])}.html")
        (table,) = [table for table in method.tables if ("shape bias", "", "") in table[0]]
        biases = dict(zip(*[[cell[0] for cell in column(table, head)] for head in ("set", "shape bias")], strict=True))
        assert first_number(biases[name]) == shown
        (table,) = Page(folder / f"set-{suite}-{record.slug(row['dataset'])}.html").tables
        biases = dict(zip(rows_of(table, analysis), (text for text, *_ in column(table, "shape bias")), strict=True))
        assert first_number(biases[row["algorithm"]]) == shown


def test_a_table_that_is_no_number_for_a_paper_is_marked_on_every_page(
    analyses: list[Analysis], tmp_path: Path
) -> None:
    collection = analyses[0].collection
    protocol = dataclasses.replace(collection.protocol, limit=8)
    cells = (dataclasses.replace(collection.cells[0], protocol=protocol),)
    limited = with_inputs(analyses[0], collection=dataclasses.replace(collection, cells=cells))
    pages.write([Ranking(limited, {}), Ranking(analyses[1], {})], [], tmp_path)
    for name in ("index.html", "method-erm.html", "set-toy-sketch.html"):
        text = (tmp_path / name).read_text()
        assert "do not publish these numbers" in text
        assert 'class="mark"' in text
    for path in [*tmp_path.glob("table-2*"), *tmp_path.glob("set-biasbed*")]:
        assert "do not publish these numbers" not in path.read_text()


def test_all_links_resolve_and_nothing_is_loaded_from_elsewhere(folder: Path) -> None:
    files = {path.name: Page(path) for path in folder.glob("*.html")}
    assert len(files) > 20
    papers = {ranking.url_of("BiasBed - Rigorous Texture Bias Evaluation")}
    for name, page in files.items():
        assert len(page.ids) == len(set(page.ids)), name
        assert set(page.sources) == {"site.css", "site.js"}, name
        assert "default-src 'none'" in (folder / name).read_text()
        assert {link for link in page.links if "://" in link} <= papers  # a link is followed, and loads nothing
        for link in set(page.links) - papers:
            file, _, anchor = link.partition("#")
            target = files[file or name]
            assert not anchor or anchor in target.ids, f"{name}: {link}"
    assert not re.search(r"https?:|@import|url\(", (folder / "site.css").read_text())
    assert not re.search(r"https?:|fetch\(|XMLHttpRequest", (folder / "site.js").read_text())


def test_the_start_page_leads_to_all_others_and_names_what_is_left_out(folder: Path) -> None:
    page = Page(folder / "index.html")
    assert {path.name for path in folder.glob("*.html")} - {"index.html"} <= set(page.links)
    assert "other (toy): &lt;b&gt;no&lt;/b&gt;" in (folder / "index.html").read_text()


def test_names_with_one_identifier_have_pages_of_their_own() -> None:
    files = pages.number_files("set", ["a b", "a_b", "A B", "c"])
    assert list(files.values()) == ["set-a_b.html", "set-a_b~2.html", "set-a_b~3.html", "set-c.html"]


# --- baseline, verdicts ----------------------------------------------------------------------------------------


def test_the_start_page_has_the_first_sentences_of_the_report(folder: Path, analyses: list[Analysis]) -> None:
    text = html.unescape(re.sub(r"<(?!br)[^>]*>", "", (folder / "index.html").read_text()))
    for analysis in analyses:
        lines = answer_sentences(analysis)
        assert any("may be first (*)" in line for line in lines)
        assert "<br>".join(lines) in text


# --- editions ---------------------------------------------------------------------------------------------------------


def test_two_editions_say_why_they_are_apart(analyses: list[Analysis]) -> None:
    """The second is the first with one row less and one score moved."""
    analysis = analyses[1]
    ours = Ranking(analysis, {})
    scope = dataclasses.replace(analysis.collection.scope, study="published_domainbed")
    gone, *kept = analysis.algorithms
    scores = analysis.scores[analysis.scores["algorithm"] != gone].copy()
    moved = (scores["algorithm"] == kept[0]) & (scores["dataset"] == analysis.set_names[0])
    scores.loc[moved, "mean"] += 1
    chosen = dataclasses.replace(analysis.rules.chosen, scores=scores)
    theirs = dataclasses.replace(
        with_inputs(analysis, collection=dataclasses.replace(analysis.collection, scope=scope)),
        algorithms=tuple(kept),
        rules=dataclasses.replace(analysis.rules, chosen=chosen),
    )
    other = Ranking(theirs, {})
    (line,) = ranking.apart(ours, {"a.html": ours, "b.html": other})
    assert line.href == "b.html"
    assert f"Of {len(kept) * len(analysis.set_names)} scores that both have, 1 differ" in line.reason
    assert f"Only here: {analysis.label(gone)}." in line.reason
    assert "Only there" not in line.reason
    assert ranking.edition(other)
    assert line.reason.endswith(f"There: {ranking.edition(other)}")
    (back,) = ranking.apart(other, {"a.html": ours, "b.html": other})
    assert f"Only there: {analysis.label(gone)}." in back.reason


# --- the command ------------------------------------------------------------------------------------------------------


def options(recorder: Recorder, **values: str) -> SiteOptions:
    defaults = {"tracking_uri": recorder.uri, "output_dir": str(recorder.folder / "site")}
    return build(SiteOptions, defaults | values)


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_each_study_and_each_protocol_has_a_table_of_its_own(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(recorder, THREE, study="main")
    fill(recorder, THREE, study="main", protocol=make_protocol(SETS, training_sets=("other",)), tested="x")
    recorder.train("erm", 0, study="more", protocol_file=None)
    made = site(options(recorder))
    assert len(list(made.glob("table-*.html"))) == 2
    assert "left out: more (toy): no run of protocol" in capsys.readouterr().out
    for page in tables_of(made):
        rows = [text for text, _, _ in column(page.tables[0], "algorithm")]
        assert sorted(rows) == ["ERM baseline", "InfoDrop", "pAdaIN"]
        ranks = [float(key) for _, key, _ in column(page.tables[0], "ranks")]
        assert ranks == sorted(ranks)  # by average rank
    assert "no decisions are stored" in (made / "method-erm.html").read_text()


def test_bad_input_is_refused_in_one_line(recorder: Recorder) -> None:
    with pytest.raises(Failure, match=r"^there is nothing to show: no finished runs on "):
        site(options(recorder))
    recorder.train("erm", 0, study="main")
    with pytest.raises(UsageError, match=r"^studies=man: no finished run has the study 'man'.*main"):
        site(options(recorder, studies="man"))
    (recorder.folder / "site").mkdir()
    (recorder.folder / "site" / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match=r"^output_dir=.*: holds other files; name a new folder") as refused:
        site(options(recorder))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_papers_are_shown_beside_studies_or_alone(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "names", lambda: ("robustness_svsf",))
    for study in ("main", "more"):
        fill(recorder, THREE, study=study)
    made = site(options(recorder, studies="main", published="true"))
    names = [path.name.partition("-")[2].partition("-")[2] for path in made.glob("table-*.html")]
    assert sum(name.startswith("published_robustness_svsf") for name in names) == 1
    assert sum(name.startswith(("main", "more")) for name in names) == 1
    with pytest.raises(UsageError, match=r"studies=none: shows nothing; add published=true"):
        options(recorder, studies="none")


def test_pages_name_no_folder_of_this_machine(folder: Path, recorder: Recorder) -> None:
    assert pages.store_name("sqlite:////home/me/runs.db") == "local file runs.db"
    assert pages.store_name("https://mlflow.example.org") == "https://mlflow.example.org"
    for path in folder.glob("table-*.html"):
        assert "sqlite:///" not in path.read_text()


# --- slow -------------------------------------------------------------------------------------------------------------

PROBE = """<script>
const table = document.querySelector("table");
const head = [...table.tHead.rows[table.tHead.rows.length - 1].cells].findIndex((cell) => cell.innerText === "Sketch");
const keys = () => [...table.tBodies[0].rows].map((row) => row.cells[head].dataset.v).join(",");
table.tHead.rows[0].cells[head].dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
const up = keys();
table.tHead.rows[0].cells[head].click();
const down = keys();
table.tHead.rows[0].cells[head].click();
const written = keys();
const saved = document.querySelector("a.copy");
saved.addEventListener("click", (event) => event.preventDefault());
saved.click();
const lines = decodeURIComponent(saved.href).split("\\n");
const skip = document.querySelector(".table a.skip").hash.slice(1);
const isSkipped = document.querySelector("table").compareDocumentPosition(document.getElementById(skip)) === 4;
const input = document.querySelector(".filter input");
input.value = "erm";
input.dispatchEvent(new Event("input"));
const left = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[0].innerText).join(",");
document.title = `PROBE ${[up, down, written, lines.length, lines[0], isSkipped, left].join("|")} END`;
</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_in_a_browser_tables_sort_by_number_and_filter_by_words(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "site")
    file = sorted((tmp_path / "site").glob("table-2*.html"))[0]
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", file.read_text())
    values = ["9.5", "70.25", "-inf", "100.0", "8.0", "56.5", "1.0", "inf"]
    rows = re.findall(r"<tr><td.*?</tr>", text.partition("<tbody>")[2], re.S)[: len(values)]
    position = [cell[0] for cell in Page(file).tables[0][0]].index("Sketch")
    for row, value in zip(rows, values, strict=True):
        cells = re.findall(r"<td.*?</td>", row, re.S)
        text = text.replace(row, row.replace(cells[position], f'<td data-v="{value}">{value}</td>'))
    file.write_text(text.replace("</body>", PROBE))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    words = ["chromium", *options, "--virtual-time-budget=5000", "--dump-dom", file.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    probed = re.search(r"<title>PROBE (.*?) END</title>", done.stdout)
    assert probed, done.stderr[-1000:]
    up, down, written, lines, heads, is_skipped, left = probed[1].split("|")
    assert [float(value) for value in up.split(",")] == sorted(map(float, values))
    assert [float(value) for value in down.split(",")] == sorted(map(float, values), reverse=True)
    assert written.split(",") == values  # a third click returns to the order of the page
    assert int(lines) == len(values) + 2  # heads, rows, the end
    assert heads.startswith("data:text/csv;charset=utf-8,algorithm,ranks,mean,")
    assert is_skipped == "true"
    assert set(left.split(",")) == {"ERM baseline", "Stylized ERM"}


@pytest.mark.slow
def test_the_results_of_all_papers_fit(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under 5 MB, a table for each edition, protocol and rule."""
    draw_few(monkeypatch)
    made = site(options(recorder, published="true"))
    assert sum(path.stat().st_size for path in made.iterdir()) < 5e6
    rules = {(name, run.rule, run.n) for name in published.names() for run in published.find(name).runs()}
    assert len(list(made.glob("table-*.html"))) == len(rules)


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_a_suite_that_only_tested_models_have_is_shown(recorder: Recorder) -> None:
    """Recorded decisions have a suite of their own, which no training has."""
    for row in ("a", "b"):
        recorder.train(row, 0, **{record.SUITE: "decisions", record.KIND: "evaluate"})
    assert recorder.analyze(suite="decisions").analysis.collection.scope.suite == "decisions"
    made = site(options(recorder))
    assert len(list(made.glob("table-*.html"))) == 1
