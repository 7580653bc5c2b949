"""The command `prepare`: what is asked for, and of which images."""

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
    """Prepare what the flags ask for; returns the file or folder. What is there already is left alone.

    what=check prints what is there instead, and returns nothing. Raises UsageError for what can't be meant, Failure for
    images that can't be read.
    """
    what = str(flags.get("what", "none"))
    if what == "none":
        raise UsageError(f"say what to prepare: what=<{', '.join(MAKERS)}>")
    from biasbed.prepare.maker import load

    maker = load(what)
    known = specs(maker.Settings)
    options = build(maker.Settings, {name: value for name, value in flags.items() if name in known})
    config = _config({name: value for name, value in flags.items() if name not in known and value != "auto"})
    with interruptible():
        return maker(options, config).run()


def _config(given: Mapping[str, Any]) -> Config:
    """The settings of the suite that is meant; UsageError for an unknown or wrong flag."""
    name, suite = suites.choose_suite(given)
    flags = {**given, "suite": name}
    return build(suite.Settings, layered([suite.usual(flags), flags]))
