"""Data that weights have seen, by their published names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from biasbed.analysis.runs.seen import read_seen
from biasbed.errors import UsageError
from biasbed.training.resolve import resolve


def seen(start: str = "", kind: str = "train", method: str = "erm", **config: str) -> tuple[str, bool]:
    run: Any = SimpleNamespace(init={"start": start} if start else {}, kind=kind, method=method, config=config)
    data = read_seen(run)
    return data.text, data.is_web


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
        ("open_clip:ViT-B-32:laion2b_s34b_b79k", "texts of LAION", True),
        ("open_clip:ViT-B-32:datacomp_xl_s13b_b90k", "texts of web images", True),
        ("open_clip:ViT-B-16-SigLIP:webli", "texts of web images", True),
        ("open_clip:ViT-B-32:metaclip_400m", "texts of web images", True),
        ("open_clip:ViT-B-32:openai", "texts of OpenAI's WIT", True),
        ("transformers:openai/clip-vit-base-patch32:default", "texts of OpenAI's WIT", True),
        ("transformers:google/siglip-base-patch16-224:default", "texts of web images", True),
        ("transformers:facebook/dinov2-small:default", "images of LVD", True),
        ("timm:hf-hub:timm/resnet50.a1_in1k:default", "labels of ImageNet-1k", False),
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


def test_users_say_what_their_own_weights_have_seen() -> None:
    file = "file:0123456789abcdef"
    assert seen(file, init_seen="labels of PACS,texts of LAION") == ("labels of PACS,texts of LAION", True)
    assert seen(file, init_seen="labels of PACS") == ("labels of PACS", False)
    assert seen(file, init_seen="images of my web crawl") == ("images of my web crawl", True)
    assert seen("timm:vit_small_patch14_dinov2:lvd142m", init_seen="nothing") == ("nothing", False)
    run: Any = SimpleNamespace(init={}, kind="train", method="erm", config={"init_seen": "labels of PACS"})
    assert read_seen(run).find_sets(["pacs", "pacs_sketch", "vlcs", "pacsify"]) == ["pacs", "pacs_sketch"]


@pytest.mark.parametrize("word", ["PACS", "labels of", "labels of PACS,nothing", "pictures of cats"])
def test_what_was_seen_is_said_in_the_report_s_words(word: str) -> None:
    with pytest.raises(UsageError, match="init_seen="):
        resolve({"init_seen": word})
    assert resolve({"init_seen": "labels of PACS,texts of LAION"}).init_seen == ("labels of PACS", "texts of LAION")
