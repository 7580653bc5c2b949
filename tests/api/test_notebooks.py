"""The notebooks of docs/notebooks: their cells run in order, from a new folder and an empty tracking server."""

from __future__ import annotations

import ast
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
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    assert RESULTS[path.stem] in names


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(RESULTS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_what_its_cells_print_and_show(path: Path) -> None:
    """`python docs/run_notebooks.py` stores it. Each cell that ends in a value, or prints one, has an output."""
    assert path.stat().st_size < 200_000
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "code":
            last = ast.parse("".join(cell["source"])).body[-1]
            assert bool(cell["outputs"]) or not isinstance(last, ast.Expr), f"cell {number} has no output"
