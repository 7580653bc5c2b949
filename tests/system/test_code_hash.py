"""Code hash: covers what makes a training's numbers, and neither layout nor files it does not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed import algorithms, suites
from biasbed.system import code_hash


def hash_of(algorithm: str, suite: str = "demo") -> str:
    return code_hash.code_hash(algorithms.load(algorithm), suites.load(suite))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's source, which the hash is taken of; the methods' classes stay the real ones."""
    copy = tmp_path / "biasbed"
    for path in code_hash.PACKAGE.rglob("*.py"):
        target = copy / path.relative_to(code_hash.PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    monkeypatch.setattr(code_hash, "PACKAGE", copy)
    return copy


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_a_training_does_not_use_changes_nothing(package: Path) -> None:
    before = {name: hash_of(name) for name in ("erm", "infodrop")}
    (package / "datasets" / "pacs.py").write_text("CLASSES = 7\n")
    (package / "tracking" / "server.py").write_text("PORT = 5000\n")
    for room in ("algorithms", "suites"):
        append(package / room / "__init__.py", "ONE_MORE = 1\n")
    assert {name: hash_of(name) for name in before} == before


@pytest.mark.parametrize(
    "file", ["config.py", "training/engine.py", "compute/optim.py", "evaluation/evaluator.py", "data/transforms.py"]
)
def test_a_change_of_what_makes_numbers_is_noticed(package: Path, file: str) -> None:
    before = hash_of("erm")
    append(package / file, "\nANOTHER_RULE = 1\n")
    assert hash_of("erm") != before


def test_networks_of_one_method_do_not_change_another_one(package: Path) -> None:
    with_surgery, without = hash_of("infodrop"), hash_of("erm")
    append(package / "networks" / "surgery.py", "\nANOTHER_PLACE = 1\n")
    assert hash_of("infodrop") != with_surgery
    assert hash_of("erm") == without


def test_comments_and_layout_change_nothing(package: Path) -> None:
    before = {name: hash_of(name) for name in ("erm", "sagnet")}
    for path in package.rglob("*.py"):
        append(path, "\n# a remark\n\n")
    assert {name: hash_of(name) for name in before} == before
