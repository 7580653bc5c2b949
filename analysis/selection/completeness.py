"""Completeness of the runs that a selection rule reads: every draw of a search, its whole history, runs of pairs.

A rule that `needs_all` compares trials with each other, and runs of one cell with those of others. If some were
missing, it would silently choose from the rest. So every gap is listed, and `allow=` accepts a kind of gap by its name;
the tables then show where values are missing.

Answers: What must be there before a rule may choose?
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from biasbed.analysis.options import GAPS
from biasbed.analysis.runs.run import Collection, Run, group_runs
from biasbed.analysis.selection.domain_rules import training_domains
from biasbed.analysis.selection.pools import Pool
from biasbed.analysis.selection.rules import Rule
from biasbed.errors import Failure, listed

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

MOST = 5  # runs that are named in one line of a message


class Gap(NamedTuple):
    """Something that a rule needs and that is missing or inconsistent."""

    kind: str  # of `GAPS`
    text: str


def check(rule: Rule, pools: Sequence[Pool], collection: Collection, options: AnalyzeOptions) -> list[str]:
    """Return a note on each gap that the options accept; none for a rule that may choose from some runs only.

    Raises Failure that lists the gaps that are not accepted.
    """
    if not rule.needs_all:
        return []
    runs = collection.unpublished
    if rule.looks_elsewhere:
        runs += collection.evidence
    gaps = [
        *_missing_pairs(rule, pools),
        *_missing_draws(runs, collection),
        *_unfinished(rule, collection),
    ]
    allowed = () if options.allow == "none" else options.allow
    refused = [gap for gap in gaps if gap.kind not in allowed]
    if refused:
        raise Failure(*_refusal(rule, refused, allowed))
    return [f"accepted [{gap.kind}]: {gap.text}" for gap in gaps]


def accepts_empty_cells(rule: Rule, options: AnalyzeOptions) -> bool:
    """Return True if a cell of the score table may be empty, because the rule has gaps that the options accept."""
    return rule.needs_all and options.allow != "none" and not {*GAPS}.isdisjoint(options.allow)


def _refusal(rule: Rule, gaps: Sequence[Gap], allowed: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the message. allowed: kinds of gaps that are accepted already."""
    kinds = sorted({gap.kind for gap in gaps}, key=GAPS.index)
    lines = [f"[{gap.kind}] {gap.text}" for gap in gaps]
    if len(lines) == 1:
        yield f"selection={rule.name}: {lines[0]}"
    else:
        yield f"selection={rule.name}: not all is there that the rule looks at:"
        for line in lines:
            yield f"  {line}"
    yield "the study's own command trains what is missing, and nothing twice"
    yield f"or accept it: allow={','.join(sorted({*kinds, *allowed}))}"


# --- kinds of gaps ----------------------------------------------------------------------------------------------------


class NeededPair(NamedTuple):
    """Two domains of a data set that runs must hold out together."""

    cell: str  # name of the cell of these runs
    held_out: frozenset[str]


def _needed_pairs(rule: Rule, pool: Pool) -> Iterator[NeededPair]:
    """Yield each held-out domain of a pool together with each training domain.

    Raises Failure if there is only one training domain, as none would be left to train on.
    """
    for eval_set in pool.sets:
        domains = training_domains(pool, eval_set)
        if len(domains) == 1:
            raise Failure(
                f"selection={rule.name}: with both domains of {eval_set.block} held out none is left to train on"
            )
        for training_set in domains:
            held_out = frozenset((eval_set.domain, training_set.domain))
            yield NeededPair("-".join((eval_set.block, *sorted(held_out))), held_out)


def _missing_pairs(rule: Rule, pools: Sequence[Pool]) -> Iterator[Gap]:
    """Yield the runs that lack a partner: a run with the same settings that holds out one training domain more.

    A row and cell is a gap; all rows without any partner are one gap together.
    """
    if not rule.looks_elsewhere:
        return
    alone: dict[str, dict[str, set[str]]] = {}  # row -> cell of the partners -> names of the runs without one
    rows_with_pairs: set[str] = set()
    for pool in pools:
        runs = [candidate.run for candidate in pool.candidates if not candidate.history.is_settled]
        for cell, held_out in _needed_pairs(rule, pool):
            for run in runs:
                if (held_out, pool.settings(run)) in pool.holding_out:
                    rows_with_pairs.add(pool.algorithm)
                    continue
                name = f"r{pool.repeat}-{run.draw}" if pool.is_search else f"seed {run.seed}"
                alone.setdefault(pool.algorithm, {}).setdefault(cell, set()).add(name)
    rows_without_pairs = sorted(alone.keys() - rows_with_pairs)
    if rows_without_pairs:
        rows = ", ".join(rows_without_pairs)
        cells = ", ".join(sorted(set().union(*(alone[row] for row in rows_without_pairs))))
        yield Gap("missing_pairs", f"no run of {rows} holds out two domains; train the cells {cells}")
    for row in sorted(rows_with_pairs & alone.keys()):
        for cell, names in sorted(alone[row].items()):
            in_order = sorted(names, key=_natural)
            yield Gap("missing_pairs", f"{row}: none on {cell} of {listed(in_order, MOST)}")


def _missing_draws(runs: Iterable[Run], collection: Collection) -> Iterator[Gap]:
    """Yield each cell and repeat of a search that lacks trials which another cell or repeat has.

    Unfinished trials are gaps of their own kind.
    """
    searches: dict[tuple[str, str], dict[tuple[str, str], set[int]]] = {}  # (row, protocol) -> (cell, repeat) -> draws
    for run in runs:
        if run.is_trial:
            draws = searches.setdefault((run.algorithm, run.protocol), {})
            draws.setdefault((run.cell, run.repeat), set()).add(run.draw)
    unfinished = {(run.algorithm, run.cell, run.repeat, run.draw) for run in collection.unfinished}
    for (row, protocol), draws in sorted(searches.items()):
        all_draws = set().union(*draws.values())
        repeats = sorted({repeat for _, repeat in draws}, key=_natural)
        cells = {cell for cell, _ in draws}
        for cell in collection.cells:
            if cell.protocol.hash == protocol and not collection.not_applicable(row, cell.name):
                cells.add(cell.name)
        for name, repeat in itertools.product(sorted(cells), repeats):
            missing = sorted(all_draws - draws.get((name, repeat), set()))
            missing = [draw for draw in missing if (row, name, repeat, draw) not in unfinished]
            if missing:
                trials = listed(map(str, missing), MOST)
                yield Gap("missing_draws", f"{row} on {name} repeat {repeat}: no trial {trials}")


def _unfinished(rule: Rule, collection: Collection) -> Iterator[Gap]:
    """Yield the rows with unfinished runs that the rule would read. Pruned trials have been stopped on purpose."""
    cells = {cell.name for cell in collection.cells}
    unfinished = []
    for run in collection.unfinished:
        if run.trial_state != "pruned" and (run.cell in cells or rule.looks_elsewhere):
            unfinished.append(run)
    for row, runs in sorted(group_runs(unfinished, "algorithm").items()):
        names = (f"{run.name} ({run.status.lower()})" for run in sorted(runs, key=attrgetter("name")))
        yield Gap("unfinished", f"{row}: {len(runs)} unfinished run(s): {listed(names, MOST)}")


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which `r1-10` comes after `r1-9`."""
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in text.replace("-", " ").split())
