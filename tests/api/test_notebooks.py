"""The notebooks of docs/notebooks: their cells run in order, from a new folder and an empty tracking server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.commands import ROOT

# Notebook -> the variable that its last cells fill.
RESULTS = {"compare_your_scores": "against", "evaluate_your_model": "biases", "read_a_study": "biases"}
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tracking: str) -> None:
    cells = json.loads(path.read_text())["cells"]
    names: dict[str, object] = {"__name__": path.stem}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            assert not cell["outputs"], f"cell {number}: clear the outputs"
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    assert RESULTS[path.stem] in names


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(RESULTS)
