"""Jobs of a sweep as trials: their protocol, tags and metrics, and the file by which they are imported."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from biasbed import measures, record
from biasbed.errors import UsageError
from biasbed.holding_out import OUT, RULES, mean_of_training
from biasbed.published import cells, sweeps
from biasbed.published.sweeps import SweepJob
from biasbed.system import commands
from biasbed.tracking.archive import ArchivedRun, MetricRow, new_archive
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import resolve_uri

PAPER = "domainbed_iclr2021"  # whose tables name data sets, domains in their order, and methods
SUITE, EXPERIMENT = "domainbed", "biasbed-sweeps"
HOLDOUT = "holdout_fraction"  # the argument that says how large it is; `data.holdout` here


def import_sweep(source: str, study: str = "auto") -> int:
    """Makes trials of all jobs and returns how many were new; those that are there stay as they are.

    study: theirs; auto: `sweep_` and the source's name. Each study that is named has runs of its own.
    UsageError, before anything is made, for a source that is no
    whole sweep; Failure where the server fails.
    """
    from biasbed.tracking.import_runs import import_archive

    path = Path(source).expanduser()
    if not path.exists():
        raise UsageError(f"source={source}: there is no such file or folder, and no paper of this name")
    if path.suffix.lower() in (".yaml", ".yml"):
        raise UsageError(
            f"source={source}: a description of a paper is read from biasbed's own folder alone: put it and its CSV "
            f"into {Path(cells.__file__).parent} and give source={path.stem} (docs/published.md)"
        )
    jobs = sweeps.read(path)
    kept = _studies_of_trials(resolve_uri())
    if study == "auto":  # trials that are there already stay in their study
        identities = [_identity(job) for job in jobs]
        study = f"sweep_{record.slug(path.resolve().stem)}"
    else:
        identities = [_identity_in(job, study, kept) for job in jobs]
    studies = sorted({kept.get(identity, study) for identity in identities})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.zip"
        write(jobs, file, study, str(path.resolve()), identities)
        new = import_archive(str(file), listed=False)
    unfinished = sum(not job.is_done for job in jobs)
    print(f"{len(jobs)} jobs in all{f', {unfinished} of them unfinished' if unfinished else ''}")
    for name in studies:
        print(f"to analyse them: {commands.typed('analyze', {'study': name})}", flush=True)
    return new


def _studies_of_trials(uri: str) -> dict[str, str]:
    """Return the study of every imported trial on a server, keyed by the id that it was imported under."""
    tags = [run.data.tags for run in find_runs(uri, kind="trial")]
    return {own[record.ORIGIN_RUN]: own.get(record.STUDY, "") for own in tags if record.ORIGIN_RUN in own}


def write(
    jobs: Sequence[SweepJob], file: Path, study: str, source: str, identities: Sequence[str] | None = None
) -> None:
    """Write a file of runs, as `export` does; `identities` are their ids, one a job. Defaults to hashes of the jobs.

    Raises UsageError if jobs of one data set have unlike domains.
    """
    identities = [_identity(job) for job in jobs] if identities is None else identities
    paper = cells.read(PAPER)
    rows = {row for _, row in paper.cells}
    protocols: dict[str, record.Protocol] = {}
    with new_archive(file) as archive, tempfile.TemporaryDirectory() as empty:
        for number, (job, identity) in enumerate(zip(jobs, identities, strict=True)):
            known = protocols.setdefault(job.dataset, _protocol(job, paper.protocol))
            if len(known.sets) != 2 * len(job.envs):
                raise UsageError(f"{job.where}: has {len(job.envs)} domains, other jobs on {job.dataset} have others")
            artifacts = Path(empty) / str(number)
            artifacts.mkdir()
            (artifacts / record.PROTOCOL_FILE).write_text(known.to_json())
            algorithm = sweeps.identifier(job.algorithm, rows)
            archive.add_run(_run(job, identity, known, algorithm, study, source), list(_metrics(job, known)), artifacts)


def _protocol(job: SweepJob, paper: record.Protocol) -> record.Protocol:
    """What jobs on a data set are tested on, whatever they hold out; how many images there are they don't say."""
    data = sweeps.identifier(job.dataset, [entry.block for entry in paper.sets])
    known = [(entry.domain, entry.aliases) for entry in paper.sets if entry.block == data]
    if len(known) != len(job.envs):
        known = [(f"env{env}", ()) for env in job.envs]
    ins = [_set(data, domain, aliases) for domain, aliases in known]
    outs = [_set(data, domain, aliases, OUT) for domain, aliases in known]
    monitor = mean_of_training((entry.name, entry.domain) for entry in outs)
    return record.Protocol(
        suite=SUITE,
        sets=(*ins, *outs),
        training_sets=(data,),
        validation_sets=tuple(entry.name for entry in (*outs, *ins)),
        monitor=monitor.metric,
        step_unit="step",
        selection_rules=RULES,
        default_selection=RULES[0],
        derived=(monitor,),
    )


