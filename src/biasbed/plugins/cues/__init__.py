"""Cues that a model uses: six data sets that isolate one, and profiles of shape, texture, background and more."""

from __future__ import annotations

from pathlib import Path

OFFERS = {
    "decision_table": {"looks_at.csv": "biasbed.plugins.cues.table:make_table"},
    "derivations": {"cues": "biasbed.plugins.cues.derivations:derive"},
    "display_names": {"cues": "biasbed.plugins.cues:DISPLAY_NAMES"},
    "known_sets": {"cues": "biasbed.plugins.cues.classes:KNOWN_SETS"},
    "measures": {"cues": "biasbed.plugins.cues.derivations:MEASURES"},
    "releases": {"cues": "biasbed.plugins.cues:RELEASES"},
    "robustness_sets": {"cues": "biasbed.plugins.cues.robustness_sets:SETS"},
    "training_section": {"cues": "biasbed.plugins.cues.section:CUE_PROFILE"},
}
RELEASES = Path(__file__).with_name("releases.yaml")
DISPLAY_NAMES = {
    "refined_bias_shape": "REFINED-BIAS shapes",
    "refined_bias_texture": "REFINED-BIAS textures",
    "imagenet_9": "ImageNet-9",
    "imagenet_9_mixed_same": "ImageNet-9 Mixed-Same",
    "imagenet_9_mixed_rand": "ImageNet-9 Mixed-Rand",
    "imagenet_9_only_fg": "ImageNet-9 Only-FG",
    "imagenet_9_only_bg_t": "ImageNet-9 Only-BG-T",
    "imagenet_w": "ImageNet-W",
    "imagenet_x": "ImageNet-X",
    "laion_c": "LAION-C",
}
