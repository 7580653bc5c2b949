"""Method of the user's own, in its own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed import algorithms, record, suites
from biasbed.algorithms.base import Algorithm
from biasbed.errors import UsageError
from biasbed.system.code_hash import code_hash
from biasbed.training.identity import config_hash
from biasbed.training.resolve import resolve

SOURCE = """
from biasbed.algorithms.erm import ERM

class Mine(ERM):
    pass

class Infodrop(ERM):
    pass

nothing = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


def test_the_path_is_no_part_of_its_identity(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.py").write_text(SOURCE)
    names = ("mine.py:Mine", f"{file}:Mine", f"{tmp_path}/elsewhere/mine.py:Mine")
    configs = [resolve({"algorithm": name}) for name in names]
    assert configs[0].algorithm == configs[1].algorithm == f"{file}:Mine"
    protocol = record.Protocol("demo", (), (), (), "val/accuracy/val", "epoch")
    assert len({config_hash(settings, protocol, "data") for settings in configs}) == 1
    assert {algorithms.identifier(settings.algorithm) for settings in configs} == {"mine"}
    assert issubclass(algorithms.load(configs[0].algorithm), Algorithm)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.py:Yours", "can't be imported"),
        ("other.py:Mine", "can't be imported"),
        ("mine.py:nothing", "is no algorithm: it has to be a subclass of biasbed.algorithms.base.Algorithm"),
        ("mine.py:Infodrop", "'infodrop' is one of biasbed's own"),
    ],
)
def test_what_is_wrong_is_said(file: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve({"algorithm": name})


def test_the_code_of_a_method_includes_what_it_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    """InfoDrop's loss is in erm.py."""
    suite = suites.load("demo")
    before = code_hash(algorithms.load("infodrop"), suite)
    erm = Path(algorithms.__file__).parent / "erm.py"
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"\nONE = 1\n" if path == erm else b""))
    assert code_hash(algorithms.load("infodrop"), suite) != before
    assert code_hash(algorithms.load("sagnet"), suites.load("demo")) == code_hash(
        algorithms.load("sagnet"), suites.load("demo")
    )