def _set(data: str, domain: str, aliases: tuple[str, ...], part: str = "") -> record.SetRecord:
    return record.SetRecord(
        name=f"{data}-{domain}{part}",
        headline="accuracy",
        images=0,
        classes=0,
        chance=0.0,
        measures=("accuracy",),
        block=data,
        domain=domain,
        aliases=aliases,
        counts=not part,
    )


def _domains(job: SweepJob, protocol: record.Protocol) -> list[str]:
    """Of the job's numbers, in their order."""
    return [entry.domain for entry in protocol.columns]


def _metrics(job: SweepJob, protocol: record.Protocol) -> Iterator[MetricRow]:
    """Every number of every record, and the monitor."""
    domains, data = _domains(job, protocol), protocol.training_sets[0]
    for step, accuracies in sorted(job.records.items()):
        outs = []
        for (env, part), value in sorted(accuracies.items()):
            phase = "test" if env in job.test_envs else "val"
            name = record.MetricName(phase, "accuracy", f"{data}-{domains[env]}{OUT if part == 'out' else ''}")
            outs += [value] if (phase, part) == ("val", "out") else []
            yield str(name), step, job.ended, value
        monitor = measures.derive("mean", outs)
        yield protocol.monitor, step, job.ended, math.nan if monitor is None else monitor
        if step in job.losses:
            yield "train/loss", step, job.ended, job.losses[step]


def _run(
    job: SweepJob, identity: str, protocol: record.Protocol, algorithm: str, study: str, source: str
) -> ArchivedRun:
    data, domains = protocol.training_sets[0], _domains(job, protocol)
    held_out = sorted(domains[env] for env in job.test_envs)
    further = {name: value for name, value in job.arguments.items() if name != HOLDOUT}
    settings = {
        **{name: value for name, value in further.items() if isinstance(value, int | float | str)},
        **({"data.holdout": job.arguments[HOLDOUT]} if HOLDOUT in job.arguments else {}),
        **{f"hparams.{name}": value for name, value in job.hparams.items()},
        "hparams_seed": job.hparams_seed,
    }
    # Alike within a search; what rules ask of its runs beyond that is theirs to say.
    trained = [data, algorithm, {name: value for name, value in further.items() if name != "steps"}]
    key = [*trained, job.trial_seed, job.hparams_seed, held_out]
    tags = {
        record.KIND: "trial",
        record.SUITE: SUITE,
        record.STUDY: study,
        record.PROTOCOL_HASH: protocol.hash,
        record.ALGORITHM: algorithm,
        record.SEED: str(job.trial_seed),
        record.TEST_DOMAINS: ",".join(held_out),
        record.CELL: "-".join((data, *held_out)),
        record.REPEAT: str(job.trial_seed),
        record.TRIAL: f"r{job.trial_seed}-{job.hparams_seed}",
        record.TRIAL_STATE: "complete" if job.is_done else "failed",
        record.SPACE: record.digest(trained),
        record.CONFIG_HASH: record.digest([*trained, job.hparams_seed]),
        record.RUN_KEY: record.digest(key),
        record.TESTED: protocol.tested,
        record.DATA_FINGERPRINT: record.digest([data]),
        record.PROVIDES: "domain",
        record.TRAINING_DATA: record.canonical_json({data: 1.0}),
        record.SCHEMA_TAG: record.SCHEMA,
        record.SOURCE: source,
    }
    return ArchivedRun(
        run_id=identity,
        server=source,
        name="-".join((algorithm, data, *held_out, f"r{job.trial_seed}", str(job.hparams_seed))),
        experiment=EXPERIMENT,
        status="FINISHED" if job.is_done else "KILLED",
        start_time=job.ended,
        end_time=job.ended,
        parent="",
        params={record.CONFIG_PARAMETER + name: _word(value) for name, value in settings.items()},
        tags=tags,
        inputs=[],
    )


def _word(value: object) -> str:
    return str(value)[:500]


def _identity(job: SweepJob) -> str:
    """The same wherever the sweep lies, another one where a job has gone on."""
    records = [
        [step, sorted((*place, repr(value)) for place, value in own.items())] for step, own in job.records.items()
    ]
    content = record.canonical_json([job.origin, job.is_done, records])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _identity_in(job: SweepJob, study: str, kept: Mapping[str, str]) -> str:
    """Return a job's id in a study that is named: another one if the job is a trial of another study already."""
    plain = _identity(job)
    if kept.get(plain, study) == study:
        return plain
    return hashlib.sha256(f"{plain} in {study}".encode()).hexdigest()[:32]
