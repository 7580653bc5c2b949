"""Git state: the commit of biasbed's own files, and of no repository around them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from biasbed.system import code


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package in place of the real one."""
    folder = tmp_path / "biasbed"
    folder.mkdir()
    (folder / "__init__.py").write_text("VERSION = 1\n")
    monkeypatch.setattr(code, "PACKAGE", folder)
    return folder


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
