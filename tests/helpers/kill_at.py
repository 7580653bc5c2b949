"""Moments at which a biasbed command kills itself with SIGKILL, or signals itself.

- step: before the count-th update
- evaluation: while the count-th set of images is decided; `evaluation of much`: where any training before took long
- saved: after the count-th evaluation's checkpoint, before its record reaches journal and server
- pass: after the count-th look at all training images, before its results are kept
- stage: after the count-th stage or pass has ended, before its checkpoint
- piece: before the count-th piece of a set that is tested at the end is kept
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from biasbed.evaluation import evaluator, prediction_store
from biasbed.tracking import tracker
from biasbed.training import engine, per_example, state


def arm(moment: str, count: int, number: str) -> None:
    """Make this process signal itself at the count-th such moment."""
    moments: dict[str, tuple[Any, str]] = {
        "step": (engine.Engine, "_update"),
        "evaluation": (evaluator.Evaluator, "_decide"),
        "evaluation of much": (evaluator.Evaluator, "_decide"),
        "saved": (tracker.Tracker, "log"),
        "pass": (per_example, "gather_by_index"),
        "stage": (state.TrainingState, "enter"),
        "piece": (prediction_store.PredictionStore, "write_piece"),
    }
    if moment == "evaluation of much":
        engine.LONG = 0.0
    owner, name = moments[moment]
    setattr(owner, name, _counted(getattr(owner, name), count, signal.Signals[number]))


def _counted(function: Callable[..., Any], count: int, number: signal.Signals) -> Callable[..., Any]:
    calls = 0

    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), number)
        return function(*arguments, **keywords)

    return wrapper
