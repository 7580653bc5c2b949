"""Identity of a run: hashes that stay as they are, and their parts."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from biasbed import algorithms, config, record, suites
from biasbed.settings import flatten, setting
from biasbed.training.identity import config_hash
from biasbed.training.resolve import resolve

# suite -> method -> hash of its default settings. A hash that moves makes finished runs incomparable with new ones, and
# unfinished ones begin anew: it belongs into the changelog, as the reason why it had to.
FROZEN = json.loads((Path(__file__).parent / "frozen_hashes.json").read_text())
TOY = record.Protocol("toy", (), ("train",), ("val",), "val/accuracy/val")
MEAN = record.Derived("test", "accuracy", "mean", "mean", ("test/accuracy/a",))


@pytest.mark.parametrize("suite", suites.REGISTRY)
def test_hashes_of_settings_are_what_they_were(suite: str) -> None:
    configs = {name: resolve({"suite": suite, "algorithm": name}) for name in algorithms.names()}
    assert {name: config_hash(config, TOY, "0") for name, config in configs.items()} == FROZEN[suite]


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
    folder: str = setting("here", "x", identity=False)


@dataclass(frozen=True)
class Outer(config.Config):
    inner: Inner = Inner()


def test_every_setting_that_changes_a_number_is_hashed_and_no_other() -> None:
    identity = Outer().identity_settings()
    assert identity["inner.rate"] == 0.1
    assert not {"inner.folder", "seed", "data_dir"} & set(identity)
    assert Outer(inner=Inner(folder="there")).identity_settings() == identity
    assert Outer(inner=Inner(rate=0.2)).identity_settings() != identity


@pytest.mark.parametrize("name", [member.name for member in fields(record.Protocol)])
def test_every_field_of_a_protocol_is_hashed(name: str) -> None:
    changed = {"sets": (record.SetRecord("a", "accuracy", 1, 2, 0.5),), "derived": (MEAN,)}
    other = {"monitor_higher_is_better": False, "limit": 1, **changed}.get(name, ("other",))
    assert replace(TOY, **{name: other}).hash != TOY.hash
