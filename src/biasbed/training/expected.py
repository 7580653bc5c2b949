"""Preprocessing that the initial weights of a training expect: its defaults, and where the settings differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbed.config import Config
from biasbed.settings import Spec, check, flatten

SIZES = ("image_size", "preprocess.size")
SHOWN = ("image_size", "preprocess.interpolation", "preprocess.crop")  # of a difference


def expected_settings(
    values: Mapping[str, Any], sizes: Mapping[str, Any], available: Mapping[str, Spec]
) -> dict[str, Any]:
    """Return the preprocessing that the initial weights expect, of the settings that a suite has.

    values: settings of all layers, for backbone and weights. sizes: those of the layers above; if they have another
    size, the size before the crop follows in proportion. Raises UsageError for an unknown backbone or unknown weights.
    """
    from biasbed.data.transforms import USUAL_CROP
    from biasbed.networks.library import find_preprocessing

    init, backbone = (
        str(check(available[name], values.get(name, available[name].default))) for name in ("init", "backbone")
    )
    expected = dict(find_preprocessing(backbone, init))
    if not expected:
        return {}
    size = side = expected.pop("preprocess.size")
    for name in SIZES:
        if name in available and sizes.get(name, "auto") != "auto":
            side = check(available[name], sizes[name])
    resize = round(expected["preprocess.resize"] * side / size)
    expected["preprocess.resize"] = "auto" if resize == round(side / USUAL_CROP) else resize
    return {name: value for name, value in expected.items() if name in available}


def describe_differences(config: Config) -> list[str]:
    """Return sentences on where a training differs from what its weights, or the backbone's name, lead to expect."""
    sentences = (describe_unused_weights(config), describe_other_preprocessing(config))
    return [sentence for sentence in sentences if sentence]


def describe_unused_weights(config: Config) -> str:
    """Return a sentence if the backbone's name says which weights are meant, and none are loaded. Else empty."""
    from biasbed import networks

    if config.init != "scratch":
        return ""
    architecture = networks.resolve(config.backbone)
    if not (architecture.tag or architecture.has_own_config):
        return ""
    weights = architecture.tag or "default"
    return (
        f"backbone={config.backbone} names weights, but init=scratch starts from random ones; "
        f"init=named:{weights} loads them"
    )


def describe_other_preprocessing(config: Config) -> str:
    """Return a sentence on settings of preprocessing that are not those of the initial weights. Empty if all are."""
    from biasbed.networks.library import find_preprocessing

    values, expected = flatten(config), find_preprocessing(config.backbone, config.init)
    differing = [name for name in SHOWN if name in values and values[name] != expected.get(name, values[name])]
    if not differing:
        return ""
    theirs, ours = (", ".join(f"{name}={by_name[name]}" for name in differing) for by_name in (expected, values))
    return f"the initial weights expect {theirs}; this training has {ours}"
