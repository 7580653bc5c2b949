"""What DomainBed's own code has left of a sweep, as tracked trials: all selection rules and `analyze` apply to them.

`read` takes a folder of its jobs, each with a `results.jsonl` (one JSON object for each record: `args`, `hparams`,
`step`, `env<i>_in_acc`, `env<i>_out_acc`), or a CSV with one accuracy a line. Domains get the names that they have
here, metrics those of the suite: of a held-out domain the in part is what is reported, the out part what the oracle
looks at; of a domain that trained the out part is validation.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.errors import UsageError
from biasbed.system.strict import LARGEST, parse_float, parse_int, parse_json
from biasbed.system.tables import read_lines

RESULTS, DONE = "results.jsonl", "done"
COLUMNS = ["dataset", "algorithm", "trial_seed", "hparams_seed", "test_envs", "step", "env", "split", "accuracy"]
ACCURACY = re.compile(r"env([0-9]{1,4})_(in|out)_acc")
NEEDED = {"dataset": str, "algorithm": str, "trial_seed": int, "hparams_seed": int, "test_envs": list}
SEEDS = ("trial_seed", "hparams_seed")
# Of a job's arguments those that tell nothing of what is trained, or that tell which of the sweep's jobs it is.
ASIDE = {*NEEDED, "data_dir", "output_dir", "seed", "checkpoint_freq", "save_model_every_checkpoint", "skip_model_save"}

Accuracies = dict[tuple[int, str], float]  # (number of the domain, in or out) -> fraction


@dataclass
class SweepJob:
    """One training of a sweep."""

    where: str  # the folder, in messages
    origin: str  # what tells it from other jobs with the same arguments
    dataset: str
    algorithm: str
    trial_seed: int
    hparams_seed: int
    test_envs: tuple[int, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)  # further ones
    hparams: Mapping[str, Any] = field(default_factory=dict)
    records: dict[int, Accuracies] = field(default_factory=dict)  # step -> what was measured
    losses: dict[int, float] = field(default_factory=dict)
    ended: int = 0  # milliseconds since 1970 of its last record
    is_done: bool = False

    @property
    def envs(self) -> tuple[int, ...]:
        """Numbers of all domains."""
        return tuple(sorted({env for accuracies in self.records.values() for env, _ in accuracies}))

    def check(self) -> None:
        """UsageError for a job without records, or whose records are not all of the same domains."""
        if not self.records:
            raise UsageError(f"{self.where}: has no records")
        every = {(env, part) for env in range(len(self.envs)) for part in ("in", "out")}
        for step, accuracies in self.records.items():
            if lost := sorted(every ^ set(accuracies)):
                raise UsageError(f"{self.where}: step {step} has no env{lost[0][0]}_{lost[0][1]}_acc, or has too many")
        if not self.test_envs or not {*self.test_envs} < {*self.envs}:
            raise UsageError(f"{self.where}: test_envs {[*self.test_envs]} of the domains {[*self.envs]}")


def read(source: Path) -> list[SweepJob]:
    """Every job; UsageError, of one line that says where, for a source that can't be read or is none."""
    jobs = _of_folder(source) if source.is_dir() else _of_csv(source)
    if not jobs:
        raise UsageError(f"source={source}: there is no {RESULTS} in any of its folders")
    last: dict[str, int] = {}
    for job in jobs:
        job.check()
        last[job.dataset] = max(last.get(job.dataset, 0), *job.records)
    for job in jobs:
        # Where nothing else says so, a job is done that came as far as any on its data set.
        steps = job.arguments.get("steps")
        job.is_done |= max(job.records) >= (steps - 1 if isinstance(steps, int) else last[job.dataset])
    return jobs


# --- results.jsonl ----------------------------------------------------------------------------------------------------


def _of_folder(source: Path) -> list[SweepJob]:
    files = sorted(source.rglob(RESULTS))
    try:
        return [_job(file, source) for file in files if file.stat().st_size]
    except OSError as error:
        raise UsageError(f"source={source}: {error.filename}: {error.strerror}") from None


