"""Messages can be read: not too long, and names that look alike are told apart."""

from __future__ import annotations

import pickle
import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from biasbed.data.folders import open_folder
from biasbed.errors import (
    LONGEST_LINE,
    MOST_LINES,
    Failure,
    NotApplicable,
    UnreadableFile,
    UsageError,
    find_other_form,
    format_error,
    to_one_line,
)
from biasbed.settings import nearest

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("length", [0, 1, LONGEST_LINE, LONGEST_LINE + 1, 4013, 10**6])
def test_a_long_message_keeps_its_beginning_and_its_end(length: int) -> None:
    text = ("what is wrong: " + "x" * length + "; what to do")[-max(length, 0) - 27 :]
    shown = to_one_line(text)
    assert len(shown) <= LONGEST_LINE
    assert shown.startswith("what is wrong: ")
    assert shown.endswith("; what to do")
    assert ("more characters" in shown) == (len(text) > LONGEST_LINE)


def test_a_list_of_thousands_keeps_its_advice() -> None:
    shown = format_error(Failure("cells lack runs:", *(f"cell {k}" for k in range(5000)), "do this")).splitlines()
    assert len(shown) == MOST_LINES
    assert (shown[0], shown[-1]) == ("cells lack runs:", "do this")
    assert shown[-2] == f"... and {5002 - MOST_LINES + 1} more lines"
    assert format_error(Failure("a", "b", "c")) == "a\nb\nc"


def test_names_that_differ_by_their_unicode_form_alone() -> None:
    assert find_other_form(COMPOSED, ["cafe", DECOMPOSED]) == DECOMPOSED
    assert not find_other_form(COMPOSED, ["cafe", COMPOSED])
    assert "looks the same, in another Unicode form" in nearest(COMPOSED, [DECOMPOSED])


def test_class_folders_that_differ_by_their_unicode_form_alone(tmp_path: Path) -> None:
    for name in (DECOMPOSED, "bar"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "a.png")
    with pytest.raises(UsageError, match=f"'{COMPOSED}' is written in two Unicode forms"):
        open_folder(tmp_path, "x", ["bar", COMPOSED])


def test_a_list_keeps_its_lines() -> None:
    error = Failure("these are missing:", "  erm\n on edge", "train them")
    assert format_error(error) == "these are missing:\n  erm\\n on edge\ntrain them"
    assert str(error) == "these are missing:\n  erm\n on edge\ntrain them"
    sent = pickle.loads(pickle.dumps(error))  # as processes hand errors to each other
    assert format_error(sent) == format_error(error)


@pytest.mark.parametrize(
    "error", [UsageError("no", "a", "b"), UnreadableFile("/dev/null", "no file"), NotApplicable("no", ["domain"])]
)
def test_an_error_of_any_type_says_where_it_lies_and_stays_itself(error: UsageError) -> None:
    message = str(error)
    with pytest.raises(type(error)) as caught:
        raise error.with_place("erm")
    assert caught.value is error
    assert str(error) == f"erm: {message}"
