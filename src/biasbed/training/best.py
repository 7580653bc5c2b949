"""What is kept of the best and the last evaluation, mended before a training goes on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from biasbed.compute import checkpoint
from biasbed.errors import Failure
from biasbed.training import results

if TYPE_CHECKING:
    from biasbed.algorithms.base import Algorithm
    from biasbed.training.engine import Engine


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
            engine.folder.write_state({**engine.folder.read_state(), results.WITHOUT_BEST: True})
    if whole and group.share_object(_lacks(engine, "best", best["number"]) if group.is_main else None):
        _decide_again(engine, best)
    if evaluated is not None and group.share_object(_lacks(engine, "last", evaluated) if group.is_main else None):
        with engine.average.in_place():
            engine.evaluate(names=results.tested(engine.state.history, evaluated))
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
    kept = results.whole(folder / checkpoint.BEST)
    # A later one was written just before a kill: its evaluation comes again.
    if kept is not None and kept["best"]["number"] >= best["number"]:
        return True
    for name in (checkpoint.LAST, checkpoint.PREVIOUS):
        state = results.whole(folder / name)
        if state is not None and state.get("evaluated") == best["number"]:
            checkpoint.save_whole(folder / checkpoint.BEST, {**checkpoint.described(state), "best": dict(best)})
            print(f"warning: {checkpoint.BEST} was lost or damaged; {name} has its weights", file=sys.stderr)
            return True
    return False


def _lacks(engine: Engine, which: str, number: float) -> bool:
    """Whether the decisions on some set, of the weights of an evaluation, are not there, or cut off."""
    tested = results.tested(engine.state.history, int(number))
    return (
        results.lacking(engine.folder.path, [e.name for e in engine.evaluator.sets if e.name in tested], which)
        is not None
    )


def _decide_again(engine: Engine, best: Mapping[str, float]) -> None:
    """Write the decisions of the best weights once more; those of training are put back."""
    kept = checkpoint.load(engine.folder.path / checkpoint.BEST)
    if kept["best"]["number"] != best["number"]:
        return  # its evaluation, which comes again, writes them
    with in_place(engine.algorithm, kept):
        engine.evaluate(names=results.tested(engine.state.history, int(best["number"])))
    if engine.group.is_main:
        engine.write_decisions("best", int(best["number"]))
