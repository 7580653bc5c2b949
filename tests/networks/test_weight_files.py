"""Weights files read without running code; the set, classifier and normalisation that are taken from one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torchvision import models as torchvision_models

from biasbed import networks
from biasbed.errors import UsageError
from biasbed.evaluation import models
from biasbed.networks import renaming
from biasbed.networks.backbones import resolve
from biasbed.networks.weights import fit_file

NAME = "timm:test_resnet"


def make(seed: int = 0, name: str = "test_resnet", **how: Any) -> nn.Module:
    torch.manual_seed(seed)
    return timm.create_model(name, num_classes=4, **how).eval()


def state(seed: int = 0) -> dict[str, Tensor]:
    return dict(make(seed).state_dict())


def prefixed(prefix: str, seed: int = 0) -> dict[str, Tensor]:
    return {f"{prefix}{key}": value for key, value in state(seed).items()}


def is_loaded(path: Path, part: str = "") -> bool:
    found = fit_file(path, part, resolve(NAME), "weights").tensors
    expected = state()
    return all(torch.equal(found[key].float(), value.float()) for key, value in expected.items())


def test_wrappers_inside_the_network(tmp_path: Path) -> None:
    """The features alone in DataParallel, as PyTorch's ImageNet example has VGG; a stage alone compiled."""
    wrapped = {
        key.replace("layer1.", "layer1._orig_mod.").replace("layer2.", "layer2.module."): v
        for key, v in state().items()
    }
    torch.save(wrapped, tmp_path / "w.pth")
    assert is_loaded(tmp_path / "w.pth")


def test_nothing_in_the_file_is_run(tmp_path: Path) -> None:
    """Neither a harmless class nor a function that writes; what the system's modules hold is refused."""
    mark = tmp_path / "was_run"

    class Attack:
        def __init__(self, *call: Any) -> None:
            self.call = call

        def __reduce__(self) -> Any:
            return self.call[0], self.call[1:]

    torch.save({"state_dict": state(), "x": Attack(exec, f"open({str(mark)!r}, 'w')")}, tmp_path / "exec.pth")
    assert is_loaded(tmp_path / "exec.pth")
    import os

    torch.save({"state_dict": state(), "x": Attack(os.mkdir, str(mark))}, tmp_path / "os.pth")
    with pytest.raises(UsageError, match="mkdir"):
        fit_file(tmp_path / "os.pth", "", resolve(NAME), "weights")
    assert not mark.exists()


# --- a classifier beside the features ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "head", "is_found"),
    [
        ("backbone.", "head.", True),
        ("0.", "1.", True),
        ("module.0.", "module.1.", True),
        ("model.encoder.", "model.fc.", True),
        ("0.", "2.", False),
        ("backbone.", "rotation.", False),
        ("a.backbone.", "b.head.", False),
    ],
)
def test_a_classifier_beside_the_features_is_told_by_name_or_place(
    prefix: str, head: str, is_found: bool, tmp_path: Path
) -> None:
    features = {f"{prefix}{key}": value for key, value in state().items() if not key.startswith("fc.")}
    layer = {f"{head}{key}": state()[f"fc.{key}"] for key in ("weight", "bias")}
    torch.save({"state_dict": features | layer}, tmp_path / "w.pth")
    if is_found:
        assert is_loaded(tmp_path / "w.pth")
        return
    with pytest.raises(UsageError, match=r"holds no classifier.*train one on them: .*biasbed train"):
        models.find(NAME, str(tmp_path / "w.pth"))


def replaced(name: str, head: str, layers: nn.Module, path: Path) -> nn.Module:
    """Save a network whose classifier was replaced, as tutorials do it, and return it."""
    torch.manual_seed(0)
    library, _, short = name.partition(":")
    network = timm.create_model(short) if library == "timm" else torchvision_models.get_model(short)
    network.set_submodule(head, layers)
    torch.save(network.state_dict(), path)
    return network.eval()


