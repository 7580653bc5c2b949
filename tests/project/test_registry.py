"""Things found by name: biasbed's own, and those in a user's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed.errors import UsageError
from biasbed.registry import Registry

COLOURS = {"counter": "collections:Counter", "errors": "biasbed.errors", "broken": "biasbed.errors:NoSuchThing"}


def test_a_name_is_a_class_or_a_module() -> None:
    registry = Registry("colour", COLOURS)
    assert registry.load("counter").__name__ == "Counter"
    assert registry.load("errors").UsageError is UsageError
    assert list(registry) == list(COLOURS)


def test_a_wrong_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown colour 'countre'; did you mean 'counter'"):
        Registry("colour", COLOURS).load("countre")
    with pytest.raises(UsageError, match=r"unknown colour 'own\.py:Mine'"):
        Registry("colour", COLOURS).load("own.py:Mine")


def test_a_class_of_one_s_own_where_those_are_taken(tmp_path: Path) -> None:
    registry = Registry("colour", COLOURS, base="builtins:object")
    (tmp_path / "own.py").write_text("class Mine: ...\n")
    mine = registry.load(f"{tmp_path}/own.py:Mine")
    assert mine.__name__ == "Mine"
    assert registry.load(f"{tmp_path}/own.py:Mine") is mine, "imported once"
    with pytest.raises(UsageError, match=r"or <file>\.py:<Class> of your own"):
        registry.load("countre")


@pytest.mark.parametrize("text", ["raise ValueError('no')", "x = (", "y = 1"])
def test_a_file_that_can_t_be_imported_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(UsageError, match="can't be imported") as caught:
        Registry("colour", COLOURS, base="builtins:object").load(f"{tmp_path}/own.py:Mine")
    assert "\n" not in str(caught.value)


def test_what_is_wrong_in_biasbed_itself_is_not_the_user_s_to_mend() -> None:
    with pytest.raises(AttributeError):
        Registry("colour", COLOURS).load("broken")
