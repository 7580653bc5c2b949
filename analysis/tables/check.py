"""Check of printed numbers: averages, deviations, ranges, copies, bold numbers, and claims that a table can't support.

Every number stands for the interval that rounds to it, so that a right table raises no alarm. A rule that a table may
have (an average is the mean of these columns, bold is the best) is taken from the table itself: it counts if most of
its own lines keep it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.check_averages import (
    find_averages,
    hidden_averages,
    is_multiple,
    swapped_heads,
    wrong_averages,
)
from biasbed.analysis.tables.check_bold import bold_contests, unsupported_claims, wrong_bold
from biasbed.analysis.tables.findings import CLAIM, Checked, TableFinding, make_finding
from biasbed.analysis.tables.markup import without_citation
from biasbed.analysis.tables.printed import PrintedNumbers, PrintedSet
from biasbed.analysis.tables.scores import Score
from biasbed.errors import listed

FEW_OUTSIDE = 2  # numbers outside of a range that others keep, up to which they are errors and not the range wrong
MANY_INSIDE = 5
SURE = 0.01  # number of coincidences expected by chance below which equal numbers are a copy
FAR = 2.0  # times the largest (or less than the smallest) of the others by which a number is far off
MANY_BESIDE = 2  # numbers on a data set from which on one is far off
FEW_DIGITS = 4  # numbers of digits behind the point that a table has, up to which one of them stands out
SHARES = {"accuracy", "acc", "error", "err", "top1"}  # measures that are a number of images over all
BOUNDED = {"accuracy", "acc", "top1", "f1", "auc", "auroc", "precision", "recall"}  # measures that end at 100
NARROW = 0.02  # relative difference that two methods usually have at least


def check_table(table: PrintedNumbers, alpha: float = 0.05) -> Checked:
    """Return what is wrong with the printed numbers of a table, and what was recomputed."""
    averages = find_averages(table)
    contests = bold_contests(table)
    findings = [
        *wrong_averages(table, averages),
        *swapped_heads(table, averages),
        *hidden_averages(table),
        *outside_range(table),
        *moved_points(table),
        *impossible_spreads(table),
        *impossible_shares(table),
        *copied_lines(table),
        *copied_columns(table),
        *wrong_bold(table, contests),
        *unsupported_claims(table, contests, averages, alpha),
    ]
    recomputed = sum(len(average.lines) for average in averages)
    spreads = sum(cell.spread is not None for cell in table.cells.values())
    return Checked(tuple(findings), len(table.cells), recomputed, spreads, sum(map(len, contests.bold.values())))


def bounded_scale(table: PrintedNumbers) -> float | None:
    """Return 1 or 100 if the table's scores lie in [0, 1] or [0, 100] with few exceptions; None if they don't."""
    values = [cell.value for cell in _bounded(table)]
    are_bounded = all(say.has_word(f"{described.name} {described.metric}", BOUNDED) for described in table.sets)
    fewest, factor = MANY_INSIDE, 8
    if are_bounded:
        fewest, factor = 3, 2
    for scale in (1.0, 100.0):
        inside = sum(0 < value <= scale for value in values)
        outside = len(values) - inside - values.count(0)
        if inside >= max(fewest, factor * outside) and outside <= FEW_OUTSIDE:
            return scale
    return None


def _bounded(table: PrintedNumbers) -> list[Score]:
    """Return the numbers that may be shares: those of no measure that has another range.

    Where most columns are shares of 1, columns above 1 are of another measure, such as the mean rank.
    """
    medians = {}
    for of_set in range(len(table.sets)):
        medians[of_set] = statistics.median([cell.value for cell in table.numbers(of_set).values()] or [0.0])
    most = 1.0 if 2 * sum(median <= 1 for median in medians.values()) > len(medians) else math.inf
    cells = []
    for (_, of_set), cell in table.cells.items():
        described = table.sets[of_set]
        if (described.direction != "no" or "%" in cell.text) and medians[of_set] <= most:
            cells.append(cell)
    return cells


def outside_range(table: PrintedNumbers) -> list[TableFinding]:
    """Return scores below 0 or above 100 (or 1) where all others lie within."""
    scale = bounded_scale(table)
    if scale is None:
        return []
    findings = []
    shares = {id(cell) for cell in _bounded(table)}
    for of_set in range(len(table.sets)):
        cells = list(table.numbers(of_set).values())
        outside = [cell for cell in cells if not -cell.half <= cell.value <= scale + cell.half]
        for cell in outside if len(cells) - len(outside) > 1 else ():
            if id(cell) in shares:
                text = f"is outside of 0 to {scale:g}, where the others are"
                findings.append(make_finding(table, cell, "range", f"0 to {scale:g}", text))
    return findings


def moved_points(table: PrintedNumbers) -> list[TableFinding]:
    """Return numbers ten times too large or small for their column, if their digits alone say that the point moved."""
    forms = Counter(map(_form, table.cells.values()))
    num_digits = len({cell.digits for cell in table.cells.values()})
    findings = []
    for (_, of_set), cell in table.cells.items():
        if forms[_form(cell)] > 1 or num_digits > FEW_DIGITS:
            continue
        others = [sibling for sibling in table.numbers(of_set).values() if sibling is not cell]
        digits = {sibling.digits for sibling in others}
        if len(others) < MANY_BESIDE or min(digits) <= cell.digits <= max(digits):
            continue
        values = [sibling.value for sibling in others]
        low, high = min(values), max(values)
        is_large = cell.digits < min(digits)
        moved = cell.value * 10
        if is_large:
            moved = cell.value / 10
        is_far = cell.value < low / FAR or cell.value > FAR * high
        if low > 0 and is_far and 0.8 * low <= moved <= 1.25 * high:
            text = f"is far {'above' if is_large else 'below'} all others there; its digits are those of {moved:g}"
            findings.append(make_finding(table, cell, "digits", f"{moved:g}", text))
    return findings


def _form(cell: Score) -> tuple[int, int]:
    """Return the number of digits behind and before the decimal point."""
    return cell.digits, len(f"{int(abs(cell.value))}") if abs(cell.value) >= 1 else 0


def impossible_spreads(table: PrintedNumbers) -> list[TableFinding]:
    """Return deviations that no n numbers with the printed mean can have, in 0 to 100 (or 1) if scores lie there.

    The largest sample deviation of n numbers in [0, c] with mean m is sqrt(m (c - m) n / (n - 1)) (Bhatia and Davis
    2000). Without n it is that of two.
    """
    scale = bounded_scale(table)
    bounded = {id(cell) for cell in _bounded(table)}
    findings = []
    for cell in table.cells.values():
        if cell.spread is None:
            continue
        if cell.spread < 0:
            findings.append(make_finding(table, cell, "spread", "0 or more", "has a negative deviation"))
        elif cell.num_runs == 1 and cell.spread > 0:
            findings.append(make_finding(table, cell, "spread", "none", "has a deviation, of one run"))
        elif scale is not None and id(cell) in bounded and 0 <= cell.value <= scale:
            runs = max(cell.num_runs, 2)
            mean = min(max(scale / 2, cell.value - cell.half), cell.value + cell.half)
            largest = math.sqrt(max(mean * (scale - mean), 0) * runs / (runs - 1))
            if cell.spread - cell.spread_half > largest + 1e-9:
                text = (
                    f"has a deviation that {'two or more' if not cell.num_runs else runs} runs with scores in 0 to "
                    f"{scale:g} and this mean can't have"
                )
                findings.append(make_finding(table, cell, "spread", f"at most {largest:.3g}", text))
    return findings


def impossible_shares(table: PrintedNumbers) -> list[TableFinding]:
    """Return accuracies with digits that no count of images gives (the granularity test of Brown and Heathers 2017).

    A share of N images over n runs is a multiple of 1 / (n N). If the table does not say n, its other numbers must be
    multiples of 1 / N, and too many for chance.
    """
    findings = []
    for of_set, described in enumerate(table.sets):
        if not say.has_word(f"{described.name} {described.metric}", SHARES):
            continue
        cells = [cell for cell in table.numbers(of_set).values() if cell.num_items]
        scale = 1.0 if cells and max(cell.value for cell in cells) <= 1 else 100.0
        steps = [scale / (cell.num_items * max(cell.num_runs, 1)) for cell in cells]
        fitting, chances = [], []
        for cell, step in zip(cells, steps, strict=True):
            fitting.append(is_multiple(cell.value, cell.half, step))
            chances.append(min(1.0, 2 * cell.half / step))
        for number, cell in enumerate(cells):
            others = [chance for sibling, chance in enumerate(chances) if sibling != number and fitting[sibling]]
            is_sure = cell.num_runs > 0 or (len(others) == len(cells) - 1 and math.prod(others) < SURE)
            if is_sure and not fitting[number]:
                runs = f" in {cell.num_runs} runs" if cell.num_runs else ""
                nearest = round(cell.value / steps[number]) * steps[number]
                text = f"is no share of {cell.num_items} images{runs}; the nearest one is {nearest:.6g}"
                findings.append(make_finding(table, cell, "digits", f"{nearest:.6g}", text))
    return findings


# --- copies -----------------------------------------------------------------------------------------------------------


def copied_lines(table: PrintedNumbers) -> list[TableFinding]:
    """Return methods with the numbers of another on all data sets, if that is no coincidence.

    Methods that decide alike on one data set are equal by all measures of it: that may be right, and is a claim.
    """
    plain = [of_set for of_set, described in enumerate(table.sets) if not described.is_average]
    profiles: dict[tuple[tuple[int, float], ...], list[int]] = {}
    for method in range(len(table.methods)):
        cells = ((of_set, table.cells.get((method, of_set))) for of_set in plain)
        profile = tuple((of_set, cell.value) for of_set, cell in cells if cell is not None)
        profiles.setdefault(profile, []).append(method)
    findings = []
    num_pairs = math.comb(len(table.methods), 2)
    for profile, methods in profiles.items():
        names = {say.letters(without_citation(table.methods[method])) for method in methods}
        if len(methods) < 2 or len(profile) < 2 or len(names) < 2:
            continue
        first, second = methods[:2]
        chance = float(num_pairs)
        for of_set, value in profile:
            column = table.numbers(of_set)
            chance *= _chance_of_tie([cell.value for cell in column.values()], value, column[first].half)
            spreads = [cell.spread for cell in column.values() if cell.spread is not None]
            if column[first].spread is not None and column[first].spread == column[second].spread:
                chance *= _chance_of_tie(spreads, column[first].spread or 0.0, column[first].spread_half)
        if chance < SURE:
            cell = table.cells[second, profile[0][0]]
            copies = listed([table.methods[method] for method in methods[1:]], 4)
            finding = _copied_line(table, cell, table.methods[first], copies, len(profile) - 1)
            is_one_set = len({_images(table.sets[of_set]) for of_set, _ in profile}) == 1
            findings.append(finding._replace(kind=CLAIM) if is_one_set else finding)
    return findings


def _images(described: PrintedSet) -> tuple[str, ...]:
    """Return what the images of a column are; columns that are named by measures alone are of the same ones."""
    if described.name == described.metric:
        return ()
    return described.block, described.name


def _copied_line(table: PrintedNumbers, cell: Score, first: str, second: str, count: int) -> TableFinding:
    """Return the finding on a method with the numbers of another; a cell of it tells the place."""
    row, column, line = table.position(cell)
    others = "the other number" if count == 1 else f"all other {count} numbers"
    text = f"and {others} of {second} are those of {first}: is one a copy?"
    row, column = (row, "all") if table.are_lines_methods else ("all", column)
    return TableFinding("copy", row, column, cell.text, f"as {first}", text, line)


def copied_columns(table: PrintedNumbers) -> list[TableFinding]:
    """Return data sets with the numbers of another for all methods, if that is no coincidence."""
    profiles: dict[tuple[tuple[int, float], ...], list[int]] = {}
    for of_set in range(len(table.sets)):
        profile = tuple((method, cell.value) for method, cell in table.numbers(of_set).items())
        profiles.setdefault(profile, []).append(of_set)
    findings = []
    num_pairs = math.comb(len(table.sets), 2)
    for profile, sets in profiles.items():
        if len(sets) < 2 or len(profile) < 3 or len({value for _, value in profile}) < 3:
            continue
        cells = list(table.numbers(sets[0]).values())
        values = [cell.value for cell in cells]
        width = 2 * cells[0].half / (max(values) - min(values))
        if num_pairs * min(1.0, 2 * width) ** (len(profile) - 1) < SURE:
            cell = next(iter(table.numbers(sets[1]).values()))
            row, column, line = table.position(cell)
            first, second = (" / ".join(table.sets[of_set].path) for of_set in sets[:2])
            text = f"and all other {len(profile) - 1} numbers on {second} are those on {first}: is one a copy?"
            row, column = ("all", column) if table.are_lines_methods else (row, "all")
            findings.append(TableFinding("copy", row, column, cell.text, f"as {first}", text, line))
    return findings


def _chance_of_tie(values: Sequence[float], value: float, half: float) -> float:
    """Return how probable it is that a number of a column is this value, that two of them have."""
    span = max(max(values) - min(values), NARROW * abs(value))
    others = max(values.count(value) - 2, 0) / max(len(values) - 2, 1)
    by_digits = min(1.0, 3 * half / span) if span else 1.0
    return min(1.0, max(others, by_digits))
