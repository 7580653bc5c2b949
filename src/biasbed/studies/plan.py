"""Plan of a study: every run of its grid, checked before the first one starts.

Answers: Which runs does a study have, and what is done?
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from biasbed import algorithms, measures, record, registry, suites
from biasbed.algorithms import presets
from biasbed.config import Config
from biasbed.errors import NotApplicable, UsageError
from biasbed.settings import refuse_unknown
from biasbed.studies.cells import StudyCell, expand_cells
from biasbed.studies.launchers import Launcher
from biasbed.studies.study_table import Overrides, StudyTable
from biasbed.suites.name_conflicts import TestedCell, find_name_conflict
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.folder import RunFolder, evaluations, folder_for, home
from biasbed.training.identity import run_key
from biasbed.training.resolve import resolve

if TYPE_CHECKING:
    from biasbed.evaluation.models import TestedModel
    from biasbed.training.job import Job

T = TypeVar("T")
Records = Sequence[Mapping[str, Any]]  # of a journal: {"step", "timestamp", "metrics"}
Lacking = Mapping[str, Mapping[str, Sequence[str]]]  # row -> cell -> what the method needs and the data lack


def group_name(row: str, cell: str) -> str:
    """Return the name of a row in a cell."""
    return "-".join(filter(None, (row, cell)))


class RunIdentity(NamedTuple):
    """Identity of a study's run, equal on all machines. The same training under another name is another run."""

    group: str  # `group_name` of its row and cell
    run_key: str


@dataclass(frozen=True)
class PlannedRun:
    """Planned run of a study: a training, or a test of a model that is trained already."""

    algorithm: str
    row: str
    seed: int  # 0 if nothing is trained
    overrides: Overrides  # settings of the command that makes the run
    study: str
    config_hash: str
    run_key: str
    base: Path  # its folder, or the first of several (`folder_for`)
    monitor: str
    unit: str  # epoch or step, or test
    total: int  # number of units
    cadence: int  # units between two evaluations
    processes: int
    tracked: bool  # its results go to a server
    cell: str = ""  # data that it trains on, if the study has several cells
    kind: Literal["train", "evaluate"] = "train"  # the command that makes the run
    higher_is_better: bool = True  # of the monitor
    monitor_unit: str = measures.FRACTION
    label: str = ""  # its name, if that is not made of row, cell and seed
    environment: Mapping[str, str] = field(default_factory=dict)  # variables for its own training
    protocol: record.Protocol | None = None  # of a training
    test_domains: tuple[str, ...] = ()  # held out of training

    @property
    def name(self) -> str:
        if self.label:
            return self.label
        return f"{self.group}-seed{self.seed}" if self.kind == "train" else self.group

    @property
    def group(self) -> str:
        """Name of the run's row and cell, shared by all its seeds."""
        return group_name(self.row, self.cell)

    @property
    def identity(self) -> RunIdentity:
        return RunIdentity(self.group, self.run_key)

    def folder(self) -> RunFolder:
        """Return the folder in which it is or was trained."""
        return folder_for(self.base, "once", self.tracked, self.study)

    def reached(self, records: Records) -> int:
        """Return the number of epochs or steps that a journal's records show as finished; of a test, 0 or 1."""
        if self.kind != "train":
            return len(records)
        evaluated = evaluations(records)
        return int(evaluated[-1]["step"]) if evaluated else 0


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a study whose runs have all been checked, so that each could start."""

    table: StudyTable
    runs: tuple[PlannedRun, ...]
    config: Config  # of one of its runs
    workers: int
    left_out: tuple[str, ...] = ()  # sentences: which row has no run in which cell, and why
    lacking: Lacking = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # lines on the data

    @property
    def suite(self) -> str:
        """Name under which the suite's runs are filed."""
        return suites.identifier(self.config.suite)

    @property
    def folder(self) -> Path:
        """Folder of the study's own files."""
        return home(self.config) / "studies" / record.slug(self.table.study)


class CellPlans(NamedTuple, Generic[T]):
    """Plans of a row in its cells."""

    plans: dict[int, T]  # by index of the cell
    refusals: list[str]  # sentences: cells to which the row's method does not apply, and why
    lacking: dict[int, Sequence[str]]  # index of such a cell -> what its data lack


def plan_cells(row: str, cells: Sequence[StudyCell], plan: Callable[[StudyCell], T]) -> CellPlans[T]:
    """Plan a row in each cell. Raises UsageError if `plan` does, or if the row's method applies to no cell."""
    planned: CellPlans[T] = CellPlans({}, [], {})
    for index, cell in enumerate(cells):
        where = " in ".join(filter(None, (row, cell.name)))
        try:
            planned.plans[index] = plan(cell)
        except NotApplicable as error:
            planned.refusals.append(f"{where}: {error}")
            planned.lacking[index] = error.lacking
        except UsageError as error:
            raise error.with_place(where) from None
    if not planned.plans:
        raise UsageError(planned.refusals[0])
    return planned


