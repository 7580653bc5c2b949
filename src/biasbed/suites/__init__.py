"""Suites by name: which images train, which test, and how it is judged.

Only files of this folder know a suite's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from biasbed.registry import Registry, settled

if TYPE_CHECKING:
    from biasbed.config import Config
    from biasbed.suites.suite import OpenSuite, Suite

REGISTRY = Registry(
    "suite",
    {
        "demo": "biasbed.suites.demo:Demo",
        "folders": "biasbed.suites.folders:Folders",
        "domains": "biasbed.suites.domains:Domains",
        "domainbed": "biasbed.suites.domainbed:DomainBed",
        "debiasing": "biasbed.suites.debiasing:Debiasing",
        "biasbed": "biasbed.suites.biasbed:BiasBed",
        "robustness": "biasbed.suites.robustness:Robustness",
        "deepfashion": "biasbed.suites.deepfashion:DeepFashion",
    },
    base="biasbed.suites.suite:Suite",
)


def load(name: str) -> type[Suite[Any]]:
    """The class of a suite: of the registry, or your own. Raises UsageError where there is none of that name."""
    found: type[Suite[Any]] = REGISTRY.load(name)
    return found


def chosen(given: Mapping[str, Any]) -> tuple[str, type[Suite[Any]]]:
    """(word, class) of the suite that settings name, or of the usual one; a file by its whole path."""
    from biasbed.config import Config

    name = settled(str(given.get("suite", Config.suite)))
    return name, load(name)


def identifier(name: str) -> str:
    """What a suite's runs are filed under: the name in the registry, or the class's name."""
    return REGISTRY.identifier(name)


def of(config: Config) -> Suite[Any]:
    """The configured suite."""
    return load(config.suite)(config, identifier(config.suite))


def open_suite(config: Config) -> OpenSuite:
    """The suite with its images; UsageError where they are missing or don't fit."""
    suite = of(config).open()
    if config.corrupted.sets:
        from biasbed.suites.generated import with_corrupted

        suite = with_corrupted(suite, config)
    if config.limit is not None:
        from biasbed.suites.limited import limited

        suite = limited(suite, config.limit)
    return suite.with_cadences(config.test_every) if config.test_every else suite
