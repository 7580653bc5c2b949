"""What is true of a study, from the numbers that were logged: means, conclusions, and what changes them."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from functools import cached_property

from helpers.sentences.studies import LoggedRun, Study, block_of
from helpers.sentences.tests_by_hand import Conclusion, Values, conclusions

LABELS = {
    "best_validation": "the epoch with the best val/accuracy/val",
    "last_n": "the mean over the last 2 epochs",
    "best_epoch": "ORACLE: each set's own best epoch, chosen on the test images",
    "best_epoch_per_run": "ORACLE: each run's epoch with the best mean over the test sets, chosen on the test images",
    "last": "the last epoch",
}
Replicate = Sequence[LoggedRun]  # a run, or those with one seed on all cells
KINDS = ("leave_one_algorithm_out", "leave_one_set_out", "one_run_less", "selection_rule", "alpha")


class Facts:
    def __init__(self, study: Study) -> None:
        self.study = study
        get = study.options.get
        self.alpha = float(get("alpha", "0.05"))
        self.rope = float(get("rope", "1"))
        self.control = None if get("control", "none") == "none" else str(get("control"))
        self.rule = get("selection", "best_validation")
        self.n = int(get("n", "30"))
        self.beside = get("with_published") == "true"
        self.runs = sorted(study.runs, key=lambda run: (self.name(run), run.seed))
        self.algorithms = list(dict.fromkeys(self.name(run) for run in self.runs))
        self.sets = [entry.name for entry in study.sets]  # columns
        self.cells = any(run.cell for run in study.runs)
        self.blocks: dict[str, list[str]] = {}
        for entry in study.sets:
            self.blocks.setdefault(block_of(entry), []).append(entry.name)
        self.noun = "data set" if len(self.blocks) < len(self.sets) else "set"
        self.repeated = "replicate" if self.cells else "run"
        self.sign = {entry.name: 1 if entry.higher_is_better else -1 for entry in study.sets}
        self.scale = {entry.name: 1.0 if entry.headline == "loss" else 100.0 for entry in study.sets}
        self.one_unit = len(set(self.scale.values())) == 1
        trained_on = {data for run in self.runs for data in run.training_data}
        self.touched = [entry.name for entry in study.sets if entry.made_by in trained_on]

    def name(self, run: LoggedRun) -> str:
        return f"{run.algorithm}@paper" if run.published else run.algorithm

    def of(self, algorithm: str) -> list[LoggedRun]:
        return [run for run in self.runs if self.name(run) == algorithm]

    def replicates(self, algorithm: str) -> list[list[LoggedRun]]:
        found: dict[object, list[LoggedRun]] = {}
        for i, run in enumerate(self.of(algorithm)):
            found.setdefault(run.seed if self.cells else i, []).append(run)
        return list(found.values())

    def of_each(self, algorithms: Sequence[str]) -> str:
        """How often each was trained, and which of at most three was trained otherwise."""
        numbers = {name: len(self.replicates(name)) for name in algorithms}
        usual = max(numbers.values(), key=list(numbers.values()).count)
        others = [f"{number} of {name}" for name, number in numbers.items() if number != usual]
        if len(others) > 3:
            return f"{min(numbers.values())} to {max(numbers.values())} {self.repeated}s of each algorithm"
        but = f" but {listing(others)}" if others else ""
        return f"{usual} {self.repeated}{'s' * (usual > 1)} of each algorithm{but}"

    def lacks(self, algorithm: str) -> list[str]:
        """The blocks that no run of it has."""
        tested = {name for run in self.of(algorithm) for name in run.curves}
        return [block for block, names in self.blocks.items() if not tested & set(names)]

    @property
    def lacking(self) -> list[str]:
        return [block for block in self.blocks if any(block in self.lacks(name) for name in self.algorithms)]

    def algorithms_in(self, setting: str) -> list[str]:
        return [name for name in self.algorithms if setting != "complete" or not self.lacks(name)]

    def sets_in(self, setting: str) -> list[str]:
        """The blocks that count."""
        left_out = {"all": self.lacking, "strict": [*self.lacking, *self.touched]}.get(setting, [])
        return [name for name in self.blocks if name not in left_out]

    # --- scores -------------------------------------------------------------------------------------------------------

    def score(self, run: LoggedRun, name: str, rule: str) -> float | None:
        """One run's score on one set under a rule, as shown; None where it was never tested there."""
        curve = run.curves.get(name)
        whole = len(run.curves) == len(self.sets) or self.cells
        if curve is None or (rule == "best_epoch_per_run" and not whole):
            return None
        if run.published:
            return curve[-1] * self.scale[name]
        if rule == "last_n":
            return math.fsum(curve[-self.n :]) / self.n * self.scale[name]
        return curve[self._epoch(run, name, rule)] * self.scale[name]

    def _epoch(self, run: LoggedRun, name: str, rule: str) -> int:
        if rule == "best_validation":
            return list(run.monitor).index(max(run.monitor))
        if rule == "last":
            return len(run.curves[name]) - 1
        if rule == "best_epoch":
            values = [self.sign[name] * value for value in run.curves[name]]
        else:
            values = [sum(self.sign[s] * c[e] for s, c in run.curves.items()) for e in range(len(run.monitor))]
        return values.index(max(values))

    def values(self, setting: str, rule: str | None = None, without: Replicate = ()) -> dict[str, list[float]]:
        """Algorithm -> oriented means over runs, then over columns, on the setting's blocks."""
        found = {}
        for algorithm in self.algorithms_in(setting):
            runs = [run for run in self.of(algorithm) if run not in without]
            found[algorithm] = [
                statistics.fmean(self.mean_on(runs, name, rule) for name in self.blocks[block])
                for block in self.sets_in(setting)
            ]
        return found

    def mean_on(self, runs: Sequence[LoggedRun], name: str, rule: str | None = None) -> float:
        scores = [s for run in runs if (s := self.score(run, name, rule or self.rule)) is not None]
        return self.sign[name] * statistics.fmean(scores)

    def oriented(self, algorithm: str, name: str) -> list[float | None]:
        """Every run's score on a column, higher is better; None where it has none."""
        scores = [self.score(run, name, self.rule) for run in self.of(algorithm)]
        return [None if s is None else self.sign[name] * s for s in scores]

    def oriented_runs(self, algorithm: str, setting: str) -> list[list[float | None]]:
        """Replicates x blocks, higher is better; None where one lacks a column."""
        return [
            [self._of_replicate(runs, self.blocks[block]) for block in self.sets_in(setting)]
            for runs in self.replicates(algorithm)
        ]

    def _of_replicate(self, runs: Replicate, names: Sequence[str]) -> float | None:
        scores = [(self.sign[n], s) for n in names for r in runs if (s := self.score(r, n, self.rule)) is not None]
        return statistics.fmean(sign * s for sign, s in scores) if len(scores) == len(names) else None

    def differences(self, setting: str, a: str, b: str) -> list[float]:
        values = self.values(setting)
        return [round(x - y, 9) for x, y in zip(values[a], values[b], strict=True)]

    def lead(self, setting: str, a: str, b: str) -> float:
        return statistics.fmean(self.differences(setting, a, b))

    # --- conclusions --------------------------------------------------------------------------------------------------

    @cached_property
    def _conclusions(self) -> dict[str, dict[Conclusion, str]]:
        return {}

    def conclusions(self, setting: str) -> dict[Conclusion, str]:
        if setting not in self._conclusions:
            self._conclusions[setting] = conclusions(self.values(setting), self.alpha, self.control)
        return self._conclusions[setting]

    def differ(self, setting: str) -> bool:
        found = self.conclusions(setting)
        if len(self.algorithms_in(setting)) == 2:
            return any(found.values())
        return found.get(("omnibus", "", "")) == "differ"

    def told(self, setting: str, test: str | None = None) -> set[tuple[str, str]]:
        """(better, worse) of the pairs that the tests, or one of them, tell apart; with a control only its own."""
        pairs = set()
        for (by, a, b), said in self.conclusions(setting).items():
            if by != "omnibus" and said and test in (None, by) and self.control in (None, a, b):
                better, worse = said.split(" before ")
                pairs.add((better, worse))
        return pairs

    def variants(self, setting: str) -> Iterator[tuple[str, str, Values, float]]:
        """(kind, what, scores, alpha): everything that is changed, one at a time."""
        base = self.values(setting)
        for name in base:
            yield KINDS[0], name, {other: values for other, values in base.items() if other != name}, self.alpha
        for i, name in enumerate(self.sets_in(setting)):
            yield KINDS[1], name, {a: [*v[:i], *v[i + 1 :]] for a, v in base.items()}, self.alpha
        columns = [name for block in self.sets_in(setting) for name in self.blocks[block]]
        for gone in [runs for algorithm in self.algorithms_in(setting) for runs in self.replicates(algorithm)]:
            algorithm = self.name(gone[0])
            others = [other for other in self.of(algorithm) if other not in gone]
            if all(any(name in other.curves for other in others) for name in columns):
                yield KINDS[2], f"{algorithm} seed {gone[0].seed}", self.values(setting, without=gone), self.alpha
        for rule in self.other_rules:
            yield KINDS[3], rule, self.values(setting, rule), self.alpha
        for alpha in (0.01, 0.05, 0.1):
            if alpha != self.alpha:
                yield KINDS[4], f"{alpha:g}", base, alpha

    @property
    def other_rules(self) -> list[str]:
        """Those that these runs allow: last_n takes n epochs, one epoch for all sets takes one unit."""
        rules = ["best_validation", "last_n", "best_epoch", "last", "best_epoch_per_run"]
        allowed = {"last_n": self.n <= 4, "best_epoch_per_run": self.one_unit}
        if self.beside:
            return []  # published numbers have their one rule
        return [rule for rule in rules if rule != self.rule and allowed.get(rule, True)]

    @cached_property
    def _changes(self) -> dict[str, list[tuple[str, str, dict[Conclusion, str]]]]:
        return {}

    def changes(self, setting: str) -> list[tuple[str, str, dict[Conclusion, str]]]:
        """(kind, what, conclusions then)."""
        if setting not in self._changes:
            self._changes[setting] = [
                (kind, what, conclusions(values, alpha, self.control))
                for kind, what, values, alpha in self.variants(setting)
            ]
        return self._changes[setting]

    def overturning(self, setting: str, claim: Conclusion) -> list[tuple[str, str]]:
        """The (kind, what) after which a conclusion is another."""
        before = self.conclusions(setting)[claim]
        return [(kind, what) for kind, what, then in self.changes(setting) if claim in then and then[claim] != before]

    def tried(self, setting: str, test: str) -> list[str]:
        """The kinds of changes after which some conclusion of the test was drawn again."""
        own = [claim for claim in self.conclusions(setting) if claim[0] == test]
        kinds = {kind for kind, _, then in self.changes(setting) if any(claim in then for claim in own)}
        return [kind for kind in KINDS if kind in kinds]

    def firm(self, setting: str, test: str | None = None) -> set[tuple[str, str]]:
        """Pairs that one and the same test, or this one, tells apart, in the same order, after every change."""
        found = set()
        for claim, said in self.conclusions(setting).items():
            pair = tuple(said.split(" before ")) if said else ()
            is_of_test = test in (None, claim[0])
            if len(pair) == 2 and is_of_test and pair in self.told(setting) and not self.overturning(setting, claim):
                found.add(pair)
        return found  # type: ignore[return-value]

    # --- on one set ---------------------------------------------------------------------------------------------------

    def groups(self, name: str) -> list[list[float]]:
        """The scores on one column of each algorithm that can have any."""
        return list(self.by_algorithm(name).values())

    def by_algorithm(self, name: str) -> dict[str, list[float]]:
        found = {
            algorithm: [s for run in self.of(algorithm) if (s := self.score(run, name, self.rule)) is not None]
            for algorithm in self.algorithms
        }
        return {algorithm: scores for algorithm, scores in found.items() if scores}

    def pairs(self, setting: str = "all") -> list[tuple[str, str]]:
        """The family of pairwise tests."""
        names = self.algorithms_in(setting)
        if self.control is not None:
            return [(name, self.control) for name in names if name != self.control]
        return list(itertools.combinations(names, 2))

    @property
    def shared(self) -> dict[str, list[str]]:
        by_source: dict[str, list[str]] = {}
        for entry in self.study.sets:
            if entry.source_images:
                by_source.setdefault(entry.source_images, []).append(entry.name)
        return {source: names for source, names in by_source.items() if len(names) > 1}


def listing(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
