"""The trainings that faults are put into: as small as they can be, and one for every thing that a resume must keep."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from helpers.cifar_files import make_arrays, make_batches
from helpers.commands import command_environment
from helpers.domain_tree import make_domains
from inputs.materials import make_images

EVERYWHERE = ("--device", "cpu", "--init", "scratch", "--log_model", "false")
FOLDERS = (
    *("--suite", "folders", "--data_dir", "{m}/images", "--train", "photo", "--sets", "paint", "--image_size", "16"),
    *("--epochs", "3", "--batch_size", "4", "--optim.lr_batch", "none", "--optim.lr", "0.01"),
)
DOMAINS = (
    *("--suite", "domainbed", "--data_dir", "{m}/domains", "--train", "Pics", "--test_domains", "art"),
    *("--image_size", "16", "--steps", "8", "--evaluate_every", "3", "--batch_size", "4"),
)
BIASED = ("--suite", "debiasing", "--limit", "60", "--image_size", "16", "--epochs", "3", "--batch_size", "20")
ROBUST = (
    *("--suite", "robustness", "--data_dir", "{m}/cifar", "--train", "cifar10", "--image_size", "32"),
    *("--epochs", "2", "--batch_size", "24"),
)
TESTED = ("--suite", "folders", "--data_dir", "{m}/images", "--sets", "paint")
TESTED_C = (
    *("--suite", "robustness", "--data_dir", "{m}/cifar", "--sets", "cifar10,cifar10_c"),
    *("--model", "{m}/conditions.ckpt"),
)
PATIENT = ("--swad.optimum_patience", "1", "--swad.overfit_patience", "2")
SMALL, MIDDLE = ("--backbone", "mlp"), ("--backbone", "resnet10")


@dataclass(frozen=True)
class Training:
    """One of the fleet, as it is typed; `{m}` is the folder of materials."""

    name: str
    words: tuple[str, ...]
    loaders: int = 0
    processes: int = 1
    command: str = "train"
    tests: str = ""  # of a test without training: the one whose best weights it tests

    def typed(self, materials: Path) -> list[str]:
        general = EVERYWHERE if self.command == "train" else ("--device", "cpu")
        words = (self.command, *general, "--workers", str(self.loaders), *self.words)
        return [word.replace("{m}", str(materials)) for word in words]


OFTEN = ("--checkpoint_every", "2")
FLEET = {
    training.name: training
    for training in (
        Training("plain", (*FOLDERS, *SMALL)),
        Training("loaders", (*FOLDERS, *SMALL, *OFTEN, "--algorithm", "random_erasing"), loaders=1),
        Training("draws", (*FOLDERS, *MIDDLE, *OFTEN, "--algorithm", "infodrop", "--epochs", "2")),
        Training("averaged", (*DOMAINS, *SMALL, *OFTEN, "--average", "sma", "--average_from", "2")),
        Training("staged", (*BIASED, *SMALL, "--algorithm", "jtt", "--hparams.identification", "0.34")),
        Training("tables", (*BIASED, *SMALL, *OFTEN, "--algorithm", "lff")),
        Training("relearned", (*BIASED, *SMALL, "--algorithm", "softcon", "--seed", "1")),
        Training("ranks", (*FOLDERS, *SMALL, *OFTEN, "--seed", "2"), processes=2),
        Training("ranks-tables", (*BIASED, *SMALL, "--algorithm", "lff", "--epochs", "2"), processes=2),
        Training("adversary", (*DOMAINS, *MIDDLE, "--algorithm", "dann")),
        Training("watched", (*DOMAINS, *SMALL, "--average", "swad", *PATIENT)),
        Training("conditions", (*ROBUST, *SMALL, "--test_every", "cifar10_c:end")),
        Training("tested", (*TESTED, "--model", "{m}/plain.ckpt"), command="evaluate", tests="plain"),
        Training("tested-conditions", TESTED_C, command="evaluate", tests="conditions"),
    )
}


def make_materials(folder: Path) -> Path:
    """Return images for all of the fleet, and an empty tracking database; made once, and read by every life."""
    from mlflow import MlflowClient

    folder.mkdir(parents=True)
    make_images(folder / "images")
    make_domains(folder / "domains" / "Pics")
    make_batches(folder / "cifar", "cifar10")
    make_arrays(folder / "cifar", "cifar10")
    MlflowClient(f"sqlite:///{folder / 'store.db'}").search_experiments()
    return folder


def new_place(folder: Path, materials: Path) -> dict[str, str | None]:
    """Return a folder for one life, with a store of its own; the environment of its commands."""
    (folder / "tmp").mkdir(parents=True)
    shutil.copy(materials / "store.db", folder / "mlflow.db")
    return {
        "BIASBED_HOME": str(folder / "home"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "TMPDIR": str(folder / "tmp"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": command_environment()["PYTHONPATH"],
    }
