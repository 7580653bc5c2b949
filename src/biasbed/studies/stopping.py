"""Studies that stop when decided: seeds are added in groups until every planned comparison is decided.

The plan is fixed before the first training, and is a tag of the study and of its runs. A look depends on the scores of
finished runs alone, so a study that was killed makes the same looks again.

Answers: When does a study need no more seeds?
"""

from __future__ import annotations

import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbed import measures, record
from biasbed.analysis.columns import Column, blocks, measured_by, unit_of
from biasbed.analysis.statistics.pairs import pairs
from biasbed.analysis.statistics.sequential import Look, SequentialDesign, analyse
from biasbed.errors import Failure, UsageError
from biasbed.options import BenchmarkOptions
from biasbed.settings import nearest
from biasbed.studies.plan import PlannedRun, Records, StudyPlan
from biasbed.studies.runner import Item
from biasbed.studies.status import RunStatus
from biasbed.studies.study import DECISIONS
from biasbed.system.files import write_whole
from biasbed.tracking.folder import read_mapping

MOST_NAMED = 6  # comparisons in a printed line


# --- the score of a run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Number by which runs of a cell are compared: a mean of test metrics at the best evaluation by the monitor."""

    blocks: tuple[tuple[str, ...], ...]  # metrics; their mean counts for the block, and the blocks' mean for the run
    unit: str
    higher_is_better: bool

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(itertools.chain.from_iterable(self.blocks))

    def read(self, run: PlannedRun, records: Records) -> float:
        """Return a finished run's score. Raises Failure if a metric is missing or not finite."""
        by_step: dict[int, dict[str, float]] = {}
        for evaluation in records:
            if "stage" not in evaluation:
                by_step.setdefault(int(evaluation["step"]), {}).update(evaluation["metrics"])
        best: int | None = None
        for step, metrics in sorted(by_step.items()):
            value = metrics.get(run.monitor)
            if value is None:
                continue
            if best is None or measures.is_better(value, by_step[best][run.monitor], run.higher_is_better):
                best = step
        if best is None:
            raise Failure(f"{run.name} has no {run.monitor}, by which its best evaluation is chosen")
        values = {name: by_step[best].get(name, math.nan) for name in self.metrics}
        for name, value in values.items():
            if not record.is_finite(value):
                raise Failure(
                    f"{run.name} has no finite {name} at its best evaluation ({run.unit} {best}), and stop=decided "
                    "compares runs by it: name other sets with stop_score=, in a study of another name"
                )
        return _mean(_mean(values[name] for name in block) for block in self.blocks)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)


def choose_score(protocol: record.Protocol, test_domains: Sequence[str], names: Sequence[str] | str) -> Score:
    """Return the score that `stop_score` names: sets, or `<measure>/<set>`; `auto` for every set's headline.

    Raises UsageError for an unknown name, and if the metrics have no common mean.
    """
    columns: dict[str, Column] = {}
    for tested in protocol.judged(test_domains):
        columns[tested.name] = Column(tested.name, tested, unit=unit_of(protocol, tested))
    chosen = list(columns.values())
    if names != "auto":
        chosen = [_find_column(name, columns, protocol) for name in names]
        _refuse_several_measures(names, chosen)
    if not chosen:
        raise UsageError("stop=decided compares runs by what they are tested on, and sets= names nothing")
    try:
        by_block = blocks(chosen)
    except Failure as failure:
        raise UsageError(f"stop_score: {str(failure).replace('sets=', 'stop_score=')}") from None
    counted = list(itertools.chain.from_iterable(by_block.values()))
    kinds = {(column.unit, column.higher_is_better) for column in counted}
    if len(kinds) > 1:
        units = ", ".join(f"{column.name} ({column.headline}, {column.unit})" for column in counted)
        raise UsageError(f"the scores of a run have no common mean: {units}; name sets of one kind with stop_score=")
    metrics = tuple(tuple(str(column.metric) for column in of_block) for of_block in by_block.values())
    return Score(metrics, counted[0].unit, counted[0].higher_is_better)


