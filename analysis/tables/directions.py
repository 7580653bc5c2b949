"""Direction of measures that no head says: from bold numbers, the words around a table, and the name of its file."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.averages import SURE_SHARE, match_share
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.score_table import ScoreTable
from biasbed.analysis.tables.scores import Score
from biasbed.errors import UsageError, listed

FEW_OTHERS = 4  # numbers that are not bold below which bold ones may be the lowest by chance
FEW_BESIDE = 8  # methods from which on a column that rises with the others is no chance
FEW_RANKED, MOST_RANKED = 3, 300  # pairs of methods that ranks must order as scores do; methods that are looked at
# Words of titles that say no direction: methods are named after losses, and adaptation is at test time.
_UNCLEAR = say.AMBIGUOUS | say.WEAK | {"loss", "balanced", "likelihood", "forgetting", "variance", "correlation"}
_TIME_OR_LOSS = re.compile(
    r"\b(?:(?:validation|test|eval\w*|cross[- ]entropy) loss|(?:run|running|training|inference) times?)\b", re.I
)
# Errors that are spreads, and say no direction: standard errors, error bars, errors over three seeds.
_SPREADS = re.compile(
    r"\b(?:standard|std\.?|sampling|statistical)[\s-]+err(?:or)?s?\b|\berror[\s-]+(?:bars?|margins?|intervals?)\b"
    r"|\bmargins?\s+of\s+errors?\b|\berrors?\s+of\s+the\s+mean\b|(?:±|\\pm\b\s*\$?)\s*(?:\w+\s+)?errors?\b"
    r"|\berrors?\s+(?:are\s+|is\s+|denote\s+)?(?:over|across|from)\s+(?:\w+\s+){1,2}(?:seeds?|runs?|trials?|repeats?)\b",
    re.I,
)
_DIFFERENCES = {"gap", "drop", "degradation", "disparity"}  # none of which is below 0, if not for its sign
_TOP = re.compile(r"\btop[-_ ]?[0-9]", re.I)


def find_directions(
    scores: Sequence[Score], averages: Sequence[Score], ranks: Sequence[tuple[str, float]], caption: str, source: str
) -> tuple[list[Score], str]:
    """Return the scores with the direction of data sets that say none, if anything else says it, and a note.

    averages: printed ones; ranks: printed ones, with their methods; source: name of the file. Raises UsageError if
    words, averages, bold numbers and ranks contradict each other.
    """
    unsaid = _by_set(score for score in scores if not score.direction)
    if not unsaid:
        return list(scores), ""
    stem = re.sub(r"\W*rates?$", "", re.sub(r"[\W_]+", " ", PurePath(source).stem)).rpartition(" ")[2]
    of_averages = {average.direction for average in averages} - {score.direction for score in scores if score.direction}
    evidence = [
        (title_direction(caption), "by the words around the table"),
        (of_averages.pop() if len(of_averages) == 1 else "", "as the head of its averages says"),
        (_by_bold(unsaid), "by the bold numbers"),
        (_by_ranks(unsaid, ranks), "by the printed ranks"),
    ]
    sayings = [(direction, why) for direction, why in evidence if direction]
    for direction, why in sayings[1:]:
        if direction != sayings[0][0]:
            raise UsageError(
                f"{source}: {sayings[0][1]} {_better(sayings[0][0])}, and {why} {_better(direction)}: say which, as "
                "lower=all or lower=none"
            )
    if not sayings and (by_file := title_direction(stem)):
        sayings = [(by_file, "by the name of the file")]
    directions, note = {key: "yes" for key in unsaid if _TOP.search(" ".join(key))}, ""
    if sayings:
        direction, why = sayings[0]
        directions = dict.fromkeys(unsaid, direction)
        note = f"{_better(direction)}, {why} (`lower` says otherwise)"
    return [score._replace(direction=score.direction or directions.get(score.key, "")) for score in scores], note


def turned_signs(scores: Sequence[Score], body: Body) -> tuple[list[Score], str]:
    """Return the scores with higher as better on data sets whose gaps or drops are all below 0, and a note."""
    highest: dict[tuple[str, str, str], float] = {}
    for score in scores:
        head = f"{body.name(score.column)} {body.grid.rows[score.row][0]}"
        if score.direction == "no" and say.has_word(head, _DIFFERENCES) and not say.arrow(head):
            highest[score.key] = max(score.value, highest.get(score.key, score.value))
    turned = {key for key, value in highest.items() if value < 0}
    if not turned:
        return list(scores), ""
    result = [score._replace(direction="yes") if score.key in turned else score for score in scores]
    names = listed([name for _, name, _ in sorted(turned)], 6)
    return result, f"higher is better on {names}: all differences are below 0, and 0 is none (`lower` says otherwise)"


def turned_by_name(scores: Sequence[Score], averages: Sequence[Score], table: ScoreTable) -> list[Score]:
    """Return the scores with a mark on those that only the words of their names turn.

    Raises UsageError if numbers contradict such a name: a mean with columns of which more is better, or a column that
    rises with them.
    """
    rows = table.body.grid.rows
    name_columns = [column for column in range(table.body.grid.width) if column not in table.columns.scores]
    result = []
    for score in scores:
        said = " ".join([table.body.name(score.column), *(rows[score.row][column] for column in name_columns)])
        result.append(score._replace(is_turned_by_name=score.direction == "no" and not say.arrow(said)))
    by_set = _by_set(result)
    if all(of_set[0].direction == "no" for of_set in by_set.values()):
        return result
    turned = [key for key, of_set in by_set.items() if of_set[0].is_turned_by_name]
    are_averaged = bool(turned) and _are_averaged(by_set, averages)
    for key in turned:
        evidence = ""
        if are_averaged:
            evidence = "the printed average is the mean of it and the others"
        elif not _may_rise(key[2] or key[1]) and _rises(by_set, key):
            evidence = "it rises with the other columns"
        if evidence:
            name = key[1]
            raise UsageError(
                f"{table.body.grid.source}: lower is better on {name}, by its name, but {evidence}: say which, as "
                f"lower={name} or lower=none"
            )
    return result


def _may_rise(name: str) -> bool:
    """Return True for a measure that may rise with others, such as ECE; names of data sets have none of its words."""
    return say.is_metric(name) and not set(say.split_words(name)) <= say.AMBIGUOUS


def _are_averaged(by_set: Mapping[tuple[str, str, str], Sequence[Score]], averages: Sequence[Score]) -> bool:
    """Return True if a printed average is the mean of all data sets."""
    for of_average in _by_set(averages).values():
        lines: dict[tuple[str, str], dict[int, float]] = {}
        for position, of_set in enumerate((of_average, *by_set.values())):
            for score in of_set:
                lines.setdefault((score.method, score.seed), {})[position] = score.value
        if match_share(0, range(1, len(by_set) + 1), list(lines.values())) > SURE_SHARE:
            return True
    return False


def _rises(by_set: Mapping[tuple[str, str, str], Sequence[Score]], key: tuple[str, str, str]) -> bool:
    """Return True if a column rises with the mean of the others, each as good as it is."""
    others: dict[str, list[float]] = {}
    for beside, of_set in by_set.items():
        values = [-score.value if score.direction == "no" else score.value for score in of_set]
        spread = statistics.pstdev(values)
        for score, value in zip(of_set, values, strict=True):
            if beside != key and spread:
                others.setdefault(score.method, []).append((value - statistics.fmean(values)) / spread)
    most = max(map(len, others.values()), default=0)
    pairs = []
    for score in by_set[key]:
        standardized = others.get(score.method, [])
        if standardized and len(standardized) == most:
            pairs.append((score.value, statistics.fmean(standardized)))
    order = _compare_orders(pairs)
    return len(pairs) >= FEW_BESIDE and order.same > 2 * order.opposite


def errors_by_top_5(scores: Sequence[Score]) -> tuple[list[Score], str]:
    """Return the scores with lower as better where top-5 numbers are below top-1 numbers, and a note."""
    tops: dict[str, dict[tuple[str, str, str], float]] = {"1": {}, "5": {}}
    for score in scores:
        match = re.fullmatch(r"top[-_ @]?([15])", say.without_unit(score.metric).strip(), re.I)
        if match:
            dataset = "" if score.dataset == score.metric else score.dataset
            tops[match[1]][score.method, score.seed, dataset] = score.value
    pairs = [(value, tops["5"][key]) for key, value in tops["1"].items() if key in tops["5"]]
    if not pairs or not all(top_1 > top_5 for top_1, top_5 in pairs):
        return list(scores), ""
    result = []
    for score in scores:
        is_top = bool(re.match(r"top[-_ @]?[15]", score.metric, re.I))
        result.append(score._replace(direction="no") if is_top else score)
    return (
        result,
        "lower is better on top-1 and top-5: they are errors, as top-5 is below top-1 (`lower` says otherwise)",
    )


def contradicted_by_bold(scores: Sequence[Score]) -> str:
    """Return a note on data sets whose bold number is the worst of all in the direction that they are read in."""
    contradicted = []
    for of_set in _by_set(scores).values():
        best, num_others = _extreme_of_bold(of_set)
        if best and num_others >= FEW_OTHERS - 1 and best != (of_set[0].direction or "yes"):
            contradicted.append(f"{of_set[0].dataset} ({'highest' if best == 'yes' else 'lowest'})")
    if not contradicted:
        return ""
    return f"the bold number is the worst as it is read: {listed(contradicted, 6)}; is the direction right (`lower`)?"


def title_direction(titles: str) -> str:
    """Return yes or no if the first title that says in which direction scores count does so; empty if none does.

    titles: a line each, the nearest to the table first.
    """
    return next(filter(None, map(_direction_of_title, titles.split("\n"))), "")


def _direction_of_title(text: str) -> str:
    """Return yes or no if the words of a title say in which direction scores count; empty for none or both."""
    if by_arrow := say.arrow(text):
        return by_arrow
    text = _SPREADS.sub(" ", text)
    spoken = set(say.split_words(text)) - _UNCLEAR
    is_lower = bool(spoken & say.LOWER or _TIME_OR_LOSS.search(text))
    if is_lower == bool(spoken & say.HIGHER):
        return ""
    return "no" if is_lower else "yes"


def _by_bold(unsaid: Mapping[tuple[str, str, str], Sequence[Score]]) -> str:
    """Return yes or no if the bold number of each data set is the highest, or the lowest; empty otherwise."""
    votes = {"yes": 0, "no": 0}
    num_others = 0
    for of_set in unsaid.values():
        best, count = _extreme_of_bold(of_set)
        if best:
            num_others += count
            votes[best] += 1
    direction = max(votes, key=lambda name: votes[name])
    is_sure = sum(votes.values()) == votes[direction] > 1 and num_others >= FEW_OTHERS
    return direction if is_sure else ""


def _by_ranks(unsaid: Mapping[tuple[str, str, str], Sequence[Score]], ranks: Sequence[tuple[str, float]]) -> str:
    """Return yes or no if the methods with better ranks have higher means, or lower ones; empty if neither."""
    values: dict[str, list[float]] = {}
    for of_set in unsaid.values():
        for score in of_set:
            values.setdefault(score.method, []).append(score.value)
    complete = max(map(len, values.values()))
    ranked = [(rank, statistics.fmean(values[name])) for name, rank in ranks if len(values.get(name, ())) == complete]
    order = _compare_orders(ranked)
    if max(order.same, order.opposite) < FEW_RANKED or min(order.same, order.opposite) > 0.1 * order.pairs:
        return ""
    return "no" if order.same > order.opposite else "yes"


class _Orders(NamedTuple):
    """Numbers of pairs of methods that two values order alike, the other way round, and in all."""

    same: int
    opposite: int
    pairs: int


def _compare_orders(values: Sequence[tuple[float, float]]) -> _Orders:
    """Count the pairs of methods that two values of each order alike, among the first `MOST_RANKED` methods."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in itertools.combinations(values[:MOST_RANKED], 2)]
    return _Orders(sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs), len(signs))


def _by_set(scores: Iterable[Score]) -> dict[tuple[str, str, str], list[Score]]:
    """Return the scores of each data set and measure, by their keys."""
    by_set: dict[tuple[str, str, str], list[Score]] = {}
    for score in scores:
        by_set.setdefault(score.key, []).append(score)
    return by_set


def _extreme_of_bold(scores: Sequence[Score]) -> tuple[str, int]:
    """Return yes if the bold numbers are above all others, no if below; and the number of others."""
    marked = [score.value for score in scores if score.is_bold]
    others = [score.value for score in scores if not score.is_bold]
    if not marked or not others:
        return "", 0
    if min(marked) > max(others):
        return "yes", len(others)
    return ("no" if max(marked) < min(others) else ""), len(others)


def _better(direction: str) -> str:
    return "lower is better" if direction == "no" else "higher is better"
