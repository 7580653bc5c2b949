"""The best parameters of each method, in each cell, as the table of a study that trains them with fresh seeds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biasbed import algorithms, record, suites
from biasbed.errors import Failure, UsageError
from biasbed.settings import nearest
from biasbed.studies.study import WINNERS
from biasbed.studies.table import StudyTable, Words, read_table
from biasbed.system import places
from biasbed.tracking import notes
from biasbed.tracking.finding import find_runs
from biasbed.tracking.server import guarded, resolve_uri, writer

NUM_SEEDS = 3  # that winners are trained with unless `seeds=` says otherwise


def table(
    sweep: str,
    suite: str,
    best: Mapping[str, Mapping[str, Words]],
    seeds: Sequence[int],
    settings: Words,
    origin: Words,
) -> dict[str, Any]:
    """The table. best: of each method, and in each of its cells, the settings of its best trial.

    seeds: that the sweep used. A sweep without cells has one that has no name.
    """
    fresh = max(seeds) + 1
    own = {name: dict(cells.get("", {})) for name, cells in best.items()}
    chosen = {
        algorithms.identifier(name): {cell: dict(words) for cell, words in cells.items()}
        for name, cells in best.items()
        if "" not in cells
    }
    return {
        "suite": suite,
        "study": f"{sweep}_winners",
        "algorithms": own,
        "seeds": list(range(fresh, fresh + NUM_SEEDS)),
        "settings": dict(settings),
        **({"chosen": chosen} if chosen else {}),
        "chosen_by": {"study": sweep, **origin, "seeds": list(seeds)},
    }


def fetch(sweep: str, suite: str) -> StudyTable:
    """The table of winners of a sweep on the server, of this suite or of whichever (`auto`).

    Raises UsageError where there is no such sweep or several, Failure where it has not finished or has no winner.
    """
    uri = resolve_uri()
    studies = [run for run in find_runs(uri, kind="study") if notes.PARENT not in run.data.tags]
    if suite != "auto":
        studies = [run for run in studies if run.data.tags.get(record.SUITE) == suites.identifier(suite)]
    found = [run for run in studies if run.data.tags.get(record.STUDY) == sweep]
    where = f"on {places.public_uri(uri)}"
    if not found:
        known = sorted({run.data.tags.get(record.STUDY, "") for run in studies})
        raise UsageError(f"from_study={sweep}: there is no such study {where}{nearest(sweep, known) if known else ''}")
    if len(found) > 1:
        listed = ", ".join(run.info.run_id for run in found)
        raise UsageError(f"from_study={sweep}: several studies {where} are called so ({listed}): delete all but one")
    if (status := found[0].info.status) != "FINISHED":
        raise Failure(
            f"the study '{sweep}' is {status}, so its best trials may not be the last word: call the same `sweep` "
            f"again until it is FINISHED, or take those of now with table=<its folder>/{WINNERS}"
        )
    return _read(uri, found[0].info.run_id, sweep)


def _read(uri: str, run_id: str, sweep: str) -> StudyTable:
    with guarded(uri), tempfile.TemporaryDirectory() as folder:
        client = writer(uri)
        if WINNERS not in [file.path for file in client.list_artifacts(run_id)]:
            raise Failure(f"the study '{sweep}' has no {WINNERS}: it is no sweep, or no trial is complete yet")
        found = read_table(str(Path(client.download_artifacts(run_id, WINNERS, folder))))
    if not found.chosen_by:
        raise Failure(f"the {WINNERS} of the study '{sweep}' was not written by a sweep: it does not say what chose it")
    return found
