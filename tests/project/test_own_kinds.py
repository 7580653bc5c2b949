"""A suite, a launcher and a maker in a user's own file: found by the file's name, with settings of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from biasbed import cli, record
from helpers.children import Command, one_line, train_at
from helpers.commands import command_environment
from helpers.runs import all_runs, run_folders

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


class Unsettled(Demo):
    Settings = None
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


FILES = {"suite.py": SUITE, "launcher.py": LAUNCHER, "maker.py": MAKER, "ends.py": "raise SystemExit(3)"}
ON_ONE_SET = ("train", "--suite", "suite.py:OneSet", *SMALL, "--tested_on", "sketch", "--log_model", "false")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def logged(_empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a suite of one's own, of a training on it, and of the database that has its run."""
    here = tmp_path_factory.mktemp("logged")
    (here / "suite.py").write_text(SUITE)
    train_at(here, _empty_store, ON_ONE_SET)
    return here


@pytest.fixture
def trained(here: Path, logged: Path, tracking: str) -> Path:
    """The folder of that training, as if it had been made here."""
    shutil.copy(logged / "mlflow.db", here)
    shutil.copytree(logged / "home", here / "home", symlinks=True)
    return run_folders(here / "home")[0]


def test_a_suite_of_one_s_own_is_trained_on(trained: Path, tracking: str, biasbed: Command) -> None:
    folder = trained
    (run,) = all_runs(tracking)
    assert folder.parent.name == run.data.tags[record.SUITE] == "oneset"
    assert run.data.params[f"{record.CONFIG_PARAMETER}tested_on"] == "sketch"
    assert "test/accuracy/sketch" in run.data.metrics
    assert "test/accuracy/edge" not in run.data.metrics
    assert "finished already" in biasbed(*ON_ONE_SET, "--resume", "once").stdout


def test_a_suite_that_a_server_names_is_not_imported(
    here: Path, trained: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = all_runs(tracking)
    (here / "suite.py").write_text("raise SystemExit(7)")
    words = ["reproduce", "--run", run.info.run_id]
    assert cli.main(words) == 2
    assert "which is not one of biasbed's: name it yourself, suite=<file>.py:OneSet" in one_line(
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_run_of_it_is_trained_again_where_it_is_named(here: Path, tracking: str, biasbed: Command) -> None:
    biasbed("train", "--suite", "suite.py:OneSet", *SMALL, "--log_model", "false")
    (run,) = all_runs(tracking)
    words = ("reproduce", "--run", run.info.run_id, "--suite", "suite.py:OneSet")
    assert "bit-equal" in biasbed(*words, env=command_environment()).stdout


@pytest.mark.slow
def test_a_study_of_it_is_the_same_study_when_it_is_called_again(here: Path, tracking: str, biasbed: Command) -> None:
    words = ("benchmark", "--suite", "suite.py:OneSet", "--algorithms", "erm", "--seeds", "0", "--study", "own", *SMALL)
    biasbed(*words, "--log_model", "false", env=command_environment())
    assert "nothing is left to train" in biasbed(*words, "--log_model", "false").stderr
    study = next(run for run in all_runs(tracking) if run.data.tags[record.KIND] == "study")
    training = next(run for run in all_runs(tracking) if run.data.tags[record.KIND] == "train")
    assert study.data.tags[record.SUITE] == "oneset"
    assert study.info.experiment_id == training.info.experiment_id


def test_a_launcher_of_one_s_own_carries_a_study_out(here: Path, biasbed: Command) -> None:
    words = ("benchmark", "--algorithms", "erm", "--seeds", "0,1,2", "--dry_run", "yes", *SMALL)
    shown = biasbed(*words, "--launcher", "launcher.py:Polite", "--most", "2").stdout
    assert "2 at a time" in shown
    refused = biasbed(*words, "--launcher", "launcher.py:Polite", "--most", "0", check=False)
    assert refused.returncode == 2
    assert "most=0" in one_line(refused.stderr)


IMAGES = """
from dataclasses import replace

from biasbed.data.source import MemorySource
from biasbed.suites.demo import Demo


class Seen(MemorySource):
    pass


class OwnImages(Demo):
    def open(self):
        suite = super().open()
        whole = suite.training["train"]()
        own = Seen(name="own", classes=whole.classes, y=whole.y[:16], ids=whole.ids[:16], images=whole.images[:16])
        return replace(suite, training={**suite.training, "train": lambda: own})
"""


@pytest.mark.slow
def test_images_of_a_source_of_one_s_own_are_made_in_processes(here: Path, biasbed: Command) -> None:
    (here / "images.py").write_text(IMAGES)
    words = ("prepare", "--what", "maker.py:Negatives", "--suite", "images.py:OwnImages", "--image_size", "16")
    assert "done: " in biasbed(*words, "--processes", "2", "--device", "cpu", timeout=600).stderr


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
        (["prepare", "--what", "suite.py:OneSet", "--help"], "is no maker"),
        (["train", "--suite", "maker.py:Negate", "--foo", "1"], "is no suite"),
        (["train", "--suite", "ends.py:OneSet"], "can't be imported: SystemExit"),
        (["train", "--suite", "suite.py:Unsettled"], "its Settings have to be a subclass of Config"),
        (["sweep", "--launcher", "suite.py:OneSet"], "has to be a subclass of biasbed.studies.launchers.Launcher"),
        (["train", "--suite", "nowhere.py:OneSet"], "can't be imported: FileNotFoundError"),
        (["train", "--tested_on", "edge"], "unknown setting 'tested_on'"),
    ],
)
def test_what_is_none_is_refused(
    here: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert message in one_line(capsys.readouterr().err)
