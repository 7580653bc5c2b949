"""Data sets of a hub that stand for a run's sets: `benchmarks=<set>=<org>/<data set>:<task>`.

Answers: How does an exported result name a data set of a hub?
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from biasbed.errors import UsageError
from biasbed.settings import nearest

_WORD = re.compile(r"(?P<set>[a-z0-9_-]+)=(?P<id>[\w.-]+/[\w.-]+)(:(?P<task>[\w.-]+))?(@(?P<revision>[0-9a-f]{7,64}))?")
DEFAULT_TASK = "default"


class Benchmark(NamedTuple):
    """Data set of a hub, and the task of its leaderboard."""

    id: str
    task: str
    revision: str  # empty if none is named


def parse(texts: Sequence[str]) -> dict[str, Benchmark]:
    """Return the data set of a hub for each set. Raises UsageError for a text of another form."""
    benchmarks: dict[str, Benchmark] = {}
    for text in texts:
        match = _WORD.fullmatch(text)
        if match is None:
            raise UsageError(f"benchmarks={text}: should be <set>=<org>/<data set>, or <set>=<org>/<data set>:<task>")
        if match["set"] in benchmarks:
            raise UsageError(f"benchmarks={text}: the set '{match['set']}' is there twice")
        benchmarks[match["set"]] = Benchmark(match["id"], match["task"] or DEFAULT_TASK, match["revision"] or "")
    return benchmarks


def refuse_unknown(benchmarks: Mapping[str, Benchmark], sets: Iterable[str | None]) -> None:
    """Raise UsageError if a set that is named has no result."""
    tested = sorted(filter(None, set(sets)))
    for name in benchmarks:
        if name not in tested:
            raise UsageError(f"benchmarks={name}=...: the run has no result on '{name}'{nearest(name, tested)}")
