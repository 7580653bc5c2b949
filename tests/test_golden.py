"""A trace of each method's losses, so that a change of the numbers is noticed and meant.

`python tests/test_golden.py` writes the traces anew, for a change of the numbers that CHANGELOG.md lists.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import pytest  # noqa: E402
import torch  # noqa: E402

from biasbed import algorithms  # noqa: E402
from conformance.making import batch_for, make, steps  # noqa: E402

TRACES = HERE / "golden"
STEPS = 20


def features() -> dict[str, str]:
    """On the same ones, the numbers must be the same to the last bit."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model or platform.processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__.partition("+")[0],
    }


def trace(name: str) -> dict[str, list[float]]:
    """Each loss over 20 steps on one batch, in two epochs, by its name."""
    torch.set_num_threads(1)
    algorithm = make(name, seed=11, lr=0.001)  # slow enough for rounding not to grow
    terms = steps(algorithm, batch_for(algorithm), 0, STEPS, per_epoch=STEPS // 2)
    return {term: [entry[term] for entry in terms] for term in terms[0]}


@pytest.mark.parametrize("name", algorithms.names())
def test_losses_are_what_they_were(name: str) -> None:
    stored: dict[str, Any] = json.loads((TRACES / f"{name}.json").read_text())
    found = trace(name)
    if stored["features"] == features():
        assert found == stored["losses"]
    else:
        assert found.keys() == stored["losses"].keys()
        for term, values in stored["losses"].items():
            assert found[term] == pytest.approx(values, rel=1e-4), term


def test_every_trace_belongs_to_a_method() -> None:
    assert {path.stem for path in TRACES.glob("*.json")} == set(algorithms.names())


if __name__ == "__main__":
    TRACES.mkdir(exist_ok=True)
    for method in algorithms.names():
        content = {"features": features(), "losses": trace(method)}
        (TRACES / f"{method}.json").write_text(json.dumps(content, indent=1) + "\n")
