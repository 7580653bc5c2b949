"""Images under corruptions made on the fly: the pixels that `prepare` writes, with or without files.

`tests/data/test_corruptions.py` tests what is drawn, `tests/prepare/test_corrupted_images.py` how files are written.
"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data import transforms
from biasbed.data.folders import open_folder
from biasbed.data.prepared import ImagesManifest
from biasbed.datasets.on_the_fly import GeneratedSource, generated
from biasbed.evaluation.evaluator import Evaluator
from biasbed.prepare.run import prepare
from biasbed.suites.sets import EvaluationSet
from helpers.commands import ROOT

SHARED = ROOT.parent / "shared" / "data"
SAMPLE, FROST = SHARED / "imagenet-sample" / "val", SHARED / "frost"
FEW = ("shot_noise", "frost", "elastic_transform", "jpeg_compression")
needs_sample = pytest.mark.skipif(
    not (SAMPLE.exists() and FROST.exists()), reason="sample photographs, or those of frost, are not in ../shared"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """Two classes of two images of noise, of unlike sizes and endings."""
    rng = np.random.default_rng(0)
    for name, shape in (("a/1.png", (300, 260)), ("a/2.jpg", (40, 50)), ("b/1.png", (230, 400)), ("b/2.png", (9, 9))):
        path = tmp_path / "data" / "photo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8)).save(path)
    return tmp_path / "data"


def made_of(folder: Path, corruptions: tuple[str, ...], seed: int = 0, prepared: Path | None = None) -> GeneratedSource:
    return generated(open_folder(folder, "photo"), "photo_c", corruptions, seed, FROST, prepared)


def prepared(data: Path, corruptions: tuple[str, ...], **more: Any) -> Path:
    """The files that `prepare` makes of the folder `photo`."""
    flags = {"suite": "folders", "train": "none", "data_dir": str(data), "split": "photo", "what": "corruptions"}
    flags |= {"corruptions": ",".join(corruptions), "frost": str(FROST), "processes": 1}
    folder = prepare({**flags, **more})
    assert folder is not None
    return folder


def pixels(source: GeneratedSource) -> np.ndarray:
    return torch.stack([source.load(row) for row in range(len(source))]).numpy()


def seen(source: GeneratedSource, workers: int) -> np.ndarray:
    """Return the output of a network that mixes all pixels for each image, in order, by so many loader processes."""
    generator = torch.Generator().manual_seed(1)
    mix = torch.randn((3 * 224 * 224, len(source.classes)), generator=generator, dtype=torch.float64)

    def predict(x: Tensor) -> Tensor:
        return x.flatten(1).double() @ mix / 1000

    entry = EvaluationSet("photo_c", source, transforms.Exact(224))
    evaluator = Evaluator((entry,), Group(), Precision("fp32", "cpu"), 2, workers, skip_corrupt=False)
    found = evaluator.decide(predict)
    evaluator.close()
    assert found is not None
    return found["photo_c"].loss


@needs_sample
def test_on_the_fly_is_what_prepare_writes_and_reads_back_bit_for_bit(tmp_path: Path) -> None:
    """Photographs of ImageNet, by 0, 1 and 3 processes, and from files."""
    for folder in sorted(SAMPLE.iterdir())[:3]:
        shutil.copytree(folder, tmp_path / "data" / "photo" / folder.name)
    folder = prepared(tmp_path / "data", FEW)
    made = made_of(tmp_path / "data" / "photo", FEW)
    files = made_of(tmp_path / "data" / "photo", FEW, prepared=folder)
    assert (made.files, files.files) == (None, folder)
    assert all((folder / name).is_file() for name in made.ids)
    expected = [np.asarray(Image.open(folder / name)).transpose(2, 0, 1) for name in made.ids]
    assert np.array_equal(pixels(made), expected)
    assert np.array_equal(pixels(files), expected)
    assert files.fingerprint() == made.fingerprint()
    first = seen(made, 0)
    for other in (seen(made, 1), seen(pickle.loads(pickle.dumps(made)), 3), seen(files, 0)):
        assert np.array_equal(other, first)


def test_rows_are_every_image_under_every_condition_with_its_own_columns(noise: Path) -> None:
    made = made_of(noise / "photo", ("fog", "contrast"))
    assert len(made) == 2 * 5 * 4
    assert list(made.ids[:5]) == [
        "fog/1/a/1.JPEG",
        "fog/1/a/2.JPEG",
        "fog/1/b/1.JPEG",
        "fog/1/b/2.JPEG",
        "fog/2/a/1.JPEG",
    ]
    assert made.condition is not None
    shown = {name: made.conditions[condition] for name, condition in zip(made.ids, made.condition, strict=True)}
    assert all(condition == "-".join(name.split("/")[:2]) for name, condition in shown.items())
    assert all(made.classes[y] == name.split("/")[2] for name, y in zip(made.ids, made.y, strict=True))
    part = made.subset([37, 3, 21], "part")
    assert list(part.ids) == [made.ids[row] for row in (37, 3, 21)]
    for place, row in enumerate((37, 3, 21)):
        assert torch.equal(part.load(place), made.load(row))


def test_another_seed_draws_otherwise_and_is_another_source(noise: Path) -> None:
    one, other = (made_of(noise / "photo", ("gaussian_noise",), seed) for seed in (0, 1))
    assert not torch.equal(one.load(0), other.load(0))
    assert one.fingerprint() != other.fingerprint()
    assert one.fingerprint() == made_of(noise / "photo", ("gaussian_noise",)).fingerprint()
    assert one.fingerprint() != made_of(noise / "photo", ("shot_noise",)).fingerprint()


def test_files_count_where_they_are_of_these_images_and_this_seed(noise: Path) -> None:
    folder, names = prepared(noise, ("shot_noise",)), ("shot_noise", "brightness")
    expected = pixels(made_of(noise / "photo", names))
    (folder / "shot_noise/2/a/1.JPEG").unlink()  # whatever is not there, as all of brightness, is made
    assert np.array_equal(pixels(made_of(noise / "photo", names, prepared=folder)), expected)
    black = np.zeros((224, 224, 3), np.uint8)
    Image.fromarray(black).save(folder / "shot_noise/3/a/1.JPEG")
    assert not made_of(noise / "photo", names, prepared=folder).load(8).any()  # so files are read
    assert made_of(noise / "photo", names, seed=1, prepared=folder).files is None
    manifest = ImagesManifest.read(folder)
    assert manifest is not None
    ImagesManifest(**{**vars(manifest), "source_fingerprint": "0" * 16}).write(folder)
    assert made_of(noise / "photo", names, prepared=folder).files is None
