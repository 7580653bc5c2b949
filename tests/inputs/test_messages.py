"""Messages of commands that fail: one line, and below it our own lists alone."""

from __future__ import annotations

import pickle

import pytest

from biasbed import cli
from biasbed.errors import Failure, UsageError, printed


def test_what_was_typed_makes_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--seed", "a\n  b\x1b[2J"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("biasbed: seed=a\\n  b\\x1b[2J: ")


def test_a_list_keeps_its_lines() -> None:
    error = Failure("these are missing:", "  erm\n on edge", "train them")
    assert printed(error) == "these are missing:\n  erm\\n on edge\ntrain them"
    assert str(error) == "these are missing:\n  erm\n on edge\ntrain them"
    assert printed(pickle.loads(pickle.dumps(error))) == printed(error)  # as processes hand them to each other


@pytest.mark.parametrize("words", [["--epochs"], ["--epochs", "--seed", "1"], ["--hparams.x"]])
def test_a_setting_without_its_value(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", *words]) == 2
    assert capsys.readouterr().err.startswith(f"biasbed: {words[0]} needs a value")


def test_a_switch_without_a_value_is_yes() -> None:
    words = ["--dry_run", "--suite", "demo", "--log_model"]
    assert cli.parse("benchmark", words) == {"dry_run": "yes", "suite": "demo", "log_model": "yes"}


def test_words_without_a_name_fill_the_settings_of_list_in_turn() -> None:
    assert cli.parse("list", ["methods", "texture", "half"]) == {"what": "methods", "words": "texture,half"}
    assert cli.parse("list", ["--what", "suites", "bias"]) == {"what": "suites", "words": "bias"}


def test_a_list_with_blanks_is_answered_with_commas() -> None:
    with pytest.raises(UsageError, match=r"unexpected word 'infodrop': .* as --algorithms erm,coral"):
        cli.parse("benchmark", ["--algorithms", "erm", "infodrop"])


def test_a_value_may_begin_with_one_dash() -> None:
    assert cli.parse("train", ["--optim.lr", "-inf", "--row=--x"]) == {"optim.lr": "-inf", "row": "--x"}
    with pytest.raises(UsageError, match="needs a value; one that begins with -- as --row=<value>"):
        cli.parse("train", ["--row", "--x"])
