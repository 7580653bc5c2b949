"""Constructed studies whose reports are kept as text: what was logged, and how it is analysed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from biasbed import record
from helpers.toy_runs import Recorder

EPOCHS = 4


@dataclass(frozen=True)
class LoggedRun:
    algorithm: str
    seed: int
    curves: Mapping[str, Sequence[float]]  # set -> fraction (or loss) at every epoch; a set that is absent has no score
    monitor: Sequence[float] = (0.1, 0.2, 0.4, 0.3)
    training_data: Mapping[str, float] = field(default_factory=lambda: {"train": 1.0})
    published: bool = False
    cell: str = ""  # whose one set it is tested on
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    name: str
    sets: tuple[record.SetRecord, ...]
    runs: tuple[LoggedRun, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    def protocol(self, cell: str = "") -> record.Protocol:
        """Return the protocol of runs, with the data set of a cell."""
        if not cell:
            return record.Protocol("toy", self.sets, ("train",), ("val",), "val/accuracy/val")
        sets = tuple(test_set for test_set in self.sets if block_of(test_set) == block_of(self.find_set(cell)))
        return record.Protocol("toy", sets, (block_of(sets[0]),), ("val",), "val/accuracy/val")

    def log(self, recorder: Recorder) -> None:
        for run in self.runs:
            domain = self.find_set(run.cell).domain if run.cell else ""
            published = {record.KIND: "published", record.SELECTION: "best_validation", record.SOURCE: "A paper"}
            recorder.train(
                run.algorithm,
                run.seed,
                {name: curve for name, curve in run.curves.items() if self.find_set(name).headline == "accuracy"},
                monitor=run.monitor,
                protocol=self.protocol(run.cell),
                cell=run.cell,
                test_domains=(domain,) if domain else (),
                needs=run.needs,
                provides=("domain",) if domain else (),
                study="published_paper" if run.published else record.ADHOC,
                metrics={
                    f"test/{self.find_set(name).headline}/{name}": curve
                    for name, curve in run.curves.items()
                    if self.find_set(name).headline != "accuracy"
                },
                training_data=run.training_data,
                **(published if run.published else {}),
            )

    def find_set(self, name: str) -> record.SetRecord:
        return next(entry for entry in self.sets if entry.name == name)


def block_of(test_set: record.SetRecord) -> str:
    return test_set.block or test_set.name


def sets_of(number: int, **changes: object) -> tuple[record.SetRecord, ...]:
    entries = (record.SetRecord(f"s{i}", "accuracy", 500, 10, 0.1, ("accuracy",)) for i in range(number))
    return tuple(replace(test_set, **changes) for test_set in entries)  # type: ignore[arg-type]


def runs_of(
    means: Mapping[str, Sequence[float]], seeds: int = 3, spread: float = 0.004, run_spread: float = 0.0, start: int = 0
) -> tuple[LoggedRun, ...]:
    """Runs around means in percent; each epoch differs, the chosen one (the third) has the mean plus the run's luck."""
    generator = random.Random(sum(map(sum, means.values())) + seeds)
    runs = []
    for name, values in means.items():
        for seed in range(start, start + seeds):
            luck = generator.gauss(0, run_spread)
            curves = {}
            for i, value in enumerate(values):
                accuracy = min(0.999, max(0.0, value / 100 + luck + generator.gauss(0, spread)))
                curves[f"s{i}"] = [round(accuracy * part, 6) for part in (0.5, 0.9, 1.0, 0.97)]
            runs.append(LoggedRun(name, seed, curves))
    return tuple(runs)


def steps(k: int, n: int, gap: float, wobble: float = 0.0, seed: int = 0) -> dict[str, list[float]]:
    """k algorithms, each `gap` points below the one before it, on n sets of different difficulty."""
    generator = random.Random(seed)
    levels = [30 + 40 * i / max(1, n - 1) for i in range(n)]
    return {
        "abcdefgh"[j]: [round(max(2.0, 20 + level - gap * j + generator.gauss(0, wobble)), 3) for level in levels]
        for j in range(k)
    }


def _strict_sets(number: int) -> tuple[record.SetRecord, ...]:
    *others, before, last = sets_of(number)
    return (*others, replace(before, source_images="photos"), replace(last, made_by="styled", source_images="photos"))


def _trained_on(runs: tuple[LoggedRun, ...], name: str, data: str) -> tuple[LoggedRun, ...]:
    return tuple(replace(run, training_data={data: 1.0}) if run.algorithm == name else run for run in runs)


def _losses() -> tuple[LoggedRun, ...]:
    return tuple(
        replace(run, curves={**run.curves, "s5": [round(3 - 2 * value, 6) for value in run.curves["s5"]]})
        for run in runs_of(steps(4, 6, 9, 0.5))
    )


def _blocks() -> tuple[record.SetRecord, ...]:
    """Nine sets of six data sets: s0 to s2 are columns of one, s3 and s4 of another."""
    return tuple(
        replace(test_set, block="corrupted" if i < 3 else "painted" if i < 5 else "")
        for i, test_set in enumerate(sets_of(9))
    )


LOSS = (*sets_of(5), record.SetRecord("s5", "loss", 500, 10, 2.3, ("loss",), higher_is_better=False))

ALL = (
    Study(
        "a_winner_of_two_with_a_lower_mean",
        sets_of(8),
        runs_of({"a": [60 + i for i in range(7)] + [15], "b": [57 + i / 2 for i in range(7)] + [70]}),
        {"alpha": "0.3"},
    ),
    Study("mixed_units", LOSS, _losses()),
    Study("data_sets_of_several_columns", _blocks(), runs_of(steps(3, 9, 8, 1))),
    Study("a_strict_setting", _strict_sets(8), _trained_on(runs_of(steps(5, 8, 5, 2)), "b", "styled")),
    Study(
        "published_beside_own",
        sets_of(6),
        (
            *runs_of(steps(2, 6, 7, 1)),
            *(
                replace(run, published=True, curves={n: c[2:3] for n, c in run.curves.items()}, monitor=(0.4,))
                for run in runs_of(steps(3, 6, 5, 2, seed=3), start=10)
            ),
        ),
        {"with_published": "true", "study": "adhoc"},
    ),
)
