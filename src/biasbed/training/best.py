"""What is kept of the best and the last evaluation, looked at before a training goes on: mended, or said to be lost."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.compute import checkpoint
from biasbed.errors import Failure
from biasbed.tracking.folder import RunFolder, evaluations

if TYPE_CHECKING:
    from biasbed.training.engine import Engine

MARKS = "marks"  # of a checkpoint: what was frozen and released
WITHOUT_BEST = "without_best"  # in a folder's state: a training went on though its best weights were lost


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
        lacking = _lacking(folder.path, sorted(_tested(records, number) & known), which)
        if lacking is not None:
            return lacking
    return None


def _kept_epochs(folder: RunFolder) -> dict[str, int] | None:
    """Of which evaluations it should have the decisions, by number; None where its best weights are lost."""
    state, best = folder.read_state(), folder.path / checkpoint.BEST
    records = evaluations(folder.read_journal())
    last = {"last": int(records[-1]["step"])} if records else {}
    if state.get("tags", {}).get(record.KIND) == "evaluate":  # of somebody else's weights, or recorded decisions
        return last if (folder.path / "predictions").exists() else {}
    whole = _whole(best)
    if whole is not None:
        return {"best": int(whole["best"]["number"]), **last}
    return last if state.get(WITHOUT_BEST) and not best.exists() else None


def _tested(records: Iterable[Mapping[str, Any]], number: int) -> set[str]:
    """The sets that were decided on with the weights of an evaluation, then or at the end."""
    own = (name for entry in records if entry["step"] == number and "stage" not in entry for name in entry["metrics"])
    return {str(metric.set) for name in own if (metric := record.parse_metric(name)) is not None}


def mend(engine: Engine, evaluated: int | None) -> None:
    """Make the best weights and all decisions be there, before a training goes on; every rank takes part.

    Weights are taken from a checkpoint that has them still, decisions are made again by the weights that made them.
    Raises Failure where the best weights are lost, unless `resume=without_best` accepts that. evaluated: the evaluation
    whose weights the training has at the moment, if any.
    """
    best, group, path = engine.state.best, engine.group, engine.folder.path
    if best is None:
        return
    whole = group.share_object(_mended(engine, best) if group.is_main else None)
    if not whole:
        name = f"{engine.config.unit} {best['number']:.0f}"
        if engine.config.resume != "without_best":
            raise Failure(
                f"{path / checkpoint.BEST} is lost or damaged, and no other file has the weights of {name}, the best "
                "one: resume=without_best trains on without them, resume=never starts anew"
            )
        if group.is_main:
            print(f"warning: going on without the weights of {name}, the best one", file=sys.stderr)
            (path / checkpoint.BEST).unlink(missing_ok=True)
            engine.folder.write_state({**engine.folder.read_state(), WITHOUT_BEST: True})
    if whole and group.share_object(_lacks(engine, "best", best["number"]) if group.is_main else None):
        _decide_again(engine, best)
    if evaluated is not None and group.share_object(_lacks(engine, "last", evaluated) if group.is_main else None):
        with engine.average.in_place():
            engine.evaluate(names=_tested(engine.state.history, evaluated))
        if group.is_main:
            engine.write_decisions("last", evaluated)


def is_lost(engine: Engine) -> bool:
    """Whether the best weights are not there."""
    return not (engine.folder.path / checkpoint.BEST).exists()


def _mended(engine: Engine, best: Mapping[str, float]) -> bool:
    """Whether the best weights are whole, after they were taken from another checkpoint if need be."""
    folder = engine.folder.path
    kept = _whole(folder / checkpoint.BEST)
    # A later one was written just before a kill: its evaluation comes again.
    if kept is not None and kept["best"]["number"] >= best["number"]:
        return True
    for name in (checkpoint.LAST, checkpoint.PREVIOUS):
        state = _whole(folder / name)
        if state is not None and state.get("evaluated") == best["number"]:
            parts = {part: state[part] for part in (*checkpoint.DESCRIPTION, checkpoint.TASK, MARKS) if part in state}
            checkpoint.save_whole(folder / checkpoint.BEST, {**parts, "best": dict(best)})
            print(f"warning: {checkpoint.BEST} was lost or damaged; {name} has its weights", file=sys.stderr)
            return True
    return False


def _whole(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(Failure):
        return checkpoint.load(path, parts={**checkpoint.DESCRIPTION, "best": dict})
    return None


def _lacks(engine: Engine, which: str, number: float) -> bool:
    """Whether the decisions on some set, of the weights of an evaluation, are not there, or cut off."""
    tested = _tested(engine.state.history, int(number))
    return _lacking(engine.folder.path, [e.name for e in engine.evaluator.sets if e.name in tested], which) is not None


def _lacking(folder: Path, sets: Iterable[str], which: str) -> str | None:
    """The first file of decisions that is not there, or cut off."""
    from pyarrow import ArrowException, parquet

    for name in sets:
        file = record.predictions_file(name, which)
        try:
            parquet.read_metadata(folder / file)
        except (OSError, ArrowException):
            return file
    return None


def _decide_again(engine: Engine, best: Mapping[str, float]) -> None:
    """Write the decisions of the best weights once more; those of training are put back."""
    kept = checkpoint.load(engine.folder.path / checkpoint.BEST)
    if kept["best"]["number"] != best["number"]:
        return  # its evaluation, which comes again, writes them
    current = {name: tensor.clone() for name, tensor in engine.algorithm.state_dict().items()}
    engine.algorithm.load_state_dict(kept["algorithm"])
    engine.evaluate(names=_tested(engine.state.history, int(best["number"])))
    engine.algorithm.load_state_dict(current)
    if engine.group.is_main:
        engine.write_decisions("best", int(best["number"]))
