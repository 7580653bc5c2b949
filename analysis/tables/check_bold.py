"""Bold numbers that are not the best, and "better" claims that a table's deviations or data sets don't support."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from biasbed.analysis.tables.check_averages import AverageColumn
from biasbed.analysis.tables.findings import CLAIM, TableFinding, make_finding
from biasbed.analysis.tables.printed import PrintedNumbers, number_text
from biasbed.analysis.tables.scores import Score

KEPT = 2 / 3  # share of data sets whose bold number is the best, from which on bold says so
MOST_SETS = 16  # up to which every assignment of signs is counted

Contest = tuple[int, str]  # data set, and the part of the methods that is compared


@dataclass
class Contests:
    """Bold numbers of each data set (and part of the methods) with the others there."""

    bold: dict[Contest, list[Score]] = field(default_factory=dict)
    others: dict[Contest, list[Score]] = field(default_factory=dict)
    is_lower: dict[int, bool] = field(default_factory=dict)  # by data set
    wrong: list[Contest] = field(default_factory=list)
    is_kept: bool = False  # bold is the best, by most data sets

    @property
    def num_bold(self) -> int:
        """Number of bold numbers."""
        return sum(map(len, self.bold.values()))

    @property
    def has_one_bold(self) -> bool:
        """True if most data sets have one bold value."""
        single = sum(len({cell.value for cell in cells}) == 1 for cells in self.bold.values())
        return single > 1 and single >= KEPT * len(self.bold)


def bold_contests(table: PrintedNumbers) -> Contests:
    """Return the bold numbers by data set; by part of the methods, if they are the best of their part alone."""
    undivided = _contests_of(table, [""] * len(table.methods))
    if len(wrong_bold(table, undivided)) > 1 and _is_best_of_methods(table):
        undivided.is_kept = False  # bold is the best number of each method
        return undivided
    for names in table.groups if not undivided.is_kept else ():
        contests = _contests_of(table, names)
        if contests.is_kept and contests.num_bold >= KEPT * undivided.num_bold:
            return contests
    return undivided


def _contests_of(table: PrintedNumbers, names: Sequence[str]) -> Contests:
    contests = Contests()
    for of_set in range(len(table.sets)):
        for method, cell in table.numbers(of_set).items():
            side = contests.bold if cell.is_bold else contests.others
            side.setdefault((of_set, names[method]), []).append(cell)
    contests.bold = {key: cells for key, cells in contests.bold.items() if key in contests.others}
    contests.is_lower = _directions(table, contests)
    references = _references(table, contests)
    for key, cells in contests.others.items():
        contests.others[key] = [cell for cell in cells if table.line_of(cell) not in references]
    contests.bold = {key: cells for key, cells in contests.bold.items() if contests.others[key]}
    for key in contests.bold:
        if _is_wrong(contests, key, contests.is_lower[key[0]]):
            contests.wrong.append(key)
    right = len(contests.bold) - len(contests.wrong)
    contests.is_kept = (right > 1 and right >= KEPT * len(contests.bold)) or (right == 1 and len(contests.bold) <= 2)
    return contests


def _is_best_of_methods(table: PrintedNumbers) -> bool:
    """Return True if most methods have bold numbers, which are the highest (or lowest) of their own on all sets."""
    wrong = [0, 0]
    num_marked = 0
    for method in range(len(table.methods)):
        cells = [table.cells[method, of_set] for of_set in range(len(table.sets)) if (method, of_set) in table.cells]
        bold = [cell.value for cell in cells if cell.is_bold]
        others = [cell.value for cell in cells if not cell.is_bold]
        if bold and others:
            num_marked += 1
            wrong[0] += max(others) > max(bold)
            wrong[1] += min(others) < min(bold)
    return min(wrong) == 0 and num_marked > 1 and 2 * num_marked > len(table.methods)


def _is_wrong(contests: Contests, key: Contest, is_lower: bool) -> bool:
    """Return True if a number that is not bold is better than one that is."""
    bold = [cell.value for cell in contests.bold[key]]
    others = [cell.value for cell in contests.others[key]]
    return min(others) < max(bold) if is_lower else max(others) > min(bold)


def _directions(table: PrintedNumbers, contests: Contests) -> dict[int, bool]:
    """Return for each data set whether lower is better: as bold numbers of its measure say, else as its head says."""
    votes: dict[tuple[str, str], list[int]] = {}
    for key in contests.bold:
        described = table.sets[key[0]]
        if described.is_average:
            continue
        counts = votes.setdefault((described.direction, described.metric), [0, 0])
        counts[0] += not _is_wrong(contests, key, is_lower=False)
        counts[1] += not _is_wrong(contests, key, is_lower=True)
    totals = [sum(counts[side] for counts in votes.values()) for side in (0, 1)]
    directions = {}
    for of_set, described in enumerate(table.sets):
        higher, lower = votes.get((described.direction, described.metric), (0, 0))
        if described.is_average and not described.direction:
            higher, lower = totals
        if higher + lower > 1 and higher != lower and not described.is_said:
            directions[of_set] = lower > higher
        else:
            directions[of_set] = described.direction == "no"
            if not described.direction:
                directions[of_set] = totals[1] > totals[0]
    return directions


def _references(table: PrintedNumbers, contests: Contests) -> set[int]:
    """Return methods that are better than bold ones on several data sets and never bold, such as upper bounds."""
    with_bold: set[int] = set()
    for cells in contests.bold.values():
        for cell in cells:
            with_bold.add(table.line_of(cell))
    wins: dict[int, int] = {}
    for key, bold in contests.bold.items():
        is_lower = contests.is_lower[key[0]]
        for cell in contests.others[key]:
            worst = max(sibling.value for sibling in bold) if is_lower else min(sibling.value for sibling in bold)
            if cell.value < worst if is_lower else cell.value > worst:
                position = table.line_of(cell)
                wins[position] = wins.get(position, 0) + 1
    return {position for position, count in wins.items() if count > 1 and position not in with_bold}


def wrong_bold(table: PrintedNumbers, contests: Contests) -> list[TableFinding]:
    """Return bold numbers that are not the best of their data set, if most bold numbers of the table are.

    One below another bold number is right in a table that bolds several, and a claim if all above it are bold.
    """
    findings = []
    for key, bold in contests.bold.items() if contests.is_kept else ():
        pick = min if contests.is_lower[key[0]] else max
        best = pick([*bold, *contests.others[key]], key=lambda cell: cell.value)
        method = table.method_name(best)
        rival = pick(cell.value for cell in contests.others[key])
        for cell in bold:
            if cell.value == best.value or not (contests.has_one_bold or key in contests.wrong):
                continue
            text = f"is bold and not the best of {table.sets[key[0]].name}: {method} has {best.text}"
            kind = "bold"
            if pick(cell.value, rival) != rival:
                kind, text = CLAIM, f"{text}, also bold: do they not differ?"
            findings.append(make_finding(table, cell, kind, best.text, text))
    return findings


# --- claims -----------------------------------------------------------------------------------------------------------


def unsupported_claims(
    table: PrintedNumbers, contests: Contests, averages: Sequence[AverageColumn], alpha: float
) -> list[TableFinding]:
    """Return bold numbers and best averages that deviations or the number of data sets don't support."""
    findings = []
    for key, bold in contests.bold.items():
        is_counted = len(bold) == 1 and bold[0].spread is not None and not bold[0].left_out
        if contests.is_kept and key not in contests.wrong and is_counted:
            finding = _within_deviation(table, key, bold[0], contests, alpha)
            if finding is not None:
                findings.append(finding)
    return [*findings, *_on_few_sets(table, contests, averages, alpha)]


