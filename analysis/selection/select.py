"""Application of selection rules: the values that represent each pool on each column."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.columns import Column, headline, summary_metrics
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection.pools import Candidate, Choice, History, Pool
from biasbed.analysis.selection.rules import RULES, Rule, last_step
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest
from biasbed.suites import derived

Rules = Mapping[tuple[str, str], Rule]  # (hash of a protocol, cell) -> the rule made for them


def rule_names(protocol: record.Protocol) -> tuple[str, ...]:
    """Return the names of the rules that are valid for a protocol."""
    always = (name for name in RULES if RULES.load(name).in_every_protocol)
    return tuple(dict.fromkeys((*protocol.selection_rules, *always)))


def make_rule(name: str, n: int, protocol: record.Protocol) -> Rule:
    """Make the rule that `selection=` names (auto: the protocol's default; `<file>.py:<Class>`: a user's rule).

    protocol.sets: the sets that count. Raises UsageError if the rule is not valid for the protocol.
    """
    if ":" in name:
        rule: Rule = RULES.load(name)(protocol, n)
        if rule.name in RULES:
            raise UsageError(f"selection={name}: call it otherwise, '{rule.name}' is one of biasbed's rules")
        return rule
    if name == "auto":
        name = protocol.default_selection
    return known_rule(name, n, protocol)


def known_rule(name: str, n: int, protocol: record.Protocol) -> Rule:
    """Make one of biasbed's rules by its name. A name from a protocol comes from a server, so it is never imported.

    Raises UsageError if the rule is unknown, or not valid for the protocol.
    """
    names = rule_names(protocol)
    if name not in names:
        advice = f"; valid: {', '.join(names)}" if name in RULES else nearest(name, names)
        raise UsageError(f"selection={name}: this protocol has no such rule{advice}, or <file>.py:<Class> of your own")
    if name not in RULES:
        raise UsageError(f"selection={name}: this version of biasbed does not know the rule; valid: {', '.join(RULES)}")
    rule: Rule = RULES.load(name)(protocol, n)
    return rule


def rules_of(
    make: Callable[[record.Protocol], Rule], collection: Collection, columns: Sequence[Column]
) -> dict[tuple[str, str], Rule]:
    """Make the rule for each protocol and cell of the runs, with the sets that count there."""
    rules: dict[tuple[str, str], Rule] = {}
    for run in collection.unpublished:
        names = {column.set_record.name for column in columns if column.cell == run.cell}
        protocol = collection.protocol_of(run)
        uncounted = [eval_set for eval_set in protocol.sets if not eval_set.counts]  # `measure=` may ask for them
        counted = tuple(eval_set for eval_set in (*protocol.columns, *uncounted) if eval_set.name in names)
        if counted and (run.protocol, run.cell) not in rules:
            rules[run.protocol, run.cell] = make(dataclasses.replace(protocol, sets=counted))
    return rules


class ChosenRun(NamedTuple):
    """Run that represents a pool on a column, and the steps at which it counts."""

    pool: Pool
    candidate: Candidate
    column: Column
    protocol: record.Protocol  # of the run
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Missing:
    """Lack of a usable value of a run on one column."""

    run_id: str
    dataset: str
    why: str
    at_other_steps: bool = False  # the set was tested, but not at the step that the rule chose


@dataclass(frozen=True)
class Selected:
    """Choices of a rule, and the values at the chosen steps."""

    values: pd.DataFrame  # `SELECTED_COLUMNS`, then each further measure of any set
    missing: tuple[Missing, ...]
    choices: tuple[ChosenRun, ...]

    @property
    def notes(self) -> list[str]:
        """Notes on pools of which the rule chose only some runs."""
        chosen: dict[tuple[str, str], set[str]] = {}
        pools: dict[tuple[str, str], Pool] = {}
        for pool, candidate, *_ in self.choices:
            if not pool.is_search:
                pools[pool.algorithm, pool.cell] = pool
                chosen.setdefault((pool.algorithm, pool.cell), set()).add(candidate.run.id)
        notes = []
        for key, pool in pools.items():
            if len(chosen[key]) < len(pool.candidates):
                notes.append(f"{pool.title}: the rule chose {len(chosen[key])} of {len(pool.candidates)} runs")
        return notes


SELECTED_COLUMNS = (
    *("run_id", "replicate", "cell", "dataset", "measure", "value"),
    *("first_step", "last_step", "num_steps", "monitor", "selection_value"),
)


def steps_of(selected: pd.DataFrame) -> Mapping[tuple[str, str], int | None]:
    """Return the selected step of each (run, set); None if the rule averages several. selected: `SELECTED_COLUMNS`."""
    steps: dict[tuple[str, str], int | None] = {}
    rows = selected[["run_id", "dataset", "last_step", "num_steps"]]
    for run_id, dataset, last, number in rows.itertuples(index=False, name=None):
        steps[run_id, dataset] = int(last) if number == 1 else None
    return steps


def select(
    rules: Rules, pools: Sequence[Pool], columns: Sequence[Column], protocols: Mapping[str, record.Protocol]
) -> Selected:
    """Select values from every pool under a rule, as a tidy frame, and list the missing ones.

    The frame has a row per run and column: `SELECTED_COLUMNS` (value: mean of the headline measure over the selected
    steps, in the metric's unit; monitor: mean of the monitor over the same steps; selection_value: the value by which
    the rule chose, in the unit that is shown), then each further measure of any set.
    """
    missing: list[Missing] = []
    chosen: list[ChosenRun] = []
    means: list[float] = []
    criteria: list[float] = []
    metrics = {column.name: str(column.metric) for column in columns}  # there may be many thousand runs
    for pool in pools:
        by_set = {column.set_record.name: column for column in columns if column.cell == pool.cell}
        scales: dict[tuple[str, str], float] = {}  # (hash of a protocol, column) -> factor
        for choice in _choices(rules, pool):
            candidate, column = pool.by_run[choice.run], by_set[choice.set]
            protocol_hash = candidate.run.protocol
            protocol = protocols[protocol_hash]
            values = candidate.history.values(metrics[column.name], choice.steps)
            if not values or not all(map(record.is_finite, values)):
                problem = _problem(candidate.history, column.set_record, choice.steps, protocol)
                missing.append(Missing(choice.run, column.name, problem, problem.startswith(OTHER_STEPS)))
                continue
            key = protocol_hash, column.name
            if key not in scales:
                scales[key] = _scale(rules.get((protocol_hash, pool.cell)), protocol, column)
            chosen.append(ChosenRun(pool, candidate, column, protocol, choice.steps))
            means.append(math.fsum(values) / len(values))
            criteria.append(choice.value * scales[key])
    frame = _describe_runs(chosen, means, criteria).assign(**_further_means(chosen, columns, means))
    return Selected(frame, tuple(missing), tuple(chosen))


def _choices(rules: Rules, pool: Pool) -> Iterator[Choice]:
    """Yield the rule's choices, and the last step of runs that are settled, i.e. leave nothing to choose."""
    free = [candidate for candidate in pool.candidates if not candidate.history.is_settled]
    for candidate in pool.candidates:
        if candidate.history.is_settled:
            for eval_set in pool.sets:
                yield Choice(candidate.run.id, eval_set.name, last_step(candidate.history, eval_set))
    if free:
        choices = rules[free[0].run.protocol, pool.cell].choices(dataclasses.replace(pool, candidates=tuple(free)))
        yield from _check_choices(pool, list(choices))


