"""Averages, ranks and gains among rows and columns: they are no further data sets and no methods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from biasbed.analysis.tables import vocabulary as say

MANY = 4  # columns whose mean is no coincidence
SURE_SHARE = 0.9
SHARE = 0.7  # of lines whose mean a column says
CLOSE = 0.011  # relative to the size of the numbers: rounding of what is averaged


def find_averages(
    paths: Mapping[int, tuple[str, ...]], lines: Sequence[Mapping[int, float]]
) -> tuple[dict[int, str], list[str]]:
    """Return the columns (or rows) that average others, each with the reason, and notes on wrong averages.

    paths: names above each column; lines: numbers of each row by column.
    """
    leaves: dict[int, str] = {}
    notes: list[str] = []
    names = {column: " ".join(path[-1:]) for column, path in paths.items()}
    paths = _without_shared_words(paths)
    plain = [column for column, path in paths.items() if not any(map(say.average_kind, path))]
    for column, path in paths.items():
        kinds = [say.average_kind(name) for name in path]
        if not any(kinds):
            continue
        upper = path[:-1]
        if kinds[-1]:
            kind = kinds[-1]
            siblings = [sibling for sibling in plain if paths[sibling][: len(upper)] == upper]
            is_short = bool(upper) and len(siblings) == 1
        else:
            of_measure = [sibling for sibling in plain if paths[sibling][-1:] == path[-1:]]
            kind, siblings, is_short = "upper" if "sure" in kinds else "", of_measure or plain, False
        if is_short or not siblings or not kind:
            continue
        matches = match_share(column, siblings, lines)
        if matches < SHARE and len(siblings) != len(plain):
            matches = max(matches, match_share(column, plain, lines))
        if matches < SHARE and kind != "sure":
            matches = max(matches, _match_of_part(column, plain, lines))
        reason = _reason(path, kind, matches, len(siblings), {sibling: paths[sibling] for sibling in plain})
        if reason:
            leaves[column] = reason
            if kind == "sure" and 0 <= matches < 1 and _match_of_part(column, plain, lines) <= matches:
                notes += _wrong_average(column, path, siblings, lines)
    for column in plain:
        others = [sibling for sibling in plain if sibling != column and sibling not in leaves]
        is_measure = say.is_metric("".join(paths[column][-1:])) and not all(
            say.is_metric("".join(paths[sibling][-1:])) for sibling in others
        )
        may_average = is_measure or say.has_word(" ".join(paths[column]), say.AVERAGES)
        is_mean = "".join(paths[column][-1:]).startswith("m")  # mIoU
        longer = [names.get(sibling, "") for sibling in others]
        begins_all = len(others) > 1 and all(_is_beginning(names.get(column, ""), name) for name in longer)
        reason = ""
        if may_average and len(others) >= MANY and (len(lines) > 2 or is_mean):
            reason = "the mean of the others"
        elif begins_all and len(lines) > 1:
            reason = "the mean of the others, which begin with its name"
        if reason and match_share(column, others, lines, close=0) > SURE_SHARE:
            leaves[column] = reason
    return leaves, notes


def _is_beginning(name: str, longer: str) -> bool:
    """Return True for `PACS` and `PACS-Art`: the longer name says a part of what the first is."""
    return bool(name) and longer.startswith(name) and longer.removeprefix(name).startswith(tuple(" -_/:"))


def _without_shared_words(paths: Mapping[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Return the names without the words that all begin with, as `Bench-A`, `Bench-B` and `Bench-Overall` do."""
    split = {column: re.split(r"(?<=[\s_/:-])", path[-1]) for column, path in paths.items() if path}
    shared = 0
    for parts in zip(*split.values(), strict=False):
        if len(split) < 3 or len(set(parts)) > 1:
            break
        shared += 1
    if shared == min(map(len, split.values()), default=0):
        return dict(paths)
    return {column: (*path[:-1], "".join(split[column][shared:])) for column, path in paths.items() if path}


