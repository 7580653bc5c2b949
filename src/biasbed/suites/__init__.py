"""Registry of suites: which images train, which test, and how a model is judged.

Only files of this folder know a suite's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from biasbed.registry import with_whole_path
from biasbed.suites.registered import REGISTRY as REGISTRY
from biasbed.system.garbage import without_collection

if TYPE_CHECKING:
    from biasbed.config import Config
    from biasbed.data.image_store import ImageStore
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

    No suite has a set `reliance`: the word among `sets` is about the other sets that they name.
    """
    if "reliance" in config.sets:
        from biasbed.suites.reliance_sets import expand_reliance

        config = expand_reliance(config)
    return load(config.suite)(config, identifier(config.suite))


def _image_store(config: Config) -> ImageStore:
    """Return the store that the settings ask for. A user's suite may have `data` of its own."""
    from biasbed.config import DataSettings
    from biasbed.data.image_store import make_store

    form = config.data.packed if isinstance(config.data, DataSettings) else DataSettings.packed
    return make_store(config.prepared_dir, form)


def open_suite(config: Config, images: ImageStore | None = None) -> OpenSuite:
    """Return the configured suite with its images open. Raises UsageError if images are missing or don't fit.

    images: store that its pictures are opened through; by default packs if there are any, as `data.packed` says.
    """
    configured = make_suite(config)
    config = configured.config
    suite = configured.open().with_store(images or _image_store(config))
    if config.corrupted.sets:
        from biasbed.suites.corrupted_sets import with_corrupted

        suite = with_corrupted(suite, config)
    if config.limit is not None:
        from biasbed.suites.limited import limit_images

        suite = limit_images(suite, config.limit)
    if config.reliance.sets:  # of the limited sets, so that every condition has all of their images
        from biasbed.suites.reliance_sets import with_reliance

        suite = with_reliance(suite, config)
    suite.check_calibration(config.scores)
    return suite.with_cadences(config.test_every) if config.test_every else suite
