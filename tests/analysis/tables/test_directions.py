"""Direction of scores: what says it, what comes first, and what is noted if a table contradicts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from biasbed.analysis.options import CompareOptions
from biasbed.analysis.tables.user_scores import UserScores
from biasbed.api.comparison import read_scores


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