@pytest.mark.parametrize(
    ("name", "head", "layers"),
    [
        ("torchvision:resnet18", "fc", nn.Sequential(nn.Dropout(0.2), nn.Linear(512, 2))),
        ("timm:test_resnet", "fc", nn.Sequential(nn.Identity(), nn.Dropout(0.2), nn.Linear(96, 2))),
        ("torchvision:efficientnet_b0", "classifier", nn.Linear(1280, 2)),
    ],
)
def test_a_linear_layer_in_place_of_the_classifier_is_the_classifier(
    name: str, head: str, layers: nn.Module, tmp_path: Path
) -> None:
    network = replaced(name, head, layers, tmp_path / "w.pth")
    found = models.find(name, str(tmp_path / "w.pth"), mean_std=networks.MeanStd((0.0,), (1.0,)))
    x = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(found.predict(x), network(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "head", "layers", "message"),
    [
        (
            "torchvision:resnet18",
            "fc",
            nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 2)),
            r"no classifier of torchvision:resnet18 \(fc.weight\), but fc.0.weight, fc.2.weight",
        ),
        (
            "torchvision:mobilenet_v3_small",
            "classifier",
            nn.Linear(576, 2),
            r"no classifier of torchvision:mobilenet_v3_small \(classifier.3.weight\), but classifier.weight",
        ),
    ],
)
def test_other_layers_in_place_of_the_classifier_are_named(
    name: str, head: str, layers: nn.Module, message: str, tmp_path: Path
) -> None:
    replaced(name, head, layers, tmp_path / "w.pth")
    with pytest.raises(UsageError, match=message):
        models.find(name, str(tmp_path / "w.pth"))


# --- files made to harm -----------------------------------------------------------------------------------------------


def laughing() -> dict[str, Any]:
    """Containers that hold each other so often that a search along every path never ends."""
    dictionary: dict[str, Any] = {}
    dictionary |= {str(number): dictionary for number in range(60)}
    level: dict[str, Any] = {"number": 0.5}
    for _ in range(12):
        level = {str(number): level for number in range(40)}
    return {"dictionary": dictionary, "levels": level, 10**200: {}}


def test_a_container_is_visited_once(tmp_path: Path) -> None:
    shared = state()
    torch.save({**laughing(), "raw": shared, "other": shared, "module": torch.ones(2), "": 1}, tmp_path / "w.pth")
    assert is_loaded(tmp_path / "w.pth")


def quantized() -> Tensor:
    return torch.quantize_per_tensor(torch.ones(4, 96), 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc.weight": torch.zeros(1).expand(10**11)}, "state_dict.fc.weight' is quantized, sparse, complex, expanded"),
        ({"fc.weight": torch.zeros(4_000_000_000, 0)}, "holds no classifier"),
        ({"fc.weight": torch.zeros(0, 96), "fc.bias": torch.zeros(0)}, "holds no classifier"),
        ({"fc.weight": torch.tensor(1.0)}, r"'fc\.weight' of another shape"),
        ({"conv1.0.weight": quantized()}, "state_dict.conv1.0.weight' is quantized, sparse"),
        ({"fc.weight": torch.ones(4, 96).to_sparse()}, "state_dict.fc.weight' is quantized, sparse"),
        ({"fc.weight": torch.ones(4, 96, device="meta")}, "state_dict.fc.weight' is quantized, sparse"),
        ({"fc.weight": torch.ones(4, 96, dtype=torch.complex64)}, "state_dict.fc.weight' is quantized, sparse"),
        ({"fc.weight": torch.ones(4, 96, dtype=torch.int8)}, r"'fc.weight' of integers \(quantized"),
        ({f"view{number}": torch.ones(10**6) for number in range(2)}, "unknown"),
    ],
)
def test_tensors_without_plain_values_are_refused(changes: Any, message: str, tmp_path: Path) -> None:
    torch.save({"state_dict": {**state(), **changes}}, tmp_path / "w.pth")
    with pytest.raises(UsageError, match=message) as caught:
        models.find(NAME, str(tmp_path / "w.pth"))
    assert "\n" not in str(caught.value)


# --- several sets of weights ------------------------------------------------------------------------------------------


def test_of_several_sets_none_is_taken_unasked(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({"state_dict": state(1), "state_dict_ema": prefixed("module."), "epoch": 1}, path)
    with pytest.raises(
        UsageError, match=r"several sets of weights fit \(state_dict, state_dict_ema.*<file>#state_dict_ema"
    ):
        models.find(NAME, str(path))
    with pytest.raises(UsageError, match="several sets of weights fit"):
        networks.build(NAME, 4, str(path))
    chosen = {
        part: models.find(NAME, f"{path}#{part}").module.state_dict() for part in ("state_dict", "state_dict_ema")
    }
    assert torch.equal(chosen["state_dict"]["backbone.conv1.0.weight"], state(1)["conv1.0.weight"])
    assert torch.equal(chosen["state_dict_ema"]["backbone.conv1.0.weight"], state()["conv1.0.weight"])
    initial = networks.build(NAME, 4, f"{path}#state_dict_ema").state_dict()
    assert torch.equal(initial["backbone.conv1.0.weight"], state()["conv1.0.weight"])
    assert networks.start(NAME, f"{path}#state_dict") != networks.start(NAME, f"{path}#state_dict_ema")
    with pytest.raises(UsageError, match="did you mean 'state_dict_ema'"):
        models.find(NAME, f"{path}#state_dict_em")


def test_a_part_and_a_checksum_go_together(tmp_path: Path) -> None:
    from biasbed.system.files import sha256, with_absolute_path

    path = tmp_path / "w#1.pth"  # a name of its own with the mark
    torch.save({"state_dict": state(1), "ema": state()}, path)
    word = f"{path}#ema#sha256={sha256(path)}"
    assert with_absolute_path(word) == word
    assert torch.equal(models.find(NAME, word).module.state_dict()["backbone.fc.bias"], state()["fc.bias"])
    with pytest.raises(UsageError, match="its SHA-256 is"):
        models.find(NAME, f"{path}#ema#sha256={'0' * 64}")


# --- normalisation in the file ----------------------------------------------------------------------------------------

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)


