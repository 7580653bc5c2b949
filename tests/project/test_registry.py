"""Things found by name: biasbed's own, and those of a user's file; what a file or a server names is imported never."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from biasbed import cli, record
from biasbed.algorithms.make import from_checkpoint
from biasbed.analysis.selection.rules import LastN
from biasbed.analysis.selection.select import make_rule
from biasbed.errors import UsageError
from biasbed.registry import Registry
from biasbed.studies import study, winners
from helpers.children import Command, one_line, train_at
from helpers.runs import all_runs, run_folders

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


@pytest.mark.parametrize("text", ["raise ValueError('no')", "raise SystemExit(3)", "x = (", "y = 1"])
def test_a_file_that_can_t_be_imported_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(UsageError, match="can't be imported") as caught:
        Registry("colour", COLOURS, base="builtins:object").load(f"{tmp_path}/own.py:Mine")
    assert "\n" not in str(caught.value)


def test_what_is_wrong_in_biasbed_itself_is_not_the_user_s_to_mend() -> None:
    with pytest.raises(AttributeError):
        Registry("colour", COLOURS).load("broken")


SUITE = """
from dataclasses import dataclass, replace

from biasbed.settings import setting
from biasbed.suites.demo import Demo, DemoSettings


@dataclass(frozen=True)
class Settings(DemoSettings):
    tested_on: str = setting("edge", "the one set that counts")


class OneSet(Demo):
    Settings = Settings

    def open(self):
        suite = super().open()
        return replace(suite, sets=tuple(one for one in suite.sets if one.name == self.config.tested_on))
"""
LAUNCHER = """
from dataclasses import dataclass

from biasbed.options import StudyOptions
from biasbed.settings import setting
from biasbed.studies.launchers.local import LocalLauncher


@dataclass(frozen=True)
class Options(StudyOptions):
    most: int = setting(1, "trainings at a time", ge=1)


class Polite(LocalLauncher):
    Settings = Options

    def __init__(self, options):
        self.options = options

    def capacity(self, config):
        return self.options.most
"""
MAKER = """
from dataclasses import dataclass

from biasbed.algorithms.erm import ERM
from biasbed.prepare.copies import ImagesMaker, ImagesOptions
from biasbed.settings import setting


@dataclass(frozen=True)
class Options(ImagesOptions):
    strength: float = setting(1.0, "how much of the negative", ge=0, le=1)


class Negate:
    def __init__(self, strength):
        self.strength = strength

    def redraw(self, generator):
        pass

    def __call__(self, image, generator):
        return image + self.strength * (1 - 2 * image)


class Negatives(ImagesMaker):
    Settings = Options

    @classmethod
    def distortion(cls, options, network, material, device):
        return Negate(options.strength)

    def settings(self):
        return {"strength": self.options.strength}


class OnNegatives(ERM):
    training_data = {"train": 0.5, "negatives": 0.5}
"""
SMALL = ("--epochs", "1", "--image_size", "16", "--batch_size", "64", "--backbone", "resnet10", "--device", "cpu")


OWN_FILES = {"suite.py": SUITE, "launcher.py": LAUNCHER, "maker.py": MAKER}
ON_ONE_SET = ("train", "--suite", "suite.py:OneSet", *SMALL, "--tested_on", "sketch", "--log_model", "false")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    for name, text in OWN_FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def logged(_empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a suite of one's own, of a training on it, and of the database that has its run."""
    here = tmp_path_factory.mktemp("logged")
    (here / "suite.py").write_text(SUITE)
    train_at(here, _empty_store, ON_ONE_SET)
    return here


@pytest.fixture
def trained_on_own_suite(here: Path, logged: Path, tracking: str) -> Path:
    """Return the folder of that training, as if it had been made here."""
    shutil.copy(logged / "mlflow.db", here)
    shutil.copytree(logged / "home", here / "home", symlinks=True)
    return run_folders(here / "home")[0]


def test_a_suite_of_one_s_own_is_trained_on(trained_on_own_suite: Path, tracking: str, biasbed: Command) -> None:
    folder = trained_on_own_suite
    (run,) = all_runs(tracking)
    assert folder.parent.name == run.data.tags[record.SUITE] == "oneset"
    assert run.data.params[f"{record.CONFIG_PARAMETER}tested_on"] == "sketch"
    assert "test/accuracy/sketch" in run.data.metrics
    assert "test/accuracy/edge" not in run.data.metrics
    assert "finished already" in biasbed(*ON_ONE_SET, "--resume", "once").stdout


