"""Scores that users bring: a table of method, data set, seed and score, checked, with what was guessed about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from biasbed import measures
from biasbed.analysis.tables.markup import squeeze
from biasbed.analysis.tables.scores import Score
from biasbed.errors import UsageError
from biasbed.settings import nearest

if TYPE_CHECKING:
    import pandas as pd

    from biasbed.analysis.statistics.over_images import ImageAnswers
    from biasbed.analysis.tables.findings import Checked

COLUMNS = ("method", "dataset", "seed", "score")


class Spread(NamedTuple):
    """Deviation of runs around a printed mean."""

    deviation: float
    num_runs: int  # 0 if nothing says it


@dataclass(frozen=True)
class UserScores:
    """Scores of one comparison, in the order of their first appearance."""

    source: str  # the files, or what else they were given as
    table: pd.DataFrame  # `COLUMNS`, one row per score; every score is finite
    notes: tuple[str, ...] = ()  # guesses, and what was left out
    measure: str = "score"
    lower: tuple[str, ...] | None = None  # data sets on which lower is better; None if the source does not say
    directed: frozenset[str] = frozenset()  # data sets whose direction the source or the user says
    heads: Mapping[str, str] = field(default_factory=dict)  # what a table calls a data set, small -> its name
    blocks: Mapping[str, str] = field(default_factory=dict)  # data set -> the one that it is a part of
    # Printed deviations by (method, data set), with the number of runs; empty if the table prints none.
    spreads: Mapping[tuple[str, str], Spread] = field(default_factory=dict)
    has_errors: bool = False  # printed deviations are standard errors
    checked: Checked | None = None  # contradictions among printed numbers, if asked for
    # Decisions on single items by (method, data set, seed); empty if only scores are known.
    answers: Mapping[tuple[str, str, str], ImageAnswers] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(self.table["method"]))

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(self.table["dataset"]))

    def named(self, datasets: Iterable[str]) -> list[str]:
        """Return data sets by their names here, also those that a user calls as the table's head does."""
        names = set(self.table["dataset"])
        return [name if name in names else self.heads.get(squeeze(name).casefold(), name) for name in datasets]


def make_scores(rows: Iterable[Score], source: str, notes: Iterable[str], measure: str) -> UserScores:
    """Return the scores of rows. Raises UsageError for a score that is there twice, or if there is none."""
    seen: dict[tuple[str, str, str], str] = {}
    kept: list[tuple[str, str, str, float]] = []
    for row in rows:
        key = row.method, row.dataset, row.seed
        if key in seen:
            raise UsageError(_twice(row, seen[key]))
        seen[key] = row.where
        if abs(row.value) > measures.LARGEST_SCORE:
            raise UsageError(f"{row.where}: the score {row.value:g} of {row.method} on {row.dataset} is beyond 1e100")
        kept.append((*key, row.value))
    if not kept:
        raise UsageError(f"{source}: there are no scores in it")
    import pandas as pd

    table = pd.DataFrame(kept, columns=list(COLUMNS))
    lookalikes = _lookalikes("methods", table["method"]) + _lookalikes("data sets", table["dataset"])
    return UserScores(source, table, (*notes, *lookalikes), measure)


def _twice(row: Score, first: str) -> str:
    """Return the message on a second score of one cell."""
    first = first.rpartition(", ")[2]
    if row.seed:
        return f"{row.where}: {row.method} on {row.dataset} with seed {row.seed} is there already ({first}): keep one"
    return (
        f"{row.where}: {row.method} on {row.dataset} is there already ({first}): keep one, or name what tells them "
        "apart in a column 'seed'"
    )


def _lookalikes(noun: str, names: Iterable[str]) -> list[str]:
    """Return a note on names that differ only in capitals and punctuation; `ERM+` and `ERM*` are other names."""
    forms: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        letters = "".join(sign for sign in name.casefold() if sign.isalnum() or sign in "+*†‡")
        forms.setdefault(letters or name, []).append(name)
    alike = [" and ".join(f"'{name}'" for name in same) for same in forms.values() if len(same) > 1]
    if not alike:
        return []
    return [f"the {noun} {'; '.join(alike)} are taken for different ones: if they are one, give them one name"]


def select_scores(scores: UserScores, methods: Iterable[str], datasets: Iterable[str]) -> UserScores:
    """Return the scores of these methods and data sets, which must exist; of all if no names are given."""
    table = scores.table
    for option, column, names in (("methods", "method", list(methods)), ("sets", "dataset", scores.named(datasets))):
        for name in names:
            if name not in set(scores.table[column]):
                hint = nearest(name, dict.fromkeys(scores.table[column]))
                raise UsageError(f"{option}={','.join(names)}: {scores.source} has no '{name}'{hint}")
        if names:
            table = table[table[column].isin(names)]
    if table.empty:
        raise UsageError(f"{scores.source}: no score is left of these methods and sets")
    return replace(scores, table=table.reset_index(drop=True))
