"""LaTeX tables: well formed, compiled where there is a TeX, marked, in the order that is asked for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from biasbed.analysis.command import Outcome
from biasbed.analysis.report import latex
from helpers.toy_runs import SETS, THREE, Recorder, fill

TABLES = ("scores", "shape_bias", "ranks", "runs", "nemenyi", "nemenyi_strict", "pairs", "pairs_strict")
EVIL = '50%_of $x$ & {#1}~^\\ <b>|" 中文\n'


def rows_of(text: str) -> list[list[str]]:
    """The cells of every line between the rules."""
    lines = [line for line in text.splitlines() if " & " in line and "rule" not in line]
    return [line.removesuffix(r" \\").split(" & ") for line in lines]


def is_nested(text: str) -> bool:
    """Return True if every environment ends within the one that it began in."""
    opened: list[str] = []
    for command, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if command == "begin":
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened


def compiled(folder: Path, tables: list[Path]) -> subprocess.CompletedProcess[bytes]:
    inputs = "\n".join(rf"\input{{{path}}}" for path in tables)
    packages = r"\usepackage[T1]{fontenc}\usepackage{booktabs,graphicx,adjustbox,rotating,amssymb}"
    source = rf"\documentclass[twocolumn]{{article}}{packages}\begin{{document}}{inputs}\end{{document}}"
    (folder / "all.tex").write_text(source)
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    return subprocess.run(words, cwd=folder, capture_output=True, check=False)


def test_best_and_daggered_cells_are_marked(outcome: Outcome) -> None:
    text = (outcome.output_dir / "tables/scores.tex").read_text()
    cells = next(row for row in rows_of(text) if row[0] == "Stylized ERM")
    assert cells[3] == r"\textbf{40.0}"
    assert cells[7] == r"\underline{\textbf{55.0}}\textsuperscript{$\dagger$}"
    assert cells[2] == "60.0"
    assert text.count(r"\textbf{") == 6
    assert text.count(r"\dagger") == 2  # the cell and the caption


def test_shape_bias_and_names_are_printed_as_on_the_page(outcome: Outcome) -> None:
    """A reader of the paper sees the headline's column, and no name or hash that only biasbed knows."""
    frame = pd.read_csv(outcome.output_dir / "shape_bias.csv").set_index("algorithm")
    for name in ("scores", "shape_bias"):
        text = (outcome.output_dir / "tables" / f"{name}.tex").read_text()
        row = next(row for row in rows_of(text) if row[0] == "ERM")
        assert any(cell.startswith(f"{frame.loc['erm', 'mean']:.1f} ") for cell in row[1:])
        assert outcome.analysis.collection.scope.protocol[:8] not in text
        assert r"best\_validation" not in text
        assert "Cue Conflict" in text


def test_tables_are_well_formed(outcome: Outcome) -> None:
    for name in TABLES:
        text = (outcome.output_dir / "tables" / f"{name}.tex").read_text()
        assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}"), name
        assert is_nested(text), name
        assert not re.search(r"(?<!\\)[_%#]", text.split("\n", 1)[1]), name
        columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
        assert columns is not None, name
        assert {len(row) for row in rows_of(text)} == {len(columns[1])}, name


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.usefixtures("without_figures")
def test_tables_of_any_names_compile(recorder: Recorder, tmp_path: Path) -> None:
    fill(recorder, {EVIL: THREE["erm"], "a": THREE["infodrop"], "b": THREE["padain"]}, seeds=1, study=EVIL)
    tables = sorted((recorder.analyze().output_dir / "tables").glob("*.tex"))
    done = compiled(tmp_path, tables)
    assert done.returncode == 0, done.stdout[-2000:].decode(errors="replace")


@pytest.mark.parametrize(
    ("characters", "kind"), [(4, "table"), (16, "table*"), (40, "sidewaystable*"), (400, "sidewaystable*")]
)
def test_a_table_stands_where_it_fits(characters: int, kind: str) -> None:
    row = ["x" * characters] * 5
    text = latex.floated(["a", "b", "c", "d", "e"], [row], "lllll", "l", caption="c", note="n")
    assert rf"\begin{{{kind}}}" in text
    assert is_nested(text)


def test_a_long_table_goes_on_in_further_floats_under_one_number() -> None:
    rows = [[str(i), "1"] for i in range(100)]
    text = latex.floated(["a", "b"], rows, "lr", "l", caption="Scores.", note="n", footer=[["mean", "2"]])
    assert [row for row in rows_of(text) if row[0] not in ("a", "mean")] == rows
    assert text.count(r"\begin{table}") == 3
    assert text.count(r"\addtocounter{table}{-1}") == text.count("(Continued.)") == 2
    assert text.count(r"\label{tab:l}") == text.count("mean & 2") == text.count(r"\begin{minipage}") == 1


def test_a_minus_is_no_hyphen() -> None:
    cells = {"-1.5": "$-$1.5", "-3.0 to -1.0": "$-$3.0 to $-$1.0", r"\textbf{-2}": r"\textbf{$-$2}", "a-200": "a-200"}
    text = latex.floated(["a", "b"], [["x", cell] for cell in cells], "lr", "l", caption="c", note="")
    assert [row[1] for row in rows_of(text)[-len(cells) :]] == list(cells.values())


def test_everything_special_is_escaped() -> None:
    assert not re.search(r"(?<!\\)[_%&$#]", latex.escape("a_b 50% x & y $#{} ~^\\"))


@pytest.mark.usefixtures("without_figures", "few_draws", "without_evidence")
def test_order_is_that_of_the_options_and_changes_no_number(recorder: Recorder) -> None:
    fill(recorder, THREE)
    plain = recorder.analyze()
    nemenyi = (plain.output_dir / "nemenyi.csv").read_bytes()
    ordered = recorder.analyze(order="padain", set_order="sketch,edge")
    assert (ordered.output_dir / "nemenyi.csv").read_bytes() == nemenyi
    assert ordered.analysis.cells["erm", "edge"] == plain.analysis.cells["erm", "edge"]
    text = (ordered.output_dir / "tables/scores.tex").read_text()
    assert [row[0] for row in rows_of(text)][-3:] == ["pAdaIN", "ERM", "InfoDrop"]
    sets = re.findall(r"\\rotatebox\{60\}\{([^}]+)\}", text)
    left = (name for name in SETS if name not in ("sketch", "edge"))
    assert sets == ["shape bias", "Sketch", "Edge", *(latex.escape(plain.analysis.label(name)) for name in left)]
    runs = [row[0] for row in rows_of((ordered.output_dir / "tables/runs.tex").read_text())]
    assert runs[-6:] == ["pAdaIN", "pAdaIN", "ERM", "ERM", "InfoDrop", "InfoDrop"]
