"""Duplicates: finished runs with the same run key, of which one counts.

Answers: Which of several runs of one key counts?
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter

from biasbed.analysis.runs.run import Run, distinct, group_runs


def first_of_each_key(runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """Return the first run of each run key to finish, which counts, and the others: duplicates. Both in display order.

    The first counts so that a bad seed can't be re-rolled.
    """
    by_key = group_runs(sorted(runs, key=attrgetter("ended", "started", "id")), "run_key")
    counted, duplicates = [], []
    for first, *others in by_key.values():
        counted.append(first)
        duplicates += others
    return sorted(counted, key=_display_order), sorted(duplicates, key=_display_order)


def _display_order(run: Run) -> tuple[str, int, str, str, list[int], str]:
    """Return the sort key of a run in tables: trials in search order, as rules and sweeps take the first of equals."""
    seed = int(run.seed) if run.seed.isdecimal() else 0
    trial = [int(number) for number in re.findall(r"\d+", run.trial)]  # for r1-3: repeat 1, trial 3
    return run.algorithm, seed, run.seed, run.cell or run.test_domains, trial, run.id


def duplicate_notes(counted: Sequence[Run], duplicates: Sequence[Run]) -> list[str]:
    """Return a note on runs that do not count because another run has their key."""
    if not duplicates:
        return []
    keys = distinct(duplicates, "run_key")
    code = {run.run_key: run.code_hash for run in counted}
    changed = sum(code[run.run_key] != run.code_hash for run in duplicates)
    note = f"{len(duplicates)} further run(s) finished with the same run key as {len(keys)} that count(s); the first"
    note += " to finish counts, the others are listed with their numbers"
    if changed:
        note += f" ({changed} of them ran other code)"
    return [note]
