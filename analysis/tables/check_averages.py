"""Score averages: what each is the mean of, by most of its own lines, and the lines where it is not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.findings import TableFinding, make_finding
from biasbed.analysis.tables.printed import PrintedNumbers, number_text
from biasbed.analysis.tables.scores import Score
from biasbed.errors import listed

FEW_LINES = 3  # lines up to which one may differ
AGREE = 2 / 3  # share of lines that must be the mean, with more
SURE = 1e-3  # chance that numbers are the mean of others by accident, below which they are averages
MANY_PARTS = 3  # columns whose mean another one is, below which that may be chance
MOST_PARTS = 60  # columns before an average that are tried as the first one
MOST_LEFT_OUT = 20  # columns of which all but one are tried
MOST_TRIED = 4000  # pairs of columns that are tried as swapped
EXACT = 1e-3  # chance that means of unrounded numbers all look like means of the printed ones


class AverageLine(NamedTuple):
    """An average and the mean of its parts on one method."""

    method: int
    cell: Score
    parts: tuple[Score, ...]

    @property
    def mean(self) -> float:
        return math.fsum(part.value for part in self.parts) / len(self.parts)

    @property
    def reach(self) -> float:
        """Largest distance of the mean of the unrounded numbers from the unrounded average."""
        return self.cell.half + math.fsum(part.half for part in self.parts) / len(self.parts)

    @property
    def agrees(self) -> bool:
        float_error = 1e-13 * max(1.0, *(abs(part.value) for part in self.parts))
        return abs(self.cell.value - self.mean) <= self.reach * (1 + 1e-9) + float_error

    @property
    def right_value(self) -> float:
        """Average as printed, or as recomputed if it is wrong."""
        return self.cell.value if self.agrees else self.mean

    @property
    def chance(self) -> float:
        """Probability that a number within the range of the parts agrees by accident."""
        values = [part.value for part in self.parts]
        span = max(values) - min(values)
        return min(1.0, 2 * self.reach / span) if span else 1.0


class AverageColumn(NamedTuple):
    """A column (or row) of averages and what it is the mean of."""

    of_set: int
    parts: tuple[int, ...]
    lines: tuple[AverageLine, ...]

    @property
    def is_sure(self) -> bool:
        """True if so many lines are the mean that it is one."""
        agreeing = [line for line in self.lines if line.agrees]
        few = len(self.lines) <= FEW_LINES and len(agreeing) == len(self.lines) - 1
        enough = len(agreeing) >= AGREE * len(self.lines) or few
        return len(agreeing) > 1 and enough and math.prod(line.chance for line in agreeing) < SURE


def find_averages(table: PrintedNumbers) -> list[AverageColumn]:
    """Return the averages of a table whose parts are known."""
    averages = []
    for of_set, described in enumerate(table.sets):
        if described.is_average:
            best = _best(table, of_set, _candidates(table, of_set))
            if best is not None:
                averages.append(best)
    return averages


def _best(table: PrintedNumbers, of_set: int, candidates: Iterable[tuple[int, ...]]) -> AverageColumn | None:
    """Return the average of those parts that most of its lines are the mean of; None if none are for sure."""
    best: AverageColumn | None = None
    best_key = (0.0, 0.0)
    for parts in dict.fromkeys(candidates):
        if len(parts) > 1 and of_set not in parts:
            average = AverageColumn(of_set, parts, _lines(table, of_set, parts))
            if average.is_sure:
                agreeing = [line for line in average.lines if line.agrees]
                key = len(agreeing) / len(average.lines), -math.prod(line.chance for line in agreeing)
                if key > best_key or best is None:
                    best, best_key = average, key
    return best


def _lines(table: PrintedNumbers, of_set: int, parts: Sequence[int]) -> tuple[AverageLine, ...]:
    """Return the methods that have the average and all of its parts."""
    lines = []
    for method, cell in table.numbers(of_set).items():
        cells = [table.cells.get((method, part)) for part in parts]
        there = tuple(part for part in cells if part is not None)
        if len(there) == len(parts):
            lines.append(AverageLine(method, cell, there))
    return tuple(lines)


def _candidates(table: PrintedNumbers, of_set: int) -> list[tuple[int, ...]]:
    """Return what an average may be the mean of: all, those below the same head, those just before or behind it."""
    order = table.in_order()
    path = table.sets[of_set].path
    groups: dict[tuple[object, ...], list[int]] = {}
    averages = []
    for member in order:
        described = table.sets[member]
        if described.is_average:
            if member != of_set:
                averages.append(member)
            continue
        groups.setdefault(("all",), []).append(member)
        groups.setdefault(("block", described.block), []).append(member)
        groups.setdefault(("measure", described.metric), []).append(member)
        for depth in range(1, len(path)):
            if described.path[:depth] == path[:depth]:
                groups.setdefault(("upper", depth), []).append(member)
            if described.path[-depth:] == path[-depth:]:
                groups.setdefault(("lower", depth), []).append(member)
    candidates = [tuple(group) for group in groups.values()]
    start = order.index(of_set)
    plain = groups.get(("all",), [])
    num_before = len(set(order[:start]).intersection(plain))
    before, behind = plain[:num_before], plain[num_before:]
    candidates.append(_up_to_average(table, order[:start][::-1])[::-1])
    candidates.append(_up_to_average(table, order[start + 1 :]))
    for first in range(max(0, len(before) - MOST_PARTS), len(before) - 2):
        candidates.append(tuple(before[first:]))
    for last in range(3, min(len(behind), MOST_PARTS) + 1):
        candidates.append(tuple(behind[:last]))
    for left_out in plain if len(plain) <= MOST_LEFT_OUT else ():
        candidates.append(tuple(member for member in plain if member != left_out))
    candidates.append(tuple(averages))
    return candidates


def _up_to_average(table: PrintedNumbers, order: Sequence[int]) -> tuple[int, ...]:
    """Return the scores up to the next average."""
    return tuple(itertools.takewhile(lambda sibling: not table.sets[sibling].is_average, order))


def wrong_averages(table: PrintedNumbers, averages: Sequence[AverageColumn]) -> list[TableFinding]:
    """Return averages that are not the mean of their parts where the others of their column are."""
    findings = []
    for average in averages:
        names = [table.sets[part].name for part in average.parts]
        summary = f"{len(names)} ({listed(names, 4)})"
        agreeing = sum(line.agrees for line in average.lines)
        for line in average.lines:
            mean = number_text(line.mean, line.cell.digits)
            if not line.agrees:
                text = f"is not the mean of {summary}, as {agreeing} of {len(average.lines)} are: it or a part is wrong"
                findings.append(make_finding(table, line.cell, "average", mean, text))
        findings += _impossible_digits(table, average)
    return findings


def _impossible_digits(table: PrintedNumbers, average: AverageColumn) -> list[TableFinding]:
    """Return averages with digits that no mean of k printed numbers has, if the column's others are such means.

    The granularity test of Brown and Heathers (2017): four numbers with one digit have a mean in steps of 0.025.
    """
    findings = []
    for line in average.lines:
        others = [sibling for sibling in average.lines if sibling is not line]
        step = 2 * min(part.half for part in line.parts) / len(line.parts)
        if not line.agrees or step <= 2 * line.cell.half or is_multiple(line.cell.value, line.cell.half, step):
            continue
        if not all(_is_exact(sibling) for sibling in others):
            continue
        if math.prod(_chance_exact(sibling) for sibling in others) < EXACT:
            text = f"has digits that no mean of {len(line.parts)} such numbers has, and the others of its column have"
            mean = number_text(line.mean, line.cell.digits)
            findings.append(make_finding(table, line.cell, "digits", mean, text))
    return findings


def is_multiple(value: float, half: float, step: float) -> bool:
    """Return True if a multiple of a step rounds to a printed value."""
    nearest = round(value / step) * step
    return abs(nearest - value) <= half * (1 + 1e-9) + 1e-12


def _is_exact(line: AverageLine) -> bool:
    return abs(line.cell.value - line.mean) <= line.cell.half * (1 + 1e-9) + 1e-12


def _chance_exact(line: AverageLine) -> float:
    """Return how probable it is that the mean of the unrounded numbers rounds as that of the printed ones.

    The difference of both means is close to normal; r is its deviation in units of the average's last digit.
    """
    r = math.sqrt(math.fsum(part.half**2 for part in line.parts) / 3) / len(line.parts) / (2 * line.cell.half)
    if r == 0:
        return 1.0
    return math.erf(1 / (r * math.sqrt(2))) - r * math.sqrt(2 / math.pi) * -math.expm1(-0.5 / r**2)


# --- heads ------------------------------------------------------------------------------------------------------------


def swapped_heads(table: PrintedNumbers, averages: Sequence[AverageColumn]) -> list[TableFinding]:
    """Return columns of averages that are no means, and would be if two heads were exchanged."""
    recognized = {average.of_set for average in averages}
    findings = []
    order = table.in_order()
    tried = 0
    named = [of_set for of_set in order if _is_named_average(table, of_set)]
    for of_set in named if 2 * len(named) < len(order) else ():  # else the word says that all are means of runs
        if of_set in recognized:
            continue
        candidates = [parts for parts in dict.fromkeys(_candidates(table, of_set)) if len(parts) > 1]
        for parts in candidates:
            pair = None
            for part in parts:
                for sibling in order:
                    if sibling in parts or tried > MOST_TRIED:
                        continue
                    tried += 1
                    pair = pair or _fitting_swap(table, of_set, parts, part, sibling)
            if pair is not None:
                findings.append(_swap(table, of_set, parts, pair))
                break
    return findings


def hidden_averages(table: PrintedNumbers) -> list[TableFinding]:
    """Return data sets whose numbers are the mean of all others, below a head that does not say so."""
    plain = [of_set for of_set, described in enumerate(table.sets) if not described.is_average]
    findings = []
    for of_set in plain if MANY_PARTS < len(plain) <= MOST_PARTS else ():
        described = table.sets[of_set]
        parts = tuple(sibling for sibling in plain if sibling != of_set)
        average = AverageColumn(of_set, parts, _lines(table, of_set, parts))
        if average.is_sure and not any(map(say.average_kind, described.path)) and not described.metric:
            agreeing = sum(line.agrees for line in average.lines)
            line = average.lines[0]
            share = f"{agreeing} of {len(average.lines)} lines"
            text = f"and the numbers below are the mean of the {len(parts)} others in {share}: is its head wrong?"
            findings.append(make_finding(table, line.cell, "heads", number_text(line.mean, line.cell.digits), text))
    return findings


def _is_named_average(table: PrintedNumbers, of_set: int) -> bool:
    described = table.sets[of_set]
    return described.is_average or any(say.average_kind(name) == "sure" for name in described.path)


def _fitting_swap(
    table: PrintedNumbers, of_set: int, parts: tuple[int, ...], part: int, sibling: int
) -> tuple[int, int] | None:
    """Return the two columns if the average is the mean of its parts once they are exchanged."""
    exchanged = tuple(sibling if member == part else member for member in parts)
    target = part if sibling == of_set else of_set
    average = AverageColumn(target, exchanged, _lines(table, target, exchanged))
    return (part, sibling) if average.is_sure and len(average.lines) > FEW_LINES - 1 else None


def _swap(table: PrintedNumbers, of_set: int, parts: tuple[int, ...], pair: tuple[int, int]) -> TableFinding:
    first, second = (" / ".join(table.sets[member].path) for member in pair)
    cell = next(iter(table.numbers(of_set).values()))
    line = _lines(table, of_set, parts)[0]
    text = (
        f"and the numbers below are no means of {len(parts)} columns, and would be if '{first}' and '{second}' were "
        "exchanged: are their heads swapped?"
    )
    finding = make_finding(table, cell, "heads", number_text(line.mean, cell.digits), text)
    return finding._replace(column=" and ".join((first, second)))
