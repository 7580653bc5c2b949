"""Winners of a sweep: the best settings of each method in each cell, as the table of a study with fresh seeds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biasbed import algorithms, record, suites
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest
from biasbed.studies.study import WINNERS
from biasbed.studies.study_table import Overrides, StudyTable, read_table
from biasbed.system import places
from biasbed.tracking import notes
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import guarded, resolve_uri, writer

NUM_SEEDS = 3  # that winners are trained with unless `seeds=` says otherwise


def make_table(
    sweep: str,
    suite: str,
    best: Mapping[str, Mapping[str, Overrides]],
    seeds: Sequence[int],
    settings: Overrides,
    origin: Overrides,
) -> dict[str, Any]:
    """Return the table as plain values. best: method -> cell -> settings of the best trial.

    seeds: those that the sweep used. A sweep without cells has one cell with an empty name.
    """
    fresh = max(seeds) + 1
    methods = {name: dict(cells.get("", {})) for name, cells in best.items()}
    chosen: dict[str, dict[str, dict[str, str]]] = {}
    for name, cells in best.items():
        if "" not in cells:
            chosen[algorithms.identifier(name)] = {cell: dict(overrides) for cell, overrides in cells.items()}
    table: dict[str, Any] = {
        "suite": suite,
        "study": f"{sweep}_winners",
        "algorithms": methods,
        "seeds": list(range(fresh, fresh + NUM_SEEDS)),
        "settings": dict(settings),
    }
    if chosen:
        table["chosen"] = chosen
    table["chosen_by"] = {"study": sweep, **origin, "seeds": list(seeds)}
    return table


def fetch_table(sweep: str, suite: str) -> StudyTable:
    """Fetch the table of winners of a sweep on the server. suite: `auto` for any.

    Raises UsageError if there is no such sweep or several, Failure if it has not finished or has no winner.
    """
    uri = resolve_uri()
    studies = [run for run in find_runs(uri, kind="study") if notes.PARENT not in run.data.tags]
    if suite != "auto":
        studies = [run for run in studies if run.data.tags.get(record.SUITE) == suites.identifier(suite)]
    matching = [run for run in studies if run.data.tags.get(record.STUDY) == sweep]
    where = f"on {places.public_uri(uri)}"
    if not matching:
        names = sorted({run.data.tags.get(record.STUDY, "") for run in studies})
        raise UsageError(f"from_study={sweep}: there is no such study {where}{nearest(sweep, names) if names else ''}")
    if len(matching) > 1:
        ids = ", ".join(run.info.run_id for run in matching)
        raise UsageError(f"from_study={sweep}: several studies {where} have this name ({ids}): delete all but one")
    status = matching[0].info.status
    if status != "FINISHED":
        raise Failure(
            f"the study '{sweep}' is {status}, so better trials may follow: call the same `sweep` again until it is "
            f"FINISHED, or take the best so far with table=<its folder>/{WINNERS}"
        )
    return _download(uri, matching[0].info.run_id, sweep)


def _download(uri: str, run_id: str, sweep: str) -> StudyTable:
    with guarded(uri), tempfile.TemporaryDirectory() as folder:
        client = writer(uri)
        if WINNERS not in [file.path for file in client.list_artifacts(run_id)]:
            raise Failure(f"the study '{sweep}' has no {WINNERS}: it is no sweep, or no trial is complete yet")
        table = read_table(str(Path(client.download_artifacts(run_id, WINNERS, folder))))
    if not table.chosen_by:
        raise Failure(f"the {WINNERS} of the study '{sweep}' was not written by a sweep: it has no 'chosen_by'")
    return table
