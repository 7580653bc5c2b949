"""What a code hash covers: all that makes a training's numbers, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from biasbed import algorithms, suites
from biasbed.system import code


def hash_of(algorithm: str, suite: str = "demo") -> str:
    return code.code_hash(algorithms.load(algorithm), suites.load(suite))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's source, which the hash is taken of; the methods' classes stay the real ones."""
    copy = tmp_path / "biasbed"
    for path in code.PACKAGE.rglob("*.py"):
        target = copy / path.relative_to(code.PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    monkeypatch.setattr(code, "PACKAGE", copy)
    return copy


def test_a_file_that_a_training_does_not_use_changes_nothing(package: Path) -> None:
    before = {name: hash_of(name) for name in ("erm", "infodrop")}
    (package / "datasets" / "pacs.py").write_text("# a data set of another suite\n")
    (package / "tracking" / "server.py").write_text("# where runs are kept\n")
    for room in ("algorithms", "suites"):
        with (package / room / "__init__.py").open("a") as file:
            file.write("# one more\n")
    assert {name: hash_of(name) for name in before} == before


@pytest.mark.parametrize(
    "file", ["config.py", "training/engine.py", "compute/optim.py", "evaluation/evaluator.py", "data/transforms.py"]
)
def test_a_change_of_what_makes_numbers_is_noticed(package: Path, file: str) -> None:
    before = hash_of("erm")
    with (package / file).open("a") as opened:
        opened.write("# another rule\n")
    assert hash_of("erm") != before


def test_networks_of_one_method_are_no_other_s(package: Path) -> None:
    with_surgery, without = hash_of("infodrop"), hash_of("erm")
    with (package / "networks" / "surgery.py").open("a") as file:
        file.write("# another place\n")
    assert hash_of("infodrop") != with_surgery
    assert hash_of("erm") == without


def test_the_suite_is_part_of_it(package: Path) -> None:
    assert hash_of("erm", "demo") != hash_of("erm", "folders")


# --- the commit -------------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> None:
    folder.mkdir(exist_ok=True)
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, package: Path) -> Path:
    """A repository of the user's own, around a package that it does not track."""
    git(tmp_path, "init", "-q")
    (tmp_path / "notes.txt").write_text("mine")
    git(tmp_path, "add", "notes.txt")
    git(tmp_path, "commit", "-q", "-m", "mine")
    return tmp_path


def test_the_commit_of_a_repository_around_us_is_not_ours(repository: Path) -> None:
    assert code.git_state() == ("", "")
    assert not code.is_tracked()
    git(repository, "add", "biasbed")
    git(repository, "commit", "-q", "-m", "ours")
    commit, dirty = code.git_state()
    assert (len(commit), dirty) == (40, "false")


def test_git_s_variables_name_no_other_repository(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "add", "biasbed")
    git(repository, "commit", "-q", "-m", "ours")
    expected = code.git_state()
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "others")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    assert code.git_state() == expected
