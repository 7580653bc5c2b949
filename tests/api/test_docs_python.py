"""The examples of docs/python.md, run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from helpers.commands import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
EXAMPLE = re.compile(r"(?P<needs><!-- needs \w+ -->\n)?```python\n(?P<code>.*?)```", re.S)


def test_the_examples_run(tracking: str, tmp_path: Path) -> None:
    """In one program; those that need data or another library are compiled alone."""
    torch.manual_seed(0)
    names: dict[str, object] = {}
    examples = list(EXAMPLE.finditer(PAGE))
    assert len(examples) > 10
    for example in examples:
        code = compile(example["code"], "docs/python.md", "exec")
        if example["needs"] is None:
            exec(code, names)
    assert {"card", "run", "runs", "figures", "pipeline", "network"} <= names.keys()
    assert (tmp_path / "results" / "shape_bias.csv").is_file()
