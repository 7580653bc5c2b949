"""Published results of papers as package data, imported as tracked runs and compared like any other runs.

A paper that lists its runs is a `PaperOfRuns` (biasbed.py). One that prints means, with or without a spread, consists
of `<name>.yaml`, which describes them, and `<name>.csv` with the numbers (cells.py); it needs no code. Sweeps of
DomainBed's own code are read here too (sweeps.py, sweep_runs.py).
"""

from __future__ import annotations

import time

from biasbed import record
from biasbed.errors import UsageError
from biasbed.published import cells
from biasbed.published.biasbed import BIASBED
from biasbed.published.paper import Paper, PublishedRun
from biasbed.settings import nearest
from biasbed.system import commands, places

EXPERIMENT = "biasbed-published"


def names() -> tuple[str, ...]:
    """Return the names of all papers."""
    return BIASBED.name, *cells.names()


def find(name: str) -> Paper:
    """Return a paper. Raises UsageError for an unknown name, Failure if its files are wrong."""
    if name not in names():
        alternatives = "or a file that export wrote (.zip), or a sweep's folder or CSV"
        raise UsageError(f"unknown source '{name}'{nearest(name, names())}, {alternatives}")
    return BIASBED if name == BIASBED.name else cells.read(name)


def import_runs(source: str, tracking_uri: str = "auto") -> int:
    """Log a paper's runs to the tracking server and return how many were new; existing ones are not changed.

    There is one MLflow run per selection rule, algorithm and run; for a paper without runs, per rule and row. An
    interrupted import is completed by the next one. Raises UsageError for an unknown paper, Failure if the server
    fails.
    """
    paper = find(source)
    from biasbed.tracking.server import experiment_id, guarded, resolve_uri, writer

    server = resolve_uri(tracking_uri)
    runs = paper.runs()
    present = _clear_unfinished(server, paper)
    missing = [run for run in runs if paper.run_key(run) not in present]
    uri, made = places.public_uri(server), 0
    if missing:
        print(f"importing {len(missing)} runs of {paper.citation}", flush=True)
        with guarded(server):
            client = writer(server)
            experiment = experiment_id(client, server, EXPERIMENT)
            made = sum([_log(server, experiment, paper, run) for run in missing])
        print(f"{made} runs imported into {uri}, study {paper.study}", flush=True)
        if made < len(missing):
            print(f"{len(missing) - made} left to another command, which imports them at this moment", flush=True)
    else:
        print(f"nothing new: all {len(runs)} runs of {paper.study} are on {uri} already", flush=True)
    print(f"to analyse them: {commands.typed('analyze', {'study': paper.study})}", flush=True)
    return made


def _clear_unfinished(server: str, source: Paper) -> set[str]:
    """Delete unfinished runs of an interrupted import and return the run keys of the others."""
    from biasbed.tracking.ownership import ended

    runs = ended(server, kind="published", study=source.study)
    return {run.data.tags.get(record.RUN_KEY, "") for run in runs}


def _log(server: str, experiment: str, source: Paper, run: PublishedRun) -> bool:
    """Make a run; return False if another command has made it, or is making it."""
    from mlflow.entities import Metric

    from biasbed.tracking.ownership import make_run
    from biasbed.tracking.server import writer

    def fill(run_id: str) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, 0) for name, value in run.metrics(source.protocol).items()]
        writer(server).log_batch(run_id, metrics=metrics)
        writer(server).log_text(run_id, source.protocol.to_json(), record.PROTOCOL_FILE)

    tags = source.tags(run)
    origin = {"study": source.study, "run_key": tags[record.RUN_KEY]}
    return make_run(server, experiment, run.name, tags, origin, fill)[1] is None
