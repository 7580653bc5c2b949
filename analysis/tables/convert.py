"""Scores of a published table as `compare` takes them: one measure a data set, blocks, directions and deviations."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.scores import Score
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understood import Understood, names_of_columns
from biasbed.analysis.tables.user_scores import Spread, UserScores, make_scores
from biasbed.errors import UsageError, listed
from biasbed.settings import nearest

MOST_RUNS = 10_000
UNLIKE = 1000.0  # times that the numbers on one part of a data set may be those on another


def to_scores(table: Understood, settings: ReaderSettings) -> UserScores:
    """Return the scores that are compared."""
    scores = table.used
    notes = [*_notes(table), *table.notes]
    counts_each = settings.blocks is not None and not settings.blocks
    if not counts_each:
        scores, note = _one_measure(scores, settings.score)
        _mark_left_out(table, scores, "another measure of the same data set (`score` takes it)")
        scores, left_out = _one_direction(scores)
        _mark_left_out(table, scores, "counts the other way than its data set")
        notes += [*note, *left_out]
    names = names_of_columns(scores)
    rows = []
    for score in scores:
        rows.append(score._replace(dataset=names[score.key]))
    measures = {score.metric for score in scores}
    measure = next(iter(measures)) if len(measures) == 1 and "" not in measures else "score"
    directions: dict[str, str] = {}
    for score in scores:
        directions.setdefault(names[score.key], score.direction)
    lower = tuple(name for name, direction in directions.items() if direction == "no")
    turned = {names[score.key] for score in scores if score.is_turned_by_name}
    said = [name for name in lower if name not in turned]
    if said and not settings.has_directions:
        notes.append(f"lower is better on {listed(said, 8)}, as the table says (`lower` as none turns it)")
    blocks = {} if counts_each else _blocks(scores, names)
    _refuse_unlike_parts(table.source, scores, blocks, names)
    if blocks:
        notes.append(_say_blocks(blocks))
    result = make_scores(rows, table.source, notes, measure)
    has_errors = table.printed is not None and table.printed.is_standard_error
    spreads = _spreads(scores, names, settings, has_errors)
    heads = {text: names[key] for text, key in table.spellings().items() if key in names}
    directed = frozenset(name for name, direction in directions.items() if direction)
    result = replace(result, lower=lower, directed=directed, heads=heads, blocks=blocks)
    return replace(result, spreads=spreads, has_errors=has_errors)


def _mark_left_out(table: Understood, kept: Sequence[Score], reason: str) -> None:
    """Say in the table which of its scores are not compared."""
    keys = {(score.key, score.method, score.seed) for score in kept}
    for position, score in enumerate(table.scores):
        if not score.left_out and (score.key, score.method, score.seed) not in keys:
            table.scores[position] = score._replace(left_out=reason)


def _notes(table: Understood) -> list[str]:
    """Return what was left out, in sentences."""
    notes = [table.axes] if table.axes else []
    for reason, names in table.left_out_by_reason.items():
        notes.append(f"left out, {reason}: {listed(names, 6)}")
    return notes


def _one_measure(scores: list[Score], measure_name: str) -> tuple[list[Score], list[str]]:
    """Return the scores of one measure for each data set, and a note: measures of the same images count once.

    measure_name: the user's; auto takes the one that most data sets have, not counting columns of no named data set.
    """
    by_set: dict[tuple[str, str], dict[str, None]] = {}
    are_measures = len({score.key for score in scores}) > 1 and all(_is_nameless(score) for score in scores)
    named: set[tuple[str, str]] = set()
    for score in scores:
        key = _set_of(score, are_measures)
        by_set.setdefault(key, {})[score.metric] = None
        if are_measures or not _is_nameless(score):
            named.add(key)
    all_measures = list(dict.fromkeys(score.metric for score in scores))
    if all(len(measures) == 1 for measures in by_set.values()):
        return scores, []
    if measure_name != "auto":
        match = next((name for name in all_measures if name.casefold() == measure_name.casefold()), None)
        if match is None:
            raise UsageError(
                f"score={measure_name}: the table has no such measure{nearest(measure_name, all_measures)}"
            )
        order = [match]
    else:
        directed = {score.metric for score in scores if score.direction}

        def order_of(name: str) -> tuple[int, bool, int]:
            num_sets = sum(name in by_set[key] for key in named)
            return -num_sets, name not in directed, _rank_of_head(name)

        order = sorted(all_measures, key=order_of)
    chosen = {key: next((name for name in order if name in of_set), "") for key, of_set in by_set.items()}
    kept = [score for score in scores if score.metric == chosen[_set_of(score, are_measures)]]
    counted = list(dict.fromkeys(chosen.values()))
    others = [name for name in all_measures if name not in counted]
    note = (
        f"of several measures of one data set {listed(counted, 4)} counts; left out: {listed(others, 8)} (`score` "
        "takes another, `blocks` as none counts each column by itself)"
    )
    return kept, [note]


def _one_direction(scores: list[Score]) -> tuple[list[Score], list[str]]:
    """Return the scores without columns that count the other way than most of their block, and a note on these."""
    directions: dict[str, Counter[bool]] = {}
    for score in scores:
        if score.block:
            directions.setdefault(score.block, Counter())[score.direction == "no"] += 1
    usual = {block: counts.most_common(1)[0][0] for block, counts in directions.items()}
    kept = [score for score in scores if not score.block or (score.direction == "no") == usual[score.block]]
    if len(kept) == len(scores):
        return scores, []
    lost = dict.fromkeys(score.dataset for score in scores if score not in kept)
    return kept, [f"left out, as they count the other way than the other columns of their data set: {listed(lost, 6)}"]


def _rank_of_head(name: str) -> int:
    letters = say.letters(name)
    return say.SCORES.index(letters) if letters in say.SCORES else len(say.SCORES)


def _is_nameless(score: Score) -> bool:
    return score.dataset == score.metric and not score.block


def _set_of(score: Score, are_measures: bool) -> tuple[str, str]:
    """Return what a score was measured on; columns that are named by measures alone are of one data set."""
    return ("", "") if are_measures else (score.block, score.dataset)


def _blocks(scores: Sequence[Score], names: Mapping[tuple[str, str, str], str]) -> dict[str, str]:
    """Return the block of each data set that is a part of one; a data set with one column is none."""
    members: dict[str, dict[str, None]] = {}
    for score in scores:
        if score.block:
            members.setdefault(score.block, {})[names[score.key]] = None
    blocks = {}
    for block, parts in members.items():
        if len(parts) > 1:
            blocks.update(dict.fromkeys(parts, block))
    return blocks


def _refuse_unlike_parts(
    source: str, scores: Sequence[Score], blocks: Mapping[str, str], names: Mapping[tuple[str, str, str], str]
) -> None:
    """Raise UsageError for parts of one data set whose numbers have unlike units, as their mean says nothing."""
    values: dict[str, list[float]] = {}
    for score in scores:
        values.setdefault(names[score.key], []).append(abs(score.value))
    medians: dict[str, dict[str, float]] = {}
    for name, block in blocks.items():
        medians.setdefault(block, {})[name] = statistics.median(values[name])
    for block, of_parts in medians.items():
        small, large = min(of_parts, key=of_parts.__getitem__), max(of_parts, key=of_parts.__getitem__)
        if 0 < of_parts[small] < of_parts[large] / UNLIKE:
            raise UsageError(
                f"{source}: {small} ({of_parts[small]:g}) and {large} ({of_parts[large]:g}) are measured in unlike "
                f"units, and no parts of {block} that could be averaged: say blocks=none, or leave some out with "
                "leave_out="
            )


def _say_blocks(blocks: Mapping[str, str]) -> str:
    """Return the note on parts of data sets."""
    members: dict[str, list[str]] = {}
    for name, block in blocks.items():
        members.setdefault(block, []).append(name)
    said = [f"{block} ({listed(names, 6)})" for block, names in members.items()]
    return f"parts of one data set count once: {', '.join(said)} (`blocks` says otherwise)"


def _spreads(
    scores: Sequence[Score], names: Mapping[tuple[str, str, str], str], settings: ReaderSettings, has_errors: bool
) -> dict[tuple[str, str], Spread]:
    """Return the printed deviations; of a standard error the deviation, if the number of runs is known, else itself."""
    spreads = {}
    for score in scores:
        count = score.num_runs if settings.num_runs or 1 < score.num_runs < MOST_RUNS else 0
        if score.spread is not None and not score.seed:
            deviation = score.spread * (count or 1) ** 0.5 if has_errors else score.spread
            spreads[score.method, names[score.key]] = Spread(deviation, count)
    return spreads