def around(mean: str, std: str, prefix: str, shape: tuple[int, ...] = (1, 3, 1, 1)) -> dict[str, Tensor]:
    """A state dict of a model that normalises its images itself."""
    return {mean: torch.tensor(MEAN).view(shape), std: torch.tensor(STD).view(shape), **prefixed(prefix)}


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (around("normalize.mean", "normalize.std", "model."), "normalize.mean, normalize.std"),
        (
            {"state_dict": around("module.0.mean", "module.0.std", "module.1.", (3,))},
            "state_dict.module.0.mean, state_",
        ),
        (around("mu", "sigma", "net.", (3,)), "mu, sigma"),
        ({"model": state(), "mean": torch.tensor(MEAN), "std": torch.tensor(STD)}, "mean, std"),
        (nn.BatchNorm2d(3).state_dict(prefix="0.") | prefixed("1."), "0.weight, 0.bias, 0.running_mean, 0.running_var"),
        (nn.Conv2d(3, 3, 1).state_dict(prefix="0.") | prefixed("1."), "0.weight, 0.bias"),
        ({"shift": torch.zeros(1).expand(1, 3, 9, 9), **prefixed("net.")}, "shift"),
        (
            {"projection.weight": torch.ones(90, 96), "queue": torch.ones(9), **prefixed("net.")},
            "projection.weight, queue",
        ),
    ],
)
def test_tensors_that_the_network_does_not_take_are_refused_unless_mean_and_std_are_given(
    content: Any, names: str, tmp_path: Path
) -> None:
    """They may normalise images: a file with such tensors and without a mean and std would be tested wrongly."""
    torch.save(content, tmp_path / "w.pth")
    for find in (
        lambda: models.find(NAME, str(tmp_path / "w.pth")),
        lambda: networks.build(NAME, 4, str(tmp_path / "w.pth")),
        lambda: networks.find_normalisation(NAME, str(tmp_path / "w.pth")),
    ):
        with pytest.raises(UsageError, match=re.escape(f"may normalise its images: {names}")) as caught:
            find()
        assert "give mean= and std=" in str(caught.value)
    found = models.find(NAME, str(tmp_path / "w.pth"), mean_std=networks.MeanStd(MEAN, STD))
    x = torch.rand(2, 3, 64, 64)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    torch.testing.assert_close(found.predict(x), make()((x - mean) / std), rtol=1e-4, atol=1e-4)
    assert found.normalisation is not None
    assert found.normalisation.why == "given"


@pytest.mark.parametrize(
    "beside",
    [
        {"best_acc1": torch.tensor(71.5), "rng": torch.get_rng_state()},
        {"optimizer": {"state": {0: {"exp_avg": torch.ones(3)}}}},
        {"args": {"mean": list(MEAN), "std": list(STD)}},
        {"state_dict": {**prefixed("encoder_q."), "queue_ptr": torch.zeros(1, dtype=torch.long)}},
    ],
)
def test_numbers_and_a_training_s_own_tensors_are_no_obstacle(beside: dict[str, Any], tmp_path: Path) -> None:
    torch.save({"state_dict": state(), **beside}, tmp_path / "w.pth")
    assert networks.find_normalisation(NAME, str(tmp_path / "w.pth")).kind == "architecture"


@pytest.mark.parametrize(
    "kept",
    [
        {"normalisation": {"mean": list(MEAN), "std": list(STD), "kind": "tag", "why": "of the weights' tag"}},
        {"config": {"algorithm": "erm", "mean": MEAN, "std": STD}},
    ],
)
def test_the_normalisation_of_our_own_checkpoint_is_used(kept: Any, tmp_path: Path) -> None:
    """Weights that were trained with a tag's or a given normalisation go on with it."""
    algorithm = {**prefixed("network.backbone."), "centre.mean": torch.ones(512), "draws": torch.ones(3)}
    torch.save({"config": {"algorithm": "erm", "mean": "auto"}, "algorithm": algorithm, **kept}, tmp_path / "best.ckpt")
    found = networks.find_normalisation(NAME, str(tmp_path / "best.ckpt"))
    assert (found.values, found.kind) == ((MEAN, STD), "checkpoint")


