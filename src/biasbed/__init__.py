"""biasbed: does a training method really make an image classifier rely less on texture?"""

from __future__ import annotations

import os
from typing import Any

__version__ = "0.1.0"

# MLflow and the library of timm's models report how they are used, unless told otherwise before they are imported. Set
# here, it holds in every process that imports this package and in all that it starts.
for _name in ("MLFLOW_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ[_name] = "true"

# Public name -> `module:name`.
NAMES = {"compare": "biasbed.api.comparison:compare"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in NAMES:
        raise AttributeError(f"module 'biasbed' has no attribute '{name}'")
    from pkgutil import resolve_name

    value = resolve_name(NAMES[name])
    globals()[name] = value
    return value