def test_a_suite_that_a_server_names_is_not_imported(
    here: Path, trained_on_own_suite: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = all_runs(tracking)
    (here / "suite.py").write_text("raise SystemExit(7)")
    words = ["reproduce", "--run", run.info.run_id]
    assert cli.main(words) == 2
    assert "which is not one of biasbed's: name it yourself, suite=<file>.py:OneSet" in one_line(
        capsys.readouterr().err
    )


def test_a_launcher_of_one_s_own_carries_a_study_out(here: Path, biasbed: Command) -> None:
    words = ("benchmark", "--algorithms", "erm", "--seeds", "0,1,2", "--dry_run", "yes", *SMALL)
    shown = biasbed(*words, "--launcher", "launcher.py:Polite", "--most", "2").stdout
    assert "2 at a time" in shown
    refused = biasbed(*words, "--launcher", "launcher.py:Polite", "--most", "0", check=False)
    assert refused.returncode == 2
    assert "most=0" in one_line(refused.stderr)


def test_a_maker_of_one_s_own_makes_training_data(here: Path, image_root: Path, biasbed: Command) -> None:
    words = ("--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--device", "cpu")
    training = ("train", "--algorithm", "maker.py:OnNegatives", *words, *SMALL[:-2], "--batch_size", "8")
    refused = biasbed(*training, check=False)
    assert refused.returncode == 2
    assert "no training data 'negatives'" in one_line(refused.stderr)
    making = ("prepare", "--what", "maker.py:Negatives", *words, "--strength", "0.5", "--processes", "1")
    assert "51 images" in biasbed(*making).stderr
    biasbed(*training, "--log_model", "false")
    refused = biasbed(*making[:-4], "--strength", "1", check=False)
    assert "was made with strength=0.5" in one_line(refused.stderr)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--suite", "maker.py:Negatives"], "has to be a subclass of biasbed.suites.suite.Suite"),
        (["prepare", "--what", "suite.py:OneSet"], "is no maker: it has to be a subclass of biasbed.prepare.maker"),
    ],
)
def test_what_is_none_is_refused(
    here: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert message in one_line(capsys.readouterr().err)


EVIL = """
import pathlib
from biasbed.algorithms.erm import ERM

pathlib.Path("ran").write_text("x")

class Net(ERM): ...
"""
ADVICE = "which is not one of biasbed's: name it yourself, "


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file in the current folder that leaves a mark when it is imported, as a script and as a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path / "evil.py"


@pytest.fixture(scope="module")
def trained(_empty_store: Path, train_flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a training and of the database that has its run."""
    here = tmp_path_factory.mktemp("trained")
    train_at(here, _empty_store, ["train", *train_flags, "--epochs", "1"])
    return here


@pytest.fixture
def checkpoint(trained: Path, tracking: str, tmp_path: Path) -> Path:
    """Return the checkpoint of that training, as if it had been made here."""
    shutil.copy(trained / "mlflow.db", tmp_path)
    shutil.copytree(trained / "home", tmp_path / "home", symlinks=True)
    return run_folders(tmp_path / "home")[0] / "best.ckpt"


def with_method(checkpoint: Path, method: str) -> Path:
    """Return the checkpoint with another word for its method."""
    state = torch.load(checkpoint, weights_only=True)
    path = checkpoint.with_name("other.ckpt")
    torch.save({**state, "config": {**state["config"], "algorithm": method}}, path)
    return path


def evaluation(model: Path, image_root: Path, *words: str) -> list[str]:
    flags = ("--suite", "folders", "--data_dir", str(image_root), "--sets", "ink", "--device", "cpu", "--workers", "0")
    return ["evaluate", "--model", str(model), *flags, "--tracking", "offline", *words]


def test_a_checkpoint_runs_no_code_that_the_user_has_not_named(
    evil: Path, checkpoint: Path, image_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in (str(evil), "evil.py", f"~/{os.path.relpath(evil, Path.home())}", "evil"):
        words = evaluation(with_method(checkpoint, f"{word}:Net"), image_root)
        assert cli.main(words) == 2
        assert f"{word}:Net, {ADVICE}algorithm=<file>.py:Net" in capsys.readouterr().err
        assert not Path("ran").exists()
    words = evaluation(with_method(checkpoint, "/somebody/else/evil.py:Net"), image_root)
    assert cli.main([*words, "--algorithm", "evil.py:Other"]) == 2  # another class than the checkpoint's
    assert "algorithm=evil.py:Other: the algorithm of" in capsys.readouterr().err
    assert cli.main([*words, "--algorithm", "evil.py:Net"]) == 0
    assert Path("ran").exists()


def test_a_checkpoint_names_a_network_of_the_libraries_or_none(checkpoint: Path) -> None:
    state = torch.load(checkpoint, weights_only=True)
    not_fetched = "is not in this machine's cache, and what a file names is not fetched"
    for name, message in (
        ("timm:hf-hub:somebody/net", not_fetched),
        ("hf-hub:somebody/net", not_fetched),
        ("transformers:somebody/net", not_fetched),
        ("open_clip:hf-hub:somebody/net", not_fetched),
        ("timm:hf-hub:one/two/three", not_fetched),
        ("timm:local-dir:/nowhere/net", "timm finds no configuration there"),
        ("a.b:c", "unknown backbone"),
    ):
        torch.save({**state, "config": {**state["config"], "backbone": name}}, checkpoint)
        with pytest.raises(UsageError, match=message):
            from_checkpoint(checkpoint)


def test_sync_sends_what_it_may_not_import(
    evil: Path,
    biasbed: Command,
    train_flags: list[str],
    tracking: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["train", *train_flags, "--epochs", "1", "--log_model", "true", "--tracking", "offline"]
    biasbed(*words, "--algorithm", "evil.py:Net")
    Path("ran").unlink()
    assert cli.main(["sync"]) == 0
    assert ADVICE in capsys.readouterr().err
    assert not Path("ran").exists()
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"


@pytest.mark.slow
def test_a_run_that_is_trained_again_imports_nothing_unasked(
    evil: Path,
    biasbed: Command,
    train_flags: list[str],
    tracking: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    biasbed("train", *train_flags, "--epochs", "1", "--algorithm", "evil.py:Net")
    Path("ran").unlink()
    (run,) = all_runs(tracking, kind="train")
    assert cli.main(["reproduce", "--run", run.info.run_id]) == 2
    assert f"{ADVICE}algorithm=<file>.py:Net" in capsys.readouterr().err
    assert not Path("ran").exists()
    assert cli.main(["reproduce", "--run", run.info.run_id, "--algorithm", "evil.py:Net"]) == 0
    assert "verdict: bit-equal" in capsys.readouterr().out


def test_a_sweep_on_a_server_names_no_code(
    evil: Path, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    run = client.create_run("0", tags={record.KIND: "study", record.STUDY: "s", record.SUITE: "demo"})
    client.update_run(run.info.run_id, status="FINISHED")
    best = {f"{evil}:Net": {"": {"optim.lr": "0.5"}}, "erm": {"": {}}}
    content = winners.make_table("s", "demo", best, [0], {}, {"objective": "m", "oracle": "false"})
    words = ["benchmark", "--from_study", "s", "--dry_run", "yes", "--device", "cpu", "--tracking", "offline"]
    for forged in ({**content, "chosen_by": None}, content):
        (tmp_path / study.WINNERS).write_text(yaml.safe_dump(forged))
        client.log_artifact(run.info.run_id, str(tmp_path / study.WINNERS))
        assert cli.main(words) in (1, 2)
        said = capsys.readouterr().err
        assert ("was not written by a sweep", f"{ADVICE}algorithms=")[forged is content] in said
        assert not Path("ran").exists()
        assert forged is not content or said.endswith("algorithms=<file>.py:Net,erm, if you trust that file\n")
    assert cli.main([*words, "--algorithms", "erm"]) == 0
    assert not Path("ran").exists()
    assert cli.main([*words, "--algorithms", "erm,evil.py:Net"]) == 0
    assert "net" in capsys.readouterr().out


def test_a_protocol_on_a_server_names_no_code(evil: Path) -> None:
    evil.write_text(EVIL + "class Rule: ...\n")
    protocol = record.Protocol("s", (), (), (), "val/accuracy/val", default_selection=f"{evil}:Rule")
    protocol = record.Protocol.from_json(protocol.to_json())
    with pytest.raises(UsageError, match="no such rule"):
        make_rule("auto", 3, protocol)
    assert not Path("ran").exists()
    assert isinstance(make_rule("last_n", 3, protocol), LastN)
