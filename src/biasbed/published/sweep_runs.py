"""Import of DomainBed's sweeps as trials: protocol, tags and metrics of each job.

Domains and methods get biasbed's names. For a held-out domain the in part is reported, and the oracle uses the out
part. The out part of a training domain validates.

Answers: How does a sweep of DomainBed's own code come here?
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from biasbed import derived_values, record
from biasbed.errors import UsageError
from biasbed.published import printed_tables, sweeps
from biasbed.published.sweeps import SweepJob
from biasbed.system import commands
from biasbed.tracking.archive import ArchivedRun, new_archive
from biasbed.tracking.metric_histories import MetricRow
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import resolve_uri

PAPER = "domainbed_iclr2021"  # paper whose description names data sets, domains in order, and methods
SUITE, EXPERIMENT = "domainbed", "biasbed-sweeps"
HOLDOUT = "holdout_fraction"  # DomainBed's name of `data.holdout`


def import_sweep(source: str, study: str = "auto") -> int:
    """Import all jobs as trials and return how many were new; existing ones are not changed.

    study: of the trials; auto: `sweep_` and the source's name. Each study that is named has runs of its own. Raises
    UsageError, before anything is imported, if the source is not a complete sweep, Failure if the server fails.
    """
    from biasbed.tracking.transfer import import_archive

    path = Path(source).expanduser()
    jobs = sweeps.read_sweep(path)
    existing = _studies_of_trials(resolve_uri())
    if study == "auto":  # existing trials stay in their study
        identities = [_hash_job(job) for job in jobs]
        study = f"sweep_{record.slug(path.resolve().stem)}"
    else:
        identities = [_hash_job_in(job, study, existing) for job in jobs]
    studies = sorted({existing.get(identity, study) for identity in identities})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.zip"
        write_archive(jobs, file, study, str(path.resolve()), identities)
        new = import_archive(str(file), listed=False)
    unfinished = sum(not job.is_done for job in jobs)
    remark = f", {unfinished} of them unfinished" if unfinished else ""
    print(f"{len(jobs)} jobs in all{remark}")
    for name in studies:
        print(f"to analyse them: {commands.format_command('analyze', {'study': name})}", flush=True)
    return new


def _studies_of_trials(uri: str) -> dict[str, str]:
    """Return the study of every imported trial on a server, keyed by the id that it was imported under."""
    studies = {}
    for run in find_runs(uri, kind="trial"):
        if record.ORIGIN_RUN in run.data.tags:
            studies[run.data.tags[record.ORIGIN_RUN]] = run.data.tags.get(record.STUDY, "")
    return studies


def write_archive(
    jobs: Sequence[SweepJob], file: Path, study: str, source: str, identities: Sequence[str] | None = None
) -> None:
    """Write the jobs as an archive of runs, as `export` does. identities: their ids; by default hashes of the jobs.

    Raises UsageError if jobs on one data set have different domains.
    """
    identities = [_hash_job(job) for job in jobs] if identities is None else identities
    paper = printed_tables.read(PAPER)
    rows = {row for _, row in paper.cells}
    protocols: dict[str, record.Protocol] = {}
    with new_archive(file) as archive, tempfile.TemporaryDirectory() as empty:
        for number, (job, identity) in enumerate(zip(jobs, identities, strict=True)):
            protocol = protocols.setdefault(job.dataset, _make_protocol(job, paper.protocol))
            if len(protocol.sets) != 2 * len(job.envs):
                raise UsageError(f"{job.where}: has {len(job.envs)} domains, other jobs on {job.dataset} have others")
            artifacts = Path(empty) / str(number)
            artifacts.mkdir()
            (artifacts / record.PROTOCOL_FILE).write_text(protocol.to_json())
            algorithm = sweeps.match_name(job.algorithm, rows)
            run = _make_run(job, identity, protocol, algorithm, study, source)
            archive.add_run(run, list(_list_metrics(job, protocol)), artifacts)


def _make_protocol(job: SweepJob, paper: record.Protocol) -> record.Protocol:
    """Return the protocol of the jobs on a data set, whatever they hold out. Numbers of images are unknown."""
    data = sweeps.match_name(job.dataset, [column.block for column in paper.sets])
    domains = [(column.domain, column.aliases) for column in paper.sets if column.block == data]
    if len(domains) != len(job.envs):
        domains = [(f"env{env}", ()) for env in job.envs]
    ins = [_make_set(data, domain, aliases) for domain, aliases in domains]
    outs = [_make_set(data, domain, aliases, record.OUT_PART) for domain, aliases in domains]
    monitor = record.mean_of_training_domains((part.name, part.domain) for part in outs)
    return record.Protocol(
        suite=SUITE,
        sets=(*ins, *outs),
        training_sets=(data,),
        validation_sets=tuple(part.name for part in (*outs, *ins)),
        monitor=monitor.metric,
        step_unit="step",
        selection_rules=record.DOMAIN_RULES,
        default_selection=record.DOMAIN_RULES[0],
        derived=(monitor,),
    )


def _make_set(data: str, domain: str, aliases: tuple[str, ...], part: str = "") -> record.SetRecord:
    """Return the record of a domain as a set. part: `record.OUT_PART` for its out part."""
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


def _list_domains(protocol: record.Protocol) -> list[str]:
    """Return the domains of the protocol, in the order of the job's environments."""
    return [column.domain for column in protocol.columns]


