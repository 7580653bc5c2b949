"""Packages of the extra `train`, which `pip install biasbed` leaves out, and the message if they are missing."""

from __future__ import annotations

import importlib.util

from biasbed.errors import UsageError, listed

EXTRA = ("torch", "torchvision", "mlflow", "timm", "optuna", "docker", "pyarrow", "PIL", "sklearn", "psutil")


def refuse_without_extra() -> None:
    """Raise UsageError if the packages of the extra `train` are not installed."""
    missing = [name for name in EXTRA[:3] if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(lacks_extra(listed(missing)))


def lacks_extra(names: str) -> str:
    """Return the message on packages that are not installed."""
    advice = 'pip install "biasbed[train]" (in a checkout ".[train]")'
    return f"this needs packages that are not installed ({names}): {advice}"
