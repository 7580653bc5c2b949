"""Config of one training from suite, method, presets and command line, and its identity.

Answers: Which settings win: suite, method, preset or command line?
"""

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
    """Return the config of one run from the command line's flags (dotted names to text or values).

    Later layers win: defaults, suite, algorithm, the suite's defaults for this data set and algorithm, presets in their
    order, flags. `auto` leaves a setting to the layers below. Raises UsageError for anything unknown, of a wrong type
    or out of range.
    """
    from biasbed import algorithms, suites

    chosen = {name: value for name, value in flags.items() if value != "auto"}
    _refuse_wrong_general(chosen)
    chosen["suite"], suite = suites.choose_suite(chosen)
    _refuse_unknown(chosen, suite.Settings)
    name = registry.settled(str(chosen.get("algorithm", suite.defaults.get("algorithm", Config.algorithm))))
    chosen["algorithm"] = name
    algorithm = algorithms.load(name)
    cls = config_class(suite.Settings, algorithm.HParams)
    owners = (suite.presets, algorithm.presets)
    fixed = load_presets(preset_names(chosen), owners, specs(cls), name)
    usual = layered([suite.defaults, algorithm.defaults, suite.defaults_for(chosen), *fixed])
    config = build(cls, layered([usual, chosen]))
    _refuse_endless_warmup(config, float(usual.get("optim.warmup", 0)))
    return config


def _refuse_endless_warmup(config: Config, usual: float) -> None:
    """Raise UsageError for a warm-up longer than the training, unless it is the default: short trials keep that one."""
    warmup = config.optim.warmup
    if warmup not in (0, usual) and config.epochs is not None and warmup >= config.epochs:
        raise UsageError(
            f"optim.warmup={warmup:g}: a training of {config.epochs} epoch(s) ends before its rate has risen to "
            "optim.lr; give fewer epochs of warm-up, or more of training"
        )


def _refuse_wrong_general(chosen: Mapping[str, Any]) -> None:
    """Refuse wrong values before a suite or an algorithm, and with it torch, is imported."""
    from biasbed import algorithms, suites

    general = specs(Config)
    for name in chosen:
        if name in general:
            check(general[name], chosen[name])
    for room, name in ((suites, "suite"), (algorithms, "algorithm")):
        if name in chosen:
            room.REGISTRY.refuse_unknown(str(chosen[name]))


def _refuse_unknown(chosen: Mapping[str, Any], settings: type[Config]) -> None:
    """Refuse unknown names before an algorithm is imported."""
    available = specs(settings)
    for name in chosen:
        if name not in available and not name.startswith("hparams."):
            raise UsageError(f"unknown setting '{name}'{nearest(name, available)}")


def config_hash(
    config: Config, protocol: record.Protocol, data_fingerprint: str, normalisation: Normalisation | None = None
) -> str:
    """Return the hash of what is computed, seed aside: settings, protocol, data and the normalisation of images.

    normalisation: counts if the weights have brought it, since it does not follow from the settings then.
    """
    from biasbed import algorithms, networks, suites

    computed = as_json(config.identity_settings())
    computed["suite"] = suites.identifier(config.suite)  # independent of the path of a user's file
    computed["algorithm"] = algorithms.identifier(config.algorithm)
    computed["init"] = protocol.start  # the weights' content counts, not their path
    usual = networks.usual_mean_std(config.backbone)
    if normalisation is not None and normalisation.kind in ("tag", "checkpoint") and normalisation.values != usual:
        computed["normalisation"] = [list(values) for values in normalisation.values]
    return record.digest({"config": computed, "protocol": protocol.hash, "data": data_fingerprint})


def run_key(config: Config, config_hash: str) -> str:
    """Return the hash of what is computed, seed included, and of whatever else tells runs of one config apart."""
    return record.digest({"config": config_hash, "cell": as_json(config.variant())})
