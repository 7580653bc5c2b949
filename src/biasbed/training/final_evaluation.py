"""Final evaluation: sets that are tested only at the end, with the best weights by the monitor and with the last.

Answers: Which sets are tested at the end, on which weights?
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
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


def refuse_wrong_cadence(engine: Engine) -> None:
    """Raise UsageError for a set whose cadence skips the last evaluation, or a validation set that skips any."""
    count, _ = engine.count_evaluations()
    for tested in engine.evaluator.sets:
        if tested.cadence != "end" and count % tested.cadence:
            raise UsageError(
                f"the set '{tested.name}' is tested at every {tested.cadence}th of {count} evaluations, and so not at "
                f"the end: take a divisor of {count} (test_every={tested.name}:<n>), or end"
            )
        if tested.cadence != 1 and "val" in engine.scoring.metric_phases[tested.name]:
            raise UsageError(f"the set '{tested.name}' is for validation: it is tested at every evaluation")


def evaluate_at_end(engine: Engine) -> None:
    """Test the sets with cadence `end` on the best and the last weights; each record has the step of its weights.

    Decisions are stored in pieces, so that an interrupted evaluation resumes.
    """
    sets = [tested for tested in engine.evaluator.sets if tested.cadence == "end"]
    if not sets:
        return
    group, folder = engine.group, engine.folder.path
    last = int(evaluations(engine.state.history)[-1]["step"])
    best = group.share_object(None if engine.state.best is None else int(engine.state.best["number"]))
    if best not in (None, last) and group.share_object((folder / checkpoint.BEST).exists()):
        _evaluate_weights(engine, sets, _Weights(BEST, best))
    _evaluate_weights(engine, sets, _Weights(LAST, last))
    if best == last and group.is_main:
        for tested in sets:
            decisions_of_last = folder / record.predictions_file(tested.name, LAST)
            shutil.copyfile(decisions_of_last, folder / record.predictions_file(tested.name, BEST))


def _evaluate_weights(engine: Engine, sets: Sequence[EvaluationSet], weights: _Weights) -> None:
    """Test the sets on these weights and record the metrics, unless an earlier attempt has."""
    recorded = {result["step"] for result in engine.state.history if "late" in result}
    if weights.number in recorded:
        return
    began = time.perf_counter()
    stored = _decide(engine, sets, weights)
    metrics = {} if stored is None else _measure(engine, stored, weights)
    metrics["time/late_seconds"] = time.perf_counter() - began
    now = int(time.time() * 1000)
    engine.add_record({"step": weights.number, "timestamp": now, "metrics": metrics, "late": True})


def _decide(engine: Engine, sets: Sequence[EvaluationSet], weights: _Weights) -> StoredDecisions | None:
    """Decide on all images of the sets that the folder has no decisions on; return all decisions on rank 0."""
    store = PredictionStore(
        engine.folder.path,
        sets,
        observer="model",
        skip=engine.evaluator.skip_corrupt,
        which=weights.which,
        number=weights.number,
        scores=engine.config.scores,
    )
    with engine.weights_of(weights.which):
        engine.group.share_buffers(engine.algorithm)
        engine.algorithm.eval()
        return decide(store, engine.algorithm.predict, engine.evaluator)


def _measure(engine: Engine, stored: StoredDecisions, weights: _Weights) -> dict[str, float]:
    """Return the metrics of the decisions, measured and derived.

    Some derived metrics also need sets that were tested earlier, when training had these weights.
    """
    same_weights = (result for result in evaluations(engine.state.history) if result["step"] == weights.number)
    earlier: Mapping[str, float] = next((result["metrics"] for result in same_weights), {})
    measured = stored.measure() | _measure_scores(engine, stored, weights)
    derived = engine.scoring.derive({**earlier, **measured})
    return measured | {name: value for name, value in derived.items() if name not in earlier}


def _measure_scores(engine: Engine, stored: StoredDecisions, weights: _Weights) -> dict[str, float]:
    """Return the plug-ins' metrics of kept scores; empty if none are kept.

    They are calibrated with decisions on validation images, which these weights made during the training.
    """
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
