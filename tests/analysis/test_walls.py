"""What analysis may load: no torch, and nothing heavy before it is used."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import ROOT

HEAVY = ("torch", "pandas", "mlflow", "scipy", "matplotlib", "numpy", "jinja2")


def loaded_after(code: str) -> set[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    script = f"import sys\n{code}\nprint(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import biasbed.analysis",
        "from biasbed.analysis.options import AnalyzeOptions as A; from biasbed.settings import specs; specs(A)",
        "import biasbed.published; biasbed.published.BIASBED.runs()",
    ],
)
def test_options_and_package_data_load_nothing_heavy(code: str) -> None:
    assert not loaded_after(code)


def test_no_module_of_analysis_loads_torch() -> None:
    top = ROOT / "analysis"
    paths = [path.relative_to(top).with_suffix("") for path in top.rglob("*.py") if path.stem != "__init__"]
    assert Path("statistics/friedman") in paths
    code = "\n".join("import biasbed.analysis." + ".".join(path.parts) for path in paths)
    assert "torch" not in loaded_after(code)


def test_analysis_imports_only_the_contract() -> None:
    """Of other rooms: what is tracked and where, registered names, what is derived, needed, and printed by papers."""
    allowed = {
        "record",
        "limits",
        "measures",
        "errors",
        "settings",
        "registry",
        "plugin_loader",
        "tracking",
        "system",
        "options",
        "analysis",
    }
    registries = {"biasbed.algorithms.REGISTRY", "biasbed.suites.REGISTRY"}
    # What both sides compute and say alike.
    shared = {"biasbed.suites.derived", "biasbed.algorithms.requests.NEEDS", "biasbed.published.cells"}
    shared |= {"biasbed.data.names.photographs", "biasbed.published.observers", "biasbed.published.shape_bias_figure"}
    shared |= {"biasbed.published.shape_bias_figure.MOST", "biasbed.published.display_names"}
    # Trust measures of stored scores, which evaluations and analyses compute with the same functions.
    shared |= {"biasbed.evaluation.recorded", "biasbed.evaluation.decisions.Decisions"}
    shared |= {f"biasbed.suites.name_conflicts.{name}" for name in ("TestedCell", "find_name_conflict")}
    for path in (ROOT / "analysis").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "biasbed":
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    assert name.split(".")[1] in {*allowed, "__version__"} or name in registries | shared, (
                        f"{path}: {name}"
                    )