def _list_metrics(job: SweepJob, protocol: record.Protocol) -> Iterator[MetricRow]:
    """Yield the rows of every record: accuracies, the monitor and the loss."""
    domains, data = _list_domains(protocol), protocol.training_sets[0]
    for step, accuracies in sorted(job.records.items()):
        outs = []
        for (env, part), value in sorted(accuracies.items()):
            phase = "test" if env in job.test_envs else "val"
            ending = record.OUT_PART if part == "out" else ""
            name = record.MetricName(phase, "accuracy", f"{data}-{domains[env]}{ending}")
            if (phase, part) == ("val", "out"):
                outs.append(value)
            yield str(name), step, job.ended, value
        monitor = derived_values.derive("mean", outs)
        yield protocol.monitor, step, job.ended, math.nan if monitor is None else monitor
        if step in job.losses:
            yield "train/loss", step, job.ended, job.losses[step]


def _make_run(
    job: SweepJob, identity: str, protocol: record.Protocol, algorithm: str, study: str, source: str
) -> ArchivedRun:
    """Return a job of DomainBed's sweep as a trial: its settings as parameters, its split and seeds as tags."""
    data, domains = protocol.training_sets[0], _list_domains(protocol)
    held_out = sorted(domains[env] for env in job.test_envs)
    arguments = dict(job.arguments)
    holdout = arguments.pop(HOLDOUT, None)
    settings = {name: value for name, value in arguments.items() if isinstance(value, int | float | str)}
    if HOLDOUT in job.arguments:
        settings["data.holdout"] = holdout
    for name, value in job.hparams.items():
        settings[f"hparams.{name}"] = value
    settings["hparams_seed"] = job.hparams_seed
    arguments.pop("steps", None)
    trained = [data, algorithm, arguments]  # equal for all runs of a search
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
        params={record.CONFIG_PARAMETER + name: _shorten(value) for name, value in settings.items()},
        tags=tags,
        inputs=[],
    )


def _shorten(value: object) -> str:
    return str(value)[:500]


def _hash_job(job: SweepJob) -> str:
    """Return a job's id. It does not depend on the sweep's folder, and changes if the job has continued."""
    records = []
    for step, accuracies in job.records.items():
        values = sorted((env, part, repr(value)) for (env, part), value in accuracies.items())
        records.append([step, values])
    content = record.canonical_json([job.origin, job.is_done, records])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _hash_job_in(job: SweepJob, study: str, existing: Mapping[str, str]) -> str:
    """Return a job's id in a named study: a different one if the job is already a trial of another study."""
    plain = _hash_job(job)
    if existing.get(plain, study) == study:
        return plain
    return hashlib.sha256(f"{plain} in {study}".encode()).hexdigest()[:32]
