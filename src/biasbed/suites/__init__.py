"""Registry of suites: which images train, which test, and how a model is judged.

Only files of this folder know a suite's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from biasbed.registry import with_whole_path
from biasbed.suites.registered import REGISTRY as REGISTRY
from biasbed.system.garbage import without_collection

if TYPE_CHECKING:
    from biasbed.config import Config
    from biasbed.data.packed import Packs
    from biasbed.suites.suite import OpenSuite, Suite


class SuiteChoice(NamedTuple):
    """Suite that settings choose."""

    name: str  # as the setting `suite` has it, a file by its absolute path
    suite: type[Suite[Any]]


def load(name: str) -> type[Suite[Any]]:
    """Return the class of a suite: of the registry, or your own. Raises UsageError for an unknown name."""
    with without_collection():  # torch is imported here
        suite: type[Suite[Any]] = REGISTRY.load(name)
    return suite


def choose_suite(settings: Mapping[str, Any]) -> SuiteChoice:
    """Return the suite that the settings name, or the default one."""
    from biasbed.config import Config

    name = with_whole_path(str(settings.get("suite", Config.suite)))
    return SuiteChoice(name, load(name))


def identifier(name: str) -> str:
    """Return the name that a suite's runs are filed under: its name in the registry, or its class's name."""
    return REGISTRY.identifier(name)


def make_suite(config: Config) -> Suite[Any]:
    """Return the configured suite; its images are not opened yet.

    Folders that are listed from now on are read as `data.format` says.
    """
    _read_as(config)
    return load(config.suite)(config, identifier(config.suite))


def _read_as(config: Config) -> None:
    """Set how folders are read. A user's suite may have `data` of its own."""
    import sys

    from biasbed.config import DataSettings

    data = config.data if isinstance(config.data, DataSettings) else DataSettings()
    is_default = (data.format, data.columns) == (DataSettings.format, DataSettings.columns)
    if not is_default or "biasbed.data.shard_trees" in sys.modules:  # its import takes longer than some commands
        from biasbed.data import shard_trees

        shard_trees.read_as(data.format, data.columns)


def _packs(config: Config) -> Packs | None:
    """Return the packs that the settings ask for; None without any. A user's suite may have `data` of its own."""
    from biasbed.config import WHOLE, DataSettings
    from biasbed.data import packed, prepared

    form = config.data.packed if isinstance(config.data, DataSettings) else DataSettings.packed
    if form == "no":
        return None
    return packed.Packs(prepared.base(config.prepared_dir) / packed.STORE, WHOLE if form == "auto" else form)


def open_suite(config: Config) -> OpenSuite:
    """Return the configured suite with its images open. Raises UsageError if images are missing or don't fit.

    Images are read from packs if there are any, as `data.packed` says.
    """
    from biasbed.data import packed

    packs = packed.current() or _packs(config)
    with packed.using(packs):
        suite = replace(make_suite(config).open(), packs=packs)
    if config.corrupted.sets:
        from biasbed.suites.corrupted_sets import with_corrupted

        suite = with_corrupted(suite, config)
    if config.limit is not None:
        from biasbed.suites.limited import limited

        suite = limited(suite, config.limit)
    suite.check_calibration(config.scores)
    return suite.with_cadences(config.test_every) if config.test_every else suite
