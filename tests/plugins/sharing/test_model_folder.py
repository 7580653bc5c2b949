"""Weights in formats of others: timm gives the run's own logits to the bit, or biasbed reads its own layout."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st

from biasbed import algorithms, cli, record
from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import from_checkpoint, make_algorithm
from biasbed.compute import checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import Config, config_class
from biasbed.errors import Failure, UsageError
from biasbed.evaluation import models
from biasbed.networks.network import as_input
from biasbed.plugins.sharing import model_folder
from biasbed.plugins.sharing.model_folder import OWN, TIMM, write_model
from biasbed.settings import build, flatten
from biasbed.tasks import MULTI_CLASS

CLASSES = ("cat", "dog", "owl")


def trained(folder: Path, algorithm: str = "erm", **flags: Any) -> Path:
    """A checkpoint of a method with random weights, running statistics among them."""
    values = {"algorithm": algorithm, "image_size": 32, "preprocess.size": 32, "preprocess.resize": 37, **flags}
    general = {name: value for name, value in values.items() if not name.startswith("preprocess.")}
    config = build(config_class(Config, algorithms.load(algorithm).HParams), general)
    data = TrainData(30, len(CLASSES), 1)
    torch.manual_seed(0)
    method = make_algorithm(config, MULTI_CLASS, Group(), Precision(), data, classes=CLASSES)
    for name, tensor in method.state_dict().items():
        if name.endswith("running_mean"):
            tensor.normal_()
        elif name.endswith("running_var"):
            tensor.uniform_(0.5, 2)
    state = {
        "config": {**flatten(config), **{n: v for n, v in values.items() if n.startswith("preprocess.")}},
        "classes": list(CLASSES),
        "train_data": dataclasses.asdict(data),
        "algorithm": method.state_dict(),
    }
    path = folder / "best.ckpt"
    checkpoint.save(path, state)
    return path


def logits_of(path: Path, images: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return from_checkpoint(path).algorithm.predict(as_input(images))


IMAGES = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    ("algorithm", "backbone", "architecture"),
    [
        ("erm", "resnet10", "resnet18"),
        ("erm", "resnet14", "resnet50"),
        ("sagnet", "resnet10", "resnet18"),
        ("erm", "timm:vit_tiny_patch16_224", "vit_tiny_patch16_224"),
    ],
)
def test_timm_s_model_gives_the_same_logits_to_the_bit(
    tmp_path: Path, algorithm: str, backbone: str, architecture: str
) -> None:
    best, folder = trained(tmp_path, algorithm, backbone=backbone), tmp_path / "out"
    folder.mkdir()
    model = write_model(best, folder, "the run")
    assert (model.layout, model.architecture, model.classes) == (TIMM, architecture, CLASSES)
    expected = logits_of(best, IMAGES)
    assert torch.equal(model_folder.timm_logits(folder, model, IMAGES), expected)

    # As somebody without biasbed loads it, with timm's own transform in place of our normalisation.
    net = timm.create_model(f"local-dir:{folder}", pretrained=True).eval().to(memory_format=torch.channels_last)
    how = timm.data.resolve_model_data_config(net)
    mean, std = (torch.tensor(how[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    prepared = ((IMAGES - mean) / std).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        assert torch.equal(net(prepared), expected)
    size, crop = how["input_size"][-1], how["crop_pct"]
    assert (size, int(size / crop), how["crop_mode"]) == (32, 37, "center")

    config = json.loads((folder / "config.json").read_text())
    arguments = {name: value for name, value in config["model_args"].items() if name != "global_pool"}
    plain = timm.create_model(architecture, checkpoint_path=folder / "model.safetensors", **arguments)
    with torch.inference_mode():
        assert torch.equal(plain.eval().to(memory_format=torch.channels_last)(prepared), expected)

    again = models.find(f"timm:local-dir:{folder}")
    assert (again.classes, again.outputs) == (CLASSES, 3)
    assert (again.preprocessing["preprocess.size"], again.preprocessing["preprocess.resize"]) == (32, 37)
    with torch.inference_mode():
        assert torch.equal(again.predict(as_input(IMAGES)), expected)


@pytest.mark.parametrize(
    ("algorithm", "flags"),
    [
        ("erm", {"backbone": "mlp"}),
        ("erm", {"backbone": "resnet10+se"}),
        ("disent", {"backbone": "resnet10"}),
    ],
)
def test_what_timm_does_not_have_is_read_by_biasbed_alone(
    tmp_path: Path, algorithm: str, flags: Mapping[str, Any]
) -> None:
    best, folder = trained(tmp_path, algorithm, **flags), tmp_path / "out"
    folder.mkdir()
    model = write_model(best, folder, "the run")
    assert model.layout == OWN
    assert "not in timm's layout" in model.remarks[0]
    assert {path.name for path in folder.iterdir()} == {checkpoint.FOLDER_FILE, checkpoint.TENSORS_FILE}
    again = models.find(str(folder))
    assert again.classes == CLASSES
    with torch.inference_mode():
        assert torch.equal(again.predict(as_input(IMAGES)), logits_of(best, IMAGES))


def test_a_network_whose_decisions_differ_is_not_passed_off_as_timm_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logits decide, whatever the name: here timm's have another last bit."""
    nudged = model_folder.timm_logits
    monkeypatch.setattr(model_folder, "timm_logits", lambda *a: nudged(*a).nextafter(torch.tensor(9e9)))
    folder = tmp_path / "out"
    folder.mkdir()
    model = write_model(trained(tmp_path, backbone="resnet10"), folder, "the run")
    assert model.layout == OWN
    assert "other logits" in model.remarks[0]
    assert not (folder / "config.json").exists()


