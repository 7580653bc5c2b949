"""Weights files as people's programs write them: read without running code, fitted to the network, or refused."""

from __future__ import annotations

import argparse
import datetime
import pickle
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models as torchvision_models

from biasbed import networks
from biasbed.errors import UsageError
from biasbed.evaluation import models
from biasbed.networks import renaming, weight_files
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


class Config(dict[str, Any]):
    """A dict of a program's own, as configurations often are."""


CONTAINERS = (
    *("state_dict", "model", "net", "model_state_dict", "state_dict_ema", "model_ema", "ema", "teacher", "student"),
    *("params", "model_dict", "network", "weights"),
)
PREFIXES = (
    *("module.", "_orig_mod.", "model.", "backbone.", "encoder.", "network.", "net.", "0.", "_orig_mod.module."),
    *("module._orig_mod.", "model.module.", "model.backbone.", "module.encoder.backbone.", "learner.network.model."),
)
LITTER: dict[str, Any] = {
    "epoch": 3,
    "args": argparse.Namespace(lr=0.1, names=["a"]),
    "best": np.float64(0.5),
    "curve": np.arange(3),
    "when": datetime.datetime(2026, 1, 1),
    "where": Path("/data"),
    "meters": defaultdict(list, loss=[1.0]),
    "optimizer": torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9).state_dict(),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_container_is_found_whatever_it_is_called(container: str, tmp_path: Path) -> None:
    torch.save({container: state(), "epoch": 1}, tmp_path / "one.pth")
    torch.save(
        {"outer": {container: OrderedDict(prefixed("module."))}, "optimizer": {"state": {}}}, tmp_path / "two.pth"
    )
    assert is_loaded(tmp_path / "one.pth")
    assert is_loaded(tmp_path / "two.pth")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_wrappers_are_found_by_fitting(prefix: str, tmp_path: Path) -> None:
    torch.save(prefixed(prefix), tmp_path / "bare.pth")
    torch.save({"state_dict": prefixed(prefix), "epoch": 1}, tmp_path / "within.pth")
    assert is_loaded(tmp_path / "bare.pth")
    assert is_loaded(tmp_path / "within.pth")


def test_wrappers_inside_the_network(tmp_path: Path) -> None:
    """The features alone in DataParallel, as PyTorch's ImageNet example has VGG; a stage alone compiled."""
    wrapped = {
        key.replace("layer1.", "layer1._orig_mod.").replace("layer2.", "layer2.module."): v
        for key, v in state().items()
    }
    torch.save(wrapped, tmp_path / "w.pth")
    assert is_loaded(tmp_path / "w.pth")


def test_what_else_is_in_the_file_is_no_obstacle(tmp_path: Path) -> None:
    torch.save({"state_dict": state(), **LITTER}, tmp_path / "new.pth")
    torch.save({"state_dict": state(), **LITTER}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save([{"net": state()}, LITTER["args"]], tmp_path / "list.pth")
    for name in ("new", "old", "list"):
        assert is_loaded(tmp_path / f"{name}.pth"), name


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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (make(), ("whole module", "timm.models.resnet.ResNet", "net.state_dict()")),
        ({"model": make(), "epoch": 1}, ("whole module", "timm.models.resnet.ResNet")),
        ({"args": argparse.Namespace(lr=1)}, ("no state dict", "argparse.Namespace")),
        ({"state_dict": Config(a=torch.ones(1))}, ("Config", "net.state_dict()")),
        ({"epoch": 3}, ("no state dict",)),
    ],
)
def test_a_refusal_says_what_is_in_the_file(content: Any, words: tuple[str, ...], tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UsageError) as caught:
        fit_file(tmp_path / "w.pth", "", resolve(NAME), "weights")
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plain_pickle_is_refused_with_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "w.pkl").write_bytes(pickle.dumps({"w": np.ones(3)}, protocol=2))
    with pytest.raises(UsageError, match=r"no file of torch\.save.*numpy"):
        weight_files.read(tmp_path / "w.pkl", "weights")


def test_safetensors_are_known_by_their_content(tmp_path: Path) -> None:
    for name in ("blob", "w.SAFETENSORS", "w.pth"):
        save_file(state(), tmp_path / name, metadata={"format": "pt"})
        assert is_loaded(tmp_path / name)
    (tmp_path / "cut").write_bytes((tmp_path / "blob").read_bytes()[:1000])
    with pytest.raises(UsageError, match="not a weights file"):
        weight_files.read(tmp_path / "cut", "weights")


def test_half_precision_is_loaded(tmp_path: Path) -> None:
    torch.save({key: value.half() for key, value in state().items()}, tmp_path / "w.pth")
    found = models.find(NAME, str(tmp_path / "w.pth")).module.state_dict()
    assert {value.dtype for value in found.values() if value.is_floating_point()} == {torch.float32}
    torch.testing.assert_close(found["backbone.fc.weight"], state()["fc.weight"].half().float())


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


def test_two_networks_of_one_module_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({"state_dict": prefixed("module.encoder_q.") | prefixed("module.encoder_k.", 1)}, path)
    with pytest.raises(UsageError, match=r"encoder_q, state_dict\.module\.encoder_k"):
        fit_file(path, "", resolve(NAME), "weights")
    assert is_loaded(path, "state_dict.module.encoder_q")
    assert is_loaded(path, "state_dict.encoder_q")


