"""Winners of a sweep: the best settings of each method in each cell, as the table of a study with fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from biasbed import algorithms, redaction, suites
from biasbed.errors import Failure, UsageError
from biasbed.studies.study import WINNERS
from biasbed.studies.study_table import Overrides, StudyTable, parse_table
from biasbed.tracking import notes
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import artifact_text, resolve_uri

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
    """Fetch the table of winners of a finished sweep on the server. suite: `auto` for any.

    Raises UsageError if there is no such sweep, or several, and Failure if no trial of it is complete.
    """
    uri = resolve_uri()
    tags = {"kind": "study", "study": sweep}
    if suite != "auto":
        tags["suite"] = suites.identifier(suite)
    finished = [run for run in find_runs(uri, **tags) if run.info.status == "FINISHED"]
    finished = [run for run in finished if notes.PARENT not in run.data.tags]
    if len(finished) != 1:
        number = len(finished) or "no"
        raise UsageError(
            f"from_study={sweep}: {number} finished sweeps have this name on {redaction.public_uri(uri)}; the best "
            f"trials so far are in table=<its folder>/{WINNERS}"
        )
    run_id = finished[0].info.run_id
    text = artifact_text(uri, run_id, WINNERS)
    if text is None:
        raise Failure(f"the study '{sweep}' has no {WINNERS}: it is no sweep, or no trial is complete yet")
    table = parse_table(text, f"{WINNERS} of run {run_id}")
    if not table.chosen_by:  # by which names of files are known not to be the user's own
        raise Failure(f"the {WINNERS} of the study '{sweep}' was not written by a sweep: it has no 'chosen_by'")
    return table
