"""Changes since the last analysis in the same folder: runs, scores, rule and conclusions.

Answers: What is different from the last analysis?
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from biasbed.analysis.display_names import Labels
from biasbed.analysis.report import wording
from biasbed.analysis.report.findings import MOST
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.verdicts import claims, main
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.run import Run
from biasbed.system import formats
from biasbed.system.formats import ByName, Format, Listed

FILE = "state.json"


class ShownPair(Format):
    """A conclusion: that one row is better than another, or relies less on texture."""

    a: str
    b: str


class AnalysisState(Format):
    """Content of an analysis that the next one in the same folder is compared with."""

    version: str  # of biasbed
    rule: str
    rule_label: str  # with what the rule depends on, as the number of epochs
    alpha: float
    measures: ByName[str, str]  # set -> measure that is compared
    runs: Listed[str]  # ids; a published run's name, if the paper has another run for each rule
    means: ByName[str, ByName[str, float]]  # algorithm -> set -> mean as the table of scores shows it
    better: Listed[ShownPair]  # pairs that a test over sets tells apart
    less_texture: Listed[ShownPair]  # rows, each with the reference


class LastAnalysis(NamedTuple):
    """The last analysis in a folder, and when it was made, in UTC to the minute."""

    state: AnalysisState
    made: str


def make_state(analysis: Analysis) -> AnalysisState:
    """Return the state of an analysis."""
    means: dict[str, dict[str, float]] = {name: {} for name in analysis.algorithms}
    for (algorithm, dataset), cell in analysis.cells.items():
        if not math.isnan(cell.mean):
            means[algorithm][dataset] = float(cell.mean_text)
    texture = analysis.texture
    less = texture[texture["significant"].astype(bool) & (texture["difference"] > 0)]
    told_apart = dict.fromkeys((claim.better, claim.worse) for claim in claims(analysis, main(analysis)))
    return AnalysisState(
        version=analysis.versions["biasbed"],
        rule=analysis.rule.name,
        rule_label=wording.rule_label(analysis),
        alpha=analysis.alpha,
        measures={column.name: column.headline for column in analysis.sets},
        runs=tuple(sorted(map(_run_name, analysis.collection.runs))),
        means=means,
        better=tuple(ShownPair(a=better, b=worse) for better, worse in told_apart),
        less_texture=tuple(ShownPair(a=row["algorithm"], b=row["reference"]) for row in less.to_dict("records")),
    )


def _run_name(run: Run) -> str:
    """Return the run's id, or a name that the published numbers of one run share under all selection rules."""
    if run.kind == "published" and run.selection:
        return " ".join(("published", run.study, run.algorithm, run.cell, run.seed))
    return run.id


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write the state; return file name -> what it is."""
    text = json.dumps(make_state(analysis).model_dump(mode="json"), indent=1)
    (folder / FILE).write_text(f"{text}\n", encoding="utf-8")
    return {FILE: say(f"files.{FILE}")}


def read_last(folder: Path) -> LastAnalysis | None:
    """Read what the last analysis left; None if there was none, or one of another version."""
    path = folder / FILE
    try:
        state = formats.check(AnalysisState, json.loads(path.read_text(encoding="utf-8")))
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError):
        return None
    return LastAnalysis(state, written.strftime("%Y-%m-%d %H:%M UTC"))


def describe_changes(analysis: Analysis, last_analysis: LastAnalysis) -> str:
    """Say in a sentence what is different from the last analysis: first what was asked for, then what came of it.

    Means and conclusions are compared only if they are of the same measures.
    """
    now, last, label = make_state(analysis), last_analysis.state, analysis.label
    changes_of_measures = _changes_of_measures(now, last, label)
    parts = [*_changes_of_settings(now, last), *changes_of_measures, *_changes_of_runs(now, last)]
    if not changes_of_measures:
        parts += _changes_of_pairs("since.better", now.better, last.better, label)
    parts += _changes_of_pairs("since.texture", now.less_texture, last.less_texture, label)
    parts += _changes_of_names(now, last, label)
    if not changes_of_measures:
        parts += _changes_of_means(now, last, label)
    changes = "; ".join(parts) or say("since.nothing")
    return say("since.sentence", made=last_analysis.made, version=last.version, changes=changes)


def _changes_of_runs(now: AnalysisState, last: AnalysisState) -> list[str]:
    added, gone = set(now.runs) - set(last.runs), set(last.runs) - set(now.runs)
    parts = []
    if added:
        parts.append(say("since.runs_added", runs=wording.count(len(added), "run")))
    if gone:
        parts.append(say("since.runs_gone", runs=wording.count(len(gone), "run")))
    return parts


def _sets_of(state: AnalysisState) -> list[str]:
    names: dict[str, None] = {}
    for means in state.means.values():
        names |= dict.fromkeys(means)
    return list(names)


def _changes_of_names(now: AnalysisState, last: AnalysisState, label: Labels) -> list[str]:
    """Name algorithms and sets that are new or gone."""
    parts = []
    for noun, names, names_before in (
        ("algorithm", list(now.means), list(last.means)),
        ("set", _sets_of(now), _sets_of(last)),
    ):
        added = [label(name) for name in names if name not in names_before]
        gone = [label(name) for name in names_before if name not in names]
        for phrase, changed in (("since.names_added", added), ("since.names_gone", gone)):
            if changed:
                nouns = wording.plural(noun, len(changed))
                parts.append(say(phrase, nouns=nouns, names=wording.listing(changed)))
    return parts


def _changes_of_settings(now: AnalysisState, last: AnalysisState) -> list[str]:
    parts = []
    if now.rule != last.rule:
        parts.append(say("since.rule", before=last.rule, now=now.rule))
    elif now.rule_label != last.rule_label:
        parts.append(say("since.rule_label", rule=now.rule, before=last.rule_label, now=now.rule_label))
    if now.alpha != last.alpha:
        parts.append(say("since.alpha", before=last.alpha, now=now.alpha))
    return parts


def _changes_of_measures(now: AnalysisState, last: AnalysisState, label: Labels) -> list[str]:
    """Name the measures that changed, each with its sets."""
    sets_by_change: dict[tuple[str, str], list[str]] = {}
    for name, measure in now.measures.items():
        before = last.measures.get(name, measure)
        if before != measure:
            sets_by_change.setdefault((before, measure), []).append(label(name))
    parts = []
    for (before, measure), names in sets_by_change.items():
        parts.append(say("since.measure", before=before, now=measure, sets=wording.listing(names)))
    return parts


def _changes_of_means(now: AnalysisState, last: AnalysisState, label: Labels) -> list[str]:
    """Count the means that show another number, and name the one that changed most."""
    differences: dict[tuple[str, str], float] = {}
    for algorithm, means in now.means.items():
        for dataset, mean in means.items():
            before = last.means.get(algorithm, {}).get(dataset, mean)
            if mean != before:
                differences[algorithm, dataset] = abs(mean - before)
    if not differences:
        return []
    algorithm, dataset = max(differences, key=differences.__getitem__)
    names = {"algorithm": label(algorithm), "dataset": label(dataset)}
    before, after = last.means[algorithm][dataset], now.means[algorithm][dataset]
    return [say("since.means", means=wording.count(len(differences), "mean"), before=before, now=after, **names)]


def _changes_of_pairs(phrase: str, now: Sequence[ShownPair], last: Sequence[ShownPair], label: Labels) -> list[str]:
    """Name the conclusions that are new, and those that are gone. phrase: of one conclusion."""
    added = [pair for pair in now if pair not in last]
    gone = [pair for pair in last if pair not in now]
    parts = []
    for change, changed in (("since.shown", added), ("since.not_shown", gone)):
        if changed:
            named = [say(phrase, a=label(pair.a), b=label(pair.b)) for pair in changed[:MOST]]
            if len(changed) > MOST:
                named.append(say("since.more", number=len(changed) - MOST))
            parts.append(say(change, pairs=wording.listing(named)))
    return parts
