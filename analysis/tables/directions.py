"""Direction of measures that no head says: from bold numbers, the words around a table, and the name of its file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.repeats import NamedNumber
from biasbed.errors import listed

FEW_OTHERS = 4  # numbers that are not bold below which bold ones may be the lowest by chance
# Words of titles that say no direction: methods are named after losses, and adaptation is at test time.
_UNCLEAR = say.AMBIGUOUS | say.WEAK | {"loss", "balanced", "likelihood", "forgetting", "variance", "correlation"}
_TIME_OR_LOSS = re.compile(
    r"\b(?:(?:validation|test|eval\w*|cross[- ]entropy) loss|(?:run|running|training|inference) times?)\b", re.I
)
_DIFFERENCES = {"gap", "drop", "degradation", "disparity"}  # none of which is below 0, if not for its sign
_TOP = re.compile(r"\btop[-_ ]?[0-9]", re.I)


def find_directions(
    records: Sequence[NamedNumber], bold: set[tuple[int, int]], caption: str, source: str
) -> tuple[dict[tuple[str, str, str], str], str]:
    """Return the direction (yes: higher is better) of data sets that say none, by their keys, and a note.

    bold: (row, column) of bold numbers. source: name of the file.
    """
    unsaid: dict[tuple[str, str, str], list[NamedNumber]] = {}
    for record in records:
        if not record.meaning.direction:
            unsaid.setdefault(record.set_key, []).append(record)
    if not unsaid:
        return {}, ""
    stem = re.sub(r"\W*rates?$", "", re.sub(r"[\W_]+", " ", PurePath(source).stem)).rpartition(" ")[2]
    for direction, why in (
        (title_direction(caption), "by the words around the table"),
        (_by_bold(unsaid, bold), "as the bold numbers are"),
        (title_direction(stem), "by the name of the file"),
    ):
        if direction:
            return dict.fromkeys(unsaid, direction), _say(direction, why)
    return {key: "yes" for key in unsaid if _TOP.search(" ".join(key))}, ""


def turned_signs(records: Sequence[NamedNumber], body: Body) -> tuple[list[NamedNumber], str]:
    """Return the records with higher as better on data sets whose gaps or drops are all below 0, and a note."""
    highest: dict[tuple[str, str, str], float] = {}
    for record in records:
        head = f"{body.name(record.column)} {body.grid.rows[record.row][0]}"
        if record.meaning.direction == "no" and say.has_word(head, _DIFFERENCES) and not say.arrow(head):
            highest[record.set_key] = max(record.value, highest.get(record.set_key, record.value))
    turned = {key for key, value in highest.items() if value < 0}
    if not turned:
        return list(records), ""
    result = []
    for record in records:
        meaning = replace(record.meaning, direction="yes")
        result.append(replace(record, meaning=meaning) if record.set_key in turned else record)
    names = listed([name for _, name, _ in sorted(turned)], 6)
    return result, f"higher is better on {names}: all differences are below 0, and 0 is none (`lower` says otherwise)"


def contradicted_by_bold(
    records: Sequence[NamedNumber], directions: Mapping[tuple[str, str, str], str], bold: set[tuple[int, int]]
) -> str:
    """Return a note on data sets whose bold number is the worst of all in the direction that they are read in."""
    by_set: dict[tuple[str, str, str], list[NamedNumber]] = {}
    for record in records:
        by_set.setdefault(record.set_key, []).append(record)
    contradicted = []
    for key, numbers in by_set.items():
        said = numbers[0].meaning.direction or directions.get(key, "")
        best, num_others = _extreme_of_bold(numbers, bold)
        if best and num_others >= FEW_OTHERS - 1 and best != (said or "yes"):
            contradicted.append(f"{numbers[0].meaning.name} ({'highest' if best == 'yes' else 'lowest'})")
    if not contradicted:
        return ""
    return f"the bold number is the worst as it is read: {listed(contradicted, 6)}; is the direction right (`lower`)?"


def title_direction(text: str) -> str:
    """Return yes or no if the words of a title say in which direction scores count; empty for none or both."""
    if by_arrow := say.arrow(text):
        return by_arrow
    spoken = set(say.split_words(text)) - _UNCLEAR
    is_lower = bool(spoken & say.LOWER or _TIME_OR_LOSS.search(text))
    if is_lower == bool(spoken & say.HIGHER):
        return ""
    return "no" if is_lower else "yes"


def _by_bold(unsaid: Mapping[tuple[str, str, str], Sequence[NamedNumber]], bold: set[tuple[int, int]]) -> str:
    """Return yes or no if the bold number of each data set is the highest, or the lowest; empty otherwise."""
    votes = {"yes": 0, "no": 0}
    num_others = 0
    for numbers in unsaid.values():
        best, count = _extreme_of_bold(numbers, bold)
        if best:
            num_others += count
            votes[best] += 1
    direction = max(votes, key=lambda name: votes[name])
    is_sure = sum(votes.values()) == votes[direction] > 1 and num_others >= FEW_OTHERS
    return direction if is_sure else ""


def _extreme_of_bold(numbers: Sequence[NamedNumber], bold: set[tuple[int, int]]) -> tuple[str, int]:
    """Return yes if the bold numbers are above all others, no if below; and the number of others."""
    marked = [number.value for number in numbers if (number.row, number.column) in bold]
    others = [number.value for number in numbers if (number.row, number.column) not in bold]
    if not marked or not others:
        return "", 0
    if min(marked) > max(others):
        return "yes", len(others)
    return ("no" if max(marked) < min(others) else ""), len(others)


def _say(direction: str, why: str) -> str:
    return f"{'lower' if direction == 'no' else 'higher'} is better, {why} (`lower` says otherwise)"
