"""Files that all cases read and none may change: images, a checkpoint, a tracking store with finished runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from helpers import children
from helpers.decision_files import MIXED, conflicts, write_csv
from helpers.toy_runs import THREE, Recorder, fill

SIDE = 12  # pixels
FOLDERS = ("photo", "paint")
CLASSES = ("cat", "dog")

# One epoch on eight images takes no time; what it is told besides is the case's.
TRAINING = (
    *("train", "--suite", "folders", "--data_dir", "{m}/images", "--train", "photo", "--sets", "paint"),
    *("--image_size", str(SIDE), "--epochs", "1", "--batch_size", "4", "--backbone", "mlp", "--optim.lr_batch", "none"),
    *("--optim.lr", "0.01", "--workers", "0", "--device", "cpu", "--log_model", "false"),
)
TESTING = (
    *("evaluate", "--suite", "folders", "--data_dir", "{m}/images", "--sets", "paint", "--device", "cpu"),
    *("--workers", "0", "--tracking", "offline"),
)


def make_images(root: Path) -> None:
    """Two folders of two classes of ten images of noise."""
    generator = np.random.default_rng(0)
    for folder in FOLDERS:
        for name in CLASSES:
            (root / folder / name).mkdir(parents=True)
            for number in range(10):
                pixels = generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / folder / name / f"{number}.png")


def make_materials(folder: Path) -> Path:
    """Return all of it, in a new folder."""
    from mlflow import MlflowClient

    folder.mkdir(parents=True)
    make_images(folder / "images")
    recorder = Recorder(f"sqlite:///{folder / 'store.db'}", folder)
    fill(recorder, THREE, study="toys")
    runs = MlflowClient(recorder.uri).search_runs([recorder.experiment])
    (folder / "runs.json").write_text(json.dumps(sorted(run.info.run_id for run in runs)))
    words = [word.replace("{m}", str(folder)) for word in TRAINING]
    done = children.run([*words, "--tracking", "offline", "--output_dir", str(folder / "trained")], cwd=folder)
    assert done.returncode == 0, done.stderr
    (best,) = (folder / "trained").glob("*/*/best.ckpt")
    (best.parent / "name").write_text(best.parent.name)
    shutil.move(best.parent, folder / "run")
    write_csv(folder / "net.csv", "net", conflicts(MIXED))
    write_csv(folder / "human.csv", "subject-01", conflicts(MIXED[::-1]))
    return folder


def places(materials: Path) -> dict[str, str]:
    """Return the values of the names in braces in a case's words."""
    run, *_ = json.loads((materials / "runs.json").read_text())
    return {"m": str(materials), "run": run}
