"""`import biasbed`: light, its public names as type checkers are told them, and wrong arguments of its functions."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

import biasbed
from biasbed import plugin_loader
from helpers.commands import ROOT, command_environment

STUB = ROOT / "src" / "biasbed" / "__init__.pyi"


def test_import_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'pandas', 'numpy', 'mlflow', 'timm', 'biasbed.api'}"
    program = f"import biasbed, sys; dir(biasbed); print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], env=command_environment(), capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_every_name_leads_somewhere() -> None:
    assert list(biasbed._NAMES) == sorted(biasbed.__all__) == biasbed.__all__
    for name, target in biasbed._NAMES.items():
        assert getattr(biasbed, name) is resolve_name(target)
        assert name in dir(biasbed)
        assert resolve_name(target).__doc__


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "mlflow" else find(name))
    for name in ("evaluate", "runs"):
        monkeypatch.delitem(vars(biasbed), name, raising=False)
        with pytest.raises(biasbed.UsageError, match=r'not installed \(mlflow\): pip install "biasbed\[train\]"'):
            getattr(biasbed, name)
    assert callable(biasbed.compare)


def test_completion_shows_public_names_alone() -> None:
    assert dir(biasbed) == sorted([*biasbed.__all__, *plugin_loader.offers("function")])
    assert dir(biasbed.methods) == biasbed.methods.__all__
    assert {"Fog", "Frost"} < set(dir(biasbed.corruptions))
    assert all(name[0].isupper() for name in dir(biasbed.corruptions))


HEADER = '''\
"""Public names as type checkers see them. `pytest --renew tests/api/test_arguments.py` writes this file."""

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


def test_type_checkers_are_told_the_same(renew: bool) -> None:
    """`pytest --renew` writes the file that tells them."""
    if renew:
        STUB.write_text(make_stub())
    assert STUB.read_text() == make_stub()
    assert (STUB.parent / "py.typed").is_file()
    told = {node.name for node in ast.parse(make_stub()).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    for node in ast.parse(make_stub()).body:
        if isinstance(node, ast.ImportFrom):
            told |= {alias.asname for alias in node.names if alias.asname}
    assert told == set(dir(biasbed))


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("evaluate", ("label_map", "image_size", "scores", "row")),
        ("Evaluator", ("every", "image_size", "workers")),
        ("train", ("epochs", "optim", "hparams", "data_dir")),
        ("compare", ("control", "lower", "higher_is_better")),
    ],
)
def test_arguments_have_names(function: str, names: tuple[str, ...]) -> None:
    parameters = inspect.signature(getattr(biasbed, function)).parameters
    assert set(names) <= parameters.keys()
    command = {"compare": "report", "evaluate": "nproc", "Evaluator": "nproc", "train": "none"}[function]
    assert command not in parameters


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: biasbed.evaluate(print, transforms=print), "unknown setting 'transforms'; did you mean 'transform'"),
        (lambda: biasbed.evaluate(print, suite=3), "suite=3: should be text"),
        (lambda: biasbed.evaluate(print, batch_size=0.5), "batch_size=0.5: should be a whole number"),
        (lambda: biasbed.evaluate(print, quiet="no"), "quiet='no': should be True or False"),
        (lambda: biasbed.Evaluator().after_epoch(print, "x"), "epoch='x': should be a whole number"),
        (lambda: biasbed.train(seed="x"), "seed='x': should be a whole number"),
        (lambda: biasbed.train(optim={"lr": -1}), r"optim\.lr=-1"),
        (lambda: biasbed.runs(study=3), "study=3: should be text"),
        (lambda: biasbed.trust([1], [2], alpha="x"), "alpha='x': should be a number"),
        (lambda: biasbed.compare("x.csv", output_dir="x"), "output_dir= is a setting of the command `biasbed compare`"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(biasbed.UsageError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
