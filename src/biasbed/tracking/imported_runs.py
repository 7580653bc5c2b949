"""Making of imported runs: each once, none left incomplete, and one import at a time on a machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from biasbed import record
from biasbed.system import files, places
from biasbed.tracking.run_reader import StoredRun, find_runs
from biasbed.tracking.server import database, guarded, writer

if TYPE_CHECKING:
    from mlflow.entities import Run


@contextlib.contextmanager
def importing(uri: str) -> Iterator[None]:
    """Hold the lock of imports to this server: another import on this machine waits."""
    store = database(uri) or places.home(uri) / "imports"
    store.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(store.with_name(f"{store.name}.import.lock")):
        yield


def delete_incomplete(uri: str, **tags: str) -> list[StoredRun]:
    """Delete the runs with these tags that a killed import of this machine left; return the complete ones.

    Call it within `importing`: no other import of this machine is filling them then.
    """
    complete = []
    for run in find_runs(uri, **tags):
        if run.info.status != "RUNNING":  # the status is set last
            complete.append(run)
        elif run.data.tags.get(record.IMPORT) == os.uname().nodename:
            with guarded(uri):
                writer(uri).delete_run(run.info.run_id)
    return complete


class NewRun(NamedTuple):
    """Run to make on a server."""

    name: str
    tags: Mapping[str, str]
    fill: Callable[[Run], None]  # logs the content of the run that was made for it
    status: str = "FINISHED"
    period: tuple[int | None, int | None] = (None, None)  # its start and end, in ms since 1970


def make_run(uri: str, experiment: str, run: NewRun) -> str:
    """Make a run and return its id. A run that can't be filled is deleted, so that nobody takes it for running."""
    client = writer(uri)
    tags = {**run.tags, record.IMPORT: os.uname().nodename}
    created = client.create_run(experiment, start_time=run.period[0], tags=tags, run_name=run.name)
    run_id = str(created.info.run_id)
    try:
        run.fill(created)
        client.set_terminated(run_id, run.status, run.period[1])
    except BaseException:
        with contextlib.suppress(Exception):  # the next import deletes it otherwise
            client.delete_run(run_id)
        raise
    return run_id
