"""Towers and models of optional libraries, from folders and from a made-up cache; what is said without the library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from biasbed import networks
from biasbed.config import Preprocess
from biasbed.errors import Failure, UsageError
from biasbed.evaluation import models
from biasbed.plugins.text_towers import prompts, transformers_models
from biasbed.plugins.text_towers.text_tower import load_text_tower
from biasbed.plugins.text_towers.towers import text_classifier
from biasbed.training.expected import describe_other_preprocessing
from biasbed.training.resolve import resolve
from helpers.making import batch_for, images, make
from helpers.tensors import changed

NAMES = ("cat", "great white shark", "ship")
TEMPLATES = prompts.SETS["clip7"]


def build_tower(name: str, init: str, outputs: int = 3, size: int = 32) -> Any:
    return networks.build(name, outputs, init, image_size=size).eval()


# --- without any library ----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_class_is_the_normalised_mean_of_normalised_texts() -> None:
    torch.manual_seed(0)
    tower = load_text_tower("small_clip", "scratch").double()
    texts = prompts.fill(TEMPLATES, NAMES)
    tokens = tower.tokenize(texts).unflatten(0, (3, 7))
    expected = []
    for row in tokens:
        features = [tower(text[None])[0] for text in row]
        mean = sum(feature / feature.square().sum().sqrt() for feature in features) / 7
        expected.append(mean / mean.square().sum().sqrt())
    torch.testing.assert_close(text_classifier(tower, tokens), torch.stack(expected))
    assert len({tuple(row) for row in tokens.flatten(0, 1).tolist()}) == 21
    assert texts[7] == "itap of a great white shark."


def test_towers_in_one_file_are_both_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    image, text = build_tower("small_clip", "scratch"), load_text_tower("small_clip", "scratch")
    torch.save({"state_dict": {**image.backbone.state_dict(), **text.model.state_dict()}}, tmp_path / "both.pth")
    torch.save(image.backbone.state_dict(), tmp_path / "image.pth")
    torch.manual_seed(1)
    again = load_text_tower("small_clip", str(tmp_path / "both.pth"))
    assert all(torch.equal(value, text.state_dict()[key]) for key, value in again.state_dict().items())
    loaded = build_tower("small_clip", str(tmp_path / "both.pth")).backbone.state_dict()
    assert all(torch.equal(value, image.backbone.state_dict()[key]) for key, value in loaded.items())
    with pytest.raises(UsageError, match=r"holds no text tower of small_clip: .* give weights of both towers, or"):
        load_text_tower("small_clip", str(tmp_path / "image.pth"))
    with pytest.raises(UsageError, match="resnet18 has no text tower: take open_clip"):
        load_text_tower("resnet18", "scratch")


def save_timm(folder: Path, classes: int) -> None:
    """A model of timm in a folder, as its own program saves it."""
    import timm
    from timm.models import save_for_hf

    torch.manual_seed(3)
    model = timm.create_model("test_vit", num_classes=classes)
    save_for_hf(model, folder, safe_serialization=True)
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"] |= {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    (folder / "config.json").write_text(json.dumps(config))


def test_a_model_of_timm_in_a_folder(tmp_path: Path) -> None:
    import timm

    save_timm(tmp_path, 3)
    name = f"timm:local-dir:{tmp_path}"
    network = networks.build(name, 3, "named:default", image_size=160).eval()
    assert network.normalise.mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])
    reference = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    x = images(2, 160, 160)
    with torch.no_grad():
        torch.testing.assert_close(network(x), reference((x - network.normalise.mean) / network.normalise.std))
    assert networks.start(name, "named:default").startswith("file:")
    assert networks.origin(name, "named:default")["weights"] == "default"
    assert networks.find_normalisation(name, "named:default").why == "of the model's own configuration"


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("torchvision:resnet50:IMAGENET1K_V2", ("torchvision:resnet50", "IMAGENET1K_V2")),
        ("timm:resnet50.a1_in1k", ("timm:resnet50.a1_in1k", "")),
        ("open_clip:ViT-B-32:openai", ("open_clip:ViT-B-32", "openai")),
        ("open_clip:local-dir:/a:b", ("open_clip:local-dir:/a:b", "")),
        ("transformers:/a:b", ("transformers:/a:b", "")),
        ("hf-hub:somebody/tiny", ("hf-hub:somebody/tiny", "")),
        ("resnet50", None),
        ("a:b", None),
    ],
)
def test_a_library_s_model_is_told_from_its_weights(model: str, parts: tuple[str, str] | None) -> None:
    assert networks.split_model(model) == parts


def cache_timm(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub's cache that holds one model, as the hub's client lays it out."""
    from huggingface_hub import constants

    snapshot = home / "models--somebody--tiny" / "snapshots" / "0123456789012345678901234567890123456789"
    snapshot.mkdir(parents=True)
    (home / "models--somebody--tiny" / "refs").mkdir()
    (home / "models--somebody--tiny" / "refs" / "main").write_text(snapshot.name)
    save_timm(snapshot, 0)
    for name, value in (("HF_HUB_CACHE", str(home)), ("HF_HUB_OFFLINE", True)):
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("HF_HUB_CACHE", str(home))