# --- names and sizes that the libraries translate ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["densenet121", pytest.param("vit_b_32", marks=pytest.mark.slow)])
def test_old_names_of_torchvision_s_layers(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    expected = torchvision_models.get_model(name, num_classes=3).state_dict()
    linear = {"mlp.0.": "mlp.linear_1.", "mlp.3.": "mlp.linear_2."}
    old = {}
    for key, value in expected.items():
        if name == "vit_b_32":
            old[re.sub(r"mlp\.[03]\.", lambda match: linear[match[0]], key)] = value
        elif "num_batches" not in key:
            old[re.sub(r"(denselayer\d+)\.(norm|conv)([12])\.", r"\1.\2.\3.", key)] = value
    assert old.keys() != expected.keys()
    torch.save({f"module.{key}": value for key, value in old.items()}, tmp_path / "w.pth")
    loaded = models.find(f"torchvision:{name}", str(tmp_path / "w.pth")).module.state_dict()
    assert all(torch.equal(loaded[f"backbone.{key}"], value) for key, value in expected.items())


def test_position_embeddings_come_to_another_size_as_timm_does_it(tmp_path: Path) -> None:
    from timm.layers import resample_abs_pos_embed

    name = "vit_tiny_patch16_224"
    torch.save(make(name=name).state_dict(), tmp_path / "w.pth")
    found = networks.build(f"timm:{name}", 4, str(tmp_path / "w.pth"), image_size=96).backbone.state_dict()
    pos = make(name=name).state_dict()["pos_embed"]
    torch.testing.assert_close(found["pos_embed"], resample_abs_pos_embed(pos, [6, 6], num_prefix_tokens=1))
    assert torch.equal(found["cls_token"], make(name=name).state_dict()["cls_token"])


def test_dinov2_starts_at_224_and_at_its_own_518(tmp_path: Path) -> None:
    """The skeleton is made for 518 pixels, a grid of 37 x 37 patches; 224 pixels have 16 x 16."""
    from timm.layers import resample_abs_pos_embed

    torch.manual_seed(0)
    tiny = {"depth": 1, "embed_dim": 32, "num_heads": 2, "num_classes": 0}
    large, small = (
        timm.create_model("vit_small_patch14_dinov2", img_size=size, **tiny).state_dict() for size in (518, 224)
    )
    assert large["pos_embed"].shape == (1, 1 + 37 * 37, 32)
    network = timm.create_model("vit_small_patch14_dinov2", img_size=224, **tiny)
    found = renaming.translate(network, large)
    torch.testing.assert_close(found["pos_embed"], resample_abs_pos_embed(large["pos_embed"], [16, 16]))
    assert found["pos_embed"].shape == small["pos_embed"].shape
    back = timm.create_model("vit_small_patch14_dinov2", img_size=518, **tiny)
    assert torch.equal(renaming.translate(back, large)["pos_embed"], large["pos_embed"])
    assert networks.skeleton(resolve("timm:vit_small_patch14_dinov2")).state_dict()["pos_embed"].shape[1] == 1 + 37 * 37


@pytest.mark.parametrize(
    ("name", "how", "other"),
    [
        ("beit_base_patch16_224", {"depth": 1, "embed_dim": 32, "num_heads": 2}, {}),
        ("swin_tiny_patch4_window7_224", {"depths": (1, 1), "embed_dim": 16, "num_heads": (2, 2)}, {"window_size": 5}),
    ],
)
def test_relative_tables_come_to_another_size_as_timm_does_it(
    name: str, how: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    """The reference is timm's own loader with the same file."""
    torch.manual_seed(0)
    saved = timm.create_model(name, num_classes=4, **how).state_dict()
    torch.save(saved, tmp_path / "w.pth")
    other = {"img_size": 160, "num_classes": 4, **how, **other}
    found = renaming.translate(timm.create_model(name, **other), saved)
    overlay = {"file": str(tmp_path / "w.pth"), "num_classes": 4}
    expected = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **other).state_dict()
    tables = [key for key in saved if key.endswith("relative_position_bias_table")]
    assert all(saved[key].shape != expected[key].shape for key in tables)
    assert tables
    for key, value in expected.items():
        assert torch.equal(found[key], value), key
