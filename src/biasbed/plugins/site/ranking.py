"""Table of the results site, one analysis: its title, its paper, and why it is apart from other tables.

Answers: What does the start page say of a table?
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from biasbed import published
from biasbed.analysis.report import references, wording
from biasbed.analysis.report.html import ORACLE
from biasbed.analysis.report.wording import listing
from biasbed.analysis.result import Analysis
from biasbed.plugins.site.tables import DecisionCounts

PUBLISHED = "published_"  # begins the study of a paper's results
CITATION = re.compile(r"(?P<authors>[^:]+): (?P<title>.+?)\. (?P<venue>.+)")
PREPRINTS = "https://arxiv.org/abs/"  # address of a preprint, before its number
NUMBER = re.compile(r"(?<=arXiv) \d{4}\.\d{4,5}")
MOST_NAMES = 6  # methods of another table that are named
NEAR = 1e-9  # differences of scores below it are rounding of the machine


class Badge(NamedTuple):
    """Warning beside the title of a table."""

    word: str
    meaning: str


@dataclass(frozen=True)
class Ranking:
    """One analysis, whose rows may be ranked together, and the predictions that its runs keep."""

    analysis: Analysis
    decisions: DecisionCounts

    @property
    def study(self) -> str:
        """Id of the study."""
        return self.analysis.collection.scope.study

    @property
    def key(self) -> str:
        """Study and selection rule by their ids."""
        return f"{self.study}, {self.analysis.rule.name}"

    @cached_property
    def title(self) -> str:
        """Paper, or study with suite and number of sets; behind it the selection rule in words."""
        rule = self.analysis.rule.name
        if rule.endswith("_n"):
            unit = self.analysis.collection.protocol.step_unit
            rule = f"{rule.removesuffix('n')}{wording.count(self.analysis.options.n, unit)}"
        paper = CITATION.fullmatch(self.source)
        suite, sets = Path(self.analysis.collection.scope.suite).name, wording.count(len(self.analysis.sets), "set")
        subject = f"{self.study} ({suite}, {sets})"
        if paper is not None:
            venue = [part for part in NUMBER.sub("", paper["venue"]).split(", ") if part != "arXiv"]
            subject = ", ".join([paper["title"], *venue])
        return f"{subject}: {rule.replace('_', ' ')}"

    @property
    def badges(self) -> list[Badge]:
        """Warnings that go with every number of the table."""
        badges = []
        if self.analysis.rule.oracle:
            badges.append(Badge("ORACLE", ORACLE))
        if self.analysis.collection.part:
            badges.append(Badge("NOT FOR A PAPER", f"{wording.capitalized(self.analysis.collection.part)}."))
        return badges

    @property
    def source(self) -> str:
        """Papers that the numbers are from; empty for runs of one's own."""
        return "; ".join(sorted({run.source for run in self.analysis.collection.runs if run.source}))

    @property
    def url(self) -> str:
        """Address of the paper; empty for runs of one's own, and for a paper whose address is not known."""
        paper = CITATION.fullmatch(self.source)
        return url_of(paper["title"]) if paper is not None else ""


def url_of(title: str) -> str:
    """Return the address of the paper whose title begins so; empty if the number of its preprint is not known."""
    for text, _ in references.entries():
        fields = dict(re.findall(r"^  (title|eprint) = \{(.+)\},$", text, re.MULTILINE))
        if "eprint" in fields and _letters_of(fields["title"]).startswith(_letters_of(title)):
            return PREPRINTS + fields["eprint"]
    return ""


def _letters_of(title: str) -> str:
    """Return a title's letters and digits, in lower case, since papers and entries differ in other characters."""
    return re.sub(r"[^a-z0-9]+", " ", title.lower()).strip()


# --- tables that are apart --------------------------------------------------------------------------------------------


class ApartTable(NamedTuple):
    """Another table of the same suite and rule, and why the two are not one."""

    title: str
    href: str
    reason: str


def apart(ranking: Ranking, others: Mapping[str, Ranking]) -> list[ApartTable]:
    """Return the other published tables of the same suite and selection rule; none for a table that is not published.

    others: file of a page -> its table.
    """
    tables = []
    for file, counterpart in others.items():
        ours, theirs = ranking.analysis, counterpart.analysis
        has_same_suite = ours.collection.scope.suite == theirs.collection.scope.suite
        is_alike = has_same_suite and ours.rule.name == theirs.rule.name
        if is_alike and counterpart.study != ranking.study and ranking.source and counterpart.source:
            tables.append(ApartTable(counterpart.title, file, _why_apart(ranking, counterpart)))
    return tables


def _why_apart(ranking: Ranking, counterpart: Ranking) -> str:
    """Return what the two have in common, what differs, and what the papers' descriptions say."""
    ours, theirs = ranking.analysis, counterpart.analysis
    our_hash, their_hash = ours.collection.scope.protocol[:8], theirs.collection.scope.protocol[:8]
    parts = [f"They have different protocols ({our_hash} here, {their_hash} there)."]
    if ours.collection.scope.protocol == theirs.collection.scope.protocol:
        parts = [f"Both have protocol {our_hash}, but not the same runs, and ranks hold within one comparison only."]
    differences = [ours.cells[key].mean - cell.mean for key, cell in theirs.cells.items() if key in ours.cells]
    differences = [difference for difference in differences if math.isfinite(difference)]
    if differences:
        number = sum(abs(difference) > NEAR for difference in differences)
        parts.append(f"Of {len(differences)} scores that both have, {number} differ.")
    for where, analysis, reference in (("here", ours, theirs), ("there", theirs, ours)):
        only = [name for name in analysis.algorithms if name not in reference.algorithms]
        if only:
            parts.append(f"Only {where}: {_name_some(list(map(analysis.label, only)))}.")
    editions = (("Here", edition(ranking)), ("There", edition(counterpart)))
    parts += [f"{where}: {text}" for where, text in editions if text]
    return " ".join(parts)


def _name_some(names: Sequence[str]) -> str:
    """Return the names as text; of many the first, and how many more there are."""
    if len(names) > MOST_NAMES:
        return listing([*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"])
    return listing(names)


def edition(ranking: Ranking) -> str:
    """Return the edition of a paper's numbers, as its description says it; empty if it says nothing."""
    name = paper_name(ranking)
    return published.find(name).edition if name else ""


def paper_name(ranking: Ranking) -> str:
    """Return the id of the paper that the numbers are from; empty for runs of one's own."""
    name = ranking.study.removeprefix(PUBLISHED)
    if name == ranking.study or name not in published.names():
        return ""
    return name


def spread_sentence(ranking: Ranking) -> str:
    """Say how ± follows from the standard errors that a paper prints; empty for other tables."""
    name = paper_name(ranking)
    runs = published.find(name).runs() if name else ()
    if all(run.summary.get("spread") != "standard_error" for run in runs):
        return ""
    shown = wording.error_name(ranking.analysis)
    return f"The paper prints standard errors; ± here is the {shown} that follows from them and the number of runs."
