"""Command `prepare`: finds the maker and its settings, and runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biasbed import suites
from biasbed.config import Config, layered
from biasbed.data.prepared import MAKERS
from biasbed.errors import UsageError
from biasbed.settings import build, specs
from biasbed.system.processes import interruptible


def prepare(flags: Mapping[str, Any]) -> Path | None:
    """Run the maker that `what` names; return the file or folder that it makes. An existing product is kept.

    what=check prints a table instead and returns None. Raises UsageError for settings that don't fit, Failure for
    images that can't be read.
    """
    name = str(flags.get("what", "none"))
    if name == "none":
        raise UsageError(f"say what to prepare: what=<{', '.join(MAKERS)}>")
    from biasbed.prepare.maker import load

    maker = load(name)
    own_names = specs(maker.Settings)
    options = build(maker.Settings, {flag: value for flag, value in flags.items() if flag in own_names})
    suite_flags = {flag: value for flag, value in flags.items() if flag not in own_names}
    config = _build_suite_config({flag: value for flag, value in suite_flags.items() if value != "auto"})
    with interruptible():
        return maker(options, config).run()


def _build_suite_config(flags: Mapping[str, Any]) -> Config:
    """Return the settings of the suite that the flags choose. Raises UsageError for an unknown or wrong flag."""
    name, suite = suites.choose_suite(flags)
    flags = {**flags, "suite": name}
    return build(suite.Settings, layered([suite.defaults_without_method(flags), flags]))
