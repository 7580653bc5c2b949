"""Weaknesses of the tests: what makes them find more than they should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from biasbed.analysis import scores
from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.report.wording import listing, percent
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.seen import SAY_SEEN, UNKNOWN, read_seen
from biasbed.analysis.sections.power import PROCEDURES
from biasbed.analysis.sections.section import Section, Sentences, ShownPart
from biasbed.analysis.statistics import planner


class Weaknesses(Section[None]):
    """Few runs, weights that have seen different data, sets that share images."""

    name = "weak"
    title = "What weakens the tests"
    terminal_title = "What the weights have seen before"

    def compute(self, analysis: Analysis) -> None:
        """Compute nothing: the sentences follow from the runs and from the limits of the design."""

    def show(self, data: None, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        sentences = describe(analysis)
        if sentences:
            yield Sentences(tuple(sentences))

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        sentences = describe_seen(analysis)
        return [Sentences(tuple(sentences))] if sentences else []


WEAKNESSES = Weaknesses()


def describe(analysis: Analysis) -> list[str]:
    """Say what makes the tests find more than they should: few runs, sets that share images."""
    lines = []
    for limits in analysis.pairwise.limits[:1]:
        if limits.luck is not None and limits.luck.passes_for_a_difference:
            lines.append(_describe_luck(limits.luck))
        if not limits.model.knows_runs:
            reason = "No algorithm has two runs with a score on every set, so the spread between runs is not known"
            if analysis.collection.is_table and any(run.summary for run in analysis.collection.runs):
                reason = "The tests over sets take printed means alone, without their spread"
            lines.append(f"{reason}: a difference between two trainings may be taken for one between methods.")
    lines += describe_seen(analysis)
    notes = scores.shared_images_note(analysis.sets, analysis.label)
    return lines + [f"Not independent: {note}." for note in notes]


def describe_seen(analysis: Analysis) -> list[str]:
    """Say that rows are ranked across weights that have seen different data, and which have seen images of the web."""
    rows_by_data: dict[str, dict[str, None]] = {}
    web: dict[str, None] = {}
    for run in analysis.collection.unpublished:
        seen = read_seen(run)
        rows_by_data.setdefault(seen.text, {})[run.algorithm] = None
        protocol = analysis.collection.protocols[run.protocol]
        names = [*protocol.training_sets, *(tested.name for tested in protocol.sets)]
        if seen.is_web or seen.find_sets(names):
            web[run.algorithm] = None
    lines = []
    if len(rows_by_data) > 1:
        groups = [f"{data} ({listing(map(analysis.label, rows))})" for data, rows in rows_by_data.items()]
        lines.append(
            f"Algorithms are ranked across weights that have seen different data before: {'; '.join(groups)}. Between "
            "these groups, a difference may come from the data and not from the method."
        )
        if UNKNOWN in rows_by_data:
            lines.append(SAY_SEEN)
    if web:
        rows = listing(map(analysis.label, web))
        lines.append(f"Images of the test sets are likely among the images that these weights have seen: {rows}.")
    return lines


def _describe_luck(luck: planner.Luck) -> str:
    """Say by how much the luck of few runs raises the rate of false positives."""
    low, high = (100 * bound for bound in luck.excess)
    return (
        f"If the methods were equal and their runs differed as these do, {PROCEDURES[luck.procedure]} would find a "
        f"difference in {wording.rate_text(luck.with_it)} of the cases instead of {percent(luck.alpha)}; if no run "
        f"were better or worse on all sets at once, in {wording.rate_text(luck.without_it)}. The excess of {low:.1f} "
        f"to {high:.1f} points (95% interval, of the simulation alone) is the luck of few runs, which passes for a "
        "difference between methods."
    )
