"""Rules applied: which values of which runs stand for each evaluation set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from biasbed import record
from biasbed.analysis.runs.run import Run
from biasbed.analysis.selection.rules import RULES, Candidate, History, Rule, headline, last_step
from biasbed.errors import UsageError
from biasbed.settings import nearest


def rule_names(protocol: record.Protocol) -> tuple[str, ...]:
    """The rules that runs of a protocol may be selected by."""
    always = (name for name in RULES if RULES.load(name).in_every_protocol)
    return tuple(dict.fromkeys((*protocol.selection_rules, *always)))


def make_rule(name: str, n: int, protocol: record.Protocol) -> Rule:
    """The rule that `selection=` names (auto: the protocol's own; `<file>.py:<Class>`: your own).

    protocol.sets: those that count. UsageError where the protocol does not have the rule.
    """
    if ":" in name:
        from biasbed.analysis.selection import own

        return own.load(name, protocol, n)
    return known_rule(protocol.default_selection if name == "auto" else name, n, protocol)


def known_rule(name: str, n: int, protocol: record.Protocol) -> Rule:
    """The rule of this name among ours: what a protocol names comes from a server, and is never imported.

    UsageError where the protocol does not have the rule, or we don't.
    """
    names = rule_names(protocol)
    if name not in names:
        advice = f"; valid: {', '.join(names)}" if name in RULES else nearest(name, names)
        raise UsageError(f"selection={name}: this protocol has no such rule{advice}, or <file>.py:<Class> of your own")
    if name not in RULES:
        raise UsageError(f"selection={name}: this version of biasbed does not know the rule; valid: {', '.join(RULES)}")
    rule: Rule = RULES.load(name).made(protocol, n)
    return rule


def of(runs: Sequence[Run], histories: Mapping[str, History]) -> dict[str, History]:
    """Those of the histories that are these runs'."""
    return {run.id: histories[run.id] for run in runs}


def choose(rule: Rule, runs: Sequence[Run], histories: Mapping[str, History]) -> tuple[tuple[Run, ...], list[str]]:
    """The runs that count under a rule, in their order, and what to say about the others."""
    chosen: set[str] = set()
    notes = []
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        candidates = [Candidate(run, histories[run.id]) for run in runs if run.algorithm == algorithm]
        kept = rule.choose(candidates)
        chosen |= {candidate.run.id for candidate in kept}
        if len(kept) < len(candidates):
            notes.append(f"{algorithm}: the rule {rule.name} chose {len(kept)} of {len(candidates)} runs")
    return tuple(run for run in runs if run.id in chosen), notes


@dataclass(frozen=True)
class Missing:
    """A run without a usable value for one evaluation set."""

    run_id: str
    dataset: str
    why: str


SELECTED_COLUMNS = ("run_id", "dataset", "measure", "value", "first_step", "last_step", "num_steps", "monitor")


def select(
    rule: Rule, histories: Mapping[str, History], sets: Sequence[record.SetRecord], monitor: str
) -> tuple[pd.DataFrame, list[Missing]]:
    """Every run's values under a rule, tidy, and what is missing. Published numbers are taken as they are.

    One row per run and set: `SELECTED_COLUMNS` (value: mean of the headline measure over the selected steps, in the
    metric's unit; monitor: the monitor's mean over the same steps), then each further measure of any set.
    """
    measures = list(dict.fromkeys(measure for entry in sets for measure in entry.measures))
    rows, missing = [], []
    for run_id, history in histories.items():
        for entry in sets:
            steps = list((last_step if history.is_published else rule.steps)(history, entry))
            problem = _problem(history.curve(headline(entry)), steps)
            if problem:
                missing.append(Missing(run_id, entry.name, problem))
                continue
            means = [_mean_at(history, record.MetricName("test", measure, entry.name), steps) for measure in measures]
            value = _mean_at(history, headline(entry), steps)
            row = (run_id, entry.name, entry.headline, value, min(steps), max(steps), len(steps))
            rows.append((*row, _mean_at(history, monitor, steps), *means))
    return pd.DataFrame(rows, columns=[*SELECTED_COLUMNS, *measures]), missing


def _problem(curve: Mapping[int, float], steps: Sequence[int]) -> str:
    """Why the selected steps give no value; empty where they do."""
    if not curve:
        return "never tested"
    if not steps:
        return "no finite value"
    absent = [str(step) for step in steps if step not in curve]
    if absent:
        tested = ", ".join(str(step) for step in list(curve)[:5]) + ", ..." * (len(curve) > 5)
        return f"not tested at step {', '.join(absent)} (tested at {tested})"
    bad = [str(step) for step in steps if not record.is_finite(curve[step])]
    return f"not a finite number at step {', '.join(bad)}" if bad else ""


def _mean_at(history: History, metric: record.MetricName | str, steps: Sequence[int]) -> float:
    """The mean over the steps; NaN where any of them has no value."""
    curve = history.curve(metric)
    return math.fsum(curve.get(step, math.nan) for step in steps) / len(steps)