def _reason(
    path: Sequence[str], kind: str, matches: float, num_siblings: int, paths: Mapping[int, tuple[str, ...]]
) -> str:
    """Return why a column is an average; empty if it is none. paths: names above the columns that are none by name."""
    first, _, measure = path[-1].partition(" ")
    with_measure = [plain for plain in paths.values() if plain[-1].endswith(f" {measure}")]
    is_overall = first.lower() == "overall" and bool(measure) and len(with_measure) > 2
    if is_overall or say.COUNTED_SETS.search(path[-1]):
        return "an average by its name"
    if num_siblings < 2:
        return ""
    if kind == "sure":
        return "an average by its name"
    if kind == "upper":
        measures = {plain[-1] for plain in paths.values()}
        return "an average by its name" if path[-1] in measures or matches >= SHARE else ""
    if matches >= SHARE:
        return "the mean of others"
    if kind == "partly" and num_siblings > 2:
        return "an average by its name"
    spoken = say.split_words(path[-1])
    rest = set(spoken) - say.AVERAGES
    of_group = [plain for plain in paths.values() if rest & set(say.split_words(plain[-1].partition("_")[0]))]
    has_average = len(rest) < len(set(spoken)) and len(of_group) > 1
    is_total = spoken in (("overall",), ("total",), ("total", "score"), ("overall", "score"))
    return "an average by its name" if (is_total or has_average) and num_siblings > 2 else ""


def _match_of_part(column: int, plain: Sequence[int], lines: Sequence[Mapping[int, float]]) -> float:
    """Return the largest share of matches with the mean of some columns just before one."""
    before = [sibling for sibling in plain if sibling < column]
    shares = [match_share(column, before[first:], lines) for first in range(max(0, len(before) - 12), len(before) - 1)]
    return max(shares, default=-1.0)


def match_share(
    column: int, siblings: Sequence[int], lines: Sequence[Mapping[int, float]], close: float = CLOSE
) -> float:
    """Return the share of complete rows whose number is the mean of their other numbers; -1 if no row is complete."""
    complete = matching = 0
    for numbers in lines:
        others = [numbers[sibling] for sibling in siblings if sibling in numbers]
        if column in numbers and len(others) == len(siblings) and others:
            complete += 1
            mean = sum(others) / len(others)
            scale = max(map(abs, others))
            matching += abs(numbers[column] - mean) <= max(close * scale * 0.5, 0.0011 if scale <= 1 else 0.06)
    return matching / complete if complete else -1.0


def _wrong_average(
    column: int, path: Sequence[str], siblings: Sequence[int], lines: Sequence[Mapping[int, float]]
) -> list[str]:
    """Return a note on an average that is not the mean of what it should be the mean of."""
    wrong, example = 0, ""
    for numbers in lines:
        others = [numbers[sibling] for sibling in siblings if sibling in numbers]
        if column in numbers and len(others) == len(siblings):
            mean = sum(others) / len(others)
            if abs(numbers[column] - mean) > (0.002 if max(map(abs, others)) <= 1 else 0.11):
                wrong += 1
                example = example or f"{numbers[column]:g} is printed, the mean is {mean:.2f}"
    name = " / ".join(path)
    return [f"'{name}' is not the mean of its {len(siblings)} columns in {wrong} lines ({example})"] if wrong else []


WINS, DIFFERENCE = "a count of wins", "a difference to another row"
COUNTS_OF_WINS = {"wins", "losses", "ties", "winstieslosses", "winslosses", "wtl", "best", "numberofwins", "wintieloss"}
BY_NUMBERS = (WINS, DIFFERENCE)  # reasons that a method's name may give: its numbers tell


def other_line(name: str) -> str:
    """Return why a row, by its name, is neither a method nor a data set; empty if it may be one."""
    spoken = set(say.split_words(name))
    kind = say.average_kind(name)
    if kind == "sure":
        return "an average by its name"
    if say.is_rank(name):
        return "a rank"
    if say.letters(name) in COUNTS_OF_WINS:
        return WINS
    if name.lstrip().startswith("#") or re.match(r"(number|no\.?|num) of ", name.lower()):
        return "a count"
    if kind and say.split_words(name)[-1:] == ("length",):
        return "a cost"
    first = next(iter(say.split_words(name)), "")
    if first in say.GAINS - {"change", "diff", "difference", "delta"} or first == "提升" or re.match(r"\s*Δ", name):
        return DIFFERENCE
    if (spoken & {"corr", "correlation", "tau"} and len(spoken) < 4) or "p-value" in name.lower() or "pvalue" in spoken:
        return "a statistic of the rows above"
    deviations = {"std", "stdev", "stddev", "variance", "dev", "deviation"}
    if spoken & deviations and spoken <= deviations | {"standard"}:
        return "a deviation of the rows above"
    return ""
