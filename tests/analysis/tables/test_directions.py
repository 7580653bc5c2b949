"""Direction of scores: what says it, what comes first, and what is noted if a table contradicts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from biasbed.analysis.options import CompareOptions
from biasbed.analysis.tables.directions import title_direction
from biasbed.analysis.tables.user_scores import UserScores
from biasbed.api.comparison import read_scores, run
from biasbed.errors import UsageError


def read(text: str, path: Path, **settings: Any) -> UserScores:
    path.write_text(text, encoding="utf-8")
    return read_scores(path, CompareOptions(**settings))


HIGHEST = "method,u,v\na,61.0,52.0\nb,63.0,54.0\nc,64.0,55.0\nd,**66.0**,**58.0**\n"


def test_bold_numbers_say_the_direction_before_the_name_of_the_file(tmp_path: Path) -> None:
    assert read(HIGHEST, tmp_path / "mae.csv").lower == ()
    assert read(HIGHEST.replace("*", ""), tmp_path / "mae.csv").lower == ("u", "v")


def test_a_bold_number_that_is_the_worst_in_the_direction_read_is_noted(tmp_path: Path) -> None:
    text = HIGHEST.replace("u,v", "u Gap,v Gap").replace("66.0", "-6.0").replace("58.0", "58.5")
    note = "the bold number is the worst as it is read: v (highest); is the direction right (`lower`)?"
    assert note in read(text, tmp_path / "t.csv").notes
    assert note not in read(text, tmp_path / "t.csv", lower=("u",)).notes


def test_columns_of_unlike_numbers_are_read_if_the_user_says_their_direction(tmp_path: Path) -> None:
    text = "method,u,v\na,61.0,-5.0\nb,63.0,-6.0\nc,64.0,-7.0\n"
    assert read(text, tmp_path / "t.csv", lower="none").datasets == ["u", "v"]


def test_the_user_may_call_a_data_set_as_the_head_does(tmp_path: Path) -> None:
    text = "method,u top1 acc ↗,u ECE ↘,v (error %)\na,1,.5,3\nb,2,.6,4\nc,3,.7,6\n"
    scores = read(text, tmp_path / "t.csv", sets=("u top1 acc ↗", "V (ERROR %)"), lower="none")
    assert scores.datasets == ["u", "v"]
    assert scores.named(("v (error %)", "w")) == ["v", "w"]
    assert not any("as the table says" in note for note in scores.notes)


@pytest.mark.parametrize(
    ("words", "direction"),
    [
        ("Results: mean ± standard error over 3 trials", ""),
        ("Error bars are over 3 seeds", ""),
        (r"Results on DomainBed, mean $\pm$ standard error", ""),
        ("Errors are over five random seeds", ""),
        ("Accuracy with standard errors", "yes"),
        ("Top-1 error", "no"),
        ("Test error (%) with standard errors over 3 runs", "no"),
        ("Error of five networks over corruptions", "no"),
    ],
)
def test_an_error_that_is_a_spread_says_no_direction(words: str, direction: str) -> None:
    assert title_direction(words) == direction


def test_words_that_contradict_the_bold_numbers_are_refused(tmp_path: Path) -> None:
    lines = HIGHEST.split()
    rule = "---,---,---"
    table = "\n".join(f"|{line.replace(',', '|')}|" for line in (lines[0], rule, *lines[1:]))
    text = f"Test error in percent.\n\n{table}\n"
    with pytest.raises(UsageError, match=r"lower is better, and by the bold .* lower=all or lower=none"):
        read(text, tmp_path / "t.md")
    scores = read(text, tmp_path / "t.md", lower="none")
    assert scores.lower == ()
    assert not any("words around" in note for note in scores.notes)


def test_the_screen_shows_the_direction_that_the_user_states(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HIGHEST.replace("*", ""), encoding="utf-8")
    run(CompareOptions(scores=str(path), lower=("v",), dry_run=True))
    screen = capsys.readouterr().out
    assert "u, v (lower is better)" in screen
    assert "direction:" not in screen


ERRORS = "Test error (%)"
AROUND, AVERAGE, RANKS = "by the words around the table", "as the head of its averages says", "by the printed ranks"
PLAIN = ("<th>Method<th>u<th>v", "<td>a<td>12.1<td>14.2", "<td>b<td>10.1<td>12.9", "<td>c<td>15.3<td>18.9")
NO_COLUMN = ("", "", "", "")


@pytest.mark.parametrize(
    ("page", "column", "why"),
    [
        (f"<h2>{ERRORS}</h2><p>Of three methods.</p>TABLE", NO_COLUMN, AROUND),
        (f"<h2>{ERRORS}</h2><table><tr><td>Seeds</table>TABLE", NO_COLUMN, AROUND),
        (f"<caption>Table 1: {ERRORS}</caption>TABLE", NO_COLUMN, AROUND),
        (f"<p>Accuracy</p>TABLE<caption>{ERRORS}</caption>", NO_COLUMN, AROUND),
        (f"<figure>TABLE\n<figcaption>Table 1: {ERRORS}</figcaption></figure>", NO_COLUMN, AROUND),
        ("TABLE", ("<th>Mean error", "<td>13.2", "<td>11.5", "<td>17.1"), AVERAGE),
        ("TABLE", ("<th>Rank", "<td>2", "<td>1", "<td>3"), RANKS),
    ],
)
def test_words_around_the_table_averages_and_ranks_say_the_direction(
    page: str, column: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    rows = [f"<tr>{row}{cell}" for row, cell in zip(PLAIN, column, strict=True)]
    scores = read(page.replace("TABLE", f"<table>{''.join(rows)}</table>"), tmp_path / "t.html")
    assert scores.lower == ("u", "v")
    assert f"lower is better, {why} (`lower` says otherwise)" in scores.notes


def test_a_title_below_a_table_of_markdown_counts_if_none_is_above(tmp_path: Path) -> None:
    table = "|method|u|v|\n|---|---|---|\n|a|12.1|14.2|\n|b|10.1|12.9|\n"
    assert read(f"{table}\nTable: {ERRORS}\n", tmp_path / "t.md").lower == ("u", "v")
    assert read(f"Table 1: top\n\n{table}\nTable 2: {ERRORS}\n", tmp_path / "t.md").lower == ()


def test_the_caption_of_a_table_of_latex_is_its_own(tmp_path: Path) -> None:
    tabular = r"\begin{tabular}{lcc} method & u & v \\ a & 12.1 & 14.2 \\ b & 10.1 & 12.9 \\ \end{tabular}"
    first = rf"\begin{{table}}\caption{{Test error}} {tabular}\end{{table}}"
    second = rf"\begin{{table}}\caption{{Others}} {tabular}\end{{table}}"
    assert read(first + second, tmp_path / "t.tex", table=1).lower == ("u", "v")
    assert read(first + second, tmp_path / "t.tex", table=2).lower == ()
    assert read(rf"{tabular}\captionof{{table}}{{Test error}}", tmp_path / "t.tex").lower == ("u", "v")


def test_an_average_of_columns_that_say_their_direction_says_nothing_of_others(tmp_path: Path) -> None:
    text = "method,u,v,ECE x,ECE y,Mean ECE\na,61.0,52.0,4.0,5.0,4.5\nb,63.0,54.0,4.4,5.6,5.0\n"
    assert read(text, tmp_path / "t.csv", blocks="none").lower == ("ECE x", "ECE y")


def test_ranks_against_the_words_around_the_table_are_refused(tmp_path: Path) -> None:
    text = f"{ERRORS}\n\n|method|u|v|rank|\n|---|---|---|---|\n|a|12.1|14.2|2|\n|b|10.1|12.9|3|\n|c|15.3|18.9|1|\n"
    with pytest.raises(UsageError, match="by the words around the table lower is better, and by the printed ranks hi"):
        read(text, tmp_path / "t.md")


LEADERBOARD = "model,avg,{drop},mmlu,bbh\n" + "\n".join(
    f"m{i},{50 + i}.0,{48 + i}.0,{50 + i}.5,{51 + i}.5" for i in range(9)
)


@pytest.mark.parametrize("name", ["DROP", "GAP", "DROP F1", "drop_f1", "Latency-Bench", "DROP (3-shot F1)"])
def test_the_name_of_a_data_set_that_holds_words_of_measures_turns_nothing(name: str, tmp_path: Path) -> None:
    scores = read(LEADERBOARD.format(drop=name), tmp_path / "t.csv")
    assert len(scores.datasets) == 3
    assert scores.lower == ()


@pytest.mark.parametrize(
    ("head", "evidence"), [("avg", "the printed average is the mean of it"), ("Params", "it rises with the other")]
)
def test_a_name_that_the_numbers_contradict_is_refused(head: str, evidence: str, tmp_path: Path) -> None:
    text = LEADERBOARD.format(drop="drop").replace("avg", head)
    with pytest.raises(UsageError, match=rf"lower is better on drop, by its name, but {evidence}.* lower=drop or "):
        read(text, tmp_path / "t.csv")
    assert read(text, tmp_path / "t.csv", lower="none").lower == ()


def test_a_column_that_its_name_alone_turns_is_said_first(tmp_path: Path) -> None:
    text = "method,u error,v (%) ↓,w\na,3,4,5\nb,4,3,6\nc,5,6,4\n"
    scores = read(text, tmp_path / "t.csv")
    assert scores.lower == ("u", "v (%)")
    assert scores.notes[0].startswith("lower is taken as better on u, by its name; higher is taken as better: ")
    assert "lower is better on v (%), as the table says (`lower` as none turns it)" in scores.notes
