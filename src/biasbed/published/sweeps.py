"""Reader of sweeps by DomainBed's own code.

`read_sweep` takes a folder of jobs, each with a `results.jsonl` (one JSON object for each record: `args`, `hparams`,
`step`, `env<i>_in_acc`, `env<i>_out_acc`), or a CSV with one accuracy a line. The jobs become tracked trials
(`sweep_runs`), to which all selection rules and `analyze` apply.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from biasbed import record
from biasbed.errors import UsageError
from biasbed.system import formats
from biasbed.system.csv_tables import read_lines
from biasbed.system.strict import LARGEST, parse_float, parse_int, parse_json, read_text

RESULTS, DONE = "results.jsonl", "done"
COLUMNS = ["dataset", "algorithm", "trial_seed", "hparams_seed", "test_envs", "step", "env", "split", "accuracy"]
ACCURACY = re.compile(r"env([0-9]{1,4})_(in|out)_acc")
StoredInt = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]  # that a database can store


class _Arguments(TypedDict):
    """Arguments that every job has; it may have others."""

    dataset: str
    algorithm: str
    trial_seed: StoredInt
    hparams_seed: StoredInt
    test_envs: list[StoredInt]


class _Record(TypedDict):
    """Entries that every record has; others are its accuracies and losses."""

    args: _Arguments
    step: StoredInt


NEEDED = tuple(_Arguments.__annotations__)
# Arguments of a job that do not affect the training, or that identify the job within its sweep.
IGNORED = {
    *NEEDED,
    "data_dir",
    "output_dir",
    "seed",
    "checkpoint_freq",
    "save_model_every_checkpoint",
    "skip_model_save",
}

Accuracies = dict[tuple[int, str], float]  # (number of the domain, in or out) -> fraction


@dataclass
class SweepJob:
    """One training of a sweep."""

    where: str  # the folder, in messages
    origin: str  # distinguishes it from other jobs with the same arguments
    dataset: str
    algorithm: str
    trial_seed: int
    hparams_seed: int
    test_envs: tuple[int, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)  # further arguments
    hparams: Mapping[str, Any] = field(default_factory=dict)
    records: dict[int, Accuracies] = field(default_factory=dict)  # by step
    losses: dict[int, float] = field(default_factory=dict)  # by step
    ended: int = 0  # time of its last record, in milliseconds since 1970
    is_done: bool = False

    @property
    def envs(self) -> tuple[int, ...]:
        """Numbers of all domains."""
        keys = itertools.chain.from_iterable(self.records.values())
        return tuple(sorted({env for env, _ in keys}))

    def check(self) -> None:
        """Raise ValueError if its records differ in their domains, or if it holds out none or all."""
        expected = set(itertools.product(range(len(self.envs)), ("in", "out")))
        for step, accuracies in self.records.items():
            differing = sorted(expected ^ set(accuracies))
            if differing:
                env, part = differing[0]
                raise ValueError(f"step {step} has no env{env}_{part}_acc, or has too many")
        if not self.test_envs or not {*self.test_envs} < {*self.envs}:
            raise ValueError(f"test_envs {[*self.test_envs]} of the domains {[*self.envs]}")


def read_sweep(source: Path) -> list[SweepJob]:
    """Return every job of a sweep. Raises UsageError with one line, which names the place, if it can't be read."""
    jobs = _read_folder(source) if source.is_dir() else _read_csv(source)
    if not jobs:
        raise UsageError(f"source={source}: there are no numbers: no {RESULTS} in its folders, no lines of a CSV")
    last_steps: dict[str, int] = {}
    for job in jobs:
        try:
            job.check()
        except ValueError as error:
            raise UsageError(f"{job.where}: {error}") from None
        last_steps[job.dataset] = max(last_steps.get(job.dataset, 0), *job.records)
    for job in jobs:
        # Without a number of steps, a job is done if it came as far as any other on its data set.
        steps = job.arguments.get("steps")
        last = steps - 1 if isinstance(steps, int) else last_steps[job.dataset]
        job.is_done |= max(job.records) >= last
    return jobs


# --- results.jsonl ----------------------------------------------------------------------------------------------------


def _read_folder(source: Path) -> list[SweepJob]:
    """Read every job below a folder."""
    files = sorted(source.rglob(RESULTS))
    return [_read_job(file, source) for file in files if file.stat().st_size]