def test_a_hub_id_is_read_from_the_cache_and_features_are_said_to_be_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from biasbed.networks import library

    cache_timm(tmp_path, monkeypatch)
    for name in ("timm:hf-hub:somebody/tiny", "hf-hub:somebody/tiny"):
        network = networks.build(name, 5, "named:default", image_size=160)
        assert network.num_features == 64
        assert networks.start(name, "named:default") == "timm:hf-hub:somebody/tiny:default"
    assert "has no classifier: the last layer begins with random weights for 5 classes" in caplog.text
    with pytest.raises(UsageError, match=r"has no classifier. Make one: .*--algorithm probe"):
        library.fetch("timm:hf-hub:somebody/tiny", "default")
    with pytest.raises(Failure, match="timm:hf-hub:somebody/other is not in this machine's cache"):
        networks.resolve("timm:hf-hub:somebody/other")


# --- open_clip --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small model of open_clip with random weights."""
    open_clip = pytest.importorskip("open_clip", reason="open_clip_torch is not installed")
    folder = tmp_path_factory.mktemp("towers")
    vision = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8}
    text = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
    model = {"embed_dim": 24, "vision_cfg": vision, "text_cfg": text}
    preprocess = {"mean": [0.3, 0.4, 0.5], "std": [0.2, 0.25, 0.3], "size": 32, "interpolation": "bicubic"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model, "preprocess_cfg": preprocess}))
    torch.manual_seed(0)
    made = open_clip.create_model(f"local-dir:{folder}")
    torch.save(made.state_dict(), folder / "open_clip_pytorch_model.bin")
    return folder


@torch.no_grad()
def test_zero_shot_is_open_clip_s_own(open_clip_folder: Path) -> None:
    import open_clip

    name = f"open_clip:local-dir:{open_clip_folder}"
    model = open_clip.create_model(f"local-dir:{open_clip_folder}").eval()
    tokenizer = open_clip.get_tokenizer(f"local-dir:{open_clip_folder}")
    classifier = open_clip.build_zero_shot_classifier(model, tokenizer, NAMES, TEMPLATES)
    network = build_tower(name, "named:default")
    tower = load_text_tower(name, "named:default").eval()
    tokens = tower.tokenize(prompts.fill(TEMPLATES, NAMES)).unflatten(0, (3, 7))
    torch.testing.assert_close(text_classifier(tower, tokens), classifier.T, rtol=0, atol=1e-6)
    x = images(4)
    mean, std = (torch.tensor(values)[:, None, None] for values in ((0.3, 0.4, 0.5), (0.2, 0.25, 0.3)))
    expected = model.logit_scale.exp() * model.encode_image((x - mean) / std, normalize=True) @ classifier
    features = torch.nn.functional.normalize(network.features(x), dim=1)
    torch.testing.assert_close(tower.scale() * features @ text_classifier(tower, tokens).T, expected, atol=1e-5, rtol=0)
    assert expected.std() > 0.01
    why = networks.find_normalisation(name, "named:default").why
    assert why == "of the model's own configuration, which expects 32 pixels, bicubic interpolation"
    config: Any = resolve({"suite": "folders", "backbone": name, "init": "named:default"})
    assert (config.image_size, config.preprocess) == (32, Preprocess(resize=32, interpolation="bicubic"))
    assert not describe_other_preprocessing(config)
    with pytest.raises(UsageError, match=r"patches of 8 x 8 pixels leave out 4 of 36.*image_size=32 or 40"):
        build_tower(name, "named:default", size=36)


