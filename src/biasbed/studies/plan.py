"""What a study consists of, how far each of its runs is, and how long the rest will take."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from biasbed import algorithms, measures, record, registry, suites
from biasbed.algorithms import recipes
from biasbed.config import Config
from biasbed.errors import NotApplicable, UsageError
from biasbed.settings import nearest
from biasbed.studies.cells import StudyCell, expand
from biasbed.studies.launchers import Launcher
from biasbed.studies.table import StudyTable, Words
from biasbed.suites.name_conflicts import TestedCell, find_name_conflict
from biasbed.tracking.folder import RunFolder, evaluations, folder_for, home
from biasbed.training.resolve import resolve, run_key

if TYPE_CHECKING:
    from biasbed.evaluation.models import TestedModel
    from biasbed.training.job import Job

MOST_RUNS = 100_000  # of a study: each is checked before the first starts
Records = Sequence[Mapping[str, Any]]  # of a journal: {"step", "timestamp", "metrics"}


def place_of(row: str, cell: str) -> str:
    """A row in a cell, as one name."""
    return "-".join(filter(None, (row, cell)))


@dataclass(frozen=True)
class PlannedRun:
    """One training of a study, or one test of a model that is trained already."""

    algorithm: str
    row: str  # what it is one of
    seed: int  # 0 where nothing is trained
    words: Words  # the settings of the command that makes it
    study: str
    config_hash: str
    run_key: str
    base: Path  # its folder, or the first of several (`folder_for`)
    monitor: str
    unit: str  # epoch or step, or test
    total: int  # of these units
    cadence: int  # of these units between two evaluations
    processes: int
    tracked: bool  # whether its results go to a server
    cell: str = ""  # what it trains on, where several such things are told apart
    kind: Literal["train", "evaluate"] = "train"  # which command makes it
    higher_is_better: bool = True  # of the monitor
    monitor_unit: str = measures.FRACTION
    label: str = ""  # its name, where that is not made of row, cell and seed
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of its own training

    @property
    def name(self) -> str:
        return self.label or (f"{self.place}-seed{self.seed}" if self.kind == "train" else self.place)

    @property
    def place(self) -> str:
        """Row and cell, of which all seeds are runs."""
        return place_of(self.row, self.cell)

    @property
    def identity(self) -> tuple[str, str]:
        """What is the same on all machines: place and key. One training under another name is another run."""
        return self.place, self.run_key

    def folder(self) -> RunFolder:
        """Where it is trained, or has been."""
        return folder_for(self.base, "once", self.tracked, self.study)

    def reached(self, records: Records) -> int:
        """How many units it has behind it by its journal, which of a test has one record in the end."""
        if self.kind != "train":
            return len(records)
        found = evaluations(records)
        return int(found[-1]["step"]) if found else 0


@dataclass(frozen=True)
class StudyPlan:
    """A study, checked: every run could start."""

    table: StudyTable
    runs: tuple[PlannedRun, ...]
    config: Config  # of one of its runs
    workers: int
    left_out: tuple[str, ...] = ()  # which row has no run in which cell, and why
    lacking: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)  # the same as the runs have names

    @property
    def suite(self) -> str:
        """What its suite's runs are filed under."""
        return suites.identifier(self.config.suite)

    @property
    def folder(self) -> Path:
        """Of what is kept about the study as a whole."""
        return home(self.config) / "studies" / record.slug(self.table.study)


