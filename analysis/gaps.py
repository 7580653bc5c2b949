"""The same runs under every selection rule of the protocol, and how far each rule stays behind the oracle.

Kalischek et al. 2023, table 1: what choosing the epoch without looking at the test images costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from biasbed import record
from biasbed.analysis import aggregate
from biasbed.analysis.runs import Run
from biasbed.analysis.selection import History, Rule, make_rule, select
from biasbed.errors import Failure, UsageError

COLUMNS = ("rule", "oracle", "algorithm", "dataset", "mean", "std", "num_runs", "gap", "skipped")


@dataclass(frozen=True)
class RuleScores:
    """The score table under one rule, or why there is none."""

    name: str
    oracle: bool
    scores: pd.DataFrame | None  # aggregate.score_table
    skipped: str = ""


def under_every_rule(
    chosen: Rule,
    scores: pd.DataFrame,
    histories: Mapping[str, History],
    runs: Sequence[Run],
    protocol: record.Protocol,
    sets: Sequence[record.SetRecord],
    n: int,
) -> list[RuleScores]:
    """The chosen rule's scores first, then every other rule's of the protocol, from the same complete histories.

    A rule that these runs don't allow (last_n with more epochs than there are) is skipped with the reason.
    """
    found = [RuleScores(chosen.name, chosen.oracle, scores)]
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    for name in protocol.selection_rules:
        if name == chosen.name:
            continue
        try:
            rule = make_rule(name, n, protocol)
            selected, _ = select(rule, histories, sets, protocol.monitor)
        except (UsageError, Failure) as error:
            found.append(RuleScores(name, False, None, str(error)))
            continue
        table = aggregate.run_table(selected, runs, sets, protocol.monitor)
        other = aggregate.score_table(table, algorithms, [entry.name for entry in sets])
        empty = int((other["num_runs"] == 0).sum())
        if empty:
            found.append(RuleScores(name, rule.oracle, None, f"{empty} cell(s) of its score table would be empty"))
        else:
            found.append(RuleScores(name, rule.oracle, other))
    return found


def table(rules: Sequence[RuleScores], sets: Sequence[record.SetRecord]) -> pd.DataFrame:
    """`COLUMNS`: one row per rule, algorithm and set; gap: by how much the oracle is better (empty without one)."""
    sign = {entry.name: 1.0 if entry.higher_is_better else -1.0 for entry in sets}
    oracle = next((rule.scores for rule in rules if rule.oracle and rule.scores is not None), None)
    frames = []
    for rule in rules:
        if rule.scores is None:
            frames.append(pd.DataFrame([{"rule": rule.name, "oracle": rule.oracle, "skipped": rule.skipped}]))
            continue
        frame = rule.scores.assign(rule=rule.name, oracle=rule.oracle, skipped="", gap=float("nan"))
        if oracle is not None:
            best = oracle.set_index(["algorithm", "dataset"])["mean"]
            own = frame.set_index(["algorithm", "dataset"])["mean"]
            frame["gap"] = (best.reindex(own.index) - own).to_numpy() * frame["dataset"].map(sign)
        frames.append(frame)
    return pd.concat([frame.reindex(columns=list(COLUMNS)) for frame in frames], ignore_index=True)
