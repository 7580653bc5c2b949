"""Image and text towers: `zero_shot`, `flyp`, `flyp_lora`, `small_clip`, models of open_clip and transformers."""

from __future__ import annotations

from pathlib import Path

OFFERS = {
    "algorithm": {
        "zero_shot": "biasbed.plugins.text_towers.zero_shot:ZeroShot",
        "flyp": "biasbed.plugins.text_towers.flyp:FLYP",
        "flyp_lora": "biasbed.plugins.text_towers.flyp_lora:FLYPLoRA",
    },
    "backbone": {"small_clip": "biasbed.plugins.text_towers.small_towers:make_small_clip"},
    "display_names": {"text_towers": "biasbed.plugins.text_towers:DISPLAY_NAMES"},
    "model_library": {
        "open_clip": "biasbed.plugins.text_towers.open_clip_towers:OpenCLIP",
        "transformers": "biasbed.plugins.text_towers.transformers_models:Transformers",
    },
    "space": {
        "zero_shot": "biasbed.plugins.text_towers:ZERO_SHOT_SPACE",
        "flyp": "biasbed.plugins.text_towers:FLYP_SPACE",
        "flyp_lora": "biasbed.plugins.text_towers:FLYP_LORA_SPACE",
    },
}
DISPLAY_NAMES = {"zero_shot": "Zero-Shot", "flyp": "FLYP", "flyp_lora": "FLYP-LoRA"}
ZERO_SHOT_SPACE = Path(__file__).with_name("zero_shot_space.yaml")
FLYP_SPACE = Path(__file__).with_name("flyp_space.yaml")
FLYP_LORA_SPACE = Path(__file__).with_name("flyp_lora_space.yaml")
