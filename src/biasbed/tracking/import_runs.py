"""Import of an archive that `export` wrote: each run once, unchanged, with tags that name its origin."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path

from biasbed import record
from biasbed.errors import UsageError
from biasbed.system import places
from biasbed.tracking import notes
from biasbed.tracking.archive import Archive, ArchivedRun
from biasbed.tracking.claims import ended, first_rival, holder_of, new_claim, release
from biasbed.tracking.run_reader import StoredRun
from biasbed.tracking.server import (
    experiment_id,
    find_run,
    guarded,
    log_inputs,
    resolve_uri,
    whole_or_deleted,
    writer,
)

PARAMS_AT_A_TIME, METRICS_AT_A_TIME = 100, 1000  # what MLflow takes in one request


def import_archive(source: str, listed: bool = True) -> int:
    """Make the archive's runs on the tracking server and return the number of new ones.

    Runs that exist, imported or trained here, are kept. Runs that an interrupted import left are made anew, and runs
    that another command imports at the same time are left to it. listed: print the name of each. Raises UsageError for
    a file that is no complete archive, before anything is made; Failure if the server fails.
    """
    path = Path(source).expanduser()
    if not path.is_file():
        raise UsageError(f"source={source}: there is no such file")
    uri = resolve_uri()
    made: list[ArchivedRun] = []
    left: list[StoredRun] = []
    with Archive(path) as archive:
        present: dict[str, str] = {}
        for run in archive.runs:
            existing = _find_origin(uri, run.run_id)
            if existing:
                present[run.run_id] = existing
        missing = [run for run in archive.runs if run.run_id not in present]
        for run in sorted(missing, key=lambda run: run.parent in archive.manifest.runs):  # parents first
            with guarded(uri):
                run_id, rival = _make(uri, archive, run, present)
            present[run.run_id] = run_id
            if rival is None:
                made.append(run)
            elif rival.info.status == "RUNNING":
                left.append(rival)
    kept = len(archive.runs) - len(made) - len(left)
    summary = f"{len(made)} runs imported to {places.public_uri(uri)}"
    if kept:
        summary += f"; {kept} {'was' if kept == 1 else 'were'} there already"
    print(summary)
    if left:
        print(f"{len(left)} left to {holder_of(left[0]) or 'another command'}, which imports them at this moment")
    if listed:
        for run in made:
            print(f"  {run.name}: run {present[run.run_id]}")
    return len(made)


def _find_origin(uri: str, run_id: str) -> str | None:
    """Return the run of this origin on the server: the original, or its import. Deletes interrupted imports."""
    original = find_run(uri, run_id)
    if original is not None and original.info.lifecycle_stage == "active":
        return run_id
    return next((str(run.info.run_id) for run in ended(uri, origin_run=run_id)), None)


def _make(uri: str, archive: Archive, run: ArchivedRun, present: Mapping[str, str]) -> tuple[str, StoredRun | None]:
    """Make a run and return its id; if it yields to another command's run, the id of that run, and the run.

    present: origin id -> id here, for the parent.
    """
    client = writer(uri)
    tags = {**run.tags, record.ORIGIN_RUN: run.run_id, record.ORIGIN_SERVER: run.server, **new_claim()}
    parent = present.get(run.parent) or (_find_origin(uri, run.parent) if run.parent else None)
    if parent:
        tags[notes.PARENT] = parent
    experiment = experiment_id(client, uri, run.experiment)
    run_id = str(client.create_run(experiment, start_time=run.start_time, tags=tags, run_name=run.name).info.run_id)
    with whole_or_deleted(client, run_id):
        rival = first_rival(uri, run_id, origin_run=run.run_id)
        if rival is None:
            _fill(uri, archive, run, run_id)
            rival = first_rival(uri, run_id, origin_run=run.run_id)
        if rival is not None:
            return str(rival.info.run_id), rival
        client.set_terminated(run_id, run.status, run.end_time)
    release(uri, run_id)
    return run_id, None


def _fill(uri: str, archive: Archive, run: ArchivedRun, run_id: str) -> None:
    from mlflow.entities import Metric, Param

    client = writer(uri)
    metrics = (Metric(name, value, time, step) for name, step, time, value in archive.metrics(run.run_id))
    params = [Param(key, value) for key, value in run.params.items()]
    for start in range(0, len(params), PARAMS_AT_A_TIME):
        client.log_batch(run_id, params=params[start : start + PARAMS_AT_A_TIME])
    while batch := list(itertools.islice(metrics, METRICS_AT_A_TIME)):
        client.log_batch(run_id, metrics=batch)
    _log_inputs(uri, run_id, run)
    with tempfile.TemporaryDirectory() as folder:
        archive.unpack(run.run_id, Path(folder))
        client.log_artifacts(run_id, folder)


def _log_inputs(uri: str, run_id: str, run: ArchivedRun) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    inputs = []
    for data in run.inputs:
        dataset = Dataset(data.name, data.digest, data.source_type, data.source, data.schema, data.profile)
        tags = [InputTag(key, value) for key, value in data.tags.items()]
        inputs.append(DatasetInput(dataset, tags))
    log_inputs(writer(uri), run_id, inputs)
