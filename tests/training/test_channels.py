"""Images of one channel, or two: trained on, tested on, shown and exported like others; another network is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from biasbed import cli
from biasbed.algorithms import noise2net
from biasbed.data.pictures import save_examples
from biasbed.data.transforms import fitted
from biasbed.data.views import make
from biasbed.errors import UsageError
from biasbed.evaluation import models
from biasbed.prepare.run import prepare
from biasbed.training.job import plan
from biasbed.training.resolve import resolve
from helpers import toy_suite
from helpers.runs import all_runs, run_folders
from helpers.toy_suite import tones

SUITE = f"{toy_suite.__file__}:Tones"


@pytest.mark.parametrize(("network", "data"), [(3, 1), (1, 2), (2, 3)])
def test_a_network_for_others_is_refused_before_a_run(network: int, data: int) -> None:
    given = {"suite": SUITE, "network.channels": str(network), "data.channels": str(data)}
    with pytest.raises(UsageError, match=rf"^network\.channels={network}: images of 'tones' have {data}$"):
        plan(resolve(given))


@pytest.mark.parametrize(("channels", "algorithm"), [pytest.param(1, "erm", marks=pytest.mark.slow), (2, "noise2net")])
def test_the_whole_way(
    channels: int, algorithm: str, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import mlflow

    words = ["--suite", SUITE, "--data.channels", str(channels), "--device", "cpu"]
    training = ["train", *words, "--network.channels", str(channels), "--algorithm", algorithm, "--log_model", "true"]
    assert cli.main([*training, "--augment.crop", "true", "--epochs", "1"]) == 0, capsys.readouterr().err
    (run,), (folder,) = all_runs(tracking, kind="train"), run_folders(tmp_path / "home")
    assert 0 <= run.data.metrics["test/accuracy/tones_test"] <= 1
    assert {path.name for path in (folder / "pictures").iterdir()} >= {"tones_test.png", "training_tones.png"}
    x = np.random.default_rng(1).random((5, channels, 16, 16), dtype=np.float32)
    expected = models.find(str(folder / "best.ckpt")).predict(torch.from_numpy(x)).detach().numpy()
    (output,) = run.outputs.model_outputs
    loaded = mlflow.pyfunc.load_model(f"models:/{output.model_id}")
    np.testing.assert_allclose(loaded.predict(x), expected, rtol=1e-4, atol=1e-5)
    testing = ["evaluate", *words, "--model", str(folder / "best.ckpt")]
    assert cli.main(testing) == 0, capsys.readouterr().err
    (tested,) = all_runs(tracking, kind="evaluate")
    for name in ("accuracy", "loss"):
        metric = f"test/{name}/tones_test"
        assert tested.data.metrics[metric] == pytest.approx(run.data.metrics[metric], abs=1e-5)
    other = [*testing[:3], "--data.channels", str(channels + 1), *testing[5:]]
    assert cli.main(other) == 2
    assert re.search(rf"network\.channels={channels}: the images have {channels + 1}", capsys.readouterr().err)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_pictures(channels: int, tmp_path: Path) -> None:
    source = tones("tones", channels)
    save_examples(tmp_path / "shown.png", source, fitted(16), count=1)
    shown = np.array(Image.open(tmp_path / "shown.png")).transpose(2, 0, 1)
    image = source.load(0).numpy()
    expected = image[[0, 0, 0]] if channels == 1 else np.concatenate([image, 0 * image[:1]])[:3]
    np.testing.assert_allclose(shown, expected, atol=1)


def test_changes_of_colour_need_colours() -> None:
    with pytest.raises(
        UsageError, match="the view 'jitter' changes images of 1 or 3 channels, and the training images have 2"
    ):
        make("jitter", {}, 2)
    grey = torch.randint(0, 256, (1, 8, 8), dtype=torch.uint8)
    changed = make("jitter", {"saturation": 0.0, "grey": 1.0}, 1)(grey)
    assert changed.shape == grey.shape
    assert make("plain", {}, 2)(grey) is grey


def test_nothing_is_prepared_of_them() -> None:
    given = {"what": "deepaug_cae", "suite": SUITE, "network.channels": "2"}
    with pytest.raises(UsageError, match="prepared are images of 3 channels, and those of 'tones' have 2"):
        prepare(given)


def test_random_networks_have_the_images_channels() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = noise2net.draw_blocks(2, 4, noise2net.draw_shapes(generator), generator, channels=2)
    x = torch.rand(2, 2, 8, 8, generator=generator)
    assert noise2net.distort(x, blocks, torch.tensor(0.5)).shape == x.shape
