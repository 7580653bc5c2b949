"""Published results of papers as package data, imported as tracked runs and compared like any other runs.

A paper that lists its runs is a `PaperOfRuns` (biasbed.py). One that prints means, with or without a spread, consists
of `<name>.yaml`, which describes them, and `<name>.csv` with the numbers (cells.py); it needs no code. Sweeps of
DomainBed's own code are read here too (sweeps.py, sweep_runs.py).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.errors import UsageError
from biasbed.published import cells
from biasbed.published.biasbed import BIASBED
from biasbed.published.paper import Paper, PublishedRun
from biasbed.settings import nearest
from biasbed.system import commands, places

if TYPE_CHECKING:
    from mlflow.entities import Run

EXPERIMENT = "biasbed-published"
RUNS_AT_A_TIME = 100  # between two searches for runs that another command makes; a kill leaves as many unfinished


def names() -> tuple[str, ...]:
    """Return the names of all papers."""
    return BIASBED.name, *cells.names()


def find(name: str) -> Paper:
    """Return a paper. Raises UsageError for an unknown name, Failure if its files are wrong."""
    if name not in names():
        raise UsageError(f"unknown source '{name}'{nearest(name, names())}; or give a path (docs/sharing.md)")
    return BIASBED if name == BIASBED.name else cells.read(name)


def import_runs(source: str, tracking_uri: str = "auto") -> int:
    """Log a paper's runs to the tracking server and return how many were new; existing ones are not changed.

    There is one MLflow run per selection rule, algorithm and run; for a paper without runs, per rule and row. An
    interrupted import is completed by the next one. Raises UsageError for an unknown paper, Failure if the server
    fails.
    """
    return import_paper(find(source), tracking_uri)


def import_paper(paper: Paper, tracking_uri: str = "auto") -> int:
    """Log the runs of a paper, or of any other report of results, as `import_runs` does."""
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
            for start in range(0, len(missing), RUNS_AT_A_TIME):
                made += _log(server, experiment, paper, missing[start : start + RUNS_AT_A_TIME])
        print(f"{made} runs imported into {uri}, study {paper.study}", flush=True)
        if made < len(missing):
            print(f"{len(missing) - made} left to another command, which imports them at this moment", flush=True)
    else:
        print(f"nothing new: all {len(runs)} runs of {paper.study} are on {uri} already", flush=True)
    print(f"to analyse them: {commands.typed('analyze', {'study': paper.study})}", flush=True)
    return made


def _clear_unfinished(server: str, source: Paper) -> set[str]:
    """Delete unfinished runs of an interrupted import and return the run keys of the others."""
    from biasbed.tracking.claims import ended

    runs = ended(server, kind="published", study=source.study)
    return {run.data.tags.get(record.RUN_KEY, "") for run in runs}


def _log(server: str, experiment: str, source: Paper, runs: Sequence[PublishedRun]) -> int:
    """Make runs and return their number, without those that another command has made, or is making."""
    from biasbed.tracking.claims import NewRun, make_runs

    fill = functools.partial(_fill, server, source.protocol, source.protocol.to_json())
    new_runs = [NewRun(run.name, source.tags(run), functools.partial(fill, run)) for run in runs]
    made = make_runs(server, experiment, new_runs, record.RUN_KEY, {"study": source.study})
    return sum(run.rival is None for run in made)


def _fill(server: str, protocol: record.Protocol, protocol_text: str, run: PublishedRun, new_run: Run) -> None:
    """Write a published run's numbers and protocol to a new run."""
    from mlflow.entities import Metric

    from biasbed.tracking.server import store_text, writer

    now = int(time.time() * 1000)
    metrics = [Metric(name, value, now, 0) for name, value in run.metrics(protocol).items()]
    writer(server).log_batch(new_run.info.run_id, metrics=metrics)
    store_text(server, new_run, protocol_text, record.PROTOCOL_FILE)
