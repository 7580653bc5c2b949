"""Text of --help: short, grouped, with choices, and with the values that the named suite and method would use."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed import algorithms, cli, suites
from biasbed.cli import usage
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.options import TestOptions
from biasbed.settings import build, specs
from helpers.commands import ROOT


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main([*words])
    assert end.value.code == 0
    return capsys.readouterr().out


def test_a_training_s_help_is_short_and_begins_with_what_is_changed_first(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "--help")
    names = [line.split()[0][2:] for line in text.splitlines() if line.startswith("  --")]
    assert tuple(names) == usage.FIRST["train"]
    for name in (*algorithms.names(), *suites.REGISTRY):
        assert f" {name}" in text
    assert f"{len(specs(Config)) - len(names)} more settings: biasbed train --help all" in text


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_all_settings_are_there_when_all_are_asked_for(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, command, "--help", "all")
    for name, spec in cli.COMMANDS[command].settings().items():
        assert f"\n  --{name} " in text, name
        assert spec.help.split()[0] in text
    assert "more settings" not in text
    assert max(map(len, text.splitlines())) <= usage.WIDTH


def test_values_are_those_that_suite_and_method_would_use(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys, "train", "--suite", "demo", "--algorithm", "infodrop", "--help").split())
    assert "passes over the training data [10]" in text
    assert "or a small one: resnet18, timm:..., mlp [resnet10]" in text
    assert "--hparams.drop_rate X" in text
    assert "the method's own:" in text
    own = shown(capsys, "train", "--algorithm", "infodrop", "--epochs=3", "--hparams.drop_rate", "1.25", "--help")
    assert "passes over the training data [3]" in " ".join(own.split())
    assert "[1.25]" in own


def test_help_on_a_study_says_that_suite_and_method_change_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert "what holds where neither suite nor method sets it" in shown(capsys, "benchmark", "--help")


def test_what_is_named_shows_its_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "--suite", "biasbed", "--help")
    assert "of what is named:" in text
    assert all(f"--{name} " in text for name in suites.REGISTRY.own_settings("biasbed"))
    assert shown(capsys, "prepare", "--what", "stylized", "--help").count("--alpha ") == 1
    assert "--slurm." in shown(capsys, "benchmark", "--launcher", "slurm", "--help")


def started_tests(monkeypatch: pytest.MonkeyPatch, options: TestOptions) -> tuple[list[Path], list[str]]:
    """Return the folder that `biasbed test` goes to, and the words that it starts pytest with."""
    folders: list[Path] = []
    words: list[str] = []
    monkeypatch.setattr(cli.os, "environ", dict(cli.os.environ))  # it takes MLflow's variables out
    monkeypatch.setattr(cli.os, "chdir", folders.append)
    monkeypatch.setattr(cli.os, "execv", lambda _, command: words.extend(command))
    cli.run_tests(options)
    return folders, words


def test_the_tests_are_those_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    folders, words = started_tests(monkeypatch, TestOptions())
    assert folders == [ROOT]
    assert words[words.index("-m", 3) + 1] == "not slow"
    assert "--slice" not in words


def test_a_slice_of_the_slow_tests_joins_the_default_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    _, words = started_tests(monkeypatch, TestOptions(slice="3/10"))
    assert words[words.index("-m", 3) + 1] == "slow or not slow"
    assert words[words.index("--slice") + 1] == "3/10"
    with pytest.raises(UsageError, match="slice: 3/10, for the third of ten parts, or none; not '11/10'"):
        build(TestOptions, {"slice": "11/10"})
