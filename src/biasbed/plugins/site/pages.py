"""Pages of the results site: a start page, one for each table, method and set, and the files that they share.

Answers: Which pages does the results site have, and what is on them?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar

from biasbed import record
from biasbed.analysis.columns import Column, by_name
from biasbed.analysis.report import html as report
from biasbed.analysis.report import provenance, wording
from biasbed.analysis.report.answer import answer_sentences, further_sentences
from biasbed.analysis.report.table_model import (
    ReportTable,
    TableCell,
    count_cell,
    make_table,
    prepared_columns,
    text_cell,
)
from biasbed.analysis.report.verdicts import main_comparison
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.run import Run
from biasbed.analysis.sections import single_sets, study_design
from biasbed.analysis.sections.averages import make_average_table
from biasbed.analysis.sections.ranks import conclusions
from biasbed.analysis.sections.ranks.conclusions import CONCLUSIONS
from biasbed.analysis.sections.ranks.tables import make_pair_table
from biasbed.analysis.sections.study_design import STUDY_DESIGN
from biasbed.plugins.site import charts, tables
from biasbed.plugins.site.ranking import PUBLISHED, Ranking, apart, spread_sentence
from biasbed.plugins.site.tables import SiteLinks
from biasbed.system import commands

TEMPLATES = Path(__file__).parent / "templates"
MOST_PAIRS = 12  # more are folded
INDEX, STYLE, SCRIPT = "index.html", "site.css", "site.js"


class _NoFiles:
    """Stand-in for the report's files beside a table: the site has none."""

    def beside(self, names: str) -> list[str]:
        return []


def write(rankings: Sequence[Ranking], left_out: Sequence[str], folder: Path) -> dict[str, str]:
    """Write all pages into an empty folder; return file name -> what it is."""
    environment = report.make_environment(TEMPLATES, report.TEMPLATES)
    environment.globals |= {"files": _NoFiles(), "site_index": INDEX, "site_style": STYLE, "site_script": SCRIPT}
    written = {}
    for file, page in SitePages(rankings, left_out).pages().items():
        text = environment.get_template(page.template).render(page.values)
        (folder / file).write_text(text, encoding="utf-8")
        written[file] = page.description
    for shared, ours in (("report.css", STYLE), ("report.js", SCRIPT)):
        text = (report.TEMPLATES / shared).read_text(encoding="utf-8")
        (folder / ours).write_text(text + (TEMPLATES / ours).read_text(encoding="utf-8"), encoding="utf-8")
    return written | {STYLE: "style of all pages", SCRIPT: "script of all pages"}


class SuiteSet(NamedTuple):
    """Evaluation set of a suite. Sets of several suites may have one name and other images."""

    suite: str
    name: str

    def __str__(self) -> str:
        return f"{self.suite}-{self.name}"


PageName = TypeVar("PageName", str, SuiteSet)


def number_files(kind: str, names: Iterable[PageName]) -> dict[PageName, str]:
    """Return name -> file of its page. A file is numbered if another name gives the same identifier."""
    files: dict[PageName, str] = {}
    for name in dict.fromkeys(names):
        stem = f"{kind}-{record.slug(str(name))}"
        same = sum(file == f"{stem}.html" or file.startswith(f"{stem}~") for file in files.values())
        files[name] = f"{stem}~{same + 1}.html" if same else f"{stem}.html"
    return files


class Page(NamedTuple):
    """Page before it is rendered."""

    template: str
    description: str  # one line for the list of files
    values: Mapping[str, Any]  # variables of the template


class PageLink(NamedTuple):
    """Link to the page of a method or set."""

    text: str
    name: str  # id
    href: str


