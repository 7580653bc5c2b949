"""biasbed: does a training method really make an image classifier rely less on texture?

`docs/python.md` describes the public functions. Each is imported on first use, so that `import biasbed` loads no torch.
`__init__.pyi` tells type checkers and editors what they take.
"""

from __future__ import annotations

import os
from typing import Any

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
]
# Public name -> `module:name`, or the module itself.
_NAMES = {
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
}
_LIGHT = ("Failure", "UsageError", "compare")  # take no package of the extra `train`


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    from pkgutil import resolve_name

    if name not in _NAMES:
        from biasbed.plugin_loader import offers

        places = offers("function") if not name.startswith("_") else {}
        if name in places:
            return resolve_name(places[name])
        from biasbed.api.unknown_names import make_error

        raise make_error("biasbed", name, [*_NAMES, *places])
    if name not in _LIGHT:
        from biasbed.system.extra import refuse_without_extra

        refuse_without_extra()
    value = resolve_name(_NAMES[name])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from biasbed.plugin_loader import offers

    return sorted([*__all__, *offers("function")])
