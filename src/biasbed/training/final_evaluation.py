"""Sets that are tested at the end alone: on the weights that the monitor chose, and on the last."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence

from biasbed import record
from biasbed.compute import checkpoint
from biasbed.errors import UsageError
from biasbed.evaluation.evaluator import Evaluator, measure
from biasbed.evaluation.prediction_store import PredictionStore, StoredDecisions, decide
from biasbed.suites.sets import EvaluationSet
from biasbed.tracking.folder import evaluations
from biasbed.training.engine import Engine
from biasbed.training.recovery import in_place

BEST, LAST = record.PREDICTION_EPOCHS


def refuse_unmet(engine: Engine) -> None:
    """UsageError for a set whose last test would not be at the training's end, or that the monitor waits for."""
    config, plan, total = engine.config, *engine.reader.last(engine.phases)
    interval = config.cadence * (plan.steps_per_epoch if config.unit == "epoch" else 1)
    count = -(-total // interval)
    for entry in engine.evaluator.sets:
        if entry.cadence != "end" and count % entry.cadence:
            raise UsageError(
                f"the set '{entry.name}' is tested at every {entry.cadence}th of {count} evaluations, and so not at "
                f"the end: take a divisor of {count} (test_every={entry.name}:<n>), or end"
            )
        if entry.cadence != 1 and "val" in engine.phases_of[entry.name]:
            raise UsageError(f"the set '{entry.name}' is for validation: it is tested at every evaluation")


def test_at_end(engine: Engine) -> None:
    """Record what the best and the last weights decide on these sets, at the evaluations whose weights they are.

    Piece by piece: one that was cut off goes on where it was.
    """
    sets = [entry for entry in engine.evaluator.sets if entry.cadence == "end"]
    for which, number in _numbers(engine, sets):
        tested = {entry["step"] for entry in engine.state.history if "late" in entry}
        if number in tested:
            continue
        began = time.perf_counter()
        found = _decided(engine, sets, which, number)
        metrics = {} if found is None else _metrics(engine, sets, found, number)
        metrics["time/late_seconds"] = time.perf_counter() - began
        engine.note({"step": number, "timestamp": int(time.time() * 1000), "metrics": metrics, "late": True})


def _numbers(engine: Engine, sets: Sequence[EvaluationSet]) -> Iterator[tuple[str, int]]:
    """Which weights are tested, and the number of the evaluation that they had; none where there are no such sets."""
    if not sets:
        return
    last = int(evaluations(engine.state.history)[-1]["step"])
    best = engine.group.share_object(None if engine.state.best is None else int(engine.state.best["number"]))
    if best not in (None, last) and engine.group.share_object((engine.folder.path / checkpoint.BEST).exists()):
        yield BEST, best
    yield LAST, last
    if best == last and engine.group.is_main:
        for entry in sets:
            paths = (engine.folder.path / record.predictions_file(entry.name, which) for which in (LAST, BEST))
            shutil.copyfile(*paths)


def _decided(engine: Engine, sets: Sequence[EvaluationSet], which: str, number: int) -> StoredDecisions | None:
    """On rank 0."""
    config, algorithm, evaluator = engine.config, engine.algorithm, engine.evaluator
    made = (engine.group, engine.precision, config.eval_batch_size, engine.reader.workers, evaluator.skip_corrupt)
    kept = PredictionStore(engine.folder.path, sets, "model", evaluator.skip_corrupt, which, number)
    file = engine.folder.path / checkpoint.BEST
    chosen = in_place(algorithm, checkpoint.load(file)) if which == BEST else contextlib.nullcontext()
    with engine.average.in_place(), chosen:
        engine.group.share_buffers(algorithm)
        algorithm.eval()
        return decide(sets, kept, algorithm.predict, engine.group, lambda coming, done: Evaluator(coming, *made, done))


def _metrics(engine: Engine, sets: Sequence[EvaluationSet], found: StoredDecisions, number: int) -> dict[str, float]:
    """What was measured, and what follows from it and from the evaluation of this number."""
    earlier: Mapping[str, float] = next(e["metrics"] for e in evaluations(engine.state.history) if e["step"] == number)
    measured: dict[str, float] = {}
    for entry, one in zip(sets, found.decisions, strict=True):
        measured |= dict(measure(entry, one, "test"))
    derived = engine.derive({**earlier, **measured})
    return measured | {name: value for name, value in derived.items() if name not in earlier}