def test_open_clip_s_positions_are_resampled_to_another_size(open_clip_folder: Path) -> None:
    import open_clip

    name = f"open_clip:local-dir:{open_clip_folder}"
    reference = open_clip.create_model(f"local-dir:{open_clip_folder}", force_image_size=48)
    positions = build_tower(name, "named:default", size=48).backbone.visual.positional_embedding
    torch.testing.assert_close(positions, reference.visual.positional_embedding)


# --- transformers -----------------------------------------------------------------------------------------------------


def save_processor(folder: Path, **more: Any) -> None:
    values = {"image_mean": [0.3, 0.4, 0.5], "image_std": [0.2, 0.3, 0.4], "resample": 3, "size": 32, **more}
    (folder / "preprocessor_config.json").write_text(json.dumps(values))


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small CLIPModel with a tokenizer, as transformers saves them."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("clip")
    letters = [*"abcdefghijklmnopqrstuvwxyz."]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: number for number, word in enumerate(words)}
    transformers.CLIPTokenizer(vocabulary, []).save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {**sizes, "vocab_size": 56, "max_position_embeddings": 20, "bos_token_id": 54, "eos_token_id": 55}
    config = transformers.CLIPConfig(
        text_config={**text, "pad_token_id": 55},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        projection_dim=24,
    )
    torch.manual_seed(0)
    transformers.CLIPModel(config).save_pretrained(folder)
    save_processor(folder)
    return folder


@torch.no_grad()
def test_zero_shot_is_that_of_transformers(clip_folder: Path) -> None:
    from transformers import AutoTokenizer, CLIPModel

    name, names = f"transformers:{clip_folder}", ("cat", "two wet rats", "tower")
    model = CLIPModel.from_pretrained(clip_folder).eval()
    texts = [f"a {word}." for word in names]
    tokens = AutoTokenizer.from_pretrained(clip_folder)(texts, padding=True, return_tensors="pt")
    x = images(4)
    mean, std = (torch.tensor(values)[:, None, None] for values in ((0.3, 0.4, 0.5), (0.2, 0.3, 0.4)))
    expected = model(**tokens, pixel_values=(x - mean) / std).logits_per_image
    network = build_tower(name, "named:default")
    tower = load_text_tower(name, "named:default").eval()
    classifier = text_classifier(tower, tower.tokenize(texts)[:, None])
    features: Tensor = torch.nn.functional.normalize(network.features(x), dim=1)
    torch.testing.assert_close(tower.scale() * features @ classifier.T, expected, atol=1e-5, rtol=0)
    assert networks.start(name, "named:default").startswith("file:")
    assert build_tower(name, "named:default", size=48)(images(2, 48, 48)).shape == (2, 3)


def test_flyp_lora_trains_low_rank_updates_of_both_towers_alone(clip_folder: Path) -> None:
    pytest.importorskip("peft", reason="peft is not installed")
    towers = f"transformers:{clip_folder}"
    method = make("flyp_lora", {"prompts": "clip7", "rank": 2}, backbone=towers)
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    for _ in range(2):  # the first step of an update changes one factor: the other one is zero
        method.update(batch_for(method))
    names = changed(before, method.state_dict())
    assert names == {name for name in before if ".lora_" in name}
    for tower in ("network.backbone.", "text."):
        parts = {name.split(".")[-4] for name in names if name.startswith(tower)}
        assert parts == {"q_proj", "k_proj", "v_proj", "out_proj"}


