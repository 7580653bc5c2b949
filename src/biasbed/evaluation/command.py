"""The command: a model that is trained already, or decisions that somebody recorded, is tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbed.errors import UsageError
from biasbed.evaluation import recorded
from biasbed.options import EvaluateOptions
from biasbed.settings import build, specs


def evaluate(flags: Mapping[str, Any]) -> dict[str, float]:
    """Test what `model=` names, track the result and return its metrics."""
    own = specs(EvaluateOptions)
    options = build(EvaluateOptions, {name: value for name, value in flags.items() if name in own})
    given = {name: value for name, value in flags.items() if name not in own and value != "auto"}
    if options.model == "none":
        raise UsageError(
            "say what to test: model=<checkpoint, run id, torchvision:<name>, timm:<name> or decisions.csv>"
        )
    files = recorded.files(options.model)
    if files:
        return recorded.evaluate_recorded(options, given, files)
    from biasbed.evaluation.tested import evaluate_model

    return evaluate_model(options, given)
