"""Results of papers, as package data, imported as tracked runs: new methods are compared with them like with any runs.

A paper that lists its runs is a `PaperOfRuns` (biasbed.py). One that prints means, with or without a spread, is
`<name>.yaml`, which says what they are, and `<name>.csv` with the numbers (cells.py): nothing else is to be written.
What DomainBed's own code has left of a sweep is read here too (sweeps.py, sweep_runs.py).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.errors import UsageError
from biasbed.published import cells
from biasbed.published.biasbed import BIASBED
from biasbed.published.paper import Paper, PublishedRun
from biasbed.settings import nearest
from biasbed.system import commands, places

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "biasbed-published"


def names() -> tuple[str, ...]:
    """Every paper."""
    return BIASBED.name, *cells.names()


def find(name: str) -> Paper:
    """The paper of this name; UsageError with the nearest one, Failure where its files are wrong."""
    if name not in names():
        others = "or a file that export wrote (.zip), or a sweep's folder or CSV"
        raise UsageError(f"unknown source '{name}'{nearest(name, names())}, {others}")
    return BIASBED if name == BIASBED.name else cells.read(name)


def import_runs(source: str, tracking_uri: str = "auto") -> int:
    """Logs a paper's runs to the tracking server and returns how many were new; those that are there stay as they are.

    One MLflow run per selection rule, algorithm and run; of a paper without runs, per rule and row. Raises UsageError
    for an unknown paper, Failure where the server fails; an import that was cut short is completed by the next one.
    """
    paper = find(source)
    from biasbed.tracking.server import experiment_id, guarded, resolve_uri, writer

    server = resolve_uri(tracking_uri)
    runs = paper.runs()
    present = _clear_unfinished(server, paper)
    missing = [run for run in runs if paper.run_key(run) not in present]
    uri = places.public_uri(server)
    if missing:
        print(f"importing {len(missing)} runs of {paper.citation}", flush=True)
        with guarded(server):
            client = writer(server)
            experiment = experiment_id(client, server, EXPERIMENT)
            for run in missing:
                _log(client, experiment, paper, run)
        print(f"{len(missing)} runs imported into {uri}, study {paper.study}", flush=True)
    else:
        print(f"nothing new: all {len(runs)} runs of {paper.study} are on {uri} already", flush=True)
    print(f"to analyse them: {commands.typed('analyze', {'study': paper.study})}", flush=True)
    return len(missing)


def _clear_unfinished(server: str, source: Paper) -> set[str]:
    """Run keys that are there; deletes what an import that was cut short left behind."""
    from biasbed.tracking.finding import find_runs
    from biasbed.tracking.server import guarded, writer

    present = set()
    for run in find_runs(server, kind="published", study=source.study):
        if run.info.status == "FINISHED":
            present.add(run.data.tags.get(record.RUN_KEY, ""))
        else:
            with guarded(server):
                writer(server).delete_run(run.info.run_id)
    return present


def _log(client: MlflowClient, experiment: str, source: Paper, run: PublishedRun) -> None:
    from mlflow.entities import Metric

    created: Any = client.create_run(experiment, tags=source.tags(run), run_name=run.name)
    now = int(time.time() * 1000)
    metrics = [Metric(name, value, now, 0) for name, value in run.metrics(source.protocol).items()]
    client.log_batch(created.info.run_id, metrics=metrics)
    client.log_text(created.info.run_id, source.protocol.to_json(), record.PROTOCOL_FILE)
    client.set_terminated(created.info.run_id, "FINISHED")