@torch.no_grad()
def test_siglip_has_a_bias_and_no_projection(tmp_path: Path, clip_folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.SiglipConfig(
        text_config={**sizes, "vocab_size": 56, "max_position_embeddings": 20},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
    )
    torch.manual_seed(0)
    model = transformers.SiglipModel(config).eval()
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(clip_folder).save_pretrained(tmp_path)
    save_processor(tmp_path)
    network = build_tower(f"transformers:{tmp_path}", "named:default")
    tower = load_text_tower(f"transformers:{tmp_path}", "named:default").eval()
    tokens, x = tower.tokenize(["a cat", "a tower"]), images(3)
    inputs = {"input_ids": tokens, "pixel_values": network.normalise(x)}
    features: Tensor = torch.nn.functional.normalize(network.features(x), dim=1)
    logits = tower.scale() * features @ text_classifier(tower, tokens[:, None]).T + tower.bias()
    torch.testing.assert_close(logits, model(**inputs).logits_per_image, atol=1e-5, rtol=1e-5)


def test_a_classifier_of_transformers_is_trained_and_tested_as_it_is(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from biasbed.networks import library

    sizes = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=4)
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"has no preprocessor_config.json"):
        networks.build(f"transformers:{tmp_path}", 4)
    save_processor(tmp_path)
    transformers_models._read_preprocessing.cache_clear()
    published = library.fetch(f"transformers:{tmp_path}", "default")
    network, x = published.network.eval(), images(3)
    with torch.no_grad():
        expected = model(pixel_values=network.normalise(x)).logits
        torch.testing.assert_close(network(x), expected)
        torch.testing.assert_close(network.classify(network.features(x)), expected)
    assert published.outputs == 4
    assert published.preprocessing["preprocess.interpolation"] == "bicubic"
    model_to_test = models.find(f"transformers:{tmp_path}")
    assert (model_to_test.outputs, model_to_test.classes) == (4, None)  # LABEL_0 to LABEL_3 name nothing
    with torch.no_grad():
        torch.testing.assert_close(model_to_test.predict(x), expected)
    with pytest.raises(UsageError, match=r"patches of 8 x 8 pixels leave out 4 of 36.*image_size=32 or 40"):
        networks.build(f"transformers:{tmp_path}", 4, image_size=36)
    features = networks.build(f"transformers:{tmp_path}", 7, "named:default", head=False).eval()
    assert features(x).shape == (3, 32)
    with pytest.raises(UsageError, match="has no text tower"):
        load_text_tower(f"transformers:{tmp_path}", "named:default")


# Image processors, and size, resize and crop of the same images.
PROCESSORS: Mapping[str, tuple[dict[str, Any], tuple[int, int, str]]] = {
    "ViT": ({"size": {"height": 224, "width": 224}}, (224, 224, "squash")),
    "old ViT": ({"size": 224}, (224, 224, "squash")),
    "CLIP": (
        {"size": {"shortest_edge": 224}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
        (224, 224, "centre"),
    ),
    "DINOv2": (
        {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
        (224, 256, "centre"),
    ),
    "old CLIP": ({"size": 224, "do_center_crop": True, "crop_size": 224}, (224, 224, "centre")),
    "BEiT": (
        {"size": {"height": 256, "width": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
        (224, 256, "squash"),
    ),
    "ConvNeXt": ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (224, 256, "centre")),
    "ConvNeXt 384": ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, (384, 384, "squash")),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_an_image_processor_says_size_resize_and_crop(name: str) -> None:
    values, expected = PROCESSORS[name]
    assert transformers_models._find_crop(values) == expected


def test_a_repository_s_code_is_never_run(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UsageError, match="backbone=transformers"):
        networks.resolve(f"transformers:{tmp_path}")
    assert not (tmp_path / "ran").exists()
