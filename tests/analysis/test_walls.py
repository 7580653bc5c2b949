"""What analysis may load: no torch, and nothing heavy before it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
        "from biasbed.analysis import AnalyzeOptions; from biasbed.settings import specs; specs(AnalyzeOptions)",
        "import biasbed.published; biasbed.published.read(biasbed.published.BIASBED)",
    ],
)
def test_options_and_package_data_load_nothing_heavy(code: str) -> None:
    assert not loaded_after(code)


def test_no_module_of_analysis_loads_torch() -> None:
    names = [path.stem for path in (ROOT / "analysis").glob("*.py") if not path.stem.startswith("__")]
    assert "statistics" in names
    code = "\n".join(f"import biasbed.analysis.{name}" for name in names)
    assert "torch" not in loaded_after(code)


def test_analysis_imports_only_the_contract() -> None:
    registries = {f"from biasbed.{name} import REGISTRY as {name.upper()}" for name in ("algorithms", "suites")}
    allowed = {"comparison", "record", "measures", "errors", "settings", "server", "progress", "user_file", "analysis"}
    for path in (ROOT / "analysis").glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] == ["from"] and words[1].startswith("biasbed") and path.stem != "__main__":
                module = words[1].split(".")[1] if "." in words[1] else words[3].rstrip(",")
                assert module in allowed or line in registries, f"{path.name}: {line}"