class SitePages:
    """All analyses with the files of their pages."""

    def __init__(self, rankings: Sequence[Ranking], left_out: Sequence[str]) -> None:
        self.rankings, self.left_out = rankings, left_out
        methods: list[str] = []
        sets: list[SuiteSet] = []
        for ranking in rankings:
            methods += ranking.analysis.algorithms
            methods += [run.algorithm for run in ranking.analysis.collection.duplicates]
            sets += _suite_sets(ranking)
        self.methods = number_files("method", sorted(set(methods)))
        self.sets = number_files("set", sorted(set(sets)))
        keys = [f"{position}-{ranking.key}" for position, ranking in enumerate(rankings, 1)]
        self.files = list(number_files("table", keys).values())
        self.links = [
            SiteLinks(ranking.analysis, f"t{position}", self.methods) for position, ranking in enumerate(rankings, 1)
        ]
        self.run_tables: list[Mapping[str, ReportTable | None]] = []
        self.rows: list[ReportTable] = []
        for ranking, links in zip(rankings, self.links, strict=True):
            analysis = ranking.analysis
            self.run_tables.append(provenance.run_tables(analysis, links))
            self.rows.append(study_design.make_row_table(analysis, links))

    def pages(self) -> dict[str, Page]:
        """Return every page by its file."""
        pages = {INDEX: Page("index.html", "start page", self._index_values())}
        for position, ranking in enumerate(self.rankings):
            pages[self.files[position]] = Page("table.html", f"table: {ranking.key}", self._table_values(position))
        for name, file in self.methods.items():
            pages[file] = Page("method.html", f"method {name}", self._method_values(name))
        for tested, file in self.sets.items():
            description = f"set {tested.name} of suite {tested.suite}"
            pages[file] = Page("set.html", description, self._set_values(tested))
        return pages

    def _index_values(self) -> Mapping[str, Any]:
        """Return the verdicts, the table of tables, and lists of methods and sets."""
        rows = []
        verdicts = []
        for file, ranking in self._rankings_by_file().items():
            analysis = ranking.analysis
            answer = answer_sentences(analysis)
            verdicts.append((PageLink(ranking.title, ranking.key, file), answer, ranking.badges))
            badges = ", ".join(badge.word for badge in ranking.badges)
            row = {
                "table": TableCell(ranking.title, href=file, left=True, name=ranking.key, mark=badges),
                "suite": text_cell(analysis.collection.scope.suite),
                "from": TableCell(ranking.source or "runs of this server", href=ranking.url, left=True),
                "protocol": text_cell(analysis.collection.scope.protocol[:8]),
                "methods": count_cell(len(analysis.algorithms)),
                "sets": count_cell(len(analysis.sets)),
            }
            rows.append(row)
        of_tables = make_table(
            "Each table has one protocol and one selection rule.", prepared_columns(rows[0]), rows, oracle=False
        )
        sets: dict[str, dict[str, str]] = {}
        for tested, file in self.sets.items():
            sets.setdefault(tested.suite, {})[tested.name] = file
        sections = [("verdicts", "Verdicts"), ("tables", "Tables"), ("methods", "Methods"), ("sets", "Evaluation sets")]
        if self.left_out:
            sections.append(("left-out", "Left out"))
        return {
            "verdicts": verdicts,
            "tables": of_tables,
            "methods": self._links_to(self.methods),
            "sets": {suite: self._links_to(files) for suite, files in sets.items()},
            "left_out": self.left_out,
            "sections": sections,
            "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "version": self.rankings[0].analysis.versions["biasbed"],
        }

    def _rankings_by_file(self) -> dict[str, Ranking]:
        """Return file of a table's page -> the table."""
        return dict(zip(self.files, self.rankings, strict=True))

    def _set_files(self, ranking: Ranking) -> dict[str, str]:
        """Return name of a table's set -> file of its page."""
        return {tested.name: self.sets[tested] for tested in _suite_sets(ranking)}

    def _links_to(self, files: Mapping[str, str]) -> list[PageLink]:
        """Return links to the pages of methods or sets, sorted by display name. files: name -> file."""
        label = self.rankings[0].analysis.label if self.rankings else str
        links = [PageLink(label(name), name, file) for name, file in files.items()]
        return sorted(links, key=lambda link: link.text.casefold())

    def _table_values(self, position: int) -> Mapping[str, Any]:
        """Return what the page of one analysis shows."""
        ranking, links = self.rankings[position], self.links[position]
        analysis = ranking.analysis
        comparison = main_comparison(analysis)
        concluded = conclusions.concluded(analysis, comparison)
        sections = {"scores": "Scores"}
        if concluded:
            sections["concluded"] = CONCLUSIONS.title
        if not comparison.skipped:
            sections["pairs"] = "Pairs"
        sections["compared"] = STUDY_DESIGN.title
        sections |= {"sets": "Evaluation sets", "provenance": "Provenance"}
        return {
            "sections": list(sections.items()),
            "headings": sections,
            "apart": apart(ranking, self._rankings_by_file()),
            "notes": analysis.notes,
            "ranking": ranking,
            "analysis": analysis,
            "rule": wording.rule_sentence(analysis),
            "answer": answer_sentences(analysis),
            "further": further_sentences(analysis),
            "scores": tables.score_table(analysis, links),
            "averages": make_average_table(analysis, links),
            "rank_chart": None if comparison.skipped else charts.rank_set_chart(analysis, comparison),
            "concluded": concluded,
            "pairs": None if comparison.skipped else make_pair_table(analysis, comparison, links),
            "most_pairs": MOST_PAIRS,
            "compared": study_design.describe(analysis),
            "rows": self.rows[position],
            "sets": self._links_to(self._set_files(ranking)),
            "facts": {
                **provenance.facts(analysis),
                "Tracking server": store_name(analysis.tracking_uri),
                "This analysis again": provenance.command(analysis, is_for_others=True),
            },
            "spread": spread_sentence(ranking),
        }

    def _method_values(self, name: str) -> Mapping[str, Any]:
        """Return a method's part of every analysis that has it."""
        parts = []
        for position, ranking in enumerate(self.rankings):
            if name in ranking.analysis.algorithms:
                parts.append(self._method_part_values(name, position))
        label = self.rankings[0].analysis.label(name)
        return {"name": name, "label": label, "parts": parts, "sections": _section_titles(parts)}

    def _method_part_values(self, name: str, position: int) -> Mapping[str, Any]:
        """Return what a method's page shows of one analysis."""
        ranking, links = self.rankings[position], self.links[position]
        analysis, comparison = ranking.analysis, main_comparison(ranking.analysis)
        runs = [run for run in analysis.collection.runs if run.algorithm == name]
        run_tables = self.run_tables[position]
        return {
            "id": links.prefix,
            "title": ranking.title,
            "href": self.files[position],
            "badges": ranking.badges,
            "source": ranking.source,
            "url": ranking.url,
            "ranks": comparison.rank_sets.get(name),
            "number": len(comparison.algorithms),
            "setting": wording.setting_title(comparison, analysis.label),
            "level": wording.percent(1 - analysis.alpha),
            "scores": tables.method_table(analysis, links, name, self._set_files(ranking), ranking.decisions),
            "runs": tables.rows_about(run_tables["scores"], name),
            "duplicates": tables.rows_about(run_tables["duplicates"], name),
            "origin": tables.rows_about(run_tables["origin"], name),
            "row": tables.rows_about(self.rows[position], name),
            "settings": settings_of(runs),
            "commands": commands_of(analysis, runs),
        }

    def _set_values(self, tested: SuiteSet) -> Mapping[str, Any]:
        """Return every table of scores on one set, and links to the sets of other suites with its name."""
        parts = []
        name = tested.name
        for position, ranking in enumerate(self.rankings):
            if tested not in _suite_sets(ranking):
                continue
            analysis, links = ranking.analysis, self.links[position]
            part = {
                "id": links.prefix,
                "title": ranking.title,
                "href": self.files[position],
                "badges": ranking.badges,
                "facts": facts_of(analysis, by_name(analysis.sets)[name]),
                "scores": tables.set_table(analysis, links, name),
                "pairs": single_sets.make_pair_table(analysis, links, name),
                "chart": charts.set_chart(analysis, name),
            }
            parts.append(part)
        namesakes = []
        for namesake, file in self.sets.items():
            if namesake.name == name and namesake != tested:
                namesakes.append(PageLink(f"suite {namesake.suite}", str(namesake), file))
        label = self.rankings[0].analysis.label(name)
        page = {"name": name, "label": label, "parts": parts, "sections": _section_titles(parts)}
        return page | {"suite": tested.suite, "namesakes": namesakes}


