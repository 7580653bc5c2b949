"""What weights have seen, by their published names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from biasbed.analysis.runs.seen import read_seen


def seen(start: str = "", kind: str = "train", method: str = "erm", **config: str) -> tuple[str, bool]:
    run: Any = SimpleNamespace(init={"start": start} if start else {}, kind=kind, method=method, config=config)
    found = read_seen(run)
    return found.text, found.is_web


BOTH = "labels of ImageNet-21k, labels of ImageNet-1k"


@pytest.mark.parametrize(
    ("start", "text", "is_web"),
    [
        ("scratch", "nothing", False),
        ("torchvision:resnet50:IMAGENET1K_V2", "labels of ImageNet-1k", False),
        ("timm:resnet50:a1_in1k", "labels of ImageNet-1k", False),
        ("timm:vit_small_patch16_224:augreg_in21k_ft_in1k", BOTH, True),
        ("timm:vit_base_patch16_224:augreg_in21k", "labels of ImageNet-21k", True),
        ("timm:vit_small_patch16_224:dino", "images of ImageNet-1k", False),
        ("timm:vit_base_patch16_224:mae", "images of ImageNet-1k", False),
        ("timm:convnextv2_base:fcmae_ft_in1k", "images of ImageNet-1k, labels of ImageNet-1k", False),
        ("timm:vit_small_patch14_dinov2:lvd142m", "images of LVD", True),
        ("timm:vit_base_patch16_clip_224:laion2b", "texts of LAION", True),
        ("timm:vit_base_patch16_clip_224:openai_ft_in12k_in1k", f"texts of OpenAI's WIT, {BOTH}", True),
        ("timm:resnet18:fb_swsl_ig1b_ft_in1k", "labels of web hashtags, labels of ImageNet-1k", True),
        ("timm:some:secret", "unknown", False),
        ("file:0123456789abcdef", "unknown", False),
        ("", "unknown", False),
    ],
)
def test_a_start_tells_what_was_seen(start: str, text: str, is_web: bool) -> None:
    assert seen(start) == (text, is_web)


def test_a_tested_model_tells_it_by_its_weights() -> None:
    web, labels = ("texts of LAION", True), ("labels of ImageNet-1k", False)
    assert seen(kind="evaluate", model="timm:vit_base_patch32_clip_224.laion2b") == web
    assert seen(kind="evaluate", model="torchvision:resnet50", weights="IMAGENET1K_V1") == labels
    assert seen(kind="evaluate", model="timm:resnet50", method="timm_resnet50_a1_in1k") == labels
    assert seen(kind="evaluate", model="timm:resnet50.a1_in1k", weights="mine.pth") == ("unknown", False)
    assert seen(kind="train", method="dino") == ("unknown", False)
