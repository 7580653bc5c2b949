"""What a run is told by: hashes that stay as they are, and what they are made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from biasbed import algorithms, record, suites
from biasbed.settings import flatten, setting
from biasbed.training.resolve import config_hash, resolve

# suite -> method -> hash of its default settings. A hash that moves makes finished runs incomparable with new ones, and
# unfinished ones begin anew: it belongs into the changelog, as the reason why it had to.
FROZEN = json.loads((Path(__file__).parent / "frozen_hashes.json").read_text())
TOY = record.Protocol("toy", (), ("train",), ("val",), "val/accuracy/val")


def methods() -> Iterator[tuple[str, str]]:
    return ((suite, method) for suite in suites.REGISTRY for method in algorithms.names())


@pytest.mark.parametrize(("suite", "method"), methods())
def test_hashes_of_settings_are_what_they_were(suite: str, method: str) -> None:
    config = resolve({"suite": suite, "algorithm": method})
    assert config_hash(config, TOY, "0") == FROZEN[suite][method]


@pytest.mark.parametrize("suite", suites.REGISTRY)
def test_settings_as_they_are_recorded_resolve_to_themselves(suite: str) -> None:
    """Also of a training that is only tried out, shorter than its usual warm-up."""
    tried = resolve({"suite": suite, "algorithm": "erm", "epochs": 1})
    recorded = {name: value for name, value in flatten(tried).items() if value is not None}
    assert resolve(recorded) == tried


def test_the_protocol_s_hash_is_what_it_was() -> None:
    sets = (
        record.SetRecord("a", "accuracy", 10, 2, 0.5, groups={"x": 4, "y": 6}),
        record.SetRecord("b", "loss", 10, 2, 0.7, ("loss",), higher_is_better=False, label_map="m", preprocessing="p"),
    )
    assert TOY.hash == FROZEN["protocol"]["toy"]
    assert record.Protocol("toy", sets, ("a",), (), "val/loss/a", start="named").hash == FROZEN["protocol"]["full"]


@dataclass(frozen=True)
class Inner:
    rate: float = setting(0.1, "x")


@dataclass(frozen=True)
class Before:
    size: int = setting(8, "x")
    inner: Inner = Inner()


@dataclass(frozen=True)
class After(Before):
    mode: str = setting("plain", "x", later=True)
    folder: str = setting("here", "x", identity=False)


def test_a_later_setting_moves_no_hash_at_its_default() -> None:
    def hashed(instance: object) -> str:
        return record.digest(flatten(instance, record.is_hashed))

    assert hashed(After()) == hashed(After(folder="there")) == hashed(Before())
    assert hashed(After(mode="other")) != hashed(Before())
    assert hashed(After(size=9)) != hashed(Before())


def test_a_later_field_of_a_record_moves_no_hash_at_its_default() -> None:
    @dataclass(frozen=True)
    class Later(record.Protocol):
        budget: int = field(default=0, metadata=record.LATER)

    values = ("toy", (), ("train",), ("val",), "val/accuracy/val")
    assert Later(*values).hash == TOY.hash
    assert Later(*values, budget=1).hash != TOY.hash
