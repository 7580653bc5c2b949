"""`import biasbed`: light, and every public name leads somewhere, as type checkers are told."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pkgutil import resolve_name

import pytest

import biasbed
from helpers.commands import ROOT, command_environment

SOURCE = (ROOT / "src" / "biasbed" / "__init__.py").read_text()


def test_import_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'pandas', 'numpy', 'mlflow', 'timm', 'biasbed.api'}"
    program = f"import biasbed, sys; dir(biasbed); print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], env=command_environment(), capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_every_name_leads_somewhere() -> None:
    assert list(biasbed.NAMES) == sorted(biasbed.__all__) == biasbed.__all__
    for name, target in biasbed.NAMES.items():
        assert getattr(biasbed, name) is resolve_name(target)
        assert name in dir(biasbed)
        assert resolve_name(target).__doc__
    with pytest.raises(AttributeError, match="no attribute 'evaluat'"):
        biasbed.evaluat  # noqa: B018


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "mlflow" else find(name))
    for name in ("evaluate", "runs"):
        monkeypatch.delitem(vars(biasbed), name, raising=False)
        with pytest.raises(biasbed.UsageError, match=r'not installed \(mlflow\): pip install "biasbed\[train\]"'):
            getattr(biasbed, name)
    assert callable(biasbed.compare)


def test_type_checkers_are_told_the_same() -> None:
    block, _ = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.If)]
    told = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            told[alias.asname or alias.name] = getattr(resolve_name(str(node.module)), alias.name)
    assert told == {name: resolve_name(target) for name, target in biasbed.NAMES.items()}
