"""Suite, method, preset and command line become the config of one training, and its identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from biasbed import record
from biasbed.algorithms import recipes
from biasbed.config import Config, config_class, preset_names
from biasbed.errors import UsageError
from biasbed.settings import build, check, flatten, nearest, specs


def resolve(flags: Mapping[str, Any]) -> Config:
    """The config of one run from the command line's flags (dotted names to words or values).

    Later layers win: defaults, suite, algorithm, presets in their order, flags. `auto` leaves a setting to the layers
    below. Raises UsageError for anything unknown, of a wrong type or out of range.
    """
    from biasbed import algorithms, suites

    given = {name: value for name, value in flags.items() if value != "auto"}
    defaults = flatten(Config())
    suite_name = str(given.get("suite", defaults["suite"]))
    suite = suites.defaults(suite_name)
    name = algorithms.settled(str(given.get("algorithm", suite.get("algorithm", defaults["algorithm"]))))
    given["algorithm"] = name
    _refuse_unknown_general(given)
    algorithm = algorithms.load(name)
    cls = config_class(algorithm.HParams)
    owners = (suites.presets(suite_name), algorithm.presets)
    presets = recipes.named(preset_names(given), owners, specs(cast(Any, cls)), name)
    layers = [suite, algorithm.defaults, *presets, given]
    values: dict[str, Any] = {}
    for layer in layers:
        for one, other in (("epochs", "steps"), ("steps", "epochs")):
            if layer.get(one) is not None and other not in layer:
                values[other] = None
        values |= layer
    return build(cls, values)


def _refuse_unknown_general(given: Mapping[str, Any]) -> None:
    """Wrong names are refused before an algorithm, and with it torch, is imported."""
    known = specs(Config)
    for name in given:
        if name not in known and not name.startswith("hparams."):
            raise UsageError(f"unknown setting '{name}'{nearest(name, known)}")
        if name in known:
            check(known[name], given[name])


def config_hash(config: Config, protocol: record.Protocol, data_fingerprint: str) -> str:
    """What was computed, seed aside: settings, protocol and data."""
    from biasbed.algorithms import identifier

    what = {name: list(v) if isinstance(v, tuple) else v for name, v in config.what().items()}
    what["algorithm"] = identifier(config.algorithm)  # wherever a user's file lies
    what["init"] = protocol.start  # what counts is the weights' content, not where they lie
    return record.digest({"config": what, "protocol": protocol.hash, "data": data_fingerprint})


def run_key(config: Config, config_hash: str) -> str:
    """What was computed, seed and held-out domains included."""
    return record.digest({"config": config_hash, "seed": config.seed, "domains": list(config.test_domains or ())})
