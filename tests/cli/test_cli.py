"""Commands as typed: what is refused, with which words and exit code, and that nothing is left behind."""

from __future__ import annotations

import difflib
import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

from biasbed import cli
from biasbed.errors import UsageError
from biasbed.settings import build, check, setting, word
from helpers import children
from helpers.children import Command
from helpers.commands import command_environment
from helpers.runs import all_runs, run_folders

HEAVY = ("torch", "torchvision", "timm", "mlflow", "pandas", "scipy", "matplotlib", "sklearn", "optuna")


def loaded(words: list[str]) -> tuple[int, str]:
    """(exit code, output) of a command in a Python of its own, which must load nothing heavy."""
    code = (
        "import sys; from biasbed import cli\n"
        f"try: code = cli.main({words})\nexcept SystemExit as end: code = end.code\n"
        f"loaded = [name for name in {HEAVY} if name in sys.modules]; assert not loaded, loaded\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=command_environment(), capture_output=True, text=True, check=False
    )
    assert "AssertionError" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


HELP = """
import contextlib, io, json, sys
from biasbed import cli
for command in ["", *cli.COMMANDS]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try: code = cli.main([*command.split(), "--help"])
        except SystemExit as end: code = end.code
    print(json.dumps([command, code, sorted(set(sys.argv[1:]) & set(sys.modules)), out.getvalue()]))
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, list[Any]]:
    """Exit code of each command's help, what is loaded of `HEAVY` by then, and the text; in one Python of its own."""
    words = [sys.executable, "-c", HELP, *HEAVY]
    done = subprocess.run(words, env=command_environment(), capture_output=True, text=True, check=True)
    return {command: rest for command, *rest in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help_loads_nothing_heavy(command: str, helps: dict[str, list[Any]]) -> None:
    """Under a second on any machine: what takes longer than that is the import of these."""
    code, heavy, text = helps[command]
    assert code == 0, text
    assert not heavy
    assert "biasbed" in text


def test_no_choice_brings_a_setting_that_looks_like_a_misspelt_general_one() -> None:
    for command in cli.COMMANDS.values():
        general = command.settings()
        for place in command.chooses.values():
            registry = resolve_name(place)
            for name in registry:
                for own in registry.own_settings(name).keys() - general.keys():
                    assert not difflib.get_close_matches(own, general, n=1, cutoff=0.8), (name, own)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what GNU's OpenMP says of itself")
@pytest.mark.parametrize(
    ("chosen", "expected"),
    [({}, "PASSIVE"), pytest.param({"OMP_WAIT_POLICY": "active"}, "ACTIVE", marks=pytest.mark.slow)],
)
def test_threads_that_wait_leave_their_core_to_others(chosen: dict[str, str], expected: str) -> None:
    """OpenMP reads its settings when torch loads it, so they must be there before; the user's own choice stays."""
    environment = {key: value for key, value in command_environment().items() if key != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", "from biasbed import cli; cli.main(['no_command']); import torch"],
        env={**environment, **chosen, "OMP_DISPLAY_ENV": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"OMP_WAIT_POLICY = '{expected}'" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([""], "unknown command ''; valid: main, train"),
        (["train", "--data_dir", "/root/" + "x" * 300, "--suite", "folders"], "File name too long: /root/xxx"),
        (["train", "--init", "0" * 32], "run=00000000000000000000000000000000: there is no such run on sqlite:"),
        (["trane"], "unknown command 'trane'; did you mean 'train'?"),
        (["train", "--epoch", "3"], "unknown setting 'epoch'; did you mean 'epochs'?"),
        (["train", "--algorithm", "infodrop", "--hparams.droprate", "1"], "did you mean 'hparams.drop_rate'?"),
        (["train", "--epochs", "abc"], "epochs=abc: input should be a valid integer"),
        (["train", "--augment.crop_ratio", "1.33"], "augment.crop_ratio=1.33: should be 2 values, separated by commas"),
        (["train", "--stimuli.resize", "32"], "smaller than the crop of 40"),
        (["evaluate"], "say what to test"),
    ],
)
def test_wrong_commands_are_refused_in_one_line(
    words: list[str], message: str, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not all_runs(tracking)
    assert not run_folders(tmp_path / "home")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Folders that are wrong in one way each."""
    root, generator = tmp_path / "broken", np.random.default_rng(0)
    for folder, classes in {"good": ("a", "b"), "other": ("a", "c"), "test": ("a", "b")}.items():
        for name in classes:
            (root / folder / name).mkdir(parents=True)
            for number in range(8):
                pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / folder / name / f"{number}.png")
    shutil.copytree(root / "good" / "a", root / "one" / "a")
    shutil.copytree(root / "one", root / "one_too")
    shutil.copytree(root / "good", root / "coded")
    (root / "coded" / "a" / "caf\udce9.png").write_bytes(b"")
    return root


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs data_dir="),
        (["--data_dir", "{root}", "--train", "good", "--sets", "other"], "it lacks b and has besides c"),
        (["--data_dir", "{root}", "--train", "one", "--sets", "one_too"], "there is one class alone, 'a'"),
        (["--data_dir", "{root}", "--train", "coded", "--sets", "good"], "valid UTF-8: 'caf\\udce9.png'; rename it"),
    ],
)
def test_wrong_folders_are_refused_in_one_line(
    words: list[str], message: str, broken: Path, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "--suite", "folders", *(word.format(root=broken) for word in words)]) == 2
    error = capsys.readouterr().err.strip()
    assert message.format(root=broken) in error
    assert "\n" not in error
    assert not all_runs(tracking)
    assert not run_folders(tmp_path / "home")


def folder_words(root: Path, *more: str) -> list[str]:
    return [
        *("train", "--suite", "folders", "--data_dir", str(root), "--train", "good", "--sets", "test", "--epochs", "2"),
        *("--image_size", "12", "--batch_size", "4", "--backbone", "resnet10", "--log_model", "false"),
        *("--workers", "0", "--device", "cpu", *more),
    ]


@pytest.mark.parametrize(
    ("where", "workers"),
    [
        ("good", "0"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("test", "0"), ("good", "1"), ("test", "1"))),
    ],
)
def test_a_truncated_image_stops_the_run_by_name(
    where: str, workers: str, broken: Path, biasbed: Command, tracking: str
) -> None:
    victims = [broken / where / "a" / f"{number}.png" for number in range(8)]
    for victim in victims if where == "good" else victims[:1]:
        victim.write_bytes(victim.read_bytes()[:200])
    done = biasbed(*folder_words(broken, "--workers", workers), check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FAILED"
    assert str(broken / where / "a") in run.data.tags["biasbed.error"]
    assert "corrupt=skip" in run.data.tags["mlflow.note.content"]


def test_skipping_corrupt_images(broken: Path, biasbed: Command, tracking: str) -> None:
    """Also a training that was cut after its last checkpoint, and sees no image again, counts them all."""
    for where in ("good", "test"):
        (broken / where / "a" / "3.png").write_bytes(b"no image")
    words = folder_words(broken, "--corrupt", "skip")
    assert children.run(words, kill=("saved", 2, "SIGKILL")).returncode == -signal.SIGKILL
    done = biasbed(*words)
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"
    assert json.loads(run.data.tags["biasbed.skipped_images"]) == {"train": 1, "test": 1}
    assert "test/a/3.png" in done.stderr


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name != "evaluate"])
def test_every_default_can_be_typed(command: str) -> None:
    for spec in cli.COMMANDS[command].settings().values():
        assert check(spec, word(spec.default)) == spec.default, spec.name


@dataclass(frozen=True)
class Ranged:
    each: tuple[float, ...] = setting((1.0,), "x", gt=0)
    pair: tuple[int, int] | None = setting(None, "x", ge=1)
    word: Literal["auto"] | float = setting("auto", "x", le=2)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("each", "1,0.5", (1.0, 0.5)),
        ("each", "1,inf", "each=1,inf: input should be a finite number"),
        ("pair", "none", None),
        ("pair", "0,3", "pair=0,3: input should be greater than or equal to 1"),
        ("word", "3", "word=3: input should be 'auto' or input should be less than or equal to 2"),
    ],
)
def test_the_range_of_a_list_or_a_choice_is_that_of_its_numbers(name: str, value: str, expected: object) -> None:
    if not isinstance(expected, str) or expected == value:
        assert getattr(build(Ranged, {name: value}), name) == expected
        return
    with pytest.raises(UsageError, match=re.escape(expected)):
        build(Ranged, {name: value})


def test_what_was_typed_makes_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--seed", "a\n  b\x1b[2J"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("biasbed: seed=a\\n  b\\x1b[2J: ")


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
    with pytest.raises(UsageError, match=r"unexpected word 'lower=none': settings are given as --name value"):
        cli.parse("compare", ["scores.csv", "lower=none"])


def test_a_value_may_begin_with_one_dash() -> None:
    assert cli.parse("train", ["--optim.lr", "-inf", "--row=--x"]) == {"optim.lr": "-inf", "row": "--x"}
    with pytest.raises(UsageError, match="needs a value; one that begins with -- as --row=<value>"):
        cli.parse("train", ["--row", "--x"])
