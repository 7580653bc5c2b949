"""Recovery of damaged or half-written results of a training."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.compute import checkpoint
from biasbed.errors import Failure
from biasbed.tracking.folder import RunFolder, evaluations

if TYPE_CHECKING:
    from biasbed.algorithms.base import Algorithm
    from biasbed.training.engine import Engine

# In a folder's state: a training went on though its best weights were lost; which checkpoints were kept in the end.
WITHOUT_BEST, KEPT = "without_best", "kept"


def mend(engine: Engine, evaluated: int | None) -> None:
    """Make the best weights and all decisions be there, before a training goes on; every rank takes part.

    Weights are taken from a checkpoint that has them still, decisions are made again by the weights that made them.
    Raises Failure where the best weights are lost, unless `resume=without_best` accepts that. evaluated: the evaluation
    whose weights the training has at the moment, if any.
    """
    best, group, path = engine.state.best, engine.group, engine.folder.path
    if best is None:
        return
    is_whole = group.share_object(_mended(engine, best) if group.is_main else None)
    if not is_whole:
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
    if is_whole and group.share_object(_lacks(engine, "best", best["number"]) if group.is_main else None):
        _decide_again(engine, best)
    if evaluated is not None and group.share_object(_lacks(engine, "last", evaluated) if group.is_main else None):
        with engine.average.in_place():
            engine.evaluate(names=tested(engine.state.history, evaluated))
        if group.is_main:
            engine.write_decisions("last", evaluated)


@contextlib.contextmanager
def in_place(algorithm: Algorithm, kept: Mapping[str, Any]) -> Iterator[None]:
    """Within the block an algorithm has the weights of a checkpoint."""
    current = {name: tensor.clone() for name, tensor in algorithm.state_dict().items()}
    algorithm.load_state_dict(kept["algorithm"])
    try:
        yield
    finally:
        algorithm.load_state_dict(current)


def is_lost(engine: Engine) -> bool:
    """Whether the best weights are not there, and should be."""
    return engine.config.keep != "none" and not (engine.folder.path / checkpoint.BEST).exists()


def _mended(engine: Engine, best: Mapping[str, float]) -> bool:
    """Whether the best weights are whole, after they were taken from another checkpoint if need be."""
    folder = engine.folder.path
    kept = whole(folder / checkpoint.BEST)
    # A later one was written just before a kill: its evaluation comes again.
    if kept is not None and kept["best"]["number"] >= best["number"]:
        return True
    for name in (checkpoint.LAST, checkpoint.PREVIOUS):
        state = whole(folder / name)
        if state is not None and state.get("evaluated") == best["number"]:
            checkpoint.save_whole(folder / checkpoint.BEST, {**checkpoint.described(state), "best": dict(best)})
            print(f"warning: {checkpoint.BEST} was lost or damaged; {name} has its weights", file=sys.stderr)
            return True
    return False


def _lacks(engine: Engine, which: str, number: float) -> bool:
    """Whether the decisions on some set, of the weights of an evaluation, are not there, or cut off."""
    names = tested(engine.state.history, int(number))
    return lacking(engine.folder.path, [e.name for e in engine.evaluator.sets if e.name in names], which) is not None


def _decide_again(engine: Engine, best: Mapping[str, float]) -> None:
    """Write the decisions of the best weights once more; those of training are put back."""
    kept = checkpoint.load(engine.folder.path / checkpoint.BEST)
    if kept["best"]["number"] != best["number"]:
        return  # its evaluation, which comes again, writes them
    with in_place(engine.algorithm, kept):
        engine.evaluate(names=tested(engine.state.history, int(best["number"])))
    if engine.group.is_main:
        engine.write_decisions("best", int(best["number"]))


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