def test_the_same_values_twice_are_one_set(tmp_path: Path) -> None:
    torch.save({"state_dict": state(), "ema": state()}, tmp_path / "w.pth")
    assert is_loaded(tmp_path / "w.pth")


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
    "content",
    [
        around("normalize.mean", "normalize.std", "model."),
        {"state_dict": around("module.normalize.mean", "module.normalize.std", "module.model.", (3,))},
        around("0.mean", "0.std", "1."),
        around("mean", "std", "model."),
        around("mean", "std", ""),
        around("mu", "sigma", "net."),
        around("normalizer._mean", "normalizer._std", "net.backbone."),
        {"model": state(), "mean": list(MEAN), "std": list(STD)},
        around("_orig_mod.pre.normalize.image_mean", "_orig_mod.pre.normalize.image_std", "_orig_mod.net."),
    ],
)
def test_a_normalisation_in_the_file_is_used(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    found = models.find(NAME, str(tmp_path / "w.pth"))
    x = torch.rand(2, 3, 64, 64)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    torch.testing.assert_close(found.predict(x), make()((x - mean) / std), rtol=1e-4, atol=1e-4)
    assert found.normalisation is not None
    assert found.normalisation.kind == "checkpoint"
    assert "inside the checkpoint" in found.normalisation.line
    initial = networks.build(NAME, 4, str(tmp_path / "w.pth"))
    torch.testing.assert_close(initial.normalise.mean, mean)
    assert networks.find_normalisation(NAME, str(tmp_path / "w.pth")).kind == "checkpoint"


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ({"normalize.mean": torch.zeros(3)}, "normalize.mean are not one mean and one std"),
        ({"normalize.weight": torch.ones(3), "normalize.bias": torch.ones(3)}, "normalize.bias are not one mean"),
        (
            {"mean": torch.full((3,), 123.7), "std": torch.full((3,), 58.4)},
            r"not the mean and std of images in \[0,1\]",
        ),
        ({"mean": torch.zeros(3), "std": torch.zeros(3)}, "not the mean and std of images"),
        ({"mean": torch.zeros(2), "std": torch.ones(2)}, "are for 2 channels"),
    ],
)
def test_a_normalisation_that_can_t_be_used_is_refused(beside: Any, message: str, tmp_path: Path) -> None:
    torch.save({"state_dict": {**prefixed("model."), **beside}}, tmp_path / "w.pth")
    with pytest.raises(UsageError, match=message) as caught:
        models.find(NAME, str(tmp_path / "w.pth"))
    assert "give mean= and std=" in str(caught.value)
    given = models.find(NAME, str(tmp_path / "w.pth"), mean_std=networks.MeanStd((0.5,), (0.25,)))
    assert given.normalisation is not None
    assert given.normalisation.kind == "given"
    assert given.normalisation.mean == (0.5, 0.5, 0.5)
    assert "in place of the checkpoint's own" in given.normalisation.why


def test_statistics_of_batch_norm_are_no_normalisation(tmp_path: Path) -> None:
    beside = {
        "bn.running_mean": torch.zeros(3),
        "bn.running_var": torch.ones(3),
        "head.weight_mean_proj": torch.ones(90),
    }
    torch.save({**prefixed("backbone."), **beside}, tmp_path / "w.pth")
    found = models.find(NAME, str(tmp_path / "w.pth")).normalisation
    assert found is not None
    assert found.kind == "architecture"


# --- names and sizes that the libraries translate ---------------------------------------------------------------------


def test_densenet_s_and_vit_s_old_names(tmp_path: Path) -> None:
    import re

    torch.manual_seed(0)
    dense = torchvision_models.densenet121(num_classes=3).state_dict()
    old = {
        re.sub(r"(denselayer\d+)\.(norm|conv)([12])\.", r"\1.\2.\3.", key): v
        for key, v in dense.items()
        if "num_batches" not in key
    }
    vit = torchvision_models.vit_b_32(num_classes=3).state_dict()
    linear = {"mlp.0.": "mlp.linear_1.", "mlp.3.": "mlp.linear_2."}
    old_vit = {re.sub(r"mlp\.[03]\.", lambda match: linear[match[0]], key): value for key, value in vit.items()}
    for name, tensors, expected in (("densenet121", old, dense), ("vit_b_32", old_vit, vit)):
        assert tensors.keys() != expected.keys()
        torch.save({f"module.{key}": value for key, value in tensors.items()}, tmp_path / "w.pth")
        found = models.find(f"torchvision:{name}", str(tmp_path / "w.pth")).module.state_dict()
        assert all(torch.equal(found[f"backbone.{key}"], value) for key, value in expected.items())


def test_position_embeddings_come_to_another_size_as_timm_does_it(tmp_path: Path) -> None:
    from timm.layers import resample_abs_pos_embed

    name = "vit_tiny_patch16_224"
    torch.save(make(name=name).state_dict(), tmp_path / "w.pth")
    found = networks.build(f"timm:{name}", 4, str(tmp_path / "w.pth"), image_size=96).backbone.state_dict()
    pos = make(name=name).state_dict()["pos_embed"]
    torch.testing.assert_close(found["pos_embed"], resample_abs_pos_embed(pos, [6, 6], num_prefix_tokens=1))
    assert torch.equal(found["cls_token"], make(name=name).state_dict()["cls_token"])


def test_another_patch_size_is_not_resampled(tmp_path: Path) -> None:
    torch.save(make(name="vit_tiny_patch16_224", patch_size=8, img_size=112).state_dict(), tmp_path / "w.pth")
    with pytest.raises(UsageError, match=r"patch_embed.proj.weight.* of another shape"):
        networks.build("timm:vit_tiny_patch16_224", 4, str(tmp_path / "w.pth"), image_size=224)


def test_what_fits_is_left_as_it_is() -> None:
    network = make()
    tensors = dict(network.state_dict())
    assert renaming.translate(network, tensors) == tensors
