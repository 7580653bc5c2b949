"""Final evaluation: sets that are tested only at the end, with the best weights by the monitor and with the last.

Answers: Which sets are tested at the end, on which weights?
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from biasbed import record
from biasbed.compute import checkpoint
from biasbed.errors import UsageError
from biasbed.evaluation import prediction_files
from biasbed.evaluation.decision_tables import DecidedSets, measure_sets
from biasbed.evaluation.prediction_store import PredictionStore, StoredDecisions, decide
from biasbed.suites.sets import EvaluationSet
from biasbed.tracking.folder import evaluations
from biasbed.training.engine import Engine

BEST, LAST = record.PREDICTION_EPOCHS


class _Weights(NamedTuple):
    which: str  # BEST or LAST
    number: int  # of the evaluation that had these weights


def refuse_unmet(engine: Engine) -> None:
    """Raise UsageError for a set whose last test would not be at the training's end, or that the monitor waits for."""
    count, _ = engine.count_evaluations()
    for tested in engine.evaluator.sets:
        if tested.cadence != "end" and count % tested.cadence:
            raise UsageError(
                f"the set '{tested.name}' is tested at every {tested.cadence}th of {count} evaluations, and so not at "
                f"the end: take a divisor of {count} (test_every={tested.name}:<n>), or end"
            )
        if tested.cadence != 1 and "val" in engine.scoring.phases_of[tested.name]:
            raise UsageError(f"the set '{tested.name}' is for validation: it is tested at every evaluation")


def evaluate_at_end(engine: Engine) -> None:
    """Evaluate these sets with the best and the last weights, and record each with the evaluation that had the weights.

    Decisions are stored in pieces, so that an interrupted evaluation resumes.
    """
    sets = [tested for tested in engine.evaluator.sets if tested.cadence == "end"]
    for weights in _choose_weights(engine, sets):
        recorded = {result["step"] for result in engine.state.history if "late" in result}
        if weights.number in recorded:
            continue
        began = time.perf_counter()
        stored = _decide(engine, sets, weights)
        metrics = {} if stored is None else _measure(engine, stored, weights)
        metrics["time/late_seconds"] = time.perf_counter() - began
        engine.add_record(
            {"step": weights.number, "timestamp": int(time.time() * 1000), "metrics": metrics, "late": True}
        )


def _choose_weights(engine: Engine, sets: Sequence[EvaluationSet]) -> Iterator[_Weights]:
    """Yield the weights to test; none if there are no such sets. Copies the decisions if the best are the last."""
    if not sets:
        return
    group, folder = engine.group, engine.folder.path
    last = int(evaluations(engine.state.history)[-1]["step"])
    best = group.share_object(None if engine.state.best is None else int(engine.state.best["number"]))
    if best not in (None, last) and group.share_object((folder / checkpoint.BEST).exists()):
        yield _Weights(BEST, best)
    yield _Weights(LAST, last)
    if best == last and group.is_main:
        for tested in sets:
            source, copy = (folder / record.predictions_file(tested.name, which) for which in (LAST, BEST))
            shutil.copyfile(source, copy)


def _decide(engine: Engine, sets: Sequence[EvaluationSet], weights: _Weights) -> StoredDecisions | None:
    """Decide on all images of the sets that the folder has no decisions on; return all decisions on rank 0."""
    skip = engine.evaluator.skip_corrupt
    scores = engine.config.scores
    store = PredictionStore(engine.folder.path, sets, "model", skip, weights.which, weights.number, scores)
    with engine.weights_of(weights.which):
        engine.group.share_buffers(engine.algorithm)
        engine.algorithm.eval()
        return decide(store, engine.algorithm.predict, engine.evaluator)


def _measure(engine: Engine, stored: StoredDecisions, weights: _Weights) -> dict[str, float]:
    """Return the measured metrics, and those derived from them and from the evaluation that had the weights."""
    earlier: Mapping[str, float] = {}
    for result in evaluations(engine.state.history):
        if result["step"] == weights.number and not earlier:
            earlier = result["metrics"]
    measured = stored.measure() | _measure_scores(engine, stored, weights)
    derived = engine.scoring.derive({**earlier, **measured})
    return measured | {name: value for name, value in derived.items() if name not in earlier}


def _measure_scores(engine: Engine, stored: StoredDecisions, weights: _Weights) -> dict[str, float]:
    """Return what plug-ins measure on kept scores, calibrated with the decisions that these weights made earlier."""
    scores = engine.config.scores
    if not scores.is_kept:
        return {}
    calibrating = scores.calibrating(engine.scoring.validates)
    decided = {decisions.set: decisions for decisions in stored.decisions}
    for name in calibrating:
        path = engine.folder.path / record.predictions_file(name, weights.which)
        if name not in decided and path.exists():
            decided[name] = replace(prediction_files.read_predictions(path), set=name)
    phases: dict[str, Sequence[str]] = dict.fromkeys(calibrating, ())
    for decisions in stored.decisions:
        phases[decisions.set] = ("test",)
    return measure_sets(DecidedSets(list(decided.values()), phases, scores, calibrating))
