"""Outputs of the notebooks: each is run in a new folder, and what its cells print and show is stored in its file.

PYTHONPATH=src python docs/run_notebooks.py [name ...]
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parent / "notebooks"
DPI = 80


def run_cells(path: Path) -> dict[str, Any]:
    """Run the cells of a notebook in order and return it with their outputs."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": path.stem}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = run_cell("".join(cell["source"]), f"{path.name}, cell {number}", names)
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            text = printed.getvalue().replace(os.getcwd(), "/work")
            outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
        if value is not None:
            data = show(value)
            outputs.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": number})
        cell |= {"execution_count": number, "outputs": outputs}
    return notebook


def run_cell(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last line; None if that is no expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None


def show(value: Any) -> dict[str, Any]:
    """Return a value as Jupyter stores it: a figure as PNG, a table as HTML, and every value as text."""
    shown: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "savefig"):
        buffer = io.BytesIO()
        value.savefig(buffer, format="png", dpi=DPI, bbox_inches="tight")
        shown["image/png"] = base64.b64encode(buffer.getvalue()).decode()
    elif hasattr(value, "_repr_html_"):
        shown["text/html"] = value._repr_html_().splitlines(keepends=True)
    return shown


def main() -> None:
    for name in sys.argv[1:] or [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))]:
        path = NOTEBOOKS.resolve() / f"{name}.ipynb"
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ |= {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "BIASBED_HOME": f"{folder}/biasbed"}
            notebook = run_cells(path)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
