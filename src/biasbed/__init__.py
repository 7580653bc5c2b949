"""biasbed: does a training method really make an image classifier rely less on texture?

`docs/python.md` describes the public functions. Each is imported on first use, so that `import biasbed` loads no torch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biasbed import datasets
    from biasbed.api import corruptions, methods
    from biasbed.api.card import Card
    from biasbed.api.comparison import compare
    from biasbed.api.evaluation import LoopEvaluator as Evaluator
    from biasbed.api.evaluation import evaluate
    from biasbed.api.runs import predictions, runs, train
    from biasbed.api.trust import trust
    from biasbed.errors import Failure, UsageError

__version__ = "0.1.0"

# MLflow and the library of timm's models report how they are used, unless told otherwise before they are imported. Set
# here, it holds in every process that imports this package and in all that it starts.
for _name in ("MLFLOW_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ[_name] = "true"
# A hub that can't be reached is told once, by our own message, and not at every retry.
os.environ.setdefault("HF_HUB_VERBOSITY", "error")

__all__ = [
    "Card",
    "Evaluator",
    "Failure",
    "UsageError",
    "compare",
    "corruptions",
    "datasets",
    "evaluate",
    "methods",
    "predictions",
    "runs",
    "train",
    "trust",
]
# Public name -> `module:name`, or the module itself.
NAMES = {
    "Card": "biasbed.api.card:Card",
    "Evaluator": "biasbed.api.evaluation:LoopEvaluator",
    "Failure": "biasbed.errors:Failure",
    "UsageError": "biasbed.errors:UsageError",
    "compare": "biasbed.api.comparison:compare",
    "corruptions": "biasbed.api.corruptions",
    "datasets": "biasbed.datasets",
    "evaluate": "biasbed.api.evaluation:evaluate",
    "methods": "biasbed.api.methods",
    "predictions": "biasbed.api.runs:predictions",
    "runs": "biasbed.api.runs:runs",
    "train": "biasbed.api.runs:train",
    "trust": "biasbed.api.trust:trust",
}
LIGHT = ("Failure", "UsageError", "compare", "trust")  # take no package of the extra `train`


if not TYPE_CHECKING:  # or every name would be one

    def __getattr__(name: str) -> Any:
        """Import a public name on first use (PEP 562)."""
        if name not in NAMES:
            from biasbed.api.unknown_names import make_error

            raise make_error("biasbed", name, NAMES)
        from pkgutil import resolve_name

        if name not in LIGHT:
            from biasbed.system.extra import refuse_without_extra

            refuse_without_extra()
        value = resolve_name(NAMES[name])
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
