"""Image and text towers: `zero_shot` and `flyp`, `small_clip`, and the models of open_clip and transformers."""

from __future__ import annotations

OFFERS = {
    "algorithm": {
        "zero_shot": "biasbed.plugins.text_towers.zero_shot:ZeroShot",
        "flyp": "biasbed.plugins.text_towers.flyp:FLYP",
    },
    "backbone": {"small_clip": "biasbed.plugins.text_towers.small_towers:make_small_clip"},
    "model_library": {
        "open_clip": "biasbed.plugins.text_towers.open_clip_towers:OpenCLIP",
        "transformers": "biasbed.plugins.text_towers.transformers_models:Transformers",
    },
}
