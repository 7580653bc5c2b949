"""Config of one training from suite, method, presets and command line.

Answers: Which settings win: suite, method, preset or command line?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from biasbed import mock_imports
from biasbed.algorithms.presets import NETWORK_RECIPES, load_presets
from biasbed.config import Config, config_class, layered, preset_names
from biasbed.registry import Registry, with_whole_path
from biasbed.settings import Spec, build, check, refuse_unknown, specs
from biasbed.training.expected import expected_settings


def resolve(flags: Mapping[str, Any]) -> Config:
    """Return the config of one run from the command line's flags (dotted names to text or values).

    Later layers win: defaults, suite, the preprocessing that the weights in `init` expect, algorithm, the suite's
    defaults for this data set and algorithm, presets in their order, flags. `auto` leaves a setting to the layers
    below. Raises UsageError for anything unknown, of a wrong type or out of range, before torch is imported.
    """
    if mock_imports.is_faster():
        resolve_declared(flags)
    return _resolve(flags, lambda registry, name: registry.load(name), expected_settings)


def resolve_declared(flags: Mapping[str, Any]) -> Config:
    """Return the config as `resolve` does, but import no torch and ignore what the weights in `init` expect.

    Its classes are copies (`mock_imports`): for checks and help, not for training.
    """
    return _resolve(flags, lambda registry, name: registry.declare(name), lambda *layers: {})


def _resolve(
    flags: Mapping[str, Any],
    load: Callable[[Registry, str], Any],
    expect: Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Spec]], Mapping[str, Any]],
) -> Config:
    """Merge the layers of settings and build the config.

    load: returns the class of a name in a registry. expect: returns the preprocessing that the initial weights expect
    (`expected_settings`).
    """
    from biasbed import algorithms, suites

    chosen = {name: value for name, value in flags.items() if value != "auto"}
    _check_general_settings(chosen)
    chosen["suite"] = with_whole_path(str(chosen.get("suite", Config.suite)))
    suite = load(suites.REGISTRY, chosen["suite"])
    _refuse_unknown_settings(chosen, suite.Settings)
    name = with_whole_path(str(chosen.get("algorithm", suite.defaults.get("algorithm", Config.algorithm))))
    chosen["algorithm"] = name
    algorithm = load(algorithms.REGISTRY, name)
    cls = config_class(suite.Settings, algorithm.HParams)
    owners = (NETWORK_RECIPES, suite.presets, algorithm.presets)
    fixed = load_presets(preset_names(chosen), owners, specs(cls), name)
    above = [algorithm.defaults, suite.defaults_for(chosen), *fixed]  # layers above the expected preprocessing
    sizes = layered([*above, chosen])
    expected: Mapping[str, Any] = {}
    # Suites and presets that name weights have their own sizes for them.
    if "init" in chosen and "init" not in {**suite.defaults, **suite.defaults_for(chosen)}:
        expected = expect({**suite.defaults, **sizes}, sizes, specs(cls))
    usual = layered([suite.defaults, expected, *above])
    return build(cls, layered([usual, chosen]))


def _check_general_settings(chosen: Mapping[str, Any]) -> None:
    """Raise UsageError for wrong general settings before a suite or a method, and with it torch, is imported."""
    from biasbed import algorithms, suites

    general = specs(Config)
    for name in chosen:
        if name in general:
            check(general[name], chosen[name])
    for room, name in ((suites, "suite"), (algorithms, "algorithm")):
        if name in chosen:
            room.REGISTRY.refuse_unknown(str(chosen[name]))


def _refuse_unknown_settings(chosen: Mapping[str, Any], settings: type[Config]) -> None:
    """Raise UsageError for a setting that the suite lacks. Those of the method are checked once it is imported."""
    available = specs(settings)
    for name in chosen:
        if not name.startswith("hparams."):
            refuse_unknown(name, available, f"unknown setting '{name}'")
