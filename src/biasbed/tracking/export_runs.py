"""Export of tracked runs to an archive (command `export`)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.errors import UsageError
from biasbed.options import ExportOptions
from biasbed.system import commands, places
from biasbed.tracking import notes
from biasbed.tracking.archive import ArchivedRun, Input, MetricRow, new_archive
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import active_run, guarded, resolve_uri, writer

HEAVY = (record.CHECKPOINT_FOLDER,)
ENDED = ("FINISHED", "FAILED", "KILLED")


def export(options: ExportOptions) -> Path:
    """Write the archive and return its path. Raises UsageError without runs, Failure if the server fails."""
    uri = resolve_uri()
    path = Path(options.file).expanduser().absolute()
    if path.exists():
        raise UsageError(f"file={path} is there already: give another name, or remove it")
    if options.run == "none":
        selected = _study_runs(uri, options.study)
    else:
        selected = [active_run(uri, run_id) for run_id in options.run]
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
        for run in runs.values():
            with tempfile.TemporaryDirectory() as folder:
                _download(uri, run.info.run_id, Path(folder), options.checkpoints)
                archive.add_run(_described(uri, run), _rows(uri, run), Path(folder))
    for run in left_out:
        print(f"left out, as it has not ended: {run.info.run_name} ({run.info.run_id})")
    without = "" if options.checkpoints else "; without checkpoints and models (checkpoints=yes takes them along)"
    print(f"{len(archive.runs)} runs in {path}, {path.stat().st_size / 2**20:.1f} MiB{without}")
    print(f"elsewhere: {commands.typed('import', {'source': str(path.absolute())})}", flush=True)
    return path


def _study_runs(uri: str, study: str) -> list[Any]:
    runs = find_runs(uri, study=study)
    if not runs:
        raise UsageError(f"study={study}: no run on {places.public_uri(uri)} belongs to such a study")
    with guarded(uri):
        return [writer(uri).get_run(run.info.run_id) for run in runs]  # with their inputs


def _described(uri: str, run: Any) -> ArchivedRun:
    """Return a run with the id and the server where it was trained, which an imported run has in its tags."""
    client, tags = writer(uri), dict(run.data.tags)
    parent = tags.pop(notes.PARENT, "")
    if parent:
        parent = client.get_run(parent).data.tags.get(record.ORIGIN_RUN, parent)
    inputs = run.inputs.dataset_inputs if run.inputs is not None else ()
    return ArchivedRun(
        run_id=tags.pop(record.ORIGIN_RUN, run.info.run_id),
        server=tags.pop(record.ORIGIN_SERVER, places.public_uri(uri)),
        name=run.info.run_name or "",
        experiment=client.get_experiment(run.info.experiment_id).name,
        status=run.info.status,
        start_time=run.info.start_time,
        end_time=run.info.end_time,
        parent=parent,
        params=dict(run.data.params),
        tags=tags,
        inputs=list(map(_read_input, inputs)),
    )


def _read_input(dataset_input: Any) -> Input:
    data = dataset_input.dataset
    tags = {tag.key: tag.value for tag in dataset_input.tags}
    return Input(data.name, data.digest, data.source_type, data.source, data.schema, data.profile, tags)


def _rows(uri: str, run: Any) -> list[MetricRow]:
    client = writer(uri)
    rows: list[MetricRow] = []
    for name in sorted(run.data.metrics):
        history = client.get_metric_history(run.info.run_id, name)
        rows += [(name, row.step, row.timestamp, row.value) for row in history]
    return rows


def _download(uri: str, run_id: str, folder: Path, checkpoints: bool) -> None:
    client = writer(uri)
    for artifact in client.list_artifacts(run_id):
        if checkpoints or artifact.path not in HEAVY:
            client.download_artifacts(run_id, artifact.path, str(folder))
