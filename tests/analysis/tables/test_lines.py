"""Lines that are methods, and lines that say something about the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed.analysis.options import CompareOptions
from biasbed.api.comparison import read_scores

TABLE = "method,u,v,w\nERM,61.0,52.0,71.0\nIRM,63.0,50.0,70.0\nMixup,64.5,55.0,69.5\n"


@pytest.mark.parametrize(
    ("line", "is_method"),
    [
        ("Best,64.0,54.0,72.5", True),
        ("Best,64.5,55.0,71.0", False),  # the largest of each column
        ("Best,1,3,2", False),
        ("Gain,62.0,53.0,70.5", True),
        ("Gain,1.5,3.0,-1.0", False),
        ("Wins,0,1,2", False),
    ],
)
def test_numbers_tell_whether_a_line_is_a_method(line: str, is_method: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLE + line + "\n", encoding="utf-8")
    assert (line.partition(",")[0] in read_scores(path, CompareOptions()).methods) == is_method