def name_cells(lacking: Mapping[str, Mapping[int, Sequence[str]]], names: Mapping[int, str]) -> Lacking:
    """Replace the indices of cells in `lacking` by the names that runs give them.

    A cell without any run has no name, and no column in tables; it is left out.
    """
    named: dict[str, dict[str, Sequence[str]]] = {}
    for row, needs in lacking.items():
        if needs:
            named[row] = {names[index]: need for index, need in needs.items() if index in names}
    return named


class GridRun(NamedTuple):
    """Planned run and its indices in the grid, by which runs are ordered."""

    seed_index: int
    cell_index: int
    run: PlannedRun


def make_plan(table: StudyTable, launcher: Launcher, workers: int | str) -> StudyPlan:
    """Plan the grid of a table. Runs are ordered by seed, then by cell, so that early seeds are complete first.

    Raises UsageError if a run could not start, or would equal another run: nothing has been started then.
    """
    _announce(table)
    cells = expand_cells({**table.settings, "suite": registry.with_whole_path(table.suite)}, table.cells)
    grid: list[GridRun] = []
    configs: list[Config] = []
    left_out: list[str] = []
    lacking: dict[str, dict[int, Sequence[str]]] = {}
    tests: list[TestedCell] = []  # what trained rows are tested on
    remarks: dict[str, None] = {}  # in order, each once
    with ProgressBar(len(table.rows) * len(cells), "cell") as bar:
        for row in table.rows:
            models: dict[str, TestedModel] = {}  # a row that is only tested loads its model once
            planned = plan_cells(row, cells, functools.partial(_plan_cell, table, row, launcher, models, tests, bar))
            for index, cell_runs in planned.plans.items():
                configs.append(cell_runs.config)
                remarks |= dict.fromkeys(cell_runs.remarks)
                grid += [GridRun(seed_index, index, run) for seed_index, run in enumerate(cell_runs.runs)]
            left_out += planned.refusals
            lacking[row] = planned.lacking
    grid.sort(key=lambda planned: (planned.seed_index, planned.cell_index))
    runs = tuple(planned.run for planned in grid)
    _refuse_equal(runs)
    conflict = find_name_conflict(tests)
    if conflict:
        raise UsageError(conflict)
    if len({(str(home(config)), config.tracking) for config in configs}) > 1:
        raise UsageError("output_dir and tracking apply to the whole study: give them in its general settings")
    if workers == "auto":
        workers = min(map(launcher.capacity, configs))
    workers = min(int(workers), len(runs))
    cell_names = {planned.cell_index: planned.run.cell for planned in grid}
    lacking_by_cell = name_cells(lacking, cell_names)
    return StudyPlan(table, runs, configs[0], workers, tuple(left_out), lacking_by_cell, tuple(remarks))


class CellRuns(NamedTuple):
    """Runs of a row in a cell, one per seed, the config of the first, and the suite's remarks on its data."""

    config: Config
    runs: Sequence[PlannedRun]
    remarks: Sequence[str] = ()


def _plan_cell(
    table: StudyTable,
    row: str,
    launcher: Launcher,
    models: dict[str, TestedModel],
    tests: list[TestedCell],
    bar: ProgressBar,
    cell: StudyCell,
) -> CellRuns:
    """Plan the runs of a row in a cell. Adds the row's model to `models`, and what it is tested on to `tests`.

    Raises UsageError, or NotApplicable, if there can be no such runs.
    """
    bar.tick()
    settings = merge_settings(table, row, cell)
    if "model" in table.rows[row]:
        config, run = plan_test(settings, launcher, models)
        return CellRuns(config, [run])
    job, runs = plan_trainings(settings, table.seeds, launcher)
    tests.append(TestedCell(runs[0].group, job.cell, job.protocol, job.tested))
    chosen = table.chosen.get(row, {})
    if table.chosen_by and chosen and cell.name not in chosen:
        raise UsageError(
            f"the sweep '{table.chosen_by['study']}' was made in the cells {', '.join(chosen)}: leave them so"
        )
    return CellRuns(job.config, runs, job.suite.remarks)


def _announce(table: StudyTable) -> None:
    """Print what is planned, before anything is loaded."""
    rows = f"{len(table.rows)} {'row' if len(table.rows) == 1 else 'rows'}"
    seeds = f"{len(table.seeds)} {'seed' if len(table.seeds) == 1 else 'seeds'}"
    folder = table.settings.get("data_dir", "none")
    source = "" if folder == "none" else f", images in {folder}"
    print(f"{table.study}: planning {rows} with {seeds}{source}", flush=True)


