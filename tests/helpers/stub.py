"""Text of `src/biasbed/__init__.pyi`: what type checkers and editors are told about the public functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import biasbed

HEADER = '''\
"""Public names as type checkers see them. `pytest --renew tests/api/test_front_door.py` writes this file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

import pandas as pd
import torch

from biasbed import datasets as datasets
from biasbed.api import corruptions as corruptions
from biasbed.api import methods as methods
from biasbed.api.card import Card as Card
from biasbed.api.comparison import ScoreComparison, Scores
from biasbed.api.given_model import TransformImage
from biasbed.api.model_state import Model
from biasbed.api.runs import TrainedRun
from biasbed.errors import Failure as Failure
from biasbed.errors import UsageError as UsageError
from biasbed.plugins.trust.user_scores import TrustCard

__version__: str
__all__: list[str]
_NAMES: dict[str, str]
'''
FUNCTIONS = ("evaluate", "train", "runs", "predictions", "compare", "trust")


def make_stub() -> str:
    """Return the text."""
    evaluator = vars(biasbed.Evaluator)
    lines = ["class Evaluator:", "    every: int", *_signature(evaluator["__init__"], "    ")]
    lines += ["    def __call__(self, model: Model) -> Card: ..."]
    lines += [*_signature(evaluator["after_epoch"], "    "), ""]
    for name in FUNCTIONS:
        lines += _signature(getattr(biasbed, name), "")
    return "\n".join([HEADER, *lines, ""])


def _signature(function: Callable[..., Any], indent: str) -> list[str]:
    """Return the lines of a function without its body, an argument on each. Annotations stand without quotes."""
    signature = inspect.signature(function)
    lines = [f"def {function.__name__}(", *(f"    {part}," for part in _parts(signature))]
    lines.append(f") -> {signature.return_annotation}: ...")
    text = "\n".join(indent + line for line in lines)
    return [text.replace("'", '"').replace("collections.abc.", "").replace("typing.", "")]


def _parts(signature: inspect.Signature) -> list[str]:
    """Return the arguments, with the star after which they have names."""
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        name = f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
        annotation, default = parameter.annotation, parameter.default
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        written = name if annotation is parameter.empty else f"{name}: {text}"
        parts.append(written if default is parameter.empty else f"{written} = {default!r}")
    return parts
