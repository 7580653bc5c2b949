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
