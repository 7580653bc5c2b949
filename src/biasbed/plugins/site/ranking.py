"""Table of the results site in words: its title, its paper, who beats the baseline, why it is not in another table.

Answers: What does the start page say of a table?
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from biasbed import published
from biasbed.analysis import scores, sections
from biasbed.analysis.report import references, wording
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.verdicts import Claim, claims, firm, main
from biasbed.analysis.report.wording import listing
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.ranks import conclusions
from biasbed.analysis.statistics.friedman import STRICT
from biasbed.plugins.site import tables
from biasbed.plugins.site.tables import DecisionCounts

PUBLISHED = "published_"  # begins the study of a paper's results
CITATION = re.compile(r"(?P<authors>[^:]+): (?P<title>.+?)\. (?P<venue>.+)")
NUMBER = re.compile(r"(?<=arXiv) \d{4}\.\d{4,5}")
ClaimSide = Literal["better", "worse"]  # field of a claim
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
        """Paper, or study with suite and number of sets, and the selection rule in words."""
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
            badges.append(Badge("ORACLE", say("page_oracle")))
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
        return references.url_of(paper["title"]) if paper is not None else ""

    @cached_property
    def in_rank_order(self) -> Ranking:
        """Ranking with the rows by the best rank that they can have, then by average rank; untested rows by name."""
        analysis = self.analysis
        by_test = tables.ranks_over_sets(analysis)
        averages = main(analysis).mean_ranks if by_test else {}

        def position(name: str) -> tuple[float | str, ...]:
            best = [ranks[name].best if name in ranks else math.inf for ranks in by_test.values()]
            return (*best, averages.get(name, math.inf), analysis.label(name).casefold())

        rows = tuple(sorted(analysis.algorithms, key=position))
        return dataclasses.replace(self, analysis=dataclasses.replace(analysis, algorithms=rows))


# --- baseline ---------------------------------------------------------------------------------------------------------


def answer(analysis: Analysis) -> list[str]:
    """Return the answer of a table: what sections say first of all, then which methods are better."""
    sentences: list[str] = []
    for part in sections.answers(analysis):
        sentences += part.sentences
    return [*sentences, verdict(analysis)]


def verdict(analysis: Analysis) -> str:
    """Say which methods are shown to be better than the baseline, and on what; the report's verdict without one."""
    comparison = main(analysis)
    plain = [name for name in tables.baselines(analysis) if name in comparison.algorithms]
    if comparison.skipped or not plain:
        return conclusions.verdict(analysis)
    claimed = claims(analysis, comparison)
    better = [claim for claim in claimed if claim.worse in plain and claim.better not in plain]
    worse = [claim for claim in claimed if claim.better in plain and claim.worse not in plain]
    slots = {"baseline": " or ".join(map(analysis.label, plain)), "size": comparison.size}
    if better:
        line = say("site_better", methods=_name_all(analysis, better, "better"), **slots)
        line += _support(analysis, better, "better")
    elif comparison.significant:
        line = say("site_none_but_differ", **slots)
    else:
        line = say("site_none", **slots)
    if worse:
        line += say("site_worse", methods=_name_all(analysis, worse, "worse"), **slots)
        line += _support(analysis, worse, "worse")
    pool = wording.pool(comparison)
    if pool:
        line += say("site_pool", pool=pool)
    if comparison.significant and scores.shared_images_note(analysis.sets, analysis.label):
        line += say("site_shared_images")
    return line


def _name_all(analysis: Analysis, claimed: Iterable[Claim], side: ClaimSide) -> str:
    """List the methods on one side of the claims; `none` without any."""
    names = dict.fromkeys(getattr(claim, side) for claim in claimed)
    if not names:
        return "none"
    return listing(map(analysis.label, names))


def _support(analysis: Analysis, claimed: Sequence[Claim], side: ClaimSide) -> str:
    """Say which test shows the claims about the baseline, and which hold after the checks of the report."""
    comparison = main(analysis)
    parts = []
    for test in tables.ranks_over_sets(analysis):
        by_test = [claim for claim in claimed if claim.test == test]
        parts.append(f"by {tables.TESTS[test]}: {_name_all(analysis, by_test, side)}")
    if len(analysis.pairwise.checks):
        kept = [claim for claim in firm(analysis, comparison) if claim in claimed]
        parts.append(f"after every sensitivity check: {_name_all(analysis, kept, side)}")
    for strict in analysis.comparisons:
        if strict.setting == STRICT and not strict.skipped:
            kept = [claim for claim in claims(analysis, strict) if claim in claimed]
            parts.append(f"in the strict setting: {_name_all(analysis, kept, side)}")
    return f" {wording.capitalized('; '.join(parts))}."


# --- tables that are apart --------------------------------------------------------------------------------------------


class ApartTable(NamedTuple):
    """Another table of the same suite and rule, and why the two are not one."""

    title: str
    href: str
    reason: str


def apart(ranking: Ranking, others: Mapping[str, Ranking]) -> list[ApartTable]:
    """Return the published tables of the same suite and selection rule.

    others: all tables by the file of their page.
    """
    scope = ranking.analysis.collection.scope
    lines = []
    for file, counterpart in others.items():
        is_alike = (counterpart.analysis.collection.scope.suite, counterpart.analysis.rule.name) == (
            scope.suite,
            ranking.analysis.rule.name,
        )
        if is_alike and counterpart.study != ranking.study and ranking.source and counterpart.source:
            lines.append(ApartTable(counterpart.title, file, _why_apart(ranking, counterpart)))
    return lines


def _why_apart(ranking: Ranking, counterpart: Ranking) -> str:
    """Return what the two have in common, what differs, and what the papers' descriptions say."""
    ours, theirs = ranking.analysis, counterpart.analysis
    ours_hash, theirs_hash = (a.collection.scope.protocol for a in (ours, theirs))
    phrase = "site_apart_runs" if ours_hash == theirs_hash else "site_apart_protocol"
    parts = [say(phrase, ours=ours_hash[:8], theirs=theirs_hash[:8])]
    common = [ours.cells[key].mean - cell.mean for key, cell in theirs.cells.items() if key in ours.cells]
    common = [difference for difference in common if math.isfinite(difference)]
    if common:
        number = sum(abs(difference) > NEAR for difference in common)
        parts.append(say("site_apart_numbers", number=number, common=len(common)))
    for phrase, analysis, reference in (("site_only_here", ours, theirs), ("site_only_there", theirs, ours)):
        only = [name for name in analysis.algorithms if name not in reference.algorithms]
        if only:
            parts.append(say(phrase, methods=_name_some([*map(analysis.label, only)])))
    editions = [("site_here", edition(ranking)), ("site_there", edition(counterpart))]
    parts += [say(phrase, edition=text) for phrase, text in editions if text]
    return " ".join(parts)


def _name_some(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMES:
        return listing([*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"])
    return listing(names)


def edition(ranking: Ranking) -> str:
    """Return what sets these numbers apart from another edition's by the paper's description; empty if nothing."""
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
    shown = wording.error(ranking.analysis)
    return f"The paper prints standard errors; ± here is the {shown} that follows from them and the number of runs."
