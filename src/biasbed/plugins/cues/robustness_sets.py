"""Cue sets of the suite `robustness`: ImageNet-9, ImageNet-W, ImageNet-X, REFINED-BIAS and LAION-C."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biasbed.config import Aggregation, Preprocess
from biasbed.data import transforms
from biasbed.data.source import Source
from biasbed.plugins.cues import data_sets, watermark
from biasbed.plugins.cues.derivations import FULL, MRR
from biasbed.suites.label_maps import Grouped
from biasbed.suites.robustness import VALIDATION_IMAGES, RobustSet, transform_whole
from biasbed.system.files import sha256
from biasbed.tasks import MULTI_CLASS


def _pooled_set(data: data_sets.HasOutputs, how: Aggregation, map_name: str = "", **values: Any) -> RobustSet:
    """Return a set each of whose classes stands for several outputs, which are pooled. values: its other fields."""

    def make_label_map(data_dir: Path) -> Grouped:
        return Grouped(data.outputs(data_dir), how, map_name or data.name)

    return RobustSet(data, make_label_map=make_label_map, **values)


def _imagenet_9_set(data: data_sets.ImageNet9, counts: bool = True) -> RobustSet:
    """Return a version of ImageNet-9. As in its paper, the best of all 1000 outputs must belong to the class.

    counts: it is a column of tables and tests.
    """
    block = "imagenet_9"
    return _pooled_set(
        data,
        "prob_max",
        map_name=block,
        source_images=block,
        block=block,
        headline=FULL,
        counts=counts,
        make_transform=transform_whole,
    )


def _pure_cue_set(data: data_sets.PureCue, counts: bool = True) -> RobustSet:
    """Return a set of images with one cue."""
    return _pooled_set(data, "prob_max", measures=(*MULTI_CLASS.measures, MRR), headline=MRR, counts=counts)


def _transform_watermarked(source: Source, size: int, how: Preprocess) -> tuple[transforms.Transform, str]:
    """Return the transform of photographs with the watermark on them, and its description."""
    assert isinstance(source, data_sets.WatermarkedSource)
    transform, description = transforms.make_photo_transform(size, how)
    watermark.read_font(source.font, watermark.font_size(size))
    font = f"{source.font.name}, SHA-256 {sha256(source.font)}"
    return watermark.Watermark(transform, source.font), f"{description}, watermark in {font}"


SETS: Mapping[str, RobustSet] = {
    "refined_bias_shape": _pure_cue_set(data_sets.RefinedShape()),
    "refined_bias_texture": _pure_cue_set(data_sets.RefinedTexture(), counts=False),
    "imagenet_9": _imagenet_9_set(data_sets.ImageNet9()),
    "imagenet_9_mixed_same": _imagenet_9_set(data_sets.MixedSame()),
    "imagenet_9_mixed_rand": _imagenet_9_set(data_sets.MixedRand()),
    "imagenet_9_only_fg": _imagenet_9_set(data_sets.OnlyForeground()),
    "imagenet_9_only_bg_t": _imagenet_9_set(data_sets.OnlyBackground(), counts=False),
    "imagenet_w": RobustSet(
        data_sets.ImageNetW(),
        is_usual=False,
        source_images=VALIDATION_IMAGES,
        measures=(*MULTI_CLASS.measures, "bias_decisions"),
        make_transform=_transform_watermarked,
    ),
    "imagenet_x": RobustSet(data_sets.ImageNetX(), is_usual=False, source_images=VALIDATION_IMAGES, block="imagenet"),
    "laion_c": _pooled_set(data_sets.LaionC(), "prob_mean", cadence="end"),
}
