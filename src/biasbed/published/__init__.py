"""Published results of papers as package data, imported as tracked runs and compared like any other runs.

A paper that lists its runs is a `PaperOfRuns` (biasbed.py). A paper that prints means, with or without a spread, is
`<name>.csv` with the numbers and `<name>.yaml`, which describes them (printed_tables.py); it needs no code. Sweeps of
DomainBed's own code are read here too (sweeps.py, sweep_runs.py).
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from biasbed import record, redaction
from biasbed.published import printed_tables
from biasbed.published.biasbed import BIASBED
from biasbed.published.paper import Paper, PublishedRun
from biasbed.settings import refuse_unknown
from biasbed.system import commands

if TYPE_CHECKING:
    from mlflow.entities import Run

EXPERIMENT = "biasbed-published"


def names() -> tuple[str, ...]:
    """Return the names of all papers."""
    return BIASBED.name, *printed_tables.names()


def find(name: str) -> Paper:
    """Return a paper. Raises UsageError for an unknown name."""
    refuse_unknown(name, names(), f"no file, folder or paper is called '{name}'")
    return BIASBED if name == BIASBED.name else printed_tables.read(name)


def import_runs(source: str, tracking_uri: str = "auto") -> int:
    """Log a paper's runs to the tracking server and return how many were new; existing ones are not changed.

    There is one MLflow run per selection rule, algorithm and run; for a paper without runs, per rule and row. The next
    import completes an interrupted one. Raises UsageError for an unknown paper, Failure if the server fails.
    """
    from biasbed.tracking.imported_runs import NewRun, delete_incomplete, importing, make_run
    from biasbed.tracking.server import experiment_id, guarded, resolve_uri, writer

    paper = find(source)
    server = resolve_uri(tracking_uri)
    runs = paper.runs()
    uri = redaction.public_uri(server)
    with importing(server):
        complete = delete_incomplete(server, kind="published", study=paper.study)
        present = {run.data.tags.get(record.RUN_KEY, "") for run in complete}
        missing = [run for run in runs if paper.run_key(run) not in present]
        if missing:
            print(f"importing {len(missing)} runs of {paper.citation}", flush=True)
            fill = functools.partial(_fill, server, paper.protocol, paper.protocol.to_json())
            with guarded(server):
                experiment = experiment_id(writer(server), server, EXPERIMENT)
                for run in missing:
                    make_run(server, experiment, NewRun(run.name, paper.tags(run), functools.partial(fill, run)))
            print(f"{len(missing)} runs imported into {uri}, study {paper.study}", flush=True)
        else:
            print(f"nothing new: all {len(runs)} runs of {paper.study} are on {uri} already", flush=True)
    print(f"to analyse them: {commands.format_command('analyze', {'study': paper.study})}", flush=True)
    return len(missing)


def _fill(server: str, protocol: record.Protocol, protocol_text: str, run: PublishedRun, new_run: Run) -> None:
    """Write a published run's numbers and protocol to a new run."""
    from mlflow.entities import Metric

    from biasbed.tracking.server import store_text, writer

    now = int(time.time() * 1000)
    metrics = [Metric(name, value, now, 0) for name, value in run.metrics(protocol).items()]
    writer(server).log_batch(new_run.info.run_id, metrics=metrics)
    store_text(server, new_run, protocol_text, record.PROTOCOL_FILE)
