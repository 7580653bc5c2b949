"""Code hash: covers what makes a training's numbers, and neither wording nor layout nor files it does not use."""

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


@pytest.mark.parametrize("file", code_hash.LEFT_OUT)
def test_files_that_only_word_or_draw_change_nothing(package: Path, file: str) -> None:
    before = hash_of("erm")
    append(package / file, "\nTITLE = 'Shape bias by category'\n")
    assert hash_of("erm") == before


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


METHOD = '''
"""Mixes what it is told to."""
from __future__ import annotations
from typing import Optional, List, Literal, TYPE_CHECKING
import typing
from biasbed.settings import setting
if TYPE_CHECKING:
    from biasbed.batch import Batch

class Method:
    """A method."""
    strength: float = setting(0.5, "weight of the term", ge=0)
    sizes: Optional[List[int]] = None
    mode: Literal["a", "b"] = "a"

    def losses(self, batch: Batch) -> dict[str, float]:
        """Return the losses."""
        total: float = 0.0  # starts empty
        for k in range(3):
            total = total + self.strength * k
        if total < 1:
            raise ValueError(f"the sum is {total}, which is less than 1")
        assert total <= 9, "more than nine"
        return {"loss": total}
'''


def digest(source: str) -> bytes:
    return code_hash._read_source(source.encode()).computation


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Mixes what it is told to."""', '"""Another sentence."""'),
        ('"""A method."""', ""),
        ('        """Return the losses."""\n', ""),
        ("  # starts empty", ""),
        ("total + self.strength * k", "(\n                total + (self.strength * k)\n            )"),
        ("{total}, which is less than 1", "too small: {total}"),
        ("Optional[List[int]]", 'typing.Union["List[int]", None]'),
        ("total: float = 0.0", "total = 0.0"),
        ("    from biasbed.batch import Batch\n", "    from biasbed.batch import Batch, MAIN\n"),
    ],
)
def test_wording_layout_and_spelling_of_types_change_nothing(old: str, new: str) -> None:
    assert old in METHOD
    assert digest(METHOD.replace(old, new)) == digest(METHOD)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ge=0", "ge=1"),
        ("total + self", "total - self"),
        ("total = total + self.strength * k", "total = (total + self.strength) * k"),
        ("ValueError(", "KeyError("),
        ('{"loss"', '{"classification"'),
        ("strength: float", "strength: int"),
        ('Literal["a", "b"]', 'Literal["a", "c"]'),
        ("Optional[List[int]]", "list[int]"),
        ("from biasbed.settings import setting", "from biasbed.registry import setting"),
    ],
)
def test_another_constant_operator_default_or_field_is_noticed(old: str, new: str) -> None:
    assert old in METHOD
    assert digest(METHOD.replace(old, new)) != digest(METHOD)


def test_types_alone_bring_no_file_into_the_hash(package: Path) -> None:
    head = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from biasbed.networks.surgery import NOTHING\n"
    append(package / "compute" / "optim.py", head)
    before = hash_of("erm")
    append(package / "networks" / "surgery.py", "\nANOTHER_PLACE = 1\n")
    assert hash_of("erm") == before


def test_rewording_the_whole_package_changes_no_hash(package: Path) -> None:
    before = {name: hash_of(name) for name in ("erm", "sagnet")}
    for path in package.rglob("*.py"):
        append(path, '\n# a remark\n"""A text that nobody reads."""\n')
    assert {name: hash_of(name) for name in before} == before