def _check_choices(pool: Pool, choices: Sequence[Choice]) -> Sequence[Choice]:
    """Return the choices. Raises Failure if a run or step counts twice, or is none of the pool's: a rule may err."""
    keys: set[tuple[str, str]] = set()
    for choice in choices:
        key = choice.set, "" if pool.is_search else choice.run
        if choice.run not in pool.by_run:
            raise Failure(f"the rule chose run {choice.run} on {pool.title}, which is none of these")
        if key in keys or len(set(choice.steps)) < len(choice.steps):
            raise Failure(f"the rule chose twice for '{choice.set}' on {pool.title}: each run and step counts once")
        keys.add(key)
    return choices


def _describe_runs(chosen: Sequence[ChosenRun], means: Sequence[float], criteria: Sequence[float]) -> pd.DataFrame:
    """Return `SELECTED_COLUMNS`. means, criteria: the columns `value` and `selection_value`."""
    if not chosen:
        return pd.DataFrame(columns=list(SELECTED_COLUMNS))
    # Many columns of a run have the same steps. A published run has other curves in each cell.
    monitors: dict[tuple[str, str, tuple[int, ...]], float] = {}
    for pool, candidate, _, protocol, steps in chosen:
        key = pool.cell, candidate.run.id, steps
        if key not in monitors:
            monitors[key] = candidate.history.mean(protocol.monitor, steps)
    values = {
        "run_id": [run.candidate.run.id for run in chosen],
        "replicate": [run.pool.replicates[run.candidate.run.id] for run in chosen],
        "cell": [run.pool.cell for run in chosen],
        "dataset": [run.column.name for run in chosen],
        "measure": [run.column.headline for run in chosen],
        "value": means,
        "first_step": [min(run.steps) for run in chosen],
        "last_step": [max(run.steps) for run in chosen],
        "num_steps": [len(run.steps) for run in chosen],
        "monitor": [monitors[run.pool.cell, run.candidate.run.id, run.steps] for run in chosen],
        "selection_value": criteria,
    }
    return pd.DataFrame(values)