def merge_settings(table: StudyTable, row: str, cell: StudyCell) -> dict[str, str]:
    """Return the settings of a row in a cell, without the seed: of `train`, or of `evaluate` if it is only tested.

    Raises UsageError for an unknown setting, and for one that both row and cell give.
    """
    overrides = table.rows[row]
    both = sorted(set(overrides) & set(cell.overrides))
    if both:
        raise UsageError(f"{both[0]} is a setting of the row and of the cell, too: leave one out")
    chosen = table.chosen.get(row, {}).get(cell.name, {})
    settings = {**table.settings, **overrides, **cell.overrides, **chosen}
    settings |= {"suite": registry.with_whole_path(table.suite), "study": table.study}
    if "model" in overrides:
        return _select_test_settings({**settings, "row": row}, overrides)
    settings["algorithm"] = registry.with_whole_path(overrides["algorithm"])
    if row != algorithms.identifier(overrides["algorithm"]):
        settings["row"] = row
    return settings


def _refuse_equal(runs: Iterable[PlannedRun]) -> None:
    """Raise UsageError if two runs are the same, or have the same name."""
    by_key: dict[str, PlannedRun] = {}
    by_name: dict[str, PlannedRun] = {}
    for run in runs:
        first = by_key.setdefault(run.run_key, run)
        if first is not run:
            raise UsageError(f"{first.name} and {run.name} are the same run under two names: leave one out")
        if by_name.setdefault(run.name, run) is not run:
            raise UsageError(f"two runs would be called {run.name}: rename a row or a cell")


class PlannedTrainings(NamedTuple):
    """Trainings of a row in a cell, one per seed, and the job of the first."""

    job: Job
    runs: list[PlannedRun]


def plan_trainings(settings: Overrides, seeds: Sequence[int], launcher: Launcher) -> PlannedTrainings:
    """Plan the trainings of a row in a cell, one per seed.

    Only the first is checked: the others differ in nothing but their seed. Raises UsageError if they could not start,
    NotApplicable if the data lack what the method needs.
    """
    from biasbed.training import job

    config = launcher.resolve_device(resolve({**settings, "seed": str(seeds[0])}))
    settings = {**settings, "device": config.device, "nproc": str(config.nproc), "resume": "once"}
    first = job.plan(config)
    runs = []
    for seed in seeds:
        seeded = dataclasses.replace(config, seed=seed)
        key = run_key(seeded, first.config_hash)
        runs.append(
            PlannedRun(
                algorithm=first.algorithm,
                row=first.row,
                cell=first.cell,
                seed=seed,
                overrides={**settings, "seed": str(seed)},
                study=config.study,
                config_hash=first.config_hash,
                run_key=key,
                base=dataclasses.replace(first, config=seeded, run_key=key).base,
                monitor=first.suite.monitor,
                higher_is_better=first.protocol.monitor_higher_is_better,
                monitor_unit=measures.describe_metric(first.protocol, first.suite.monitor).unit,
                unit=config.unit,
                total=config.steps or config.epochs or 0,
                cadence=config.cadence,
                processes=int(config.nproc),
                tracked=config.tracking == "on",
                protocol=first.protocol,
                test_domains=tuple(first.test_domains),
            )
        )
    return PlannedTrainings(first, runs)


class PlannedTest(NamedTuple):
    """Test of a row's model in a cell, and its config."""

    config: Config
    run: PlannedRun


def plan_test(settings: Overrides, launcher: Launcher, models: dict[str, TestedModel]) -> PlannedTest:
    """Plan the run of a row that is only tested, in one cell.

    models: keyed by row; the row's model is added if it is missing. Raises UsageError if the run could not start.
    """
    from biasbed.evaluation import command, evaluate_model

    options, flags = command.read(settings)
    if command.split_files(options.model):
        raise UsageError(f"model={options.model}: a row is a model, and this is a file of decisions")
    row = settings["row"]
    if row not in models:
        models[row] = evaluate_model.load(options, flags)
    plan = evaluate_model.plan(options, flags, models[row])
    job = plan.job
    config = launcher.resolve_device(job.config)
    run = PlannedRun(
        algorithm=job.algorithm,
        row=job.row,
        cell=job.cell,
        kind="evaluate",
        seed=0,
        overrides={**settings, "device": config.device, "nproc": str(config.nproc), "resume": "once"},
        study=job.config.study,
        config_hash=job.config_hash,
        run_key=job.run_key,
        base=job.base,
        monitor=plan.suite.monitor,
        unit="test",
        total=1,
        cadence=1,
        processes=int(config.nproc),
        tracked=not job.is_offline,
    )
    return PlannedTest(config, run)


def _select_test_settings(settings: Overrides, overrides: Overrides) -> dict[str, str]:
    """Select the settings of `evaluate` for a row in a cell, out of all settings of the study.

    A trained model has its own image size and preprocessing, so general settings of the study about these are left
    out. overrides: the row's own settings. Raises UsageError if one of them is unknown.
    """
    from biasbed.evaluation import command

    names = command.settings(settings["suite"])
    for name in overrides:
        refuse_unknown(name, names, f"{name} is no setting of a row that is only tested")
    selected: dict[str, str] = {}
    for name, value in settings.items():
        is_fixed = name in command.OWN or name == "preset" or presets.is_within(name, presets.TESTING)
        if name in overrides or (name in names and not is_fixed):
            selected[name] = command.with_absolute_path(name, value)
    return selected