def _within_deviation(
    table: PrintedNumbers, key: Contest, best: Score, contests: Contests, alpha: float
) -> TableFinding | None:
    """Return a finding if the second best number is within the deviations of the bold one."""
    rivals = [cell for cell in contests.others[key] if cell.spread is not None]
    if not rivals or best.spread is None:
        return None
    pick = min if contests.is_lower[key[0]] else max
    second = pick(rivals, key=lambda cell: cell.value)
    assert second.spread is not None
    difference = abs(best.value - second.value)
    error = math.hypot(best.spread, second.spread)
    rival = f"{table.method_name(second)} ({second.text})"
    if best.num_runs > 1 and second.num_runs > 1 and error > 0:
        from scipy import stats

        first = best.value, _deviation(table, best), best.num_runs
        sibling = second.value, _deviation(table, second), second.num_runs
        p = stats.ttest_ind_from_stats(*first, *sibling, equal_var=False).pvalue
        if p < alpha:
            return None
        text = f"is bold; of {best.num_runs} and {second.num_runs} runs it is not shown to differ from {rival}"
        return make_finding(table, best, CLAIM, f"Welch's test, uncorrected: p = {p:.2g}", text)
    if difference > error:
        return None
    text = f"is bold; its lead over {rival} is within the deviation of their difference, {error:.2g}"
    return make_finding(table, best, CLAIM, f"lead {difference:.3g}", text)


