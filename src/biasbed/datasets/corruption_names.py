"""Names of corruptions as releases call them, and the errors of AlexNet on them by which ImageNet-C is normalised.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019:
15 corruptions in four groups, four extra ones to validate on, five severities each.
"""

from __future__ import annotations

from collections.abc import Mapping

SEVERITIES = (1, 2, 3, 4, 5)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
BENCHMARK = tuple(name for names in GROUPS.values() for name in names)
EXTRAS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # never part of mCE

# Top-1 errors of torchvision's AlexNet (weights V1) on the released files, means of five severities: the constants of
# AugMix's evaluation code, which are also the means of those that the authors posted by severity.
ALEXNET: Mapping[str, float] = {
    **{"gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640},
    **{"defocus_blur": 0.819880, "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360},
    **{"snow": 0.866816, "frost": 0.826572, "fog": 0.819324, "brightness": 0.564592},
    **{"contrast": 0.853204, "elastic_transform": 0.646056, "pixelate": 0.717840, "jpeg_compression": 0.606500},
}
ALEXNET_CLEAN = 0.43478  # its error on ImageNet's validation images

# Mintun, Kirillov & Xie, On Interaction Between Augmentations and Corruptions in Natural Corruption Robustness, 2021.
BAR = (
    *("blue_noise_sample", "brownish_noise", "caustic_refraction", "checkerboard_cutout", "cocentric_sine_waves"),
    *("inverse_sparkles", "perlin_noise", "plasma_noise", "single_frequency_greyscale", "sparkles"),
)
# Kar, Yeo, Atanov & Zamir, 3D Common Corruptions and Data Augmentation, CVPR 2022.
IN_3D = (
    *("near_focus", "far_focus", "bit_error", "color_quant", "flash", "fog_3d"),
    *("h265_abr", "h265_crf", "iso_noise", "low_light", "xy_motion_blur", "z_motion_blur"),
)


def condition(corruption: str, severity: int) -> str:
    """What metrics call a corruption in a severity."""
    return f"{corruption}-{severity}"
