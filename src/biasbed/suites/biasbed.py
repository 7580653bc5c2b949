"""BiasBed's protocol (Kalischek et al. 2023): trained on ImageNet-1k or Stylized ImageNet, tested on ten sets.

Images are looked for under `data_dir` in the layouts that people have (`datasets/imagenet.py`, `datasets/geirhos.py`).
Test sets that are not there are left out with a line each, or refused with `sets=all`. A seeded slice of the training
images is held out for validation; `validation=imagenet` validates on ImageNet's validation images, of which the test
set `imagenet` consists, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

from biasbed.algorithms.presets import BIASBED_CODE
from biasbed.algorithms.recipes import OPEN
from biasbed.config import Aggregation, StimuliPreprocess
from biasbed.data import transforms
from biasbed.data.folders import FolderSource
from biasbed.data.prepared import ImagesManifest, PreparedStore
from biasbed.data.source import Source
from biasbed.datasets import geirhos, imagenet
from biasbed.datasets.base import DataSet
from biasbed.datasets.classes import imagenet_classes
from biasbed.errors import MissingData, UsageError
from biasbed.settings import nearest, setting
from biasbed.suites.files import FileSettings, FileSuite
from biasbed.suites.label_maps import IDENTITY, LabelMap, imagenet_subset, sixteen
from biasbed.suites.sets import CUE_MEASURES, EvaluationSet
from biasbed.suites.suite import OpenSuite, choose

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StandardSet:
    """One of the ten test sets."""

    data: DataSet
    natural: bool  # whether images are photographs of any size, or stimuli of 224 pixels
    source_images: str | None = None  # sets with equal ones show the same objects
    made_by: str | None = None  # training data that are made alike; this is also what `prepare` calls them


TEST_SETS: Mapping[str, StandardSet] = {
    "imagenet": StandardSet(imagenet.ImageNet(), True, "imagenet_val"),
    "silhouette": StandardSet(geirhos.Silhouette(), False, "geirhos_objects"),
    "edge": StandardSet(geirhos.Edge(), False, "geirhos_objects"),
    "sketch": StandardSet(geirhos.Sketch(), False),
    "cue_conflict": StandardSet(geirhos.CueConflict(), False, "geirhos_objects"),
    "stylized_imagenet": StandardSet(imagenet.StylizedImageNet(), False, "imagenet_val", "stylized"),
    "imagenet_a": StandardSet(imagenet.ImageNetA(), True),
    "imagenet_r": StandardSet(imagenet.ImageNetR(), True),
    "deepaug_cae": StandardSet(imagenet.CAECopies(), True, "imagenet_val", "deepaug_cae"),
    "deepaug_edsr": StandardSet(imagenet.EDSRCopies(), True, "imagenet_val", "deepaug_edsr"),
}
TRAINING: Mapping[str, DataSet] = {
    "imagenet": imagenet.ImageNetTrain(),
    "stylized": imagenet.StylizedImageNetTrain(),
}
# Published copies of the training images, for the methods that train on them; what is not there may be prepared.
COPIES: Mapping[str, DataSet] = {
    "stylized": TRAINING["stylized"],
    "deepaug_cae": imagenet.DeepAugCAETrain(),
    "deepaug_edsr": imagenet.DeepAugEDSRTrain(),
}


@dataclass(frozen=True)
class BiasBedSettings(FileSettings):
    """What this suite alone can be told."""

    stimuli: StimuliPreprocess = StimuliPreprocess()
    categories: Aggregation = setting(
        "prob_mean", "how the scores of 1000 ImageNet classes become those of 16 categories"
    )


class BiasBed(FileSuite[BiasBedSettings]):
    """The suite with the images that are under `data_dir`."""

    Settings = BiasBedSettings
    defaults: ClassVar[Mapping[str, Any]] = {
        "val_fraction": 0.02,  # 25,000 images
        "optim.warmup": 5.0,
        "checkpoint_every": 1000,
        "eval_batch_size": 256,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Training and testing as in BiasBed's code, for methods that are not in it, too; those that are have a recipe
        # of this name with what is special to them.
        "biasbed_code": {
            **BIASBED_CODE,
            "hparams": OPEN,
            "validation": "imagenet",  # datasets/ImageNet1k/dataloader.py: trained on all of ImageNet's training images
            # FFCV's centre crop of 7/8, resized to 256 pixels; stimuli enlarged to 256, cropped to 224; means of logits
            "preprocess.size": 256,
            "preprocess.resize": "auto",
            "preprocess.interpolation": "bilinear",
            "preprocess.crop_first": True,
            "stimuli.resize": 256,
            "stimuli.size": 224,
            "stimuli.interpolation": "bilinear",
            "categories": "logit_mean",
        },
    }

    def data_sets(self) -> tuple[DataSet, ...]:
        """All that the suite looks for under `data_dir`."""
        tests = (entry.data for entry in TEST_SETS.values())
        return tuple(dict.fromkeys((*tests, *TRAINING.values(), *COPIES.values())))

    def open(self) -> OpenSuite:
        """UsageError where what is asked for is missing."""
        config, root = self.config, self.data_root
        tests, left_out = self._tests(root)
        whole = _training_images(config, root)
        transform, words = _preprocessing(config, whole is not None and whole.name == "imagenet")
        held_out = partial(EvaluationSet, "val", transform=transform, preprocessing=words)
        suite = self.of_files(imagenet_classes(), tuple(tests.values()), whole, held_out)
        training = {**suite.training, **published_copies(root, suite.training)}
        return replace(suite, training=training, left_out=left_out, remarks=_incomplete(tests, whole))

    def _tests(self, root: Path) -> tuple[dict[str, EvaluationSet], dict[str, str]]:
        """(test sets by name, why the others are left out)."""
        opened = cache(lambda name: TEST_SETS[name].data.open(root))  # ImageNet's images may be asked for four times
        found: dict[str, EvaluationSet] = {}
        missing: dict[str, str] = {}
        for name in choose(TEST_SETS, self.config.sets):
            source = _images(self.store, root, name, opened)
            if isinstance(source, str):
                missing[name] = source
            else:
                found[name] = _evaluation_set(self.config, name, source)
        if missing and self.config.sets != "auto":
            raise MissingData("; ".join(missing.values()))
        if not found:
            raise MissingData(f"data_dir={root} has none of the test sets {', '.join(TEST_SETS)}: see docs/data.md")
        return found, missing


def _incomplete(tests: Mapping[str, EvaluationSet], whole: FolderSource | None) -> tuple[str, ...]:
    """A line about each data set that has another number of images than its release."""
    counts = {name: (len(entry.source), TEST_SETS[name].data.images) for name, entry in tests.items()}
    if whole is not None:
        counts[f"training set {whole.name}"] = len(whole), TRAINING[whole.name].images
    return tuple(
        f"{n} has {here:,} images, its release {there:,}" for n, (here, there) in counts.items() if here != there
    )


# --- training and validation ------------------------------------------------------------------------------------------


def _training_images(config: BiasBedSettings, root: Path) -> FolderSource | None:
    """All images of the training set, or None with train=none."""
    name = {"auto": "imagenet"}.get(config.train, config.train)
    if name == "none":
        return None
    if name not in TRAINING:
        raise UsageError(f"train={name}: the suite 'biasbed' trains on imagenet or stylized{nearest(name, TRAINING)}")
    return replace(TRAINING[name].open(root), name=name)


def published_copies(root: Path, training: Mapping[str, Callable[[], Source]]) -> dict[str, Callable[[], Source]]:
    """What is there of `COPIES`, for the images that are trained on."""
    copies: dict[str, Callable[[], Source]] = {}
    for whole, originals in training.items():
        there = {name: data for name, data in COPIES.items() if name != whole and data.find(root) is not None}
        # Listed once, whoever asks: it may be a million files.
        copies |= {name: cache(partial(_copies, data, root, name, originals)) for name, data in there.items()}
    return copies


def _copies(data: DataSet, root: Path, name: str, originals: Callable[[], Source]) -> FolderSource:
    """The published copies of the given images, told by their names; UsageError where there are none."""
    copies = data.open(root)
    wanted = {identifier.rpartition(".")[0] for identifier in originals().ids}
    rows = [row for row, identifier in enumerate(copies.ids) if identifier.rpartition(".")[0] in wanted]
    if not rows:
        raise UsageError(f"no image in {copies.root} has the name of a training image, as {next(iter(wanted))}")
    if len(rows) != len(wanted):
        log.warning("%s has copies of %d of the %d training images", copies.root, len(rows), len(wanted))
    return copies.subset(rows, name)


# --- test sets --------------------------------------------------------------------------------------------------------


def _images(store: PreparedStore, root: Path, name: str, opened: Callable[[str], FolderSource]) -> FolderSource | str:
    """The set's images, on disk or prepared from ImageNet's validation images, or why there are none."""
    entry = TEST_SETS[name]
    if entry.data.find(root) is not None:
        return opened(name)
    if entry.made_by is None or TEST_SETS["imagenet"].data.find(root) is None:
        return entry.data.missing(root)
    originals = opened("imagenet")
    manifest = ImagesManifest.read(store.images(originals, entry.made_by))
    if manifest is None or not manifest.complete:
        return f"{entry.data.missing(root)}; or prepare it: {store.hint(entry.made_by, split='imagenet')}"
    return replace(store.open_images(originals, entry.made_by, originals), name=name)


def _evaluation_set(config: BiasBedSettings, name: str, source: FolderSource) -> EvaluationSet:
    entry = TEST_SETS[name]
    # FFCV reads Stylized ImageNet as it reads ImageNet; everywhere else its images are fed as they are.
    natural = entry.natural or (name == "stylized_imagenet" and config.preprocess.crop_first)
    transform, words = _preprocessing(config, natural)
    return EvaluationSet(
        name,
        source,
        transform,
        label_map=_label_map(name, source.classes, config),
        measures=EvaluationSet.measures if source.bias is None else CUE_MEASURES,
        made_by=entry.made_by,
        source_images=entry.source_images,
        preprocessing=words,
    )


def _label_map(name: str, classes: tuple[str, ...], config: BiasBedSettings) -> LabelMap:
    """From ImageNet's 1000 classes to the set's."""
    if classes == imagenet_classes():
        return IDENTITY
    subset = imagenet_subset(classes)
    return sixteen(config.categories) if subset is None else replace(subset, name=f"{name}-{len(classes)}")


def _preprocessing(config: BiasBedSettings, natural: bool) -> tuple[transforms.Transform, str]:
    """(transform, the same in words)."""
    if natural:
        return transforms.natural(config.image_size, config.preprocess)
    return transforms.stimulus(config.image_size, config.stimuli)
