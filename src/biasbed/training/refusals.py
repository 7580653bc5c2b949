"""Refusals of a training before torch is imported: misspelt names, a missing folder or GPU, a method on unfit data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbed import algorithms, declarations, suites
from biasbed.algorithms.requests import NEEDS
from biasbed.compute.device import refuse_missing_gpu
from biasbed.errors import NotApplicable, UsageError
from biasbed.training.resolve import resolve_declared


def refuse_early(flags: Mapping[str, Any], is_here: bool = True) -> None:
    """Raise UsageError for what shows without torch and without an image; does nothing once torch is imported.

    flags: those of one training. is_here: it would run on this machine.
    """
    if not declarations.is_needed():
        return
    config = resolve_declared(flags)
    if not declarations.is_needed():  # a method or a suite of the user's own was loaded
        return
    suite = suites.REGISTRY.declare(config.suite)
    algorithm = algorithms.REGISTRY.declare(config.algorithm)
    if is_here:
        refuse_missing_gpu(config.device)
    if config.data_dir is not None:
        _ = suite(config, suites.identifier(config.suite)).data_root  # raises MissingData without the folder
    declarations.check_backbone(config.backbone, resnet=algorithm.surgery, maps=algorithm.maps)
    lacking = algorithm.needs(getattr(config, "hparams", None)) - suite.may_provide
    if lacking:
        names = " and ".join(NEEDS[name] for name in sorted(lacking))
        raise NotApplicable(f"{config.algorithm} needs {names}, and the suite '{config.suite}' has none", lacking)


def refuse_row_early(row: str, settings: Mapping[str, str], is_here: bool) -> None:
    """Raise UsageError as `refuse_early` does for a study's row in its first cell.

    settings: the study's and the row's.
    """
    of_suite = suites.REGISTRY.own_settings(settings["suite"])
    makes_cells = {"train", *(name for name, spec in of_suite.items() if spec.makes_cells)}
    first = {name: value.partition(",")[0] if name in makes_cells else value for name, value in settings.items()}
    first.pop("test_domains", None)  # their names are in the data
    try:
        refuse_early(first, is_here)
    except UsageError as error:
        raise error.located(row) from None