def _suite_sets(ranking: Ranking) -> list[SuiteSet]:
    """Return the sets of a table."""
    suite = ranking.analysis.collection.scope.suite
    return [SuiteSet(suite, name) for name in ranking.analysis.set_names]


def _section_titles(parts: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return anchors and titles of a page's sections, one for each table."""
    return [(part["id"], part["title"]) for part in parts]


def store_name(tracking_uri: str) -> str:
    """Return a tracking server's address; of a local one only the file's name, as pages are for others' eyes."""
    if tracking_uri.startswith(("http://", "https://")):
        return tracking_uri
    return f"local file {PurePath(tracking_uri).name}"


def facts_of(analysis: Analysis, column: Column) -> dict[str, str]:
    """Return what a set is in one protocol: its measure, images and classes."""
    facts = {"Score": tables.measured(column), "Data set": column.block}
    for name, number in (("Images", column.images), ("Classes", column.set_record.classes)):
        if number:
            facts[name] = f"{number:,}"
    if column.set_record.made_by:
        facts["Made by"] = column.set_record.made_by
    return facts | {"Protocol": analysis.collection.scope.protocol}


def settings_of(runs: Sequence[Run]) -> dict[str, str]:
    """Return setting -> its values in these runs, joined by commas; sorted by setting."""
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, value in run.config.items():
            values.setdefault(name, {})[value] = None
    return {name: ", ".join(values[name]) for name in sorted(values)}


def commands_of(analysis: Analysis, runs: Sequence[Run]) -> list[str]:
    """Return the commands that bring the runs, train or test each of them again, and repeat the analysis."""
    lines = []
    if analysis.collection.published:
        source = analysis.collection.scope.study.removeprefix(PUBLISHED)
        lines.append(commands.format_command("import", {"source": source}, is_for_others=True))
    for run in runs:
        if run.kind != "published":
            lines.append(commands.format_command("reproduce", {"run": run.id}, is_for_others=True))
    return [*lines, provenance.command(analysis, is_for_others=True)]
