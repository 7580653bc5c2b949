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
from biasbed.analysis.columns import Column, summary_metrics
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection.pools import Candidate, Choice, Pool
from biasbed.analysis.selection.rules import RULES, Rule, last_step
from biasbed.errors import Failure, UsageError
from biasbed.settings import refuse_unknown
from biasbed.suites import derived

Rules = Mapping[tuple[str, str], Rule]  # (hash of a protocol, cell) -> the rule made for them


def rule_names(protocol: record.Protocol) -> tuple[str, ...]:
    """Return the names of the rules that are valid for a protocol: its own, then those of every protocol."""
    of_every_protocol = [name for name in RULES if RULES.load(name).in_every_protocol]
    return tuple(dict.fromkeys((*protocol.selection_rules, *of_every_protocol)))


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
    names = [valid for valid in rule_names(protocol) if valid in RULES]  # another version may have others
    refuse_unknown(name, names, f"selection={name}: this protocol has no such rule, and it is no <file>.py:<Class>")
    rule: Rule = RULES.load(name)(protocol, n)
    return rule


def rules_of(
    make: Callable[[record.Protocol], Rule], collection: Collection, columns: Sequence[Column]
) -> dict[tuple[str, str], Rule]:
    """Make the rule for each protocol and cell of the runs.

    make: returns the rule for a protocol, whose `sets` are those that count in the cell.
    """
    rules: dict[tuple[str, str], Rule] = {}
    for run in collection.unpublished:
        if (run.protocol, run.cell) in rules:
            continue
        names = {column.set_record.name for column in columns if column.cell == run.cell}
        protocol = collection.protocol_of(run)
        uncounted = [eval_set for eval_set in protocol.sets if not eval_set.counts]  # `measure=` may ask for them
        counted = tuple(eval_set for eval_set in (*protocol.columns, *uncounted) if eval_set.name in names)
        if counted:
            rules[run.protocol, run.cell] = make(dataclasses.replace(protocol, sets=counted))
    return rules


class ChosenRun(NamedTuple):
    """Run that represents a pool on a column, the steps at which it counts, and its value there."""

    pool: Pool
    candidate: Candidate
    column: Column
    protocol: record.Protocol  # of the run
    steps: tuple[int, ...]
    value: float  # mean of the column's metric over the steps, as stored
    criterion: float  # value by which the rule chose, in the unit that is shown; NaN if it has none


@dataclass(frozen=True)
class Missing:
    """Run without a finite value on a column at the steps that the rule chose."""

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
        """Notes on pools of which the rule chose only some runs. Of a search it chooses one trial."""
        run_ids: dict[str, set[str]] = {}  # title of a pool -> runs that represent it
        sizes = {}
        for chosen in self.choices:
            if not chosen.pool.is_search:
                run_ids.setdefault(chosen.pool.title, set()).add(chosen.candidate.run.id)
                sizes[chosen.pool.title] = len(chosen.pool.candidates)
        notes = []
        for title, ids in run_ids.items():
            if len(ids) < sizes[title]:
                notes.append(f"{title}: the rule chose {len(ids)} of {sizes[title]} runs")
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
    """Apply the rules to every pool: choose runs and steps, and take the values there.

    `Selected.values` has a row per chosen run and column: `SELECTED_COLUMNS` (value: mean of the headline measure over
    the chosen steps, as stored; monitor: mean of the monitor over the same steps; selection_value: the value by which
    the rule chose, in the unit that is shown), then each further measure of any set.
    """
    missing: list[Missing] = []
    chosen: list[ChosenRun] = []
    metrics = {column.name: str(column.metric) for column in columns}  # once, as there may be many thousand runs
    for pool in pools:
        column_by_set = {column.set_record.name: column for column in columns if column.cell == pool.cell}
        scales: dict[tuple[str, str], float] = {}  # (hash of a protocol, column) -> factor
        for choice in _choose_in_pool(rules, pool):
            candidate, column = pool.by_run[choice.run], column_by_set[choice.set]
            protocol_hash = candidate.run.protocol
            protocol = protocols[protocol_hash]
            values = candidate.history.values(metrics[column.name], choice.steps)
            if not values or not all(map(record.is_finite, values)):
                missing.append(_explain_missing(candidate, column, choice.steps, protocol))
                continue
            key = protocol_hash, column.name
            if key not in scales:
                scales[key] = _criterion_scale(rules.get((protocol_hash, pool.cell)), protocol, column)
            value, criterion = math.fsum(values) / len(values), choice.value * scales[key]
            chosen.append(ChosenRun(pool, candidate, column, protocol, choice.steps, value, criterion))
    frame = _describe_choices(chosen).assign(**_further_means(chosen, columns))
    return Selected(frame, tuple(missing), tuple(chosen))


def _choose_in_pool(rules: Rules, pool: Pool) -> Iterator[Choice]:
    """Yield the last step of settled runs, which leave nothing to choose, then the rule's choices of the others."""
    to_choose = tuple(candidate for candidate in pool.candidates if not candidate.history.is_settled)
    for candidate in pool.candidates:
        if candidate.history.is_settled:
            for eval_set in pool.sets:
                yield Choice(candidate.run.id, eval_set.name, last_step(candidate.history, eval_set))
    if to_choose:
        rule = rules[to_choose[0].run.protocol, pool.cell]
        yield from _refuse_wrong_choices(pool, list(rule.choices(dataclasses.replace(pool, candidates=to_choose))))


