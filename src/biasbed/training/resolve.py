"""Suite, method, preset and command line become the config of one training, and its identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from biasbed import record, registry
from biasbed.algorithms.presets import load_presets
from biasbed.config import Config, as_json, config_class, layered, preset_names
from biasbed.errors import UsageError
from biasbed.settings import build, check, nearest, specs

if TYPE_CHECKING:
    from biasbed.networks import Normalisation


def resolve(flags: Mapping[str, Any]) -> Config:
    """The config of one run from the command line's flags (dotted names to words or values).

    Later layers win: defaults, suite, algorithm, what the suite says for this data set and algorithm, presets in their
    order, flags. `auto` leaves a setting to the layers below. Raises UsageError for anything unknown, of a wrong type
    or out of range.
    """
    from biasbed import algorithms, suites

    given = {name: value for name, value in flags.items() if value != "auto"}
    _refuse_wrong_general(given)
    given["suite"], suite = suites.choose_suite(given)
    _refuse_unknown(given, suite.Settings)
    name = registry.settled(str(given.get("algorithm", suite.defaults.get("algorithm", Config.algorithm))))
    given["algorithm"] = name
    algorithm = algorithms.load(name)
    cls = config_class(suite.Settings, algorithm.HParams)
    owners = (suite.presets, algorithm.presets)
    fixed = load_presets(preset_names(given), owners, specs(cls), name)
    usual = layered([suite.defaults, algorithm.defaults, suite.defaults_for(given), *fixed])
    config = build(cls, layered([usual, given]))
    _refuse_endless_warmup(config, float(usual.get("optim.warmup", 0)))
    return config


def _refuse_endless_warmup(config: Config, usual: float) -> None:
    """One that is asked for; the usual one is also there where a training is only tried out, and repeated."""
    warmup = config.optim.warmup
    if warmup not in (0, usual) and config.epochs is not None and warmup >= config.epochs:
        raise UsageError(
            f"optim.warmup={warmup:g}: a training of {config.epochs} epoch(s) ends before its rate has risen to "
            "optim.lr; give fewer epochs of warm-up, or more of training"
        )


def _refuse_wrong_general(given: Mapping[str, Any]) -> None:
    """Wrong values are refused before a suite or an algorithm, and with it torch, is imported."""
    from biasbed import algorithms, suites

    known = specs(Config)
    for name in given:
        if name in known:
            check(known[name], given[name])
    for room, name in ((suites, "suite"), (algorithms, "algorithm")):
        if name in given:
            room.REGISTRY.refuse_unknown(str(given[name]))


def _refuse_unknown(given: Mapping[str, Any], settings: type[Config]) -> None:
    """Wrong names are refused before an algorithm is imported."""
    known = specs(settings)
    for name in given:
        if name not in known and not name.startswith("hparams."):
            raise UsageError(f"unknown setting '{name}'{nearest(name, known)}")


def config_hash(
    config: Config, protocol: record.Protocol, data_fingerprint: str, how: Normalisation | None = None
) -> str:
    """Return the hash of what was computed, seed aside: settings, protocol, data and the normalisation of images.

    how: counts where it does not follow from the settings, because the weights have brought it.
    """
    from biasbed import algorithms, networks, suites

    what = as_json(config.what())
    what["suite"] = suites.identifier(config.suite)  # wherever a user's file lies
    what["algorithm"] = algorithms.identifier(config.algorithm)
    what["init"] = protocol.start  # what counts is the weights' content, not where they lie
    if how is not None and how.kind in ("tag", "checkpoint") and how.values != networks.usual_mean_std(config.backbone):
        what["normalisation"] = [list(values) for values in how.values]
    return record.digest({"config": what, "protocol": protocol.hash, "data": data_fingerprint})


def run_key(config: Config, config_hash: str) -> str:
    """What was computed, seed included, and whatever else tells the runs of one configuration apart."""
    return record.digest({"config": config_hash, "cell": as_json(config.variant())})
