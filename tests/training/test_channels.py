"""Images of one channel, or two: trained on, tested on, shown and exported like others; another network is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from biasbed import cli
from biasbed.data.contact_sheet import save_examples
from biasbed.data.source import MemorySource
from biasbed.data.transforms import SquareResize
from biasbed.data.views import make
from biasbed.errors import UsageError
from biasbed.evaluation import models
from biasbed.evaluation.evaluate_model import _check_sizes
from biasbed.suites import open_suite
from biasbed.training.job import plan
from biasbed.training.resolve import resolve
from helpers.mnist_files import make_mnist
from helpers.runs import all_runs, run_folders

COLOURED = {"train": "colored_mnist", "test_domains": "minus_90"}
ROTATED = {"train": "rotated_mnist", "test_domains": "45"}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny MNIST. Not to be changed."""
    root = tmp_path_factory.mktemp("data")
    make_mnist(root / "MNIST" / "raw", 90, 30)
    return root


def flags(data_dir: Path, *more: Mapping[str, str]) -> dict[str, str]:
    found = {"suite": "domainbed", "data_dir": str(data_dir), "image_size": "14", "device": "cpu"}
    for given in more:
        found |= given
    return found


def words(command: str, given: Mapping[str, str]) -> list[str]:
    return [command, *(f"--{name}={value}" for name, value in given.items())]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**COLOURED, "network.channels": "3"}, "network.channels=3: images of 'colored_mnist' have 2"),
        ({**ROTATED, "network.channels": "2"}, "network.channels=2: images of 'rotated_mnist' have 1"),
        (
            {**COLOURED, "augment.jitter": "0.1"},
            "augment.grey are for images of 1 or 3 channels: 'colored_mnist' has 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_a_run(given: dict[str, str], message: str, data_dir: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        plan(resolve(flags(data_dir, given)))


@pytest.mark.parametrize(
    ("data", "algorithm"), [(ROTATED, "erm"), pytest.param(COLOURED, "noise2net", marks=pytest.mark.slow)]
)
def test_the_whole_way(
    data: dict[str, str],
    algorithm: str,
    data_dir: Path,
    tracking: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import mlflow

    given = flags(data_dir, data)
    training = {"algorithm": algorithm, "steps": "4", "evaluate_every": "2", "batch_size": "4", "workers": "0"}
    assert cli.main(words("train", {**given, **training})) == 0, capsys.readouterr().err
    (run,), (folder,) = all_runs(tracking, kind="train"), run_folders(tmp_path / "home")
    name = f"{data['train']}-{data['test_domains']}"
    shown = {path.stem for path in (folder / "pictures").iterdir()}
    assert shown >= {name, f"{name}_out", f"training_{data['train']}"}
    channels = {"colored_mnist": 2, "rotated_mnist": 1}[data["train"]]
    x = np.random.default_rng(1).random((5, channels, 14, 14), dtype=np.float32)
    expected = models.find(str(folder / "best.ckpt")).predict(torch.from_numpy(x)).detach().numpy()
    (output,) = run.outputs.model_outputs
    loaded = mlflow.pytorch.load_model(f"models:/{output.model_id}")
    np.testing.assert_allclose(loaded(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    testing = {**given, "model": str(folder / "last.ckpt")}
    assert cli.main(words("evaluate", testing)) == 0, capsys.readouterr().err
    (tested,) = all_runs(tracking, kind="evaluate")
    for measure in ("accuracy", "loss"):
        metric = f"test/{measure}/{name}"
        assert tested.data.metrics[metric] == pytest.approx(run.data.metrics[metric], abs=1e-5)


def test_a_model_is_tested_on_images_of_its_channels(data_dir: Path) -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(2, 2, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    model = models.TestedModel(network, network, "two", 0, None, 2, {})
    _check_sizes(model, open_suite(resolve(flags(data_dir, COLOURED))).testing)
    with pytest.raises(UsageError, match=r"the model doesn't take images of 1 x 14 x 14 pixels, .* 'rotated_mnist-45"):
        _check_sizes(model, open_suite(resolve(flags(data_dir, ROTATED))).testing)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_pictures(channels: int, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (1, channels, 16, 16), dtype=np.uint8)
    source = MemorySource(name="n", classes=("a", "b"), y=np.zeros(1, np.int64), ids=["0"], images=images)
    save_examples(tmp_path / "shown.png", source, SquareResize(16), count=1)
    shown = np.array(Image.open(tmp_path / "shown.png")).transpose(2, 0, 1)
    expected = images[0][[0, 0, 0]] if channels == 1 else np.concatenate([images[0], 0 * images[0, :1]])[:3]
    np.testing.assert_allclose(shown, expected, atol=1)


def test_changes_of_colour_need_colours() -> None:
    with pytest.raises(
        UsageError, match="the view 'jitter' takes images of 1 or 3 channels, and the training images have 2"
    ):
        make("jitter", {}, 2)
    grey = torch.randint(0, 256, (1, 8, 8), dtype=torch.uint8)
    changed = make("jitter", {"saturation": 0.0, "grey": 1.0}, 1)(grey)
    assert changed.shape == grey.shape
    assert make("plain", {}, 2)(grey) is grey