def _refuse_wrong_choices(pool: Pool, choices: Sequence[Choice]) -> Sequence[Choice]:
    """Return the choices of a rule, which may be a user's.

    Raises Failure if a run is not in the pool, or if a run or step counts twice.
    """
    keys: set[tuple[str, str]] = set()
    for choice in choices:
        key = choice.set, "" if pool.is_search else choice.run
        if choice.run not in pool.by_run:
            raise Failure(f"the rule chose run {choice.run} on {pool.title}, which is none of these")
        if key in keys or len(set(choice.steps)) < len(choice.steps):
            raise Failure(f"the rule chose twice for '{choice.set}' on {pool.title}: each run and step counts once")
        keys.add(key)
    return choices


def _describe_choices(chosen: Sequence[ChosenRun]) -> pd.DataFrame:
    """Return `SELECTED_COLUMNS`."""
    if not chosen:
        return pd.DataFrame(columns=list(SELECTED_COLUMNS))
    # Many columns of a run have the same steps. A published run has other curves in each cell.
    monitors: dict[tuple[str, str, tuple[int, ...]], float] = {}
    for run in chosen:
        key = run.pool.cell, run.candidate.run.id, run.steps
        if key not in monitors:
            monitors[key] = run.candidate.history.mean(run.protocol.monitor, run.steps)
    values = {
        "run_id": [run.candidate.run.id for run in chosen],
        "replicate": [run.pool.replicates[run.candidate.run.id] for run in chosen],
        "cell": [run.pool.cell for run in chosen],
        "dataset": [run.column.name for run in chosen],
        "measure": [run.column.headline for run in chosen],
        "value": [run.value for run in chosen],
        "first_step": [min(run.steps) for run in chosen],
        "last_step": [max(run.steps) for run in chosen],
        "num_steps": [len(run.steps) for run in chosen],
        "monitor": [monitors[run.pool.cell, run.candidate.run.id, run.steps] for run in chosen],
        "selection_value": [run.criterion for run in chosen],
    }
    return pd.DataFrame(values)


def _further_means(chosen: Sequence[ChosenRun], columns: Sequence[Column]) -> dict[str, list[float]]:
    """Return measure -> its mean over the steps of each chosen run; NaN if the run lacks the measure.

    If several metrics may hold a measure, the first that the run has counts.
    """
    headlines = {column.name: [str(column.metric)] for column in columns}
    means: dict[str, list[float]] = {}
    for measure in dict.fromkeys(itertools.chain.from_iterable(column.measures for column in columns)):
        metrics = {column.name: list(map(str, summary_metrics(column, measure))) for column in columns}
        if metrics == headlines:
            means[measure] = [run.value for run in chosen]
            continue
        means[measure] = []
        for run in chosen:
            history, names = run.candidate.history, metrics[run.column.name]
            name = names[0] if len(names) == 1 else next(filter(history.curve, names), names[0])
            means[measure].append(history.mean(name, run.steps))
    return means


def _criterion_scale(rule: Rule | None, protocol: record.Protocol, column: Column) -> float:
    """Return the factor from a rule's criterion to its shown unit: that of the rule's monitor, else the column's."""
    if rule is None or not rule.monitor:
        return column.scale
    return measures.scale(measures.describe_metric(protocol, rule.monitor).unit)


def _explain_missing(candidate: Candidate, column: Column, steps: Sequence[int], protocol: record.Protocol) -> Missing:
    """Return the reason why a run has no value on a column at these steps."""
    history, metric = candidate.history, str(column.metric)
    curve, derivation = history.curve(metric), protocol.derivation(metric)
    absent = [str(step) for step in steps if step not in curve]
    at_other_steps = False
    if not curve:
        why = "never tested"
        if derivation is not None:
            last_inputs = {}
            for name in derivation.inputs:
                values = list(history.curve(name).values())
                last_inputs[name] = values[-1] if values else math.nan
            why = derived.describe_missing(derivation, last_inputs)
    elif not steps:
        why = "no finite value"
    elif absent:
        at_other_steps = True
        tested = ", ".join(map(str, list(curve)[:5])) + ", ..." * (len(curve) > 5)
        why = f"not tested at step {', '.join(absent)} (tested at {tested})"
    else:
        bad = [str(step) for step in steps if not record.is_finite(curve[step])]
        why = f"not a finite number at step {', '.join(bad)}"
    return Missing(candidate.run.id, column.name, why, at_other_steps)


# --- as a file --------------------------------------------------------------------------------------------------------

CHOICE_COLUMNS = (
    *("rule", "oracle", "algorithm", "cell", "repeat", "seed", "dataset", "run_id", "run_name", "trial"),
    *("first_step", "last_step", "num_steps"),
)


def choice_table(rule: Rule, selected: Selected) -> pd.DataFrame:
    """Return a row per chosen run and column: `CHOICE_COLUMNS`, then the settings that a search varied."""
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
