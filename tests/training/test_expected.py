"""Preprocessing that initial weights expect, as defaults of a training; nothing is downloaded."""

from __future__ import annotations

from typing import Any

from biasbed.training.expected import describe_other_preprocessing, describe_unused_weights
from biasbed.training.resolve import resolve

V2: dict[str, Any] = {"suite": "folders", "backbone": "resnet50", "init": "named:IMAGENET1K_V2"}
DINO: dict[str, Any] = {"suite": "domains", "backbone": "timm:vit_small_patch14_dinov2", "init": "named:lvd142m"}


def prepared(**flags: Any) -> tuple[Any, ...]:
    config: Any = resolve(flags)
    how = config.preprocess
    return config.image_size, how.resize, how.interpolation, how.crop


def test_named_weights_bring_size_resize_interpolation_and_crop() -> None:
    assert prepared(**V2) == (224, 232, "bilinear", "centre")
    assert prepared(**{**V2, "init": "named:IMAGENET1K_V1"}) == (224, "auto", "bilinear", "centre")
    assert prepared(**DINO) == (518, 518, "bicubic", "centre")
    squashed = prepared(suite="folders", backbone="timm:coat_lite_medium_384", init="named:in1k")
    assert squashed == (384, 384, "bicubic", "squash")
    assert prepared(suite="folders", backbone="resnet50") == (112, "auto", "bilinear", "centre")


def test_given_settings_win_and_resize_follows_the_size() -> None:
    assert prepared(**V2, image_size="112") == (112, 116, "bilinear", "centre")
    assert prepared(**V2, image_size=112, **{"preprocess.size": "336"}) == (112, 348, "bilinear", "centre")
    given = {"preprocess.resize": 250, "preprocess.interpolation": "bicubic", "preprocess.crop": "squash"}
    assert prepared(**V2, **given) == (224, 250, "bicubic", "squash")
    config = resolve({**DINO, "image_size": 224, "preprocess.interpolation": "bilinear"})
    assert describe_other_preprocessing(config) == (
        "the initial weights expect image_size=518, preprocess.interpolation=bicubic; "
        "this training has image_size=224, preprocess.interpolation=bilinear"
    )
    assert describe_other_preprocessing(resolve(DINO)) == describe_other_preprocessing(resolve({"suite": "demo"})) == ""


def test_suites_data_sets_and_presets_keep_the_sizes_of_their_protocol() -> None:
    domainbed = resolve({"suite": "domainbed", "train": "pacs", "backbone": "resnet50", "init": "named:IMAGENET1K_V2"})
    assert domainbed.image_size == 224
    cifar = resolve({"suite": "robustness", "train": "cifar10", "backbone": "resnet18", "init": "named:IMAGENET1K_V1"})
    assert cifar.image_size == 32
    assert "expect image_size=224" in describe_other_preprocessing(cifar)
    fashion = resolve({"suite": "deepfashion", "backbone": "resnet50", "init": "named:IMAGENET1K_V1"})
    assert fashion == resolve({"suite": "deepfashion", "backbone": "resnet50"})
    assert resolve({"suite": "folders", "preset": "vit_finetune"}).image_size == 224


def test_weights_that_a_name_has_and_nothing_loads_are_warned_of() -> None:
    tagged = resolve({"suite": "domains", "backbone": "timm:vit_small_patch14_dinov2.lvd142m", "image_size": 224})
    assert describe_unused_weights(tagged) == (
        "backbone=timm:vit_small_patch14_dinov2.lvd142m names weights, but init=scratch starts from random ones; "
        "init=named:lvd142m loads them"
    )
    assert describe_unused_weights(resolve(DINO)) == describe_unused_weights(resolve({"suite": "demo"})) == ""
    assert describe_unused_weights(resolve({"suite": "domains", "backbone": "timm:resnet18"})) == ""
