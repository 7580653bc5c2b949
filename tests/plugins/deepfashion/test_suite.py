"""DeepFashion Remixed, of a tree like DeepFashion2's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import auc, average_precision_score, precision_recall_curve

from biasbed import cli, record
from biasbed.errors import UsageError
from biasbed.evaluation import average_precision
from biasbed.plugins.deepfashion.data_set import CLASSES, SHIFTS, SPLITS, DeepFashionRemixed
from biasbed.suites import open_suite
from biasbed.training.resolve import resolve
from helpers.commands import SHARED
from helpers.runs import history, run_folders
from replays import load

Item = Mapping[str, int]


def item(kind: int, scale: int = 2, occlusion: int = 2, viewpoint: int = 2, zoom_in: int = 1) -> Item:
    shown = {"scale": scale, "occlusion": occlusion, "viewpoint": viewpoint, "zoom_in": zoom_in}
    return {"category_id": kind, **shown, "style": 0, "bounding_box": [1, 2, 3, 4]}  # type: ignore[dict-item]


def write(folder: Path, number: int, *items: Item, colour: int = 0) -> None:
    for name in ("image", "annos"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    pixels = np.full((20, 14, 3), 15 * number % 250, dtype=np.uint8)
    pixels[..., colour % 3] = 250
    Image.fromarray(pixels).save(folder / "image" / f"{number:06}.jpg")
    content = {"source": "shop", "pair_id": number, **{f"item{n}": one for n, one in enumerate(items, 1)}}
    (folder / "annos" / f"{number:06}.json").write_text(json.dumps(content))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Twelve training images, one of which shows a shift too; of validation one or two images per split."""
    for number in range(1, 13):
        more = [item(13, zoom_in=3)] if number == 12 else []
        write(tmp_path / "deepfashion2" / "train", number, item(1 + number % 3), *more, colour=number)
    write(tmp_path / "deepfashion2" / "train", 13, item(7, zoom_in=3))  # trains nothing
    shown = {name: own._asdict() for name, own in SPLITS.items()}
    for number, name in enumerate(SPLITS, 1):
        write(
            tmp_path / "deepfashion2" / "validation", number, item(1 + number % 3, **shown[name]), item(9, 3, 3, 3, 3)
        )
    # Two garments of iid, a third as in a shift, a fourth that is in no split.
    own = [item(2), item(3), item(4, scale=1), item(5, scale=1, occlusion=1)]
    write(tmp_path / "deepfashion2" / "validation", 20, *own)
    return tmp_path


def opened(root: Path, joined: bool = False) -> dict[str, Any]:
    data = DeepFashionRemixed()
    folder = data.folder(root)
    return {"train": data.train(folder), **data.tests(folder, joined)}


def labels(source: Any, number: int) -> set[str]:
    (row,) = [row for row, name in enumerate(source.ids) if name.endswith(f"{number:06}.jpg")]
    return {CLASSES[k] for k in np.flatnonzero(source.y[row])}


def test_splits_have_the_garments_that_are_shown_so(root: Path) -> None:
    found = opened(root)
    assert {name: len(source) for name, source in found.items()} == {
        **{"train": 12, "iid": 2, "size_small": 2},
        **dict.fromkeys(SHIFTS[1:], 1),
    }
    assert labels(found["iid"], 20) == {CLASSES[1], CLASSES[2]}
    assert labels(found["size_small"], 20) == {CLASSES[3]}
    assert labels(found["train"], 12) == {CLASSES[0]}, "not the one that is shown otherwise"
    assert all(name.startswith("validation/image/") for name in found["iid"].ids)
    assert found["iid"].y.shape == (2, 13)


def test_joined_shifts_leave_out_what_trains(root: Path) -> None:
    found = opened(root, joined=True)
    assert [Path(name).stem for name in found["zoom_large"].ids] == ["000009", "000013"], "000012 trains"
    assert len(found["iid"]) == 2, "its training images are what is trained on"