def _job(file: Path, source: Path) -> SweepJob:
    job: SweepJob | None = None
    text = file.read_bytes().decode(errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{file}, line {number}"
        try:
            values = parse_json(line)
        except ValueError:
            raise UsageError(
                f"{where}: is no whole JSON object, as where a job was cut off: remove the line, or run the job again"
            ) from None
        args = values.get("args") if isinstance(values, dict) else None
        if not isinstance(args, dict) or not _is_whole(values.get("step")):
            raise UsageError(f"{where}: is no record of DomainBed (args, step, env0_in_acc, ...)")
        wrong = [name for name, kind in NEEDED.items() if type(args.get(name)) is not kind]
        wrong += [name for name in SEEDS if not _is_whole(args.get(name))]
        if wrong or not all(map(_is_whole, args["test_envs"])):
            raise UsageError(f"{where}: args.{(wrong or ['test_envs'])[0]} is missing, or not what it should be")
        job = job or _begun(file, source, args, values.get("hparams"))
        _add(job, where, values)
    if job is None:
        raise UsageError(f"{file}: has no records")
    return job


def _begun(file: Path, source: Path, args: Mapping[str, Any], hparams: Any) -> SweepJob:
    known = {name: args[name] for name in NEEDED if name != "test_envs"}
    return SweepJob(
        where=str(file),
        origin=file.parent.relative_to(source).as_posix(),
        **known,
        test_envs=tuple(sorted(args["test_envs"])),
        arguments={name: value for name, value in args.items() if name not in ASIDE},
        hparams=hparams if isinstance(hparams, dict) else {},
        ended=int(file.stat().st_mtime * 1000),
        is_done=(file.parent / DONE).exists(),
    )


def _add(job: SweepJob, where: str, values: Mapping[str, Any]) -> None:
    """A record; UsageError where it is there already or its accuracies are none."""
    step = values["step"]
    if step in job.records:
        raise UsageError(f"{where}: step {step} is there already: two jobs have written into one folder")
    found = {(int(m[1]), m[2]): value for name, value in values.items() if (m := ACCURACY.fullmatch(name))}
    for (env, part), value in found.items():
        if not _is_fraction(value):
            raise UsageError(f"{where}: env{env}_{part}_acc={str(value)[:20]}: should be from 0 to 1")
    job.records[step] = found
    # JSON's whole numbers have no end, and `math` takes none that is no float's.
    if isinstance(loss := values.get("loss"), int | float) and abs(loss) <= sys.float_info.max:
        job.losses[step] = float(loss)


def _is_whole(value: object) -> bool:
    """Return True for a whole number that a database keeps."""
    return type(value) is int and abs(value) <= LARGEST


def _is_fraction(value: object) -> bool:
    """Whether it can be an accuracy; one that is NaN was measured, too."""
    return isinstance(value, int | float) and (0 <= value <= 1 or (isinstance(value, float) and math.isnan(value)))


# --- CSV --------------------------------------------------------------------------------------------------------------


def _of_csv(source: Path) -> list[SweepJob]:
    jobs: dict[tuple[Any, ...], SweepJob] = {}
    lines = read_lines(source)
    number, head = next(lines, (1, []))
    if head != COLUMNS:
        raise UsageError(f"{source}, line {number}: should be {','.join(COLUMNS)}")
    ended = int(source.stat().st_mtime * 1000)
    for number, row in lines:
        _read_row(jobs, row, f"{source}, line {number}", ended)
    if not jobs:
        raise UsageError(f"source={source}: has no numbers")
    return list(jobs.values())


def _read_row(jobs: dict[tuple[Any, ...], SweepJob], row: Sequence[str], where: str, ended: int) -> None:
    try:
        dataset, algorithm, trial, hparams, envs, step, env, part, accuracy = row
        held_out = tuple(sorted(map(parse_int, envs.split())))
        key = (dataset, algorithm, parse_int(trial), parse_int(hparams), held_out)
        place, value = (parse_int(env), part), parse_float(accuracy)
        if part not in ("in", "out") or not _is_fraction(value):
            raise ValueError
        if key not in jobs:
            jobs[key] = SweepJob(f"{where} (and others of its job)", record.digest(list(key)), *key, ended=ended)
        accuracies = jobs[key].records.setdefault(parse_int(step), {})
    except ValueError:
        raise UsageError(
            f"{where}: '{','.join(row)[:60]}' should have whole numbers, in or out, and a fraction"
        ) from None
    if place in accuracies:
        raise UsageError(f"{where}: env{env}_{part}_acc of this job at step {step} is there already")
    accuracies[place] = value


# --- names ------------------------------------------------------------------------------------------------------------


def identifier(name: str, known: Iterable[str]) -> str:
    """What is called so here: of these names the one with the same letters (`GroupDRO`: group_dro), else its own."""
    letters = {re.sub(r"[^a-z0-9]", "", own): own for own in known}
    return letters.get(re.sub(r"[^a-z0-9]", "", name.lower()), record.slug(name))
