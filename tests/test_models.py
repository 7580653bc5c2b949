"""Trained models found again: as an MLflow model, a checkpoint, a tracked run, a library's weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Command
from PIL import Image
from runs import all_runs, run_folders

from biasbed import models


@pytest.fixture
def trained(biasbed: Command, train_flags: list[str], tracking: str, tmp_path: Path) -> tuple[str, Path]:
    """(run id, folder) of a training that logged its model."""
    biasbed("train", *train_flags, "--epochs", "1", "--log_model", "true", "--algorithm", "infodrop")
    (run,) = all_runs(tracking, kind="train")
    return run.info.run_id, run_folders(tmp_path / "home")[0]


def test_the_logged_model_is_the_best_checkpoint(trained: tuple[str, Path], tracking: str) -> None:
    import mlflow

    run_id, folder = trained
    run = mlflow.get_run(run_id)
    (output,) = run.outputs.model_outputs
    loaded = mlflow.pyfunc.load_model(f"models:/{output.model_id}")
    assert loaded.metadata.signature is not None
    assert loaded.metadata.saved_input_example_info is not None
    x = np.random.default_rng(1).random((5, 3, 16, 16), dtype=np.float32)
    expected = models.find(str(folder / "best.ckpt")).predict(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(loaded.predict(x), expected, rtol=1e-4, atol=1e-5)


def test_evaluating_a_checkpoint_and_a_run_gives_the_training_s_numbers(
    trained: tuple[str, Path], biasbed: Command, image_root: Path, tracking: str
) -> None:
    run_id, folder = trained
    words = ("--suite", "folders", "--data_dir", str(image_root), "--sets", "paint,ink")
    for model in (str(folder / "best.ckpt"), run_id):
        assert "paint" in biasbed("evaluate", "--model", model, *words).stdout
    training, *_ = all_runs(tracking, kind="train")
    evaluations = all_runs(tracking, kind="evaluate")
    assert len(evaluations) == 2
    for run in evaluations:
        assert run.info.status == "FINISHED"
        assert run.data.tags["biasbed.algorithm"] == "infodrop"
        for name in ("test/accuracy/paint", "test/accuracy/ink", "test/loss/ink"):
            assert run.data.metrics[name] == pytest.approx(training.data.metrics[name], rel=1e-5)


@pytest.fixture
def weights_file(tmp_path: Path) -> Path:
    """A ResNet-18 of 1000 classes, as torchvision would save it."""
    import torchvision

    torch.manual_seed(0)
    path = tmp_path / "resnet18.pth"
    torch.save(torchvision.models.resnet18(num_classes=1000).state_dict(), path)
    return path


def test_an_imagenet_model_on_folders_named_by_wordnet_id(
    weights_file: Path, biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    for wnid in ("n01440764", "n03250847"):
        (tmp_path / "stimuli" / "val" / wnid).mkdir(parents=True)
        for number in range(3):
            pixels = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "stimuli" / "val" / wnid / f"{number}.png")
    words = ("--weights", str(weights_file), "--suite", "folders", "--data_dir", str(tmp_path / "stimuli"))
    done = biasbed("evaluate", "--model", "torchvision:resnet18", *words, "--image_size", "64")
    assert "imagenet-2" in done.stdout
    (run,) = all_runs(tracking, kind="evaluate")
    assert run.data.metrics["test/accuracy/val"] in {k / 6 for k in range(7)}


def test_classes_that_fit_no_label_map_are_refused(
    weights_file: Path, biasbed: Command, image_root: Path, tracking: str
) -> None:
    words = ("--weights", str(weights_file), "--suite", "folders", "--data_dir", str(image_root))
    done = biasbed("evaluate", "--model", "torchvision:resnet18", *words, check=False)
    assert done.returncode == 2
    assert "circle, cross, square" in done.stderr
    assert not all_runs(tracking)


@pytest.mark.real_data
def test_an_imagenet_model_on_the_real_stimuli(
    shared: Path, weights_file: Path, biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    """Random weights on 40 real edge drawings: the 16-class map, no training, honest chance."""
    for category in (shared / "data" / "edge").iterdir():
        shutil.copytree(category, tmp_path / "data" / "edge" / category.name)
    words = ("--weights", str(weights_file), "--suite", "folders", "--data_dir", str(tmp_path / "data"))
    done = biasbed("evaluate", "--model", "torchvision:resnet18", *words, "--image_size", "64")
    assert "grouped-prob_mean" in done.stdout
    assert "160" in done.stdout


def test_a_file_that_is_no_checkpoint(tmp_path: Path, biasbed: Command) -> None:
    (tmp_path / "junk.ckpt").write_bytes(b"nothing of the kind")
    done = biasbed("evaluate", "--model", str(tmp_path / "junk.ckpt"), check=False)
    assert done.returncode == 1
    assert "can't be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("toy", ["LfFLike", "SagNetLike"])
def test_methods_with_state_of_their_own_are_logged_and_found_again(
    toy: str, biasbed: Command, train_flags: list[str], image_root: Path, tracking: str, tmp_path: Path
) -> None:
    biasbed("train", *train_flags, "--epochs", "1", "--log_model", "true", "--algorithm", f"toys:{toy}")
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"
    assert run.outputs.model_outputs
    words = ("--suite", "folders", "--data_dir", str(image_root), "--sets", "ink")
    biasbed("evaluate", "--model", str(run_folders(tmp_path / "home")[0] / "best.ckpt"), *words)


def test_a_corrupt_image_ends_an_evaluation_in_one_line(
    trained: tuple[str, Path], biasbed: Command, image_root: Path, tracking: str, tmp_path: Path
) -> None:
    shutil.copytree(image_root / "ink", tmp_path / "data" / "ink")
    victim = next((tmp_path / "data" / "ink" / "circle").iterdir())
    victim.write_bytes(b"no image")
    words = ("--suite", "folders", "--data_dir", str(tmp_path / "data"))
    done = biasbed("evaluate", "--model", str(trained[1] / "best.ckpt"), *words, check=False)
    assert done.returncode == 1
    assert str(victim) in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = all_runs(tracking, kind="evaluate")
    assert run.info.status == "FAILED"
