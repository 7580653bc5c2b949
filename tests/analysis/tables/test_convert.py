"""From a table to what is compared: one measure a data set, blocks, directions, deviations, validation, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import biasbed
from biasbed import cli
from biasbed.analysis.options import CompareOptions
from biasbed.analysis.tables.user_scores import UserScores
from biasbed.api.comparison import read_scores
from biasbed.errors import UsageError

PARTS = """
| Method | PACS | | OfficeHome | |
|---|---|---|---|---|
| | Art | Photo | Art | Clipart |
| erm | 84.7 ± 0.4 | 97.2 ± 0.3 | 61.3 ± 0.7 | 52.4 ± 0.3 |
| irm | 84.8 ± 1.3 | 96.7 ± 0.6 | 58.9 ± 2.3 | 52.2 ± 1.6 |
| coral | 88.3 ± 0.2 | 97.5 ± 0.3 | 65.3 ± 0.4 | 54.4 ± 0.5 |
"""


def read(text: str, folder: Path, name: str = "t.md", **settings: Any) -> UserScores:
    (folder / name).write_text(text, encoding="utf-8")
    return read_scores(folder / name, CompareOptions(**settings))


def test_parts_of_a_data_set_count_once(tmp_path: Path) -> None:
    scores = read(PARTS, tmp_path)
    assert scores.datasets == ["PACS/Art", "PACS/Photo", "OfficeHome/Art", "OfficeHome/Clipart"]
    assert set(scores.blocks.values()) == {"PACS", "OfficeHome"}
    (tmp_path / "t.md").write_text(PARTS, encoding="utf-8")
    result = biasbed.compare(tmp_path / "t.md", bootstrap=200)
    assert result.analysis.comparisons[0].sets == ("PACS", "OfficeHome")
    assert not read(PARTS, tmp_path, blocks="none").blocks


def test_blocks_are_those_that_the_user_names(tmp_path: Path) -> None:
    text = "method,a,b,c\nx,1,2,3\ny,2,3,5\nz,3,5,6\n"
    scores = read(text, tmp_path, "t.csv", blocks=("one=a", "b"))
    assert scores.blocks == {"a": "one", "b": "one"}
    with pytest.raises(UsageError, match="blocks=one=d: there is no such data set"):
        read(text, tmp_path, "t.csv", blocks=("one=a", "d"))
    with pytest.raises(ValueError, match="name the data set too, as pacs=Art"):
        CompareOptions(blocks=("a", "b"))


def test_columns_of_one_benchmark_and_a_column_block_make_blocks(tmp_path: Path) -> None:
    lines = [
        f"{m},{b},{d},{score + n}"
        for n, m in enumerate("xy")
        for b, d, score in (("P", "a", 1), ("P", "b", 2), ("O", "c", 3))
    ]
    scores = read("\n".join(["method,benchmark,dataset,score", *lines]), tmp_path, "t.csv")
    assert scores.blocks == {"a": "P", "b": "P"}
    slashes = read("method,P/a,P/b,c\nx,1,2,3\ny,3,2,1\nz,4,4,5\n", tmp_path, "t.csv")
    assert slashes.blocks == {"a": "P", "b": "P"}


def test_of_several_measures_of_one_data_set_one_counts(tmp_path: Path) -> None:
    text = (
        "| M | A | | B | |\n|---|---|---|---|---|\n| | F1 | FPR95 ↓ | F1 | FPR95 ↓ |\n"
        "| x | 80 | 30 | 70 | 40 |\n| y | 82 | 20 | 75 | 35 |\n"
    )
    scores = read(text, tmp_path)
    assert scores.measure == "F1"
    assert scores.datasets == ["A", "B"]
    assert any("F1 counts; left out: FPR95" in note for note in scores.notes)
    errors = read(text, tmp_path, score="FPR95")
    assert errors.lower == ("A", "B")
    assert sorted(read(text, tmp_path, blocks="none").table["dataset"].unique()) == [
        "A F1",
        "A FPR95",
        "B F1",
        "B FPR95",
    ]


def test_columns_without_a_data_set_do_not_choose_the_measure(tmp_path: Path) -> None:
    head = "| M | PACS Acc | PACS ECE | VLCS Acc | VLCS ECE | ECE | NLL |\n|---|---|---|---|---|---|---|\n"
    lines = "| x | 80 | 6.5 | 70 | 4 | 5.2 | 0.3 |\n| y | 82 | 4.6 | 75 | 5 | 4.8 | 0.2 |\n"
    scores = read(head + lines, tmp_path)
    assert scores.datasets == ["PACS", "VLCS", "ECE", "NLL"]
    assert set(scores.table.loc[scores.table["dataset"] == "PACS", "score"]) == {80, 82}


def test_validation_beside_test_is_left_out_with_a_note(tmp_path: Path) -> None:
    scores = read(
        "algorithm,val/acc_u,test/acc_u,test/acc_v\na,0.9,0.8,0.7\nb,0.91,0.79,0.6\nc,0.9,0.7,0.6\n", tmp_path, "t.csv"
    )
    assert scores.datasets == ["u", "v"]
    assert any("left out, validation scores beside test scores: u" in note for note in scores.notes)


def test_copies_complements_and_opposites_are_noted(tmp_path: Path) -> None:
    rows = [f"{m},{v},{v},{100 - v},{v + 1},{90 - v},{v / 2}" for m, v in (("x", 60), ("y", 65), ("z", 71))]
    scores = read("\n".join(["method,a,b,c,d,e,f", *rows]), tmp_path, "t.csv")
    notes = " ".join(scores.notes)
    assert "columns a, b hold the same numbers: is one a copy?" in notes
    assert "c is 100 less a: the same information twice" in notes
    assert "e falls where the others rise: if less of it is better, say lower=e" in notes
    assert "c" not in scores.datasets


def test_a_block_is_joined_of_columns_of_one_direction(tmp_path: Path) -> None:
    text = "method,P/a,P/b,P/ECE,q\nx,70,80,5,60\ny,72,83,9,66\nz,75,81,4,61\n"
    scores = read(text, tmp_path, "t.csv")
    assert scores.datasets == ["a", "b", "q"]
    assert any("count the other way than the other columns of their data set: P ECE" in note for note in scores.notes)


def test_directions_follow_from_arrows_words_and_captions(tmp_path: Path) -> None:
    text = (
        "| Method | A (↑) | B ↓ | C error | D |\n|---|---|---|---|---|\n"
        "| x | 1.5 | 2.5 | 3.5 | 1.1 |\n| y | 1.7 | 2.2 | 3.9 | 2.1 |\n"
    )
    assert read(text, tmp_path).lower == ("B", "C")


def test_settings_overrule_what_would_be_left_out_or_refused(tmp_path: Path) -> None:
    text = "method,year,a,b,Avg\nx,2017,1.5,2.5,9\ny,2018,1.7,2.2,8\nz,2019,1.1,2.9,7\n"
    assert read(text, tmp_path, "t.csv").datasets == ["a", "b"]
    assert read(text, tmp_path, "t.csv", keep=("Avg",)).datasets == ["a", "b", "Avg"]
    assert read(text, tmp_path, "t.csv", leave_out=("b",), keep=("Avg",)).datasets == ["a", "Avg"]
    pairs = "method,a,b\nx,1.5/7,2.5/8\ny,1.7/9,2.2/6\n"
    assert read(pairs, tmp_path, "t.csv", value_in_cell=2).table["score"].tolist() == [7, 8, 9, 6]
    two = (
        "| Method | a | b |\n|---|---|---|\n| x | 1.5 | 2 |\n| y | 3 | 4 |\n\nWords.\n\n"
        "| Method | c | d |\n|---|---|---|\n| x | 5 | 6 |\n| y | 7 | 8 |\n"
    )
    with pytest.raises(UsageError, match=r"several tables of scores: .* choose one with table="):
        read(two, tmp_path)
    assert read(two, tmp_path, table=2).datasets == ["c", "d"]


def test_names_like_none_and_nan_are_names(tmp_path: Path) -> None:
    scores = read("method,a,b\nNone,1.5,2\nnan,3,4\nNA,5,6\n", tmp_path, "t.csv")
    assert scores.methods == ["None", "nan", "NA"]


def test_a_dry_run_shows_one_screen_and_writes_the_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.md").write_text(PARTS, encoding="utf-8")
    assert cli.main(["compare", "t.md", "--dry_run", "yes", "--output_dir", "out"]) == 0
    shown = capsys.readouterr().out
    assert "3 methods" in shown
    assert "PACS: Art, Photo count once" in shown
    assert len(shown.splitlines()) < 24
    lines = (tmp_path / "out" / "understood.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("method,dataset,block,metric,score,spread,higher_is_better")
    assert lines[1].startswith("erm,Art,PACS,,84.7,0.4,")
    assert len(lines) == 13


def test_parts_in_unlike_units_are_no_one_data_set(tmp_path: Path) -> None:
    head = "| Method | Resin A | | Resin B | |\n|---|---|---|---|---|\n| | Tg | vc | Tg | vc |\n"
    text = head + "| lr | 4.61 | 0.000347 | 4.31 | 0.000225 |\n| rf | 5.70 | 0.000310 | 4.99 | 0.000311 |\n"
    with pytest.raises(UsageError, match=r"unlike units.*say blocks=none"):
        read(text, tmp_path)
    assert len(read(text, tmp_path, blocks="none").datasets) == 4


def test_a_dry_run_shows_the_measure_that_is_tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "| Model | MRPC (acc) | MRPC (f1) | QQP (acc) | QQP (f1) |\n|---|---|---|---|---|\n"
    text += "| a | 70.1 | 80.1 | 71.2 | 61.1 |\n| b | 72.1 | 81.1 | 73.2 | 64.1 |\n"
    (tmp_path / "t.md").write_text(text, encoding="utf-8")
    for measure, counted in (("auto", "acc"), ("f1", "f1")):
        assert cli.main(["compare", str(tmp_path / "t.md"), "--dry_run", "yes", "--score", measure]) == 0
        out = capsys.readouterr().out
        assert "4 scores" in out.splitlines()[0]
        assert f"measure:       {counted}" in out


def test_the_note_on_measures_without_a_data_set_says_that_each_counts(tmp_path: Path) -> None:
    text = "method,CUB,ECE,NLL\na,1,2,7\nb,3,1,6\nc,2,4,9\nd,5,3,8\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    scores = read_scores(tmp_path / "t.csv", CompareOptions())
    assert scores.datasets == ["CUB", "ECE", "NLL"]
    assert any("each counts as one: ECE, NLL " in note for note in scores.notes)
    assert not any("measures of one data set" in note for note in scores.notes)