def _read_job(file: Path, source: Path) -> SweepJob:
    """Read a `results.jsonl` of DomainBed: a JSON object a line, each an evaluation of the same job."""
    job: SweepJob | None = None
    for number, line in enumerate(read_text(file, errors="replace").splitlines(), start=1):
        try:
            values = parse_json(line)
            formats.check(_Record, values)
            job = job or _make_job(file, source, values["args"], values.get("hparams"))
            _add_record(job, values)
        except ValueError as error:
            advice = "if the job was cut off there, remove the line, or run the job again"
            raise UsageError(f"{file}, line {number}: is no record of DomainBed ({error}): {advice}") from None
    assert job is not None  # the file is not empty
    return job


def _make_job(file: Path, source: Path, args: Mapping[str, Any], hparams: Any) -> SweepJob:
    """Return a job without records."""
    return SweepJob(
        where=str(file),
        origin=file.parent.relative_to(source).as_posix(),
        **{name: args[name] for name in NEEDED if name != "test_envs"},
        test_envs=tuple(sorted(args["test_envs"])),
        arguments={name: value for name, value in args.items() if name not in IGNORED},
        hparams=hparams if isinstance(hparams, dict) else {},
        ended=int(file.stat().st_mtime * 1000),
        is_done=(file.parent / DONE).exists(),
    )


def _add_record(job: SweepJob, values: Mapping[str, Any]) -> None:
    """Add a record to its job. Raises ValueError if its step exists already, or an accuracy is not a fraction."""
    step = values["step"]
    if step in job.records:
        raise ValueError(f"step {step} is there already: two jobs have written into one folder")
    accuracies: Accuracies = {}
    for name, value in values.items():
        match = ACCURACY.fullmatch(name)
        if match is None:
            continue
        if not _is_fraction(value):
            raise ValueError(f"{name}={str(value)[:20]}: should be from 0 to 1")
        accuracies[int(match[1]), match[2]] = value
    job.records[step] = accuracies
    loss = values.get("loss")
    # An integer of JSON may be too large for a float.
    if isinstance(loss, int | float) and abs(loss) <= sys.float_info.max:
        job.losses[step] = float(loss)


def _is_fraction(value: object) -> bool:
    """Return True for a number from 0 to 1, and for NaN, as which an accuracy may be recorded."""
    if isinstance(value, float) and math.isnan(value):
        return True
    return isinstance(value, int | float) and 0 <= value <= 1


# --- CSV --------------------------------------------------------------------------------------------------------------


def _read_csv(source: Path) -> list[SweepJob]:
    """Read the jobs in a CSV file with the columns `COLUMNS`."""
    jobs: dict[tuple[Any, ...], SweepJob] = {}
    lines = read_lines(source)
    number, head = next(lines, (1, []))
    if head != COLUMNS:
        raise UsageError(f"{source}, line {number}: should be {','.join(COLUMNS)}")
    ended = int(source.stat().st_mtime * 1000)
    for number, row in lines:
        _read_row(jobs, row, f"{source}, line {number}", ended)
    return list(jobs.values())


def _read_row(jobs: dict[tuple[Any, ...], SweepJob], row: Sequence[str], where: str, ended: int) -> None:
    """Add a row of a CSV file of accuracies to its job. Raise UsageError for one that is there already."""
    try:
        dataset, algorithm, trial, hparams, envs, step, env, part, accuracy = row
        held_out = tuple(sorted(map(parse_int, envs.split())))
        key = (dataset, algorithm, parse_int(trial), parse_int(hparams), held_out)
        env_part, value = (parse_int(env), part), parse_float(accuracy)
        if part not in ("in", "out") or not _is_fraction(value):
            raise ValueError
        if key not in jobs:
            jobs[key] = SweepJob(f"{where} (and others of its job)", record.digest(list(key)), *key, ended=ended)
        accuracies = jobs[key].records.setdefault(parse_int(step), {})
        if env_part in accuracies:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{where}: '{','.join(row)[:60]}' should have whole numbers, in or out, and a fraction, once for each"
        ) from None
    accuracies[env_part] = value


# --- names ------------------------------------------------------------------------------------------------------------


def match_name(name: str, names: Iterable[str]) -> str:
    """Return the name in `names` with the same letters and digits (`GroupDRO`: group_dro), else the name's slug."""
    by_letters = {re.sub(r"[^a-z0-9]", "", candidate): candidate for candidate in names}
    return by_letters.get(re.sub(r"[^a-z0-9]", "", name.lower()), record.slug(name))
