"""What a training's folder should have of its best and its last evaluation, and what of that is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.compute import checkpoint
from biasbed.errors import Failure
from biasbed.tracking.folder import RunFolder, evaluations

# In a folder's state: a training went on though its best weights were lost; which checkpoints were kept in the end.
WITHOUT_BEST, KEPT = "without_best", "kept"


def trim(folder: RunFolder, keep: str) -> None:
    """Leave those checkpoints of a training that has ended that the setting `keep` asks for, of weights alone."""
    if keep == "all":
        return
    folder.write_state({**folder.read_state(), KEPT: keep})  # before anything is missing
    path = folder.path
    for name, wanted in {checkpoint.BEST: keep != "none", checkpoint.LAST: keep == "best_last"}.items():
        if not wanted:
            (path / name).unlink(missing_ok=True)
    (path / checkpoint.PREVIOUS).unlink(missing_ok=True)
    if (path / checkpoint.LAST).exists():
        checkpoint.save_whole(path / checkpoint.LAST, checkpoint.described(checkpoint.load(path / checkpoint.LAST)))


def reopen_if_lost(folder: RunFolder) -> str | None:
    """Which result of a finished training the folder no longer has, if any: then the training counts as unfinished.

    The command that made it goes on at its end, and mends what is lost or says that nothing can.
    """
    lost = _lost(folder)
    if lost is not None:
        folder.unmark_done()
    return lost


def _lost(folder: RunFolder) -> str | None:
    """The first of the results that is not there, or not whole."""
    try:
        protocol = record.Protocol.from_json((folder.path / record.PROTOCOL_FILE).read_text())
    except Exception:  # of a damaged text, json and what is made of it raise nearly anything
        return record.PROTOCOL_FILE
    kept = _kept_epochs(folder)
    if kept is None:
        return checkpoint.BEST
    known = {*(entry.name for entry in protocol.sets), *protocol.validation_sets}
    records = folder.read_journal()
    for which, number in kept.items():
        # A protocol names what other trainings are tested on too.
        lost = lacking(folder.path, sorted(tested(records, number) & known), which)
        if lost is not None:
            return lost
    return None


def _kept_epochs(folder: RunFolder) -> dict[str, int] | None:
    """Of which evaluations it should have the decisions, by number; None where its best weights are lost."""
    state, best = folder.read_state(), folder.path / checkpoint.BEST
    records = evaluations(folder.read_journal())
    last = {"last": int(records[-1]["step"])} if records else {}
    if state.get("tags", {}).get(record.KIND) == "evaluate":  # of somebody else's weights, or recorded decisions
        return last if (folder.path / "predictions").exists() else {}
    state_of_best = whole(best)
    if state_of_best is not None:
        return {"best": int(state_of_best["best"]["number"]), **last}
    is_meant = state.get(WITHOUT_BEST) or state.get(KEPT) == "none"
    return last if is_meant and not best.exists() else None


def tested(records: Iterable[Mapping[str, Any]], number: int) -> set[str]:
    """The sets that were decided on with the weights of an evaluation, then or at the end."""
    own = (name for entry in records if entry["step"] == number and "stage" not in entry for name in entry["metrics"])
    return {str(metric.set) for name in own if (metric := record.parse_metric(name)) is not None}


def whole(path: Path) -> dict[str, Any] | None:
    """What a file of best weights holds; None where it is not there, or damaged."""
    with contextlib.suppress(Failure):
        return checkpoint.load(path, parts={**checkpoint.DESCRIPTION, "best": dict})
    return None


def lacking(folder: Path, sets: Iterable[str], which: str) -> str | None:
    """The first file of decisions that is not there, or cut off."""
    from pyarrow import ArrowException, parquet

    for name in sets:
        file = record.predictions_file(name, which)
        try:
            parquet.read_metadata(folder / file)
        except (OSError, ArrowException):
            return file
    return None
