"""LoRA, fine-tuning of low-rank updates: `algorithm=lora`."""

from __future__ import annotations

from pathlib import Path

OFFERS = {
    "algorithm": {"lora": "biasbed.plugins.lora.lora:LoRA"},
    "display_names": {"lora": "biasbed.plugins.lora:DISPLAY_NAMES"},
    "space": {"lora": "biasbed.plugins.lora:SPACE"},
}
DISPLAY_NAMES = {"lora": "LoRA"}
SPACE = Path(__file__).with_name("space.yaml")
