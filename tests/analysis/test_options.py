"""Loading of analysis: options and package data need nothing heavy, and no module needs PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers.commands import ROOT

HEAVY = ("torch", "pandas", "mlflow", "scipy", "matplotlib", "numpy", "jinja2")


def loaded_after(code: str) -> set[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    script = f"import sys\n{code}\nprint(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_options_and_package_data_load_nothing_heavy() -> None:
    lines = (
        "import biasbed.analysis, biasbed.published",
        "from biasbed.analysis.options import AnalyzeOptions",
        "from biasbed.settings import specs",
        "specs(AnalyzeOptions)",
        "biasbed.published.BIASBED.runs()",
    )
    assert not loaded_after("\n".join(lines))


def test_no_module_of_analysis_loads_torch() -> None:
    top = ROOT / "analysis"
    paths = [path.relative_to(top).with_suffix("") for path in top.rglob("*.py") if path.stem != "__init__"]
    assert Path("statistics/friedman") in paths
    code = "\n".join("import biasbed.analysis." + ".".join(path.parts) for path in paths)
    assert "torch" not in loaded_after(code)
