"""Commands as typed: what is refused, with which words and exit code, and that nothing is left behind."""

from __future__ import annotations

import difflib
import errno
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

from biasbed import cli, config
from biasbed.errors import UsageError
from biasbed.settings import build, check, setting, word
from biasbed.training.identity import config_hash, run_key
from biasbed.training.resolve import resolve
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


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--epoch", "3"],
        ["train", "--epochs", "-1"],
        ["train", "--algorithm", "infodrob"],
        ["train", "--suite", "demoo"],
        ["benchmark", "--workers", "0"],
        ["sweep", "--trails", "3"],
        ["prepare"],
        ["evaluate"],
    ],
)
def test_a_refused_command_loads_nothing_heavy(words: list[str]) -> None:
    code, text = loaded(words)
    assert code == 2, text


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
        ([], "no command was given"),
        ([""], "unknown command ''; valid: main, train"),
        (["--help", "me"], "unexpected word 'me' after --help; of a command: biasbed <command> --help"),
        (["--version", "x"], "unexpected word 'x' after --version"),
        (["train", "--study", "caf\udce9"], "'caf\\udce9' is no UTF-8: rename what it names"),
        (["train", "--data_dir", "/root/" + "x" * 300, "--suite", "folders"], "File name too long: /root/xxx"),
        (["evaluate", "--model", "x" * 300 + ".csv"], "File name too long"),
        (["train", "--epochs", "999999999999999999999"], "epochs=999999999999999999999: input should be less than"),
        (["train", "--steps", "99999999999"], "steps=99999999999: input should be less than"),
        (["train", "--image_size", "1000000"], "image_size=1000000: input should be less than or equal to 4096"),
        (
            ["train", "--suite", "folders", "--preprocess.size", "1000000"],
            "preprocess.size=1000000: should be from 8",
        ),
        (["train", "--stimuli.resize", "1000000"], "less than or equal to 4096"),
        (["train", "--test_domains", "x"], "unknown setting 'test_domains'"),
        (["train", "--categories", "prob_sum"], "unknown setting 'categories'; it is one of suite=biasbed"),
        (["benchmark", "--docker.image", "x"], "unknown setting 'docker.image'; it is one of launcher=docker"),
        (
            ["prepare", "--what", "stylized", "--weight_option", "3"],
            "unknown setting 'weight_option'; it is one of what=deepaug_cae|deepaug_edsr",
        ),
        (["train", "--init", "0" * 32], "there is no run 00000000000000000000000000000000 on sqlite:"),
        (["evaluate", "--model", "0" * 32], "there is no run 00000000000000000000000000000000 on sqlite:"),
        (["benchmark", "--algorithms", "erm", "--seeds", "0..99999999"], "are more than 10000 of a method"),
        (["trane"], "unknown command 'trane'; did you mean 'train'?"),
        (["train", "--algorithm", "infodrob"], "unknown algorithm 'infodrob'; did you mean 'infodrop'?"),
        (["train", "--suite", "dmo"], "unknown suite 'dmo'; did you mean 'demo'?"),
        (["train", "--backbone", "resnet19"], "unknown backbone 'resnet19'; did you mean 'resnet1"),
        (["train", "--epoch", "3"], "unknown setting 'epoch'; did you mean 'epochs'?"),
        (["train", "--optim.lrr", "3"], "unknown setting 'optim.lrr'; did you mean 'optim.lr'?"),
        (["train", "--algorithm", "infodrop", "--hparams.droprate", "1"], "did you mean 'hparams.drop_rate'?"),
        (["train", "--epochs", "abc"], "epochs=abc: input should be a valid integer"),
        (["train", "--epochs", "0"], "epochs=0: input should be greater than or equal to 1"),
        (["train", "--epochs", "3", "--steps", "10"], "exactly one unit: epochs or steps"),
        (["train", "--precision", "fp61"], "did you mean 'fp16'?"),
        (["train", "--augment.crop_ratio", "1.33"], "augment.crop_ratio=1.33: should be 2 values, separated by commas"),
        (["train", "--augment.crop_ratio", "1.2,0.8"], "the smallest, above 0, and then the largest"),
        (["train", "--augment.crop_ratio", "0.5,inf"], "the smallest, above 0, and then the largest, finite"),
        (["train", "--optim.restarts", "0.9,0.2"], "optim.restarts=(0.9, 0.2): parts of the training, rising"),
        (["train", "--preset", "papr"], "erm has no preset 'papr'; did you mean 'paper'?"),
        (["train", "--batch_size", "9", "--nproc", "2"], "not divisible by processes x accumulate = 2: take 8"),
        (["train", "--sets", "imagenet_x"], "there is no evaluation set 'imagenet_x'; it is a set of suite=robustness"),
        (["train", "--sets", "silhoutte"], "there is no evaluation set 'silhoutte'; did you mean 'silhouette'?"),
        (["train", "--train", "textur"], "did you mean 'texture'?"),
        (["train", "epochs=3"], "unexpected word 'epochs=3'"),
        (["train", "--nproc", "0"], "nproc=0: should be at least 1"),
        (["train", "--workers", "-1"], "workers=-1: should be at least 0"),
        (["train", "--optim.lr", "inf"], "optim.lr=inf: input should be a finite number"),
        (["train", "--algorithm", ":x"], "algorithm=:x can't be imported"),
        (["train", "--output_dir", "/proc/nowhere"], "can't make the folder"),
        (["train", "--init", "nowhere.pt"], "init=nowhere.pt: no such file"),
        (["train", "--device", "cuda"], "device=cuda: there is no GPU here"),
        (["train", "--image_size", "32", "--stimuli.resize", "20"], "smaller than the crop of 32"),
        (["train", "--stimuli.resize", "32"], "smaller than the crop of 40"),
        (["train", "--train", "none"], "train=none is for testing a model"),
        (["evaluate"], "say what to test"),
        (["evaluate", "--model", "nothing"], "neither a checkpoint file, nor a run id"),
        (["evaluate", "--model", "torchvision:resnet50"], "IMAGENET1K_V2"),
        (["analyze", "--selektion", "last_n"], "did you mean 'selection'?"),
        (["import", "--source", "biasbet"], "did you mean 'biasbed'?"),
        (
            ["train", "--epochs", "2", "--optim.warmup", "2"],
            "optim.warmup=2: a training of 2 epoch(s) ends before its rate has risen to optim.lr",
        ),
    ],
)
def test_wrong_commands_are_refused_in_one_line(
    words: list[str], message: str, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "cuda" in words and __import__("torch").cuda.is_available():
        pytest.skip("there is a GPU here")
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
    for folder, classes in {"good": ("a", "b"), "other": ("a", "c"), "hole": ("a", "b"), "test": ("a", "b")}.items():
        for name in classes:
            (root / folder / name).mkdir(parents=True)
            if (folder, name) != ("hole", "b"):
                for number in range(8):
                    pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                    Image.fromarray(pixels).save(root / folder / name / f"{number}.png")
    (root / "flat").mkdir()
    shutil.copytree(root / "good" / "a", root / "one" / "a")
    shutil.copytree(root / "one", root / "one_too")
    shutil.copytree(root / "good", root / "coded")
    (root / "coded" / "a" / "caf\udce9.png").write_bytes(b"")
    shutil.copytree(root / "good", root / "looped")
    (root / "looped" / "c").symlink_to("c")
    shutil.copytree(root / "good", root / "parent" / "good")
    return root


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs data_dir="),
        (["--data_dir", "/nowhere"], "data_dir=/nowhere: there is no such folder"),
        (["--data_dir", "{root}/flat"], "is empty: expected"),
        (["--data_dir", "{root}"], "say which folder"),
        (["--data_dir", "{root}", "--train", "god"], "has no folder 'god'; did you mean 'good'?"),
        (["--data_dir", "{root}/parent", "--train", "good"], "data_dir={root}/parent/good train=<one of a, b>"),
        (["--data_dir", "{root}", "--train", "hole", "--sets", "good"], "hole/b has no images"),
        (["--data_dir", "{root}", "--train", "good", "--sets", "other"], "it lacks b and has besides c"),
        (["--data_dir", "{root}", "--train", "good", "--sets", "flat"], "flat has no class folders"),
        (["--data_dir", "{root}", "--train", "one", "--sets", "good"], "the classes of {root}/good differ"),
        (["--data_dir", "{root}", "--train", "one", "--sets", "one_too"], "there is one class alone, 'a'"),
        (["--data_dir", "{root}", "--train", "coded", "--sets", "good"], "valid UTF-8: 'caf\\udce9.png'; rename it"),
        (["--data_dir", "{root}", "--train", "looped", "--sets", "good"], "Too many levels of symbolic links"),
        (["--data_dir", "{root}", "--train", "good", "--sets", "good"], "other than the training folder"),
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


def test_colliding_names_are_refused(broken: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    (broken / "test").rename(broken / "Good")
    assert (
        cli.main(["train", "--suite", "folders", "--data_dir", str(broken), "--train", "good", "--sets", "Good"]) == 2
    )
    assert "both become 'good'" in capsys.readouterr().err


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


def test_a_nan_loss_fails_the_run_and_keeps_the_last_good_checkpoint(
    train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    words = ["train", *train_flags, "--algorithm", "helpers.toys:Plain", "--hparams.explode_at", "1"]
    done = biasbed(*words, check=False)
    assert done.returncode == 1
    assert "the loss is not finite (classification)" in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FAILED"
    assert "not finite" in run.data.tags["biasbed.error"]
    (folder,) = run_folders(tmp_path / "home")
    import torch

    state = torch.load(folder / "last.ckpt", weights_only=True)
    assert len(state["history"]) == 1
    assert all(value.isfinite().all() for value in state["algorithm"].values())


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name != "evaluate"])
def test_every_default_can_be_typed(command: str) -> None:
    for spec in cli.COMMANDS[command].settings().values():
        assert check(spec, word(spec.default)) == spec.default, spec.name


@pytest.mark.parametrize(
    ("number", "is_ours"),
    [(errno.ENOENT, True), (errno.EISDIR, True), (errno.ENOSPC, False), (errno.ENAMETOOLONG, False)],
)
def test_where_a_wrong_file_was_opened_is_told(
    number: int, is_ours: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refusal by the machine is one line, which the user can mend; a file that is not there is our mistake."""

    def wrong(options: object) -> int:
        raise OSError(number, "refused", "/there")

    monkeypatch.setattr("biasbed.studies.sync.sync", wrong)
    assert cli.main(["sync"]) == (2 if number == errno.ENAMETOOLONG else 1)
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "biasbed: refused: /there"
    assert (len(told) > 1) == ("in wrong" in " ".join(told)) == is_ours


def test_layers_of_settings() -> None:
    plain = resolve({"suite": "folders"})
    assert (plain.backbone, plain.epochs, plain.optim.lr) == ("resnet18", 30, 0.1)
    paper = resolve({"suite": "folders", "algorithm": "infodrop", "preset": "paper", "epochs": "auto"})
    assert (paper.epochs, paper.optim.lr, paper.optim.lr_batch) == (100, 1e-4, None)
    over = resolve({"suite": "folders", "preset": "paper", "epochs": "7", "optim.milestones": "0.5,0.8"})
    assert (over.epochs, over.optim.lr, over.optim.milestones) == (7, 1e-4, (0.5, 0.8))
    steps = resolve({"suite": "folders", "steps": "50"})
    assert (steps.epochs, steps.steps, steps.unit) == (None, 50, "step")


def test_where_and_how_do_not_change_the_identity() -> None:
    from biasbed import record

    protocol = record.Protocol("folders", (), ("photo",), ("val",), "val/accuracy/val")
    base = resolve({"suite": "folders"})

    def key(**flags: str) -> str:
        return config_hash(resolve({"suite": "folders", **flags}), protocol, "data")

    same = config_hash(base, protocol, "data")
    assert key(workers="3", data_dir="/elsewhere", resume="never", seed="5") == same
    for change in (
        {"epochs": "3"},
        {"precision": "bf16"},
        {"nproc": "2"},
        {"algorithm": "infodrop"},
        {"optim.lr": "1"},
    ):
        assert key(**change) != same
    assert config_hash(base, protocol, "other data") != same
    assert run_key(base, same) != run_key(resolve({"suite": "folders", "seed": "1"}), same)


def test_a_setting_s_range_holds_in_every_layer() -> None:
    with pytest.raises(UsageError, match="greater than 0"):
        build(config.Config, {"optim.lr": -1})
    with pytest.raises(UsageError, match="rising"):
        build(config.Config, {"optim.milestones": "0.9,0.3"})


@dataclass(frozen=True)
class Ranged:
    each: tuple[float, ...] = setting((1.0,), "x", gt=0)
    pair: tuple[int, int] | None = setting(None, "x", ge=1)
    word: Literal["auto"] | float = setting("auto", "x", le=2)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("each", "1,0.5", (1.0, 0.5)),
        ("each", "1,0", "each=1,0: input should be greater than 0"),
        ("each", "1,inf", "each=1,inf: input should be a finite number"),
        ("pair", "2,3", (2, 3)),
        ("pair", "none", None),
        ("pair", "0,3", "pair=0,3: input should be greater than or equal to 1"),
        ("word", "auto", "auto"),
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


def test_a_value_may_begin_with_one_dash() -> None:
    assert cli.parse("train", ["--optim.lr", "-inf", "--row=--x"]) == {"optim.lr": "-inf", "row": "--x"}
    with pytest.raises(UsageError, match="needs a value; one that begins with -- as --row=<value>"):
        cli.parse("train", ["--row", "--x"])
