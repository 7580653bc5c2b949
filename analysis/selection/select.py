"""Rules applied: which values of which runs stand for each column."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.columns import Column, headline, summary_metrics
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection.pools import Candidate, Choice, History, Pool
from biasbed.analysis.selection.rules import RULES, Rule, last_step
from biasbed.errors import UsageError
from biasbed.settings import nearest
from biasbed.suites import derived

Rules = Mapping[tuple[str, str], Rule]  # hash of a protocol, cell -> the rule as it is made for them


def rule_names(protocol: record.Protocol) -> tuple[str, ...]:
    """The rules that runs of a protocol may be selected by."""
    always = (name for name in RULES if RULES.load(name).in_every_protocol)
    return tuple(dict.fromkeys((*protocol.selection_rules, *always)))


def make_rule(name: str, n: int, protocol: record.Protocol) -> Rule:
    """The rule that `selection=` names (auto: the protocol's own; `<file>.py:<Class>`: your own).

    protocol.sets: those that count. UsageError where the protocol does not have the rule.
    """
    if ":" in name:
        from biasbed.analysis.selection import user_rules

        return user_rules.load(name, protocol, n)
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


def rules_of(
    make: Callable[[record.Protocol], Rule], collection: Collection, columns: Sequence[Column]
) -> dict[tuple[str, str], Rule]:
    """The rule as it is made for each protocol and cell, whose `sets` are those that count there."""
    found = {}
    for run in collection.own:
        names = {column.set_record.name for column in columns if column.cell == run.cell}
        protocol = collection.protocol_of(run)
        counted = tuple(entry for entry in protocol.columns if entry.name in names)
        if counted and (run.protocol, run.cell) not in found:
            found[run.protocol, run.cell] = make(dataclasses.replace(protocol, sets=counted))
    return found


@dataclass(frozen=True)
class Missing:
    """A run without a usable value for one column."""

    run_id: str
    dataset: str
    why: str
    at_other_steps: bool = False  # the set was tested, but not at the step that the rule names


@dataclass(frozen=True)
class Selected:
    """What a rule chose."""

    values: pd.DataFrame  # SELECTED_COLUMNS, then each further measure of any set
    missing: tuple[Missing, ...]
    choices: tuple[tuple[Pool, Choice], ...]

    @property
    def notes(self) -> list[str]:
        """Where a rule lets some of a row's runs stand for all."""
        chosen: dict[tuple[str, str], set[str]] = {}
        pools = {(pool.algorithm, pool.cell): pool for pool, _ in self.choices if not pool.is_search}
        for pool, choice in self.choices:
            chosen.setdefault((pool.algorithm, pool.cell), set()).add(choice.run)
        return [
            f"{pool.title}: the rule chose {len(chosen[place])} of {len(pool.candidates)} runs"
            for place, pool in pools.items()
            if len(chosen[place]) < len(pool.candidates)
        ]


SELECTED_COLUMNS = (
    *("run_id", "replicate", "cell", "dataset", "measure", "value"),
    *("first_step", "last_step", "num_steps", "monitor", "selection_value"),
)


def select(
    rules: Rules, pools: Sequence[Pool], columns: Sequence[Column], protocols: Mapping[str, record.Protocol]
) -> Selected:
    """Every pool's values under a rule, tidy, and what is missing.

    One row per run and column: `SELECTED_COLUMNS` (value: mean of the headline measure over the selected steps, in the
    metric's unit; monitor: the monitor's mean over the same steps; selection_value: by which the rule chose, as it is
    shown), then each further measure of any set.
    """
    measures = list(dict.fromkeys(measure for column in columns for measure in column.measures))
    rows: list[tuple[object, ...]] = []
    missing: list[Missing] = []
    chosen: list[tuple[Pool, Choice]] = []
    for pool in pools:
        of_cell = {column.set_record.name: column for column in columns if column.cell == pool.cell}
        for choice in _choices(rules, pool):
            candidate, column = pool.by_run[choice.run], of_cell[choice.set]
            protocol = protocols[candidate.run.protocol]
            problem = _problem(candidate.history, column.set_record, choice.steps, protocol)
            if problem:
                missing.append(Missing(choice.run, column.name, problem, problem.startswith(OTHER_STEPS)))
                continue
            chosen.append((pool, choice))
            by = choice.value * _scale(rules.get((candidate.run.protocol, pool.cell)), protocol, column)
            values = _values(candidate, column, choice.steps, protocol.monitor, by, measures)
            rows.append((choice.run, pool.replicate(candidate.run), pool.cell, column.name, column.headline, *values))
    return Selected(pd.DataFrame(rows, columns=[*SELECTED_COLUMNS, *measures]), tuple(missing), tuple(chosen))


def _choices(rules: Rules, pool: Pool) -> Iterator[Choice]:
    """By the rule, but for runs of which nothing is left to be chosen."""
    free = [candidate for candidate in pool.candidates if not candidate.history.is_settled]
    for candidate in pool.candidates:
        if candidate.history.is_settled:
            yield from (Choice(candidate.run.id, e.name, last_step(candidate.history, e)) for e in pool.sets)
    if free:
        yield from rules[free[0].run.protocol, pool.cell].choices(dataclasses.replace(pool, candidates=tuple(free)))


def _values(
    candidate: Candidate, column: Column, steps: Sequence[int], monitor: str, by: float, measures: Sequence[str]
) -> tuple[object, ...]:
    """The columns from `value` on, then the further measures."""
    history, entry = candidate.history, column.set_record
    places = [summary_metrics(column, measure) for measure in measures]
    means = [_mean_at(history, next(filter(history.curve, names), names[0]), steps) for names in places]
    value, followed = _mean_at(history, headline(entry), steps), _mean_at(history, monitor, steps)
    return (value, min(steps), max(steps), len(steps), followed, by, *means)


def _scale(rule: Rule | None, protocol: record.Protocol, column: Column) -> float:
    """Return the factor to the unit that a rule's value is shown in: of the metric that it names, or of the set."""
    metric = getattr(rule, "monitor", "")
    return measures.scale(measures.described(protocol, metric).unit) if metric else column.scale


OTHER_STEPS = "not tested at step"


def _problem(history: History, entry: record.SetRecord, steps: Sequence[int], protocol: record.Protocol) -> str:
    """Why the selected steps give no value; empty where they do."""
    curve = history.curve(headline(entry))
    if not curve:
        how = protocol.derivation(str(headline(entry)))
        last = {name: ([math.nan, *history.curve(name).values()])[-1] for name in how.inputs} if how else {}
        return "never tested" if how is None else derived.missing(how, last)
    if not steps:
        return "no finite value"
    absent = [str(step) for step in steps if step not in curve]
    if absent:
        tested = ", ".join(str(step) for step in list(curve)[:5]) + ", ..." * (len(curve) > 5)
        return f"{OTHER_STEPS} {', '.join(absent)} (tested at {tested})"
    bad = [str(step) for step in steps if not record.is_finite(curve[step])]
    return f"not a finite number at step {', '.join(bad)}" if bad else ""


def _mean_at(history: History, metric: record.MetricName | str, steps: Sequence[int]) -> float:
    """The mean over the steps; NaN where any of them has no value."""
    curve = history.curve(metric)
    return math.fsum([curve.get(step, math.nan) for step in steps]) / len(steps)


# --- as a file --------------------------------------------------------------------------------------------------------

CHOICE_COLUMNS = (
    *("rule", "oracle", "algorithm", "cell", "repeat", "seed", "dataset", "run_id", "run_name", "trial"),
    *("first_step", "last_step", "num_steps"),
)


def choice_table(
    rule: str, oracle: bool, selected: Selected, columns: Sequence[Column], runs: Mapping[str, Run]
) -> pd.DataFrame:
    """`CHOICE_COLUMNS`, then the settings in which the runs of one pool differ: which run at which steps stands where.

    One row per pool and column.
    """
    names = {(column.cell, column.set_record.name): column.name for column in columns}
    rows = []
    for pool, choice in selected.choices:
        run, steps = runs[choice.run], choice.steps
        what = (rule, oracle, pool.algorithm, pool.cell, pool.repeat, run.seed, names[pool.cell, choice.set])
        named = dict(zip(CHOICE_COLUMNS, (*what, run.id, run.name, run.trial, *_extent(steps)), strict=True))
        rows.append({**named, **_varied(pool, run)})
    frame = pd.DataFrame(rows)
    settings = sorted(set(frame.columns) - set(CHOICE_COLUMNS))
    return frame.reindex(columns=[*CHOICE_COLUMNS, *settings])


def _extent(steps: Sequence[int]) -> tuple[int, int, int]:
    return min(steps), max(steps), len(steps)


def _varied(pool: Pool, run: Run) -> dict[str, str]:
    """The settings that a search varied, as this run has them."""
    if not pool.is_search:
        return {}
    names = {name for candidate in pool.candidates for name in candidate.run.config}
    return {
        name: run.config.get(name, "")
        for name in sorted(names)
        if len({candidate.run.config.get(name, "") for candidate in pool.candidates}) > 1
    }