def _refuse_several_measures(names: Sequence[str], columns: Sequence[Column]) -> None:
    """Raise UsageError if the user names several measures: a mean of a shape bias and an accuracy is neither."""
    measured = {name: column.headline for name, column in zip(names, columns, strict=True)}
    if len(set(measured.values())) > 1 and any("/" in name for name in names):
        kinds = ", ".join(f"{name} ({measure})" for name, measure in measured.items())
        raise UsageError(f"stop_score: {kinds} have no common mean: name one measure")


def _find_column(name: str, columns: Mapping[str, Column], protocol: record.Protocol) -> Column:
    measure, _, set_name = name.rpartition("/")
    if set_name not in columns:
        raise UsageError(f"stop_score={name}: the study tests no set '{set_name}'{nearest(set_name, columns)}")
    column = columns[set_name]
    if not measure:
        return column
    measured = measured_by(column, measure, protocol)
    if measured is None:
        raise UsageError(f"stop_score={name}: {set_name} has no measure '{measure}'{nearest(measure, column.measures)}")
    return measured


# --- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StopPlan:
    """Planned comparison of a study, and its runs by row and seed."""

    study: str
    design: SequentialDesign
    control: str
    seeds: tuple[int, ...]
    scores: Mapping[str, Score]  # by cell
    runs: Mapping[tuple[str, int], tuple[PlannedRun, ...]]  # (row, seed) -> its run in each cell
    tested: tuple[PlannedRun, ...]  # models that are only tested: they have no seeds, and are not compared

    @property
    def score(self) -> Score:
        """Score in the first cell; all cells have the same unit."""
        return next(iter(self.scores.values()))

    @property
    def content(self) -> dict[str, Any]:
        """Everything that must not change once scores have been seen."""
        return {
            "alpha": self.design.alpha,
            "comparisons": [list(pair) for pair in self.design.comparisons],
            "group": self.design.group,
            "looks": self.design.looks,
            "score": {cell: [list(block) for block in score.blocks] for cell, score in self.scores.items()},
            "seeds": list(self.seeds),
        }

    @property
    def tag(self) -> str:
        """Plan as a tag of the study and its runs: its numbers, and a hash of all of it."""
        design = self.design
        return record.canonical_json(
            {
                **{"alpha": design.alpha, "control": self.control, "group": design.group, "looks": design.looks},
                **{"runs": len(self.seeds), "plan": record.digest(self.content)},
            }
        )

    def seeds_of(self, look: int) -> tuple[int, ...]:
        """Return the seeds that are added before a look (1 is the first)."""
        return self.seeds[(look - 1) * self.design.group : look * self.design.group]

    def runs_of(self, rows: Iterable[str], look: int) -> list[PlannedRun]:
        """Return the runs of these rows that are added before a look."""
        group: list[PlannedRun] = []
        for seed, row in itertools.product(self.seeds_of(look), rows):
            group += self.runs[row, seed]
        return group

    def describe(self) -> list[str]:
        """Return the plan in words."""
        design, score = self.design, self.score
        family = f"every row with {self.control}"
        if self.control == "none":
            family = "all pairs of rows"
        better = "more" if score.higher_is_better else "less"
        looks = f"after every {design.group} seeds, {design.looks} at most"
        return [
            f"stop=decided: {len(design.comparisons)} comparisons ({family}), family-wise error at most "
            f"{design.alpha:g}; looks {looks}; the first that can decide anything is look {design.first_possible_look}",
            f"score of a run, {better} is better: mean of {', '.join(score.metrics)}, at its best evaluation",
        ]