def make_plan(table: StudyTable, launcher: Launcher, workers: int | str) -> StudyPlan:
    """The grid of a table, seed by seed and in each cell by cell, so that an unfinished study has its first seeds.

    Raises UsageError where a run could not start, or would be the same as another: nothing has been started then.
    """
    from biasbed.data.folders import opened_once

    if not table.rows or not table.seeds:
        raise UsageError("the study is empty: give algorithms and seeds")
    runs: list[tuple[int, int, PlannedRun]] = []  # with the places of seed and cell in their order
    configs: list[Config] = []
    left_out: list[str] = []
    lacking: dict[str, dict[int, Sequence[str]]] = {}  # by row and place of the cell
    tests: list[TestedCell] = []
    cells = expand({**table.settings, "suite": registry.settled(table.suite)}, table.cells)
    _refuse_many(table, cells)

    with opened_once():
        for row in table.rows:
            refusals: list[str] = []
            known: dict[str, TestedModel] = {}  # of a row that is tested, its model, which is loaded once
            for place, cell in enumerate(cells):
                where = " in ".join(filter(None, (row, cell.name)))
                try:
                    config, planned = _runs_in(table, row, cell, launcher, known, tests)
                except NotApplicable as error:
                    refusals.append(f"{where}: {error}")
                    lacking.setdefault(row, {})[place] = error.lacking
                    continue
                except UsageError as error:
                    raise type(error)(f"{where}: {error}") from None
                configs.append(config)
                runs += [(at, place, run) for at, run in enumerate(planned)]
            if len(refusals) == len(cells):
                raise UsageError(refusals[0])
            left_out += refusals
    ordered = tuple(run for *_, run in sorted(runs, key=lambda entry: entry[:2]))
    _refuse_equal(ordered)
    if reason := find_name_conflict(tests):
        raise UsageError(reason)
    homes = {str(home(config)) for config in configs}
    if len(homes) > 1 or len({config.tracking for config in configs}) > 1:
        raise UsageError("output_dir and tracking are the whole study's: give them in its general settings")
    fitting = min(launcher.capacity(config) for config in configs) if workers == "auto" else int(workers)
    named = {place: run.cell for _, place, run in runs}  # a cell without any run has no column either
    by_name = {row: {named[at]: what for at, what in own.items() if at in named} for row, own in lacking.items()}
    return StudyPlan(table, ordered, configs[0], min(fitting, len(ordered)), tuple(left_out), by_name)


def _runs_in(
    table: StudyTable,
    row: str,
    cell: StudyCell,
    launcher: Launcher,
    known: dict[str, TestedModel],
    tests: list[TestedCell],
) -> tuple[Config, Sequence[PlannedRun]]:
    """The config of a row's runs in a cell, and these. UsageError, or NotApplicable, where there can be none.

    tests: what trained rows are tested on, which is added to.
    """
    words = words_of(table, row, cell)
    if "model" in table.rows[row]:
        config, run = test_of(words, launcher, known)
        return config, [run]
    job, runs = runs_of(words, table.seeds, launcher)
    tests.append(TestedCell(runs[0].place, job.cell, job.protocol, job.tested))
    chosen = table.chosen.get(row, {})
    if table.chosen_by and chosen and cell.name not in chosen:
        raise UsageError(
            f"the sweep '{table.chosen_by['study']}' was made in the cells {', '.join(chosen)}: leave them so"
        )
    return job.config, runs


def _refuse_many(table: StudyTable, cells: Sequence[StudyCell]) -> None:
    """UsageError for more runs than anybody means."""
    trained, tested = len(table.methods), len(table.rows) - len(table.methods)
    number = len(cells) * (trained * len(table.seeds) + tested)
    if number > MOST_RUNS:
        raise UsageError(
            f"{len(table.rows)} rows in {len(cells)} cells with {len(table.seeds)} seeds are {number:,} runs, more "
            f"than {MOST_RUNS:,}: make several studies of them"
        )


def words_of(table: StudyTable, row: str, cell: StudyCell) -> dict[str, str]:
    """The settings of `train`, or of a model that is only tested those of `evaluate`, of a row in a cell, seed aside.

    UsageError for one that is no such setting, or is there twice.
    """
    own = table.rows[row]
    if both := sorted(set(own) & set(cell.words)):
        raise UsageError(f"{both[0]} is a setting of the row and of the cell, too: leave one out")
    words = {**table.settings, **own, **cell.words, **table.chosen.get(row, {}).get(cell.name, {})}
    words |= {"suite": registry.settled(table.suite), "study": table.study}
    if "model" in own:
        return _of_tests({**words, "row": row}, own)
    words["algorithm"] = registry.settled(own["algorithm"])
    return words if row == algorithms.identifier(own["algorithm"]) else {**words, "row": row}


