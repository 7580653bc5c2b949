"""The settings of `matrix.py`: none is lost where several are tried at once, and what can't be tried is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest

import matrix
from helpers.commands import ROOT
from matrix import QUICK, SETTINGS, WHOLE, Setting, grouped, missing, together

GROUPS = grouped(SETTINGS)


def test_every_setting_is_in_one_group() -> None:
    names = [name for group in GROUPS for name in group]
    assert sorted(names) == sorted(SETTINGS)
    assert len(GROUPS) == max(
        sum(setting.arithmetic for setting in SETTINGS.values()),
        sum("HOME" in setting.env or bool(setting.home) for setting in SETTINGS.values()),
    )


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_a_group_is_all_of_its_settings(group: dict[str, Setting]) -> None:
    whole = together(group.values())
    for setting in group.values():
        assert setting.env.items() <= whole.env.items()
        assert not setting.home or (whole.home == setting.home and "HOME" not in whole.env)
        assert not setting.folder or whole.folder == setting.folder
        assert whole.offline >= setting.offline
        assert whole.arithmetic >= setting.arithmetic
    assert sum(setting.arithmetic for setting in group.values()) <= 1


def test_one_setting_alone_is_itself() -> None:
    for setting in SETTINGS.values():
        assert dataclasses.replace(together([setting]), env=setting.env) == setting


def test_a_locale_that_the_machine_lacks_is_named() -> None:
    assert not missing(Setting("", {"LC_ALL": "C"}))
    assert "xx_YY.UTF-8" in missing(Setting("", {"LC_ALL": "xx_YY.UTF-8"}))


def refuse() -> None:
    raise OSError(1, "not permitted")


def test_what_is_missing_is_said_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[Setting] = []

    def run(setting: Setting, words: Iterable[str]) -> bool:
        assert "left out: offline, as a network of its own needs root" in capsys.readouterr().out
        tried.append(setting)
        return True

    monkeypatch.setattr(matrix, "leave_network", refuse)
    monkeypatch.setattr(matrix, "run", run)
    assert matrix.main(["offline", "time_zone"]) == 0
    assert "green under time_zone" in capsys.readouterr().out
    assert [setting.offline for setting in tried] == [False]
    assert matrix.main(["offline"]) == 1, "nothing ran"


def test_a_red_group_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(matrix, "run", lambda setting, words: not setting.home)
    assert matrix.main(["empty_home", "no_home", "time_zone"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "green under no_home; RED under empty_home + time_zone"


def test_the_tests_that_are_run_are_there() -> None:
    for word in (*QUICK, *WHOLE):
        if word.startswith("tests"):
            path, _, name = word.partition("::")
            assert (ROOT / path).exists(), path
            assert not name or f"def {name}(" in (ROOT / path).read_text(), word
