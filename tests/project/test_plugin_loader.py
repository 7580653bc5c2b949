"""Plug-ins: other people's packages are found by their entry point, and the core does without any."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from biasbed import algorithms, cli, measures, plugin_loader
from biasbed.errors import UsageError
from biasbed.options import SyncOptions
from biasbed.settings import build, specs
from helpers.commands import ROOT, command_environment

PACKAGE = """
from biasbed.algorithms.erm import ERM
from biasbed.cli import EntryPoint
from biasbed.options import SyncOptions

OFFERS = {
    "algorithm": {"brighter": "brightness:Brighter", "erm": "brightness:Brighter"},
    "command": {"shine": "brightness:SHINE"},
}
SHINE = EntryPoint("say that it shines", "brightness:shine", "biasbed.options:SyncOptions")


class Brighter(ERM):
    "Brighter images."


def shine(options: SyncOptions) -> None:
    print("it shines")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Make a package with an entry point importable, as pip would."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[biasbed.plugins]\n{name} = {name}:OFFERS\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
        forget()

    forget()
    yield make
    forget()


def forget() -> None:
    plugin_loader.offers.cache_clear()
    plugin_loader._read_plugins.cache_clear()


def test_a_package_s_method_and_command_are_found_by_its_entry_point(
    install: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install("brightness", PACKAGE)
    assert algorithms.load("brighter").__doc__ == "Brighter images."
    assert algorithms.load("erm").__module__ == "biasbed.algorithms.erm", "the core's names are its own"
    assert list(algorithms.REGISTRY).count("erm") == 1
    assert cli.main(["shine"]) == 0
    assert cli.main(["--help"]) == 0
    output = capsys.readouterr().out
    assert "it shines" in output
    assert "biasbed shine      say that it shines" in output


def test_a_package_that_can_t_be_imported_stops_no_command(
    install: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install("damaged", "import nothing_of_this_name")
    assert cli.main(["--help"]) == 0
    assert "warning: plug-in damaged:OFFERS: can't be imported: ModuleNotFoundError" in capsys.readouterr().err


def test_of_two_plug_ins_with_one_name_the_first_counts(
    install: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        install(name, f"OFFERS = {{'algorithm': {{'same': '{name}:Method'}}}}")
    assert algorithms.REGISTRY["same"] == "first:Method"
    assert "its algorithm 'same' is left out, as first:Method has the same name" in capsys.readouterr().err


def test_mappings_of_plug_ins_join_the_core_s_whose_names_count(install: Callable[[str, str], None]) -> None:
    text = "OFFERS = {'words': {'more': 'first:WORDS'}}\nWORDS = {'core': 'theirs', 'glow': 'shine'}"
    install("first", text)
    words = plugin_loader.Joined("words", {"core": "ours"})
    assert dict(words) == {"core": "ours", "glow": "shine"}
    assert "gleam" not in words


SETTINGS = """
from dataclasses import dataclass
from biasbed.settings import setting

OFFERS = {"glow_settings": {"glow": "glowing:Glow"}}


@dataclass(frozen=True)
class Glow:
    glow: int = setting(1, "how much it glows", ge=0)
"""


def test_settings_of_a_plug_in_join_a_command_s(install: Callable[[str, str], None]) -> None:
    install("glowing", SETTINGS)
    joined = plugin_loader.with_offered("Joined", SyncOptions, "glow_settings")
    assert list(specs(joined)) == [*specs(SyncOptions), "glow"]
    assert isinstance(build(joined, {"glow": "2"}), SyncOptions)
    with pytest.raises(UsageError, match="glow=-1"):
        build(joined, {"glow": "-1"})


def test_the_core_s_names_are_found_without_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_loader, "offers", lambda kind: pytest.fail("plug-ins were looked for"))
    assert "erm" in algorithms.REGISTRY
    assert not measures.find_measure("loss").higher_is_better
    assert cli.COMMANDS["train"].run == "biasbed.training.command:train"


SMALL = ["--epochs", "1", "--image_size", "16", "--backbone", "resnet10", "--device", "cpu", "--log_model", "no"]
COMMANDS = [
    ["--help"],
    ["list", "methods"],
    ["train", "--suite", "demo", *SMALL, "--limit", "8"],
    ["analyze", "--suite", "demo", "--output_dir", "out"],
]


@pytest.mark.slow
def test_the_core_works_with_all_plug_ins_absent(tmp_path: Path, tracking: str) -> None:
    """Show the help, list, train and analyse in a copy of the package without `plugins/`."""
    copy = tmp_path / "src" / "biasbed"
    shutil.copytree(ROOT / "src" / "biasbed", copy, ignore=shutil.ignore_patterns("plugins"))
    program = f"from biasbed import cli; assert not [words for words in {COMMANDS} if cli.main(words)]"
    environment = command_environment({"PYTHONPATH": str(copy.parent)})
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").is_file()