def plan_stop(plan: StudyPlan, options: BenchmarkOptions) -> StopPlan:
    """Plan the comparison of a study's trained rows. Raises UsageError if it can't be made, or could decide nothing."""
    rows, seeds, group = tuple(plan.table.methods), plan.table.seeds, options.stop_group
    if len(rows) < 2:
        raise UsageError("stop=decided compares rows that are trained: give at least two")
    control = options.stop_control
    if control != "none" and control not in rows:
        raise UsageError(f"stop_control={control}: no row that is trained has this name{nearest(control, rows)}")
    if plan.left_out:
        raise UsageError(f"stop=decided compares rows in the same cells; not applicable: {plan.left_out[0]}")
    if len(seeds) % group:
        below = len(seeds) - len(seeds) % group
        numbers = f"{below} or {below + group}" if below else str(group)
        raise UsageError(f"stop_group={group}: {len(seeds)} seeds are no whole groups of {group}: give {numbers} seeds")
    family = pairs(rows, None if control == "none" else control)
    design = SequentialDesign(family, group, len(seeds) // group, options.stop_alpha)
    runs: dict[tuple[str, int], list[PlannedRun]] = {}
    scores: dict[str, Score] = {}
    for run in plan.runs:
        if run.protocol is None:
            continue
        runs.setdefault((run.row, run.seed), []).append(run)
        score = choose_score(run.protocol, run.test_domains, options.stop_score)
        first = scores.setdefault(run.cell, score)
        if first != score:
            raise UsageError(f"stop=decided: {run.group} is tested on other sets than the rows before it")
    if len({(score.unit, score.higher_is_better) for score in scores.values()}) > 1:
        raise UsageError("the cells' scores have no common mean: name sets of one kind with stop_score=")
    tested = tuple(run for run in plan.runs if run.kind != "train")
    by_row_and_seed = {key: tuple(members) for key, members in runs.items()}
    return StopPlan(plan.table.study, design, control, seeds, scores, by_row_and_seed, tested)


# --- carrying it out --------------------------------------------------------------------------------------------------


class GroupFeed:
    """Feeds the runner with the next group of seeds of the rows that are still open, and decides after each group."""

    def __init__(
        self,
        stop: StopPlan,
        folder: Path,
        read_status: Callable[[PlannedRun], RunStatus],
        read_records: Callable[[PlannedRun, Sequence[str]], Records],
        say: Callable[[str], None],
    ) -> None:
        """read_records: returns the records of a finished run, at least those with the named metrics."""
        self.stop, self.path, self.say = stop, folder / DECISIONS, say
        self._read_status, self._read_records = read_status, read_records
        self._stored = (read_mapping(self.path) or {}).get("looks", [])
        self._scores: dict[str, list[float]] = {row: [] for row in stop.design.rows}
        self.looks: list[Look] = []
        self.items: list[Item] = []
        self.is_open = True
        self._pending = deque(stop.runs_of(stop.design.rows, 1))
        self._write()

    def next(self) -> Item | None:
        """Return a run of the present group, or of the next one once this one is complete and leaves something open.

        The feed closes when all is decided, when the seeds are used up, and when a run of the group has failed.
        """
        while self.is_open:
            if self._pending:
                run = self._pending.popleft()
                item = Item(run, self._read_status(run))
                self.items.append(item)
                return item
            if not all(item.has_ended for item in self.items):
                return None
            if all(item.state == "done" for item in self.items):
                self._look()
            else:
                self.is_open = False
        return None

    @property
    def is_complete(self) -> bool:
        """True if no further training can change a verdict."""
        return bool(self.looks) and (not self.looks[-1].undecided or len(self.looks) == self.stop.design.looks)

    @property
    def unneeded(self) -> list[PlannedRun]:
        """Planned runs that no verdict needs; none before the study is complete."""
        needed = {item.run.identity for item in self.items}
        planned = itertools.chain.from_iterable(self.stop.runs.values())
        return [run for run in planned if run.identity not in needed] if self.is_complete else []

    def _look(self) -> None:
        """Make the look at the present group, store it, and open the next group."""
        stop, number = self.stop, len(self.looks) + 1
        rows = self.looks[-1].open_rows if self.looks else stop.design.rows
        for seed, row in itertools.product(stop.seeds_of(number), rows):
            values = []
            for run in stop.runs[row, seed]:
                score = stop.scores[run.cell]
                values.append(score.read(run, self._read_records(run, (run.monitor, *score.metrics))))
            self._scores[row].append(_mean(values))
        self.looks = analyse(stop.design, self._scores)
        self._refuse_other_scores(number)
        self._write()
        for line in self._describe_look(self.looks[-1], rows):
            self.say(line)
        if self.is_complete:
            self.is_open = False
        else:
            self._pending.extend(stop.runs_of(self.looks[-1].open_rows, number + 1))

    def _refuse_other_scores(self, number: int) -> None:
        """Raise Failure if this look was made before, with other scores."""
        if len(self._stored) >= number and self._stored[number - 1] != _as_stored(self._plain_look(number)):
            raise Failure(
                f"look {number} of the study '{self.stop.study}' was made before, with other scores ({self.path}): "
                "its runs were replaced, and a second look at a new draw does not keep the error; name another study"
            )

    # --- what is stored and said -------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write the plan and the looks so far; looks that were stored and are still to be made again stay."""
        looks = [_as_stored(self._plain_look(number)) for number in range(1, len(self.looks) + 1)]
        content = {"plan": {**self.stop.content, "tag": self.stop.tag}, "looks": [*looks, *self._stored[len(looks) :]]}
        write_whole(self.path, json.dumps(content, indent=1) + "\n")

    def _plain_look(self, number: int) -> dict[str, Any]:
        look, group = self.looks[number - 1], self.stop.design.group
        compared = dict.fromkeys(itertools.chain.from_iterable(look.differences))
        comparisons = []
        for (a, b), difference in look.differences.items():
            verdict = {"a": a, "b": b, "difference": difference, "boundary": look.boundaries[a, b]}
            comparisons.append({**verdict, "decided": (a, b) not in look.undecided})
        scores = {row: self._scores[row][(number - 1) * group : number * group] for row in compared}
        return {"look": number, "seeds": self.stop.seeds_of(number), "scores": scores, "comparisons": comparisons}

    def _describe_look(self, look: Look, rows: Sequence[str]) -> list[str]:
        """Return what a look decided, and what follows from it."""
        stop, score = self.stop, self.stop.score
        decided = []
        for decision in look.decided:
            lower = decision.a if decision.higher == decision.b else decision.b
            best, worst = (decision.higher, lower) if score.higher_is_better else (lower, decision.higher)
            decided.append(f"{best} is better than {worst} by {_shown(abs(decision.difference), score.unit)}")
        lines = [f"look {look.number} of {stop.design.looks}: {_listed(decided) or 'nothing is decided'}"]
        undecided = [f"{a} and {b}" for a, b in look.undecided]
        if not undecided:
            lines.append(f"every comparison is decided; {_count(len(self.unneeded))} not needed")
        elif self.is_complete:
            lines.append(f"the seeds are used up; not told apart: {_listed(undecided)}")
        else:
            number = len(stop.runs_of(look.open_rows, look.number + 1))
            closed = [row for row in rows if row not in look.open_rows]
            ended = f"; no more of {', '.join(closed)}" if closed else ""
            lines.append(f"still open: {_listed(undecided)}; {_count(number)} next{ended}")
        return lines


def _as_stored(look: Mapping[str, Any]) -> Any:
    """Return a look as it is read back from its file."""
    return json.loads(json.dumps(look))


def _shown(difference: float, unit: str) -> str:
    return f"{measures.shown(difference, unit)}{' points' if unit == measures.FRACTION else ''}"


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return "; ".join(texts[:MOST_NAMED]) + more


def _count(number: int) -> str:
    return f"{number} training{'s' * (number != 1)}"