def _refuse_equal(runs: Iterable[PlannedRun]) -> None:
    """UsageError for two runs that are the same, or that have one name."""
    keys: dict[str, PlannedRun] = {}
    names: dict[str, PlannedRun] = {}
    for run in runs:
        other = keys.setdefault(run.run_key, run)
        if other is not run:
            raise UsageError(f"{other.name} and {run.name} are the same run under two names: leave one out")
        if names.setdefault(run.name, run) is not run:
            raise UsageError(f"two runs would be called {run.name}: rename a row or a cell")


def runs_of(words: Words, seeds: Sequence[int], launcher: Launcher) -> tuple[Job, list[PlannedRun]]:
    """The trainings of one row in one cell, and the job of the first. They share a config_hash: images are listed once.

    Raises UsageError where they could not start, NotApplicable where the data lack what the method needs.
    """
    from biasbed.training import job

    config = launcher.settle(resolve({**words, "seed": str(seeds[0])}))
    words = {**words, "device": config.device, "nproc": str(config.nproc), "resume": "once"}
    first = job.plan(config)
    runs = []
    for seed in seeds:
        own = dataclasses.replace(config, seed=seed)
        key = run_key(own, first.config_hash)
        runs.append(
            PlannedRun(
                algorithm=first.algorithm,
                row=first.row,
                cell=first.cell,
                seed=seed,
                words={**words, "seed": str(seed)},
                study=config.study,
                config_hash=first.config_hash,
                run_key=key,
                base=dataclasses.replace(first, config=own, run_key=key).base,
                monitor=first.suite.monitor,
                higher_is_better=first.protocol.monitor_higher_is_better,
                monitor_unit=measures.described(first.protocol, first.suite.monitor).unit,
                unit=config.unit,
                total=config.steps or config.epochs or 0,
                cadence=config.cadence,
                processes=int(config.nproc),
                tracked=config.tracking == "on",
            )
        )
    return first, runs


def test_of(words: Words, launcher: Launcher, known: dict[str, TestedModel]) -> tuple[Config, PlannedRun]:
    """The one run of a row that is only tested, in one cell, and its config.

    known: the row's model, which is added where it is missing. UsageError where it could not start.
    """
    from biasbed.evaluation import command, evaluate_model, recorded

    options, given = command.read(words)
    if recorded.files(options.model):
        raise UsageError(f"model={options.model}: a row is a model, and this is a file of decisions")
    row = words["row"]
    known[row] = known.get(row) or evaluate_model.load(options, given)
    found = evaluate_model.plan(options, given, known[row])
    config = launcher.settle(found.config)
    run = found.run
    return config, PlannedRun(
        algorithm=run.algorithm,
        row=run.row,
        cell=run.cell,
        kind="evaluate",
        seed=0,
        words={**words, "device": config.device, "nproc": str(config.nproc), "resume": "once"},
        study=run.study,
        config_hash=run.config_hash,
        run_key=run.run_key,
        base=run.base,
        monitor=found.suite.monitor,
        unit="test",
        total=1,
        cadence=1,
        processes=int(config.nproc),
        tracked=not run.offline,
    )


def _of_tests(words: Words, own: Words) -> dict[str, str]:
    """The settings of `evaluate` among those of a row in a cell. own: the row's; UsageError for one that is none.

    A model that is trained already has its own size of images and its own preprocessing: of the study's general
    settings it is told which images there are and how the work is done, not what trainings do with their images.
    """
    from biasbed.evaluation import command

    known = command.settings(words["suite"])
    for name in own:
        if name not in known:
            raise UsageError(f"{name} is no setting of a row that is only tested{nearest(name, known)}")
    shared = {name for name in known if name not in command.OWN and not recipes.within(name, recipes.TESTING)}
    told = {name: value for name, value in words.items() if name in own or name in shared - {"preset"}}
    return {name: command.settled(name, value) for name, value in told.items()}