@given(st.integers(8, 600), st.integers(0, 400))
def test_timm_resizes_to_the_same_short_side(size: int, more: int) -> None:
    share = model_folder.crop_share(size, size + more)
    assert int(size / share) == size + more


# --- damaged folders --------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    write_model(trained(tmp_path, backbone="mlp"), folder, "the run")
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "another format"),
        ({"config": {"algorithm": "erm", "backbone": "resnet10"}}, "written by other code"),
        ({"marks": {"frozen": ["no.where"]}}, "written by other code"),
    ],
)
def test_a_damaged_description_is_one_line(own: Path, changes: Mapping[str, Any], message: str) -> None:
    path = own / checkpoint.FOLDER_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises((UsageError, Failure), match=message) as error:
        models.find(str(own))
    assert "\n" not in str(error.value)


# --- a whole run ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("flags", [{"backbone": "resnet10"}, {"backbone": "mlp"}])
def test_an_exported_training_decides_alike(
    flags: Mapping[str, str], tracking: str, tmp_path: Path, validators: str
) -> None:
    """Trained, exported, validated by the hub's own classes and by Every Eval Ever's, tested again: all is equal."""
    from mlflow import MlflowClient

    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    assert cli.main(["train", "--suite", "demo", "--epochs", "1", "--limit", "200", *words]) == 0
    client = MlflowClient(tracking)
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    hub, results = tmp_path / "hub", tmp_path / "results"
    given = ["--run", run.info.run_id, "--model_id", "org/net"]
    assert cli.main(["export", "--format", "huggingface", "--file", str(hub), *given]) == 0
    assert cli.main(["export", "--format", "every_eval_ever", "--file", str(results), *given]) == 0

    card = ModelCard.load(hub / "README.md")
    card.data.to_yaml()
    tested = {name: value for name, value in run.data.metrics.items() if name.startswith("test/")}
    assert sorted(entry.metric_value for entry in card.data.eval_results) == sorted(tested.values())
    files = [str(path.relative_to(results)) for path in sorted(results.glob("data/*/*/*/*"))]
    assert len(files) == 2
    command = [validators, "-m", "every_eval_ever", "validate", *files]
    done = subprocess.run(command, cwd=results, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    is_timm = (hub / "config.json").is_file()
    model = f"timm:local-dir:{hub}" if is_timm else str(hub)
    assert is_timm == (flags["backbone"] == "resnet10")
    assert cli.main(["evaluate", "--suite", "demo", "--limit", "200", "--model", model]) == 0
    (again,) = [r for r in client.search_runs([run.info.experiment_id]) if r.data.tags[record.KIND] == "evaluate"]
    assert {name: again.data.metrics[name] for name in tested if "loss" not in name} == {
        name: value for name, value in tested.items() if "loss" not in name
    }