def test_the_eight_shifts_are_one_block_with_their_mean(root: Path) -> None:
    suite = open_suite(resolve({"suite": "deepfashion", "data_dir": str(root), "init": "scratch"}))
    config = resolve({"suite": "deepfashion", "data_dir": str(root), "init": "scratch"})
    protocol = suite.protocol(config)
    assert [entry.name for entry in protocol.sets] == list(SPLITS)
    assert {entry.block for entry in protocol.sets} == {"", "ood"}
    assert (protocol.monitor, {entry.headline for entry in protocol.sets}) == ("val/map/val", {"map"})
    (mean,) = protocol.derived
    assert (mean.metric, len(mean.inputs), mean.block) == ("test/map/ood_mean", 8, "ood")


def test_a_training(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    words = ["train", "--suite", "deepfashion", "--data_dir", str(root), "--init", "scratch", "--backbone", "resnet10"]
    words += ["--image_size", "32", "--batch_size", "4", "--epochs", "2", "--device", "cpu", "--workers", "0"]
    assert cli.main([*words, "--val_fraction", "0.3", "--tracking", "offline", "--log_model", "false"]) == 0
    (folder,) = run_folders(tmp_path / "home")
    found = history(folder)[2]
    shifts = [found[f"test/map/{name}"] for name in SHIFTS]
    assert found["test/map/ood_mean"] == pytest.approx(np.mean(shifts))
    assert {"test/map_reference/iid", "val/map/val", f"test/ap/iid:{record.slug(CLASSES[1])}"} <= found.keys()


# --- measures ---------------------------------------------------------------------------------------------------------


def test_both_means_are_those_of_the_vectors() -> None:
    path = SHARED / "vectors" / "robustness" / "multilabel.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    case = load(path)
    given = case["labels"] > 0, case["scores"]
    assert average_precision.mean_by_trapezoids(*given) == pytest.approx(
        float(case["frequency_weighted_reference"]), abs=1e-9
    )
    assert average_precision.mean(*given) == pytest.approx(float(case["macro_average_precision_present"]), abs=1e-9)


def test_both_means_by_hand() -> None:
    generator = np.random.default_rng(0)
    targets, scores = generator.random((50, 4)) < (0.1, 0.3, 0.6, 0), generator.random((50, 4)).round(1)
    areas, precisions, counts = [], [], targets.sum(axis=0)
    for k in range(3):
        precise, recall, _ = precision_recall_curve(targets[:, k], scores[:, k])
        areas.append(auc(recall, precise))
        precisions.append(average_precision_score(targets[:, k], scores[:, k]))
    assert average_precision.mean_by_trapezoids(targets, scores) == pytest.approx((areas @ counts[:3]) / counts.sum())
    assert average_precision.mean(targets, scores) == pytest.approx(np.mean(precisions)), (
        "a label that no image has counts for nothing"
    )
    assert np.isnan(average_precision.mean_by_trapezoids(np.zeros((5, 4), dtype=bool), scores[:5]))


# --- what is refused --------------------------------------------------------------------------------------------------


def lacking(key: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        file = folder / "validation" / "annos" / "000003.json"
        content = json.loads(file.read_text())
        del content["item1"][key]
        file.write_text(json.dumps(content))

    return spoil


SPOILT: Mapping[str, tuple[Callable[[Path], Any], str]] = {
    "no attribute": (lacking("occlusion"), r"000003\.json: is no annotation of DeepFashion2 \(KeyError: 'occlusion'\)"),
    "no image": (lambda f: (f / "train" / "image" / "000004.jpg").unlink(), r"train: 1 have no image: 000004"),
    "another kind": (
        lambda f: write(f / "train", 4, item(14)),
        r"000004\.json: .*a garment of kind 14, shown \[2, 2, 2, 1\]: expected 1 to 13",
    ),
    "no split": (
        lambda f: write(f / "validation", 9, item(1)),
        r"no image in validation has .* 'zoom_large' \(scale 2",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_does_not_go_together_is_one_line(what: str, root: Path) -> None:
    spoil, message = SPOILT[what]
    spoil(root / "deepfashion2")
    with pytest.raises(UsageError, match=message):
        opened(root)
