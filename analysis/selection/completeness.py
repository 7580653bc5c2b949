"""What a rule looks at must be there: every draw of a search, its whole course, and runs that hold out more.

A rule that `needs_all` compares trials with each other and runs of one cell with those of others. Where some are
missing it would choose from what happens to be there, and nobody would see it. So they are listed, with what trains
them; `allow=` accepts each kind by name, and then the tables say where nothing is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from biasbed.analysis.options import GAPS
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection.domain_rules import others
from biasbed.analysis.selection.pools import History, Pool
from biasbed.analysis.selection.rules import Rule
from biasbed.errors import Failure
from biasbed.system.commands import typed

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

HOLD_OUT = "data.holdout"  # the setting that says how much of each domain is kept out of training
MOST = 5  # of what is listed of a kind in one row
Found = tuple[str, str]  # kind, of `GAPS`; text


def check(
    rule: Rule,
    pools: Sequence[Pool],
    collection: Collection,
    histories: Mapping[str, History],
    options: AnalyzeOptions,
) -> list[str]:
    """A note on each gap that is accepted; Failure that lists the others, with what fills them."""
    if not rule.needs_all:
        return []
    runs = (*collection.own, *(collection.evidence if rule.looks_elsewhere else ()))
    found = [
        *_pairs(rule, pools),
        *_draws(runs, collection),
        *_twice(runs, collection),
        *_unfinished(rule, collection),
        *_checkpoints(runs, histories),
        *_hold_out(runs),
    ]
    allowed = () if options.allow == "none" else options.allow
    stops = [(kind, text) for kind, text in found if kind not in allowed]
    if stops:
        raise Failure(*_refusal(rule, stops, collection, allowed))
    return [f"accepted [{kind}]: {text}" for kind, text in found]


def accepts_empty_cells(rule: Rule, options: AnalyzeOptions) -> bool:
    """Whether a cell may have nothing, as what would fill it was accepted to be missing."""
    return rule.needs_all and options.allow != "none" and not {*GAPS}.isdisjoint(options.allow)


def _refusal(rule: Rule, stops: Sequence[Found], collection: Collection, allowed: Sequence[str]) -> Iterator[str]:
    kinds = [kind for kind in GAPS if any(kind == own for own, _ in stops)]
    lines = [f"[{kind}] {text}" for kind, text in stops]
    if len(lines) == 1:
        yield f"selection={rule.name}: {lines[0]}"
    else:
        yield f"selection={rule.name}: not all is there that the rule looks at:"
        yield from (f"  {line}" for line in lines)
    yield from _commands(kinds, collection)
    yield f"or accept it: allow={','.join(sorted({*kinds, *allowed}))}"


def _commands(kinds: Sequence[str], collection: Collection) -> Iterator[str]:
    """What trains the missing."""
    if set(kinds) == {"duplicates"}:
        yield "delete the runs that should not count: mlflow runs delete --run-id ID"
        return
    scope, source = collection.scope, sorted({run.source for run in collection.own if run.source})
    if source:
        yield "train it where the others were trained, and import all again:"
        yield f"  {typed('import', {'source': source[0], 'study': scope.study})}"
        return
    data = sorted({name for cell in collection.cells for name in cell.protocol.training_sets})
    domains = "each,pairs" if collection.evidence or "missing_pairs" in kinds else "each"
    settings = {"search": "domainbed"} if collection.is_search else {}
    settings |= {"suite": scope.suite, "study": scope.study, "algorithms": ",".join(collection.algorithms)}
    settings |= {"train": ",".join(data), "test_domains": domains}
    yield "the study's own command trains what is missing, and nothing twice:"
    yield f"  {typed('sweep' if collection.is_search else 'benchmark', settings, '...')}"
    if set(kinds) == {"missing_pairs"}:
        rule = {"selection": "training_domain_validation"}
        yield f"or take a rule that needs no such runs: {typed('analyze', rule, '...')}"


# --- what may be missing ----------------------------------------------------------------------------------------------


def _pairs(rule: Rule, pools: Sequence[Pool]) -> Iterator[Found]:
    """Runs that hold out one domain more; one line where there are none at all, which says what to train."""
    if not rule.looks_elsewhere:
        return
    wanted: dict[str, dict[str, set[str]]] = {}  # row -> cell -> settings without a run there
    there: set[str] = set()
    for pool in pools:
        for entry in pool.sets:
            if len(others(pool, entry)) == 1:
                raise Failure(
                    f"selection={rule.name}: with both domains of {entry.block} held out none is left to train on"
                )
            for other in others(pool, entry):
                held_out = frozenset((entry.domain, other.domain))
                own = [c.run for c in pool.candidates if not c.history.is_settled]
                lost = [run for run in own if (held_out, pool.settings(run)) not in pool.holding_out]
                there |= {pool.algorithm} if len(lost) < len(own) else set()
                cells = wanted.setdefault(pool.algorithm, {})
                for run in lost:
                    which = f"r{pool.repeat}-{run.draw}" if pool.is_search else f"seed {run.seed}"
                    cells.setdefault("-".join((entry.block, *sorted(held_out))), set()).add(which)
    without = sorted(row for row, cells in wanted.items() if cells and row not in there)
    if without:
        names = ", ".join(sorted({cell for row in without for cell in wanted[row]}))
        yield "missing_pairs", f"no run of {', '.join(without)} holds out two domains; train the cells {names}"
    for row in sorted(there & set(wanted)):
        for cell, lost_there in sorted(wanted[row].items()):
            yield "missing_pairs", f"{row}: none on {cell} of {_some(sorted(lost_there, key=_natural))}"


def _draws(runs: Iterable[Run], collection: Collection) -> Iterator[Found]:
    """Trials of a search that some cell or repeat lacks and another one has."""
    by_search: defaultdict[tuple[str, str], defaultdict[tuple[str, str], set[int]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for run in runs:
        if run.is_trial:
            by_search[run.algorithm, run.protocol][run.cell, run.repeat].add(run.draw)
    unfinished = {(run.algorithm, run.cell, run.repeat, run.draw) for run in collection.unfinished}
    columns = {cell.name: cell.protocol.hash for cell in collection.cells}
    for (row, protocol), found in sorted(by_search.items()):
        every = set().union(*found.values())
        repeats = sorted({repeat for _, repeat in found}, key=_natural)
        cells = {cell for cell, _ in found} | {
            name for name, own in columns.items() if own == protocol and not collection.not_applicable(row, name)
        }
        for cell in sorted(cells):
            for repeat in repeats:
                lost = sorted(every - found.get((cell, repeat), set()))
                lost = [draw for draw in lost if (row, cell, repeat, draw) not in unfinished]
                if lost:
                    yield "missing_draws", f"{row} on {cell} repeat {repeat}: no trial {_some(map(str, lost))}"


def _twice(runs: Iterable[Run], collection: Collection) -> Iterator[Found]:
    """Several runs of one draw, or with one key."""
    same: defaultdict[tuple[str, ...], list[Run]] = defaultdict(list)
    looked_at = {run.place for run in runs}
    for run in (*runs, *(run for run in collection.duplicates if run.place in looked_at)):
        same[(*run.place, run.repeat, str(run.draw) if run.is_trial else run.run_key)].append(run)
    for found in same.values():
        if len(found) > 1:
            ids = _some(run.id for run in found)
            yield "duplicates", f"{found[0].algorithm} on {found[0].cell}: {len(found)} runs of one training: {ids}"


def _unfinished(rule: Rule, collection: Collection) -> Iterator[Found]:
    known = {cell.name for cell in collection.cells}
    rows: defaultdict[str, list[Run]] = defaultdict(list)
    for run in collection.unfinished:
        if run.cell in known or rule.looks_elsewhere:
            rows[run.algorithm].append(run)
    for row, found in sorted(rows.items()):
        named = (f"{run.name} ({run.status.lower()})" for run in sorted(found, key=lambda run: run.name))
        yield "unfinished", f"{row}: {len(found)} unfinished run(s): {_some(named)}"


def _checkpoints(runs: Iterable[Run], histories: Mapping[str, History]) -> Iterator[Found]:
    """Finished runs of a row on one data set that were tested at unlike steps."""
    rows: defaultdict[tuple[str, str], defaultdict[tuple[int, ...], list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.finished:
            steps = {step for name in histories[run.id].metrics for step in histories[run.id].curve(name)}
            rows[run.algorithm, run.protocol][tuple(sorted(steps))].append(run)
    for (row, _), found in sorted(rows.items()):
        if len(found) > 1:
            parts = [f"{_steps(steps)} ({len(own)} run(s), {own[0].name} ...)" for steps, own in sorted(found.items())]
            yield "unequal_checkpoints", f"{row}: runs were tested at unlike steps: {'; '.join(parts)}"


def _hold_out(runs: Iterable[Run]) -> Iterator[Found]:
    """Runs on one data set that kept unlike shares of its domains out of training."""
    data: defaultdict[str, defaultdict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        data[run.protocol][run.config.get(HOLD_OUT, "unknown")].append(run)
    for found in data.values():
        if len(found) > 1:
            parts = [f"{share} ({len(own)} run(s), {own[0].name} ...)" for share, own in sorted(found.items())]
            yield "unequal_hold_out", f"runs on one data set have unlike {HOLD_OUT}: {'; '.join(parts)}"


def _steps(steps: Sequence[int]) -> str:
    return f"{len(steps)} from {steps[0]} to {steps[-1]}" if steps else "none"


def _some(names: Iterable[str], most: int = MOST) -> str:
    every = list(names)
    return ", ".join(every[:most]) + f" and {len(every) - most} more" * (len(every) > most)


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """`r1-10` after `r1-9`."""
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in text.replace("-", " ").split())