def _deviation(table: PrintedNumbers, cell: Score) -> float:
    """Return the deviation of runs around a mean; a standard error times the root of their number."""
    return (cell.spread or 0.0) * (cell.num_runs**0.5 if table.is_standard_error else 1.0)


def _on_few_sets(
    table: PrintedNumbers, contests: Contests, averages: Sequence[AverageColumn], alpha: float
) -> list[TableFinding]:
    """Return a finding for each best average whose lead over the second the data sets don't show."""
    has_seeds = len(set(table.methods)) < len(table.methods)
    findings = []
    for average in averages if not has_seeds else ():
        findings.append(_lead(table, average, contests.is_lower[average.of_set], alpha))
    return list(filter(None, findings))


def _lead(table: PrintedNumbers, average: AverageColumn, is_lower: bool, alpha: float) -> TableFinding | None:
    """Return a finding if the lead of the best over the second is not shown by the data sets."""
    if len(average.lines) < 2:
        return None
    best, second = sorted(average.lines, key=lambda line: line.right_value, reverse=not is_lower)[:2]
    sign = -1 if is_lower else 1
    pairs = zip(best.parts, second.parts, strict=True)
    differences = _by_block(table, average.parts, [sign * (a.value - b.value) for a, b in pairs])
    p = sign_flip_p(differences)
    lead = abs(best.right_value - second.right_value)
    if p < alpha or not lead:
        return None
    smallest = 2.0 ** (1 - len(differences))
    why = f"{len(differences)} data sets don't show it"
    if len(differences) == 1:
        why = "its parts are of one data set, and a test needs several"
    elif smallest >= alpha:
        why = f"{len(differences)} data sets can't show it (smallest p {smallest:.2g})"
    recomputed = "" if best.agrees else f"(its parts: {number_text(best.mean, best.cell.digits)}) "
    text = (
        f"{recomputed}has the best mean of {len(average.parts)}, {lead:.3g} from {table.methods[second.method]}: {why}"
    )
    test = f"exact sign-flip test of the mean: p = {p:.2g}" if len(differences) > 1 else "no test"
    return make_finding(table, best.cell, CLAIM, test, text)


def _by_block(table: PrintedNumbers, sets: Sequence[int], differences: Sequence[float]) -> list[float]:
    """Return one difference for each independent data set: the mean over its parts."""
    blocks: dict[str, list[float]] = {}
    for part, difference in zip(sets, differences, strict=True):
        described = table.sets[part]
        blocks.setdefault(described.block or f" {part}", []).append(difference)
    means = []
    for values in blocks.values():
        means.append(math.fsum(values) / len(values))
    return means


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact two-sided p of the mean difference under all signs; with many data sets the sign test's."""
    count = len(differences)
    if count > MOST_SETS:
        from biasbed.analysis.statistics.exact import sign_test

        return sign_test(sum(d > 0 for d in differences), sum(d < 0 for d in differences))
    observed = abs(math.fsum(differences)) * (1 - 1e-12)
    sums = [0.0]
    for difference in differences:
        sums = [total + difference for total in sums] + [total - difference for total in sums]
    return sum(abs(total) >= observed for total in sums) / len(sums)