def _further_means(
    chosen: Sequence[ChosenRun], columns: Sequence[Column], headline_means: list[float]
) -> dict[str, list[float]]:
    """Return the means of each further measure, each of the first of its metrics that the run has."""
    headlines = {column.name: [str(column.metric)] for column in columns}
    means: dict[str, list[float]] = {}
    for measure in dict.fromkeys(itertools.chain.from_iterable(column.measures for column in columns)):
        metrics = {column.name: list(map(str, summary_metrics(column, measure))) for column in columns}
        if metrics == headlines:
            means[measure] = headline_means
            continue
        means[measure] = []
        for _, candidate, column, _, steps in chosen:
            history, names = candidate.history, metrics[column.name]
            name = names[0] if len(names) == 1 else next(filter(history.curve, names), names[0])
            means[measure].append(history.mean(name, steps))
    return means


def _scale(rule: Rule | None, protocol: record.Protocol, column: Column) -> float:
    """Return the factor to the unit of a rule's value: that of its monitor if it has one, else the set's."""
    if rule is None or not rule.monitor:
        return column.scale
    return measures.scale(measures.described(protocol, rule.monitor).unit)


OTHER_STEPS = "not tested at step"


def _problem(history: History, eval_set: record.SetRecord, steps: Sequence[int], protocol: record.Protocol) -> str:
    """Return the reason why the selected steps give no value."""
    curve = history.curve(headline(eval_set))
    if not curve:
        derivation = protocol.derivation(str(headline(eval_set)))
        if derivation is None:
            return "never tested"
        last = {name: [math.nan, *history.curve(name).values()][-1] for name in derivation.inputs}
        return derived.missing(derivation, last)
    if not steps:
        return "no finite value"
    absent = [str(step) for step in steps if step not in curve]
    if absent:
        tested = ", ".join(map(str, list(curve)[:5])) + ", ..." * (len(curve) > 5)
        return f"{OTHER_STEPS} {', '.join(absent)} (tested at {tested})"
    bad = [str(step) for step in steps if not record.is_finite(curve[step])]
    return f"not a finite number at step {', '.join(bad)}"


# --- as a file --------------------------------------------------------------------------------------------------------

CHOICE_COLUMNS = (
    *("rule", "oracle", "algorithm", "cell", "repeat", "seed", "dataset", "run_id", "run_name", "trial"),
    *("first_step", "last_step", "num_steps"),
)


def choice_table(rule: Rule, selected: Selected) -> pd.DataFrame:
    """Return each pool's chosen run and steps by column: `CHOICE_COLUMNS`, then the settings that a search varied."""
    pools = [chosen.pool for chosen in selected.choices]
    runs = [chosen.candidate.run for chosen in selected.choices]
    frame = selected.values.assign(
        rule=rule.name,
        oracle=rule.oracle,
        algorithm=[pool.algorithm for pool in pools],
        repeat=[pool.repeat for pool in pools],
        seed=[run.seed for run in runs],
        run_name=[run.name for run in runs],
        trial=[run.trial for run in runs],
    )[list(CHOICE_COLUMNS)]
    for name in sorted(set().union(*(pool.varied_settings for pool in pools))):
        settings = [_varied_setting(pool, run, name) for pool, run in zip(pools, runs, strict=True)]
        frame[name] = pd.Series(settings, frame.index, dtype="str")
    return frame


def _varied_setting(pool: Pool, run: Run, name: str) -> str | None:
    """Return this run's value of a setting; None if its own search did not vary it."""
    return run.config.get(name, "") if name in pool.varied_settings else None
