"""Transfer of tracked runs between servers: `export` writes an archive, `import` makes its runs, each once.

An imported run is unchanged, with tags that name its origin.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biasbed import record, redaction
from biasbed.errors import UsageError
from biasbed.options import ExportOptions, ZipOptions
from biasbed.system import commands
from biasbed.system.files import scratch_folder
from biasbed.tracking import notes
from biasbed.tracking.archive import Archive, ArchivedRun, Input, new_archive
from biasbed.tracking.export_formats import ExportFormat
from biasbed.tracking.imported_runs import NewRun, delete_incomplete, importing, make_run
from biasbed.tracking.metric_histories import MetricRow
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import active_run, experiment_id, find_run, guarded, log_inputs, resolve_uri, writer

HEAVY = (record.CHECKPOINT_FOLDER,)  # artifacts that are left out by default
ENDED = ("FINISHED", "FAILED", "KILLED")
PARAMS_AT_A_TIME, METRICS_AT_A_TIME = 100, 1000  # what MLflow takes in one request


class ZipFormat(ExportFormat):
    """Archive of whole runs, for `import` elsewhere."""

    Settings = ZipOptions

    def write(self) -> Path:
        return write_archive(self.options)


def write_archive(options: ZipOptions) -> Path:
    """Write the archive and return its path. Raises UsageError without runs, Failure if the server fails."""
    uri = resolve_uri()
    path = Path(options.file).expanduser().absolute()
    if path.exists():
        raise UsageError(f"file={path} is there already: give another name, or remove it")
    selected = select_runs(uri, options)
    runs: dict[str, Any] = {}
    left_out = []
    for run in selected:
        if run.info.status in ENDED:
            runs[run.info.run_id] = run
        else:
            left_out.append(run)
    if not runs:
        names = ", ".join(f"{run.info.run_name} ({run.info.run_id})" for run in left_out[:3])
        raise UsageError(f"nothing to export: still running, or ended without a word: {names}")
    with new_archive(path) as archive, guarded(uri):
        client = writer(uri)
        for run_id, run in runs.items():
            with scratch_folder() as folder:
                for artifact in client.list_artifacts(run_id):
                    if options.checkpoints or artifact.path not in HEAVY:
                        client.download_artifacts(run_id, artifact.path, str(folder))
                archive.add_run(_describe_run(uri, run), _read_rows(uri, run), folder)
    for run in left_out:
        print(f"left out, as it has not ended: {run.info.run_name} ({run.info.run_id})")
    without = "" if options.checkpoints else "; without checkpoints and models (checkpoints=yes takes them along)"
    print(f"{len(archive.runs)} runs in {path}, {path.stat().st_size / 2**20:.1f} MiB{without}")
    print(f"elsewhere: {commands.format_command('import', {'source': str(path.absolute())})}", flush=True)
    return path


def select_runs(uri: str, options: ExportOptions) -> list[Any]:
    """Return the runs that are to be exported. Raises UsageError if there is none of a name."""
    if options.run == "none":
        return _study_runs(uri, options.study)
    return [active_run(uri, run_id) for run_id in options.run]


def _study_runs(uri: str, study: str) -> list[Any]:
    """Return all runs of a study. Raises UsageError if there are none."""
    runs = find_runs(uri, study=study)
    if not runs:
        raise UsageError(f"study={study}: no run on {redaction.public_uri(uri)} belongs to such a study")
    with guarded(uri):
        return [writer(uri).get_run(run.info.run_id) for run in runs]  # with their inputs


def _describe_run(uri: str, run: Any) -> ArchivedRun:
    """Return a run as the archive has it. An imported run keeps the id and server of its origin, from its tags."""
    client, tags = writer(uri), dict(run.data.tags)
    tags.pop(record.IMPORT, "")
    parent = tags.pop(notes.PARENT, "")
    if parent:
        parent = client.get_run(parent).data.tags.get(record.ORIGIN_RUN, parent)
    inputs = []
    for dataset_input in run.inputs.dataset_inputs if run.inputs is not None else ():
        data, input_tags = dataset_input.dataset, {tag.key: tag.value for tag in dataset_input.tags}
        source = (data.source_type, data.source, data.schema, data.profile)
        inputs.append(Input(data.name, data.digest, *source, input_tags))
    return ArchivedRun(
        run_id=tags.pop(record.ORIGIN_RUN, run.info.run_id),
        server=tags.pop(record.ORIGIN_SERVER, redaction.public_uri(uri)),
        name=run.info.run_name or "",
        experiment=client.get_experiment(run.info.experiment_id).name,
        status=run.info.status,
        start_time=run.info.start_time,
        end_time=run.info.end_time,
        parent=parent,
        params=dict(run.data.params),
        tags=tags,
        inputs=inputs,
    )


def _read_rows(uri: str, run: Any) -> list[MetricRow]:
    """Return all rows of all metrics of a run."""
    client = writer(uri)
    rows: list[MetricRow] = []
    for name in sorted(run.data.metrics):
        history = client.get_metric_history(run.info.run_id, name)
        rows += [(name, row.step, row.timestamp, row.value) for row in history]
    return rows


# --- import -----------------------------------------------------------------------------------------------------------


def import_archive(source: str, listed: bool = True) -> int:
    """Make the archive's runs on the tracking server and return the number of new ones.

    Runs that exist, imported or trained here, are kept. Runs that an interrupted import left are made anew. listed:
    print the name of each. Raises UsageError for a file that is no complete archive, before anything is made; Failure
    if the server fails.
    """
    path = Path(source).expanduser()
    uri = resolve_uri()
    made: list[ArchivedRun] = []
    with Archive(path) as archive, importing(uri):
        present: dict[str, str] = {}
        for run in archive.runs:
            existing = _find_origin(uri, run.run_id)
            if existing:
                present[run.run_id] = existing
        missing = [run for run in archive.runs if run.run_id not in present]
        for run in sorted(missing, key=lambda run: run.parent in archive.manifest.runs):  # parents first
            with guarded(uri):
                present[run.run_id] = _import_run(uri, archive, run, present)
            made.append(run)
    kept = len(archive.runs) - len(made)
    summary = f"{len(made)} runs imported to {redaction.public_uri(uri)}"
    if kept:
        summary += f"; {kept} {'was' if kept == 1 else 'were'} there already"
    print(summary)
    if listed:
        for run in made:
            print(f"  {run.name}: run {present[run.run_id]}")
    return len(made)


def _find_origin(uri: str, run_id: str) -> str | None:
    """Return the id of the run with this origin on the server, the original or its import; None if there is none.

    Interrupted imports of it are deleted.
    """
    original = find_run(uri, run_id)
    if original is not None and original.info.lifecycle_stage == "active":
        return run_id
    imports = delete_incomplete(uri, origin_run=run_id)
    return str(imports[0].info.run_id) if imports else None


def _import_run(uri: str, archive: Archive, run: ArchivedRun, present: Mapping[str, str]) -> str:
    """Make an archived run on the server and return its id. present: id in the archive -> id on the server."""
    tags = {**run.tags, record.ORIGIN_RUN: run.run_id, record.ORIGIN_SERVER: run.server}
    parent = present.get(run.parent) or (_find_origin(uri, run.parent) if run.parent else None)
    if parent:
        tags[notes.PARENT] = parent
    new_run = NewRun(
        run.name,
        tags,
        fill=lambda new: _fill_run(uri, archive, run, new.info.run_id),
        status=run.status,
        period=(run.start_time, run.end_time),
    )
    experiment = experiment_id(writer(uri), uri, run.experiment)
    return make_run(uri, experiment, new_run)


def _fill_run(uri: str, archive: Archive, run: ArchivedRun, run_id: str) -> None:
    """Write an archived run's metrics, parameters, inputs and files to a new run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

    client = writer(uri)
    metrics = (Metric(name, value, time, step) for name, step, time, value in archive.metrics(run.run_id))
    params = [Param(key, value) for key, value in run.params.items()]
    for start in range(0, len(params), PARAMS_AT_A_TIME):
        client.log_batch(run_id, params=params[start : start + PARAMS_AT_A_TIME])
    while batch := list(itertools.islice(metrics, METRICS_AT_A_TIME)):
        client.log_batch(run_id, metrics=batch)
    inputs = []
    for data in run.inputs:
        dataset = Dataset(data.name, data.digest, data.source_type, data.source, data.schema, data.profile)
        inputs.append(DatasetInput(dataset, [InputTag(key, value) for key, value in data.tags.items()]))
    log_inputs(client, run_id, inputs)
    with scratch_folder() as folder:
        archive.unpack(run.run_id, folder)
        client.log_artifacts(run_id, str(folder))
