"""Corruption benchmarks: names in the releases, and AlexNet's errors that normalise ImageNet-C's mCE.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019:
15 corruptions in four groups, four extra ones for validation, five severities each; `data.corruptions` makes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from biasbed.data import corruptions
from biasbed.data.corruptions import BENCHMARK, EXTRAS

__all__ = ["ALEXNET", "ALEXNET_CLEAN", "BAR", "BENCHMARK", "EXTRAS", "GROUPS", "IN_3D", "SEVERITIES", "conditions"]

SEVERITIES = tuple(map(str, corruptions.SEVERITIES))  # names of folders
GROUPS: Mapping[str, tuple[str, ...]] = {
    group: tuple(name for name in BENCHMARK if corruptions.CORRUPTIONS[name].group == group)
    for group in corruptions.GROUPS
}

# Top-1 errors of torchvision's AlexNet (weights V1) on the released files, averaged over the severities: the constants
# of AugMix's evaluation code, which equal the means of the authors' errors by severity.
ALEXNET: Mapping[str, float] = {
    **{"gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640},
    **{"defocus_blur": 0.819880, "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360},
    **{"snow": 0.866816, "frost": 0.826572, "fog": 0.819324, "brightness": 0.564592},
    **{"contrast": 0.853204, "elastic_transform": 0.646056, "pixelate": 0.717840, "jpeg_compression": 0.606500},
}
ALEXNET_CLEAN = 0.43478  # its error on ImageNet's validation images

# Mintun, Kirillov & Xie, On Interaction Between Augmentations and Corruptions in Natural Corruption Robustness, 2021.
# Corruption -> strengths of its five severities, which are the names of the folders.
BAR: Mapping[str, tuple[str, ...]] = {
    "blue_noise_sample": ("0.80", "1.60", "2.40", "4.00", "5.60"),
    "brownish_noise": ("1.00", "2.00", "3.00", "4.00", "5.00"),
    "caustic_refraction": ("2.35", "3.20", "4.90", "6.60", "9.15"),
    "checkerboard_cutout": ("2.00", "3.00", "4.00", "5.00", "6.00"),
    "cocentric_sine_waves": ("3.00", "5.00", "8.00", "9.00", "10.00"),
    "inverse_sparkles": ("1.00", "2.00", "4.00", "9.00", "10.00"),
    "perlin_noise": ("4.60", "5.20", "5.80", "7.60", "8.80"),
    "plasma_noise": ("4.75", "7.00", "8.50", "9.25", "10.00"),
    "single_frequency_greyscale": ("1.00", "1.50", "2.00", "4.50", "5.00"),
    "sparkles": ("1.00", "2.00", "3.00", "5.00", "6.00"),
}
# Kar, Yeo, Atanov & Zamir, 3D Common Corruptions and Data Augmentation, CVPR 2022.
IN_3D = (
    *("near_focus", "far_focus", "bit_error", "color_quant", "flash", "fog_3d"),
    *("h265_abr", "h265_crf", "iso_noise", "low_light", "xy_motion_blur", "z_motion_blur"),
)


def conditions(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of conditions in metrics: each corruption in its five severities, in order."""
    return tuple(f"{name}-{severity}" for name, severity in itertools.product(names, SEVERITIES))
