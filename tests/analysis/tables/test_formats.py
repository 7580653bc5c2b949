"""Files of every format give the same cells; files without a table are refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from biasbed.analysis.tables.formats import read_grids
from biasbed.errors import UsageError

CELLS = [["Method", "PACS", "VLCS"], ["erm", "85.5", "77.5"], ["irm", "83.5", "78.5"]]
LINES = ["Method,PACS,VLCS", "erm,85.5,77.5", "irm,83.5,78.5"]
LATEX = r"\begin{tabular}{l|cc} \hline Method & PACS & VLCS \\ \hline erm & 85.5 & 77.5 \\ % no & such & row \\"
HTML = (
    "<table><tr><th>Method<th>PACS<th>VLCS</tr><tr><td>erm<td>85.5<td>77.5<tr><td>irm</td><td><b>83.5</b></td><td>78.5"
)
FILES = {
    "a.csv": "\n".join(LINES),
    "a.tsv": "\n".join(LINES).replace(",", "\t"),
    "b.csv": "\ufeff" + "\r\n".join(LINES).replace(",", ";"),
    "a.md": "Words.\n\n| Method | PACS | VLCS |\n|:--|--:|---|\n| erm | **85.5** | 77.5 |\n| [irm](x) | 83.5 | 78.5\n",
    "a.tex": LATEX + "\nirm & \\textbf{83.5} & 78.5 \\\\ \\hline \\end{tabular}",
    "a.html": HTML,
    "a.json": '[{"Method": "erm", "PACS": 85.5, "VLCS": 77.5}, {"Method": "irm", "PACS": 83.5, "VLCS": 78.5}]',
    "b.json": '{"columns": ["Method", "PACS", "VLCS"], "data": [["erm", 85.5, 77.5], ["irm", 83.5, 78.5]]}',
    "c.json": '{"Method": ["erm", "irm"], "PACS": [85.5, 83.5], "VLCS": [77.5, 78.5]}',
    "a.jsonl": '{"Method": "erm", "PACS": 85.5, "VLCS": 77.5}\n{"Method": "irm", "PACS": 83.5, "VLCS": 78.5}\n',
    "a.yaml": "- {Method: erm, PACS: 85.5, VLCS: 77.5}\n- {Method: irm, PACS: 83.5, VLCS: 78.5}\n",
    "a.txt": "Method    PACS   VLCS\n----------------------\nerm       85.5   77.5\nirm       83.5   78.5\n",
    "b.txt": "+--------+------+------+\n| Method | PACS | VLCS |\n+--------+------+------+\n| erm    | 85.5 | 77.5 |\n"
    "| irm    | 83.5 | 78.5 |\n+--------+------+------+\n",
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_cells(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name].encode())
    (grid,) = read_grids(tmp_path / name)
    assert grid.rows == CELLS


def test_cells_over_several_rows_and_columns_are_repeated(tmp_path: Path) -> None:
    latex = r"\begin{tabular}{ccc} \multirow{2}{*}{M} & \multicolumn{2}{c}{PACS} \\ & Art & Photo \\ \midrule a & 1 & 2"
    (tmp_path / "t.tex").write_text(latex + r" \\ \end{tabular}")
    html = "<table><tr><td rowspan=2>M</td><td colspan=2>PACS</td></tr><tr><td>Art</td><td>Photo</td></tr>"
    (tmp_path / "t.html").write_text(html + "<tr><td>a</td><td>1</td><td>2</td></tr></table>")
    for name in ("t.tex", "t.html"):
        (grid,) = read_grids(tmp_path / name)
        assert grid.rows == [["M", "PACS", "PACS"], ["M", "Art", "Photo"], ["a", "1", "2"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\0", r"is an image \(PNG\): give the table as text"),
        (b"%PDF-1.7\n\xff", "is a PDF: give the table as text"),
        (b"PK\3\4\0", "is a spreadsheet or an archive"),
        (b"", "the file is empty"),
        (b"a,b\n1,\0\n", "is no text"),
        (b"m\xe9thode,a\n", "line 1: can't be read as UTF-8"),
        (b"a,b\n" + b"x" * 100_000 + b",2\n", "line 2: a cell has 100,000 characters"),
        (b"<table>" + b"<tr><td>m</td><td>1.5</td></tr>" * 60_000, "has more than 50,000 lines: give them as CSV"),
        (b"| m | a |\n|---|---|\n" + b"| m | 1.5 |\n" * 60_000, "has more than 50,000 lines"),
        (b"words of a log\n" * 60_000, "has more than 50,000 lines"),
        (rb"\begin{tabular}{lc} m & a \\ x & " + b"{" * 50_000 + rb"1 \\ \end{tabular}", "line 1: a cell has"),
        (",".join(map(str, range(5_000))).encode() + b"\n" + b"1," * 4_999 + b"1\n", "has 5,000 columns"),
        (b'a,b\n"x,1\n', "line 2: can't be read as CSV"),
    ],
)
def test_what_is_no_table_is_refused_in_a_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UsageError, match=message) as refusal:
        read_grids(tmp_path / "t.csv")
    assert "\n" not in str(refusal.value)


def test_damaged_json_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"a": ')
    with pytest.raises(UsageError, match="can't be read as JSON"):
        read_grids(tmp_path / "t.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="it is not a regular file"):
        read_grids(tmp_path / "pipe")
