"""BiasBed's protocol (Kalischek et al. 2023): trained on ImageNet-1k or Stylized ImageNet, tested on ten sets.

Images are searched under `data_dir` in the usual layouts (`datasets/imagenet.py`, `datasets/geirhos.py`). Missing test
sets are left out with a line each; `sets=all` refuses them. A seeded part of the training images is held out for
validation. `validation=imagenet` validates on ImageNet's validation images, which are also the test set `imagenet`.
What each release holds and where it comes from is in `datasets/releases.yaml`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from biasbed.algorithms.presets import BIASBED_CODE, OPEN
from biasbed.config import Aggregation, StimuliPreprocess
from biasbed.data import transforms
from biasbed.data.folders import FolderSource
from biasbed.data.prepared import ImagesManifest, PreparedStore
from biasbed.data.source import Source
from biasbed.datasets import geirhos, imagenet
from biasbed.datasets.base import DataSet
from biasbed.datasets.classes import imagenet_classes
from biasbed.errors import MissingData, UsageError
from biasbed.settings import refuse_unknown, setting
from biasbed.suites.files import FileSettings, FileSuite
from biasbed.suites.label_maps import IDENTITY, LabelMap, imagenet_subset, sixteen
from biasbed.suites.sets import CUE_MEASURES, EvaluationSet
from biasbed.suites.suite import OpenSuite, choose

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StandardSet:
    """One of the ten test sets."""

    data: DataSet
    are_photographs: bool  # of any size; False: stimuli of 224 pixels
    source_images: str | None = None  # sets with the same name here show the same objects
    made_by: str | None = None  # training data that are made in the same way, as `prepare` calls them


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
# Published copies of the training images, for the methods that train on them; missing ones may be prepared.
COPIES: Mapping[str, DataSet] = {
    "stylized": TRAINING["stylized"],
    "deepaug_cae": imagenet.DeepAugCAETrain(),
    "deepaug_edsr": imagenet.DeepAugEDSRTrain(),
}


class OpenTests(NamedTuple):
    """Test sets of a suite whose data sets need not all be there."""

    sets: dict[str, EvaluationSet]
    left_out: dict[str, str]  # name -> why it is left out


@dataclass(frozen=True)
class BiasBedSettings(FileSettings):
    """Settings of this suite only."""

    stimuli: StimuliPreprocess = StimuliPreprocess()
    categories: Aggregation = setting(
        "prob_mean", "how the scores of 1000 ImageNet classes become those of 16 categories"
    )


class BiasBed(FileSuite[BiasBedSettings]):
    """Suite of the images under `data_dir`."""

    Settings = BiasBedSettings
    set_names = tuple(TEST_SETS)
    defaults: ClassVar[Mapping[str, Any]] = {
        "val_fraction": 0.02,  # 25,000 images
        "optim.warmup": 5.0,
        "checkpoint_every": 1000,
        "eval_batch_size": 256,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Training and testing as in BiasBed's code, also for methods that are not part of it. Its own methods have a
        # recipe of this name with their special settings.
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
        """Return all data sets that the suite looks for under `data_dir`."""
        tests = (standard_set.data for standard_set in TEST_SETS.values())
        return tuple(dict.fromkeys((*tests, *TRAINING.values(), *COPIES.values())))

    def open(self) -> OpenSuite:
        """Return the suite with its images open. Raises UsageError if images that the settings name are missing."""
        config, root = self.config, self.data_root
        tests = self._open_tests(root)
        images = _open_training_images(config, root)
        transform, description = _make_transform(config, images is not None and images.name == "imagenet")
        held_out = partial(EvaluationSet, "val", transform=transform, preprocessing=description)
        suite = self.of_files(imagenet_classes(), tuple(tests.sets.values()), images, held_out)
        training = {**suite.training, **published_copies(root, suite.training)}
        return replace(suite, training=training, left_out=tests.left_out, remarks=_describe_counts(tests.sets, images))

    def _open_tests(self, root: Path) -> OpenTests:
        """Return the test sets. Raises MissingData if one that the settings name is missing, or if all are."""
        open_data = cache(lambda name: TEST_SETS[name].data.open(root))  # ImageNet's images serve up to four sets
        tests = OpenTests({}, {})
        for name in choose(TEST_SETS, self.config.sets):
            try:
                source = _open_images(self.store, root, name, open_data)
            except MissingData as missing:
                tests.left_out[name] = str(missing)
            else:
                tests.sets[name] = _make_set(self.config, name, source)
        if tests.left_out and self.config.sets != "auto":
            raise MissingData("; ".join(tests.left_out.values()))
        if not tests.sets:
            raise MissingData(f"data_dir={root} has none of the test sets {', '.join(TEST_SETS)}: see docs/data.md")
        return tests


def _describe_counts(tests: Mapping[str, EvaluationSet], images: FolderSource | None) -> tuple[str, ...]:
    """Return a line about each data set whose number of images differs from its release."""
    remarks = []
    for name, test in tests.items():
        remarks += _describe_count(name, len(test.source), TEST_SETS[name].data.release.images)
    if images is not None:
        remarks += _describe_count(f"training set {images.name}", len(images), TRAINING[images.name].release.images)
    return tuple(remarks)


def _describe_count(name: str, images: int, released: int) -> list[str]:
    return [] if images == released else [f"{name} has {images:,} images, its release {released:,}"]


# --- training and validation ------------------------------------------------------------------------------------------


def _open_training_images(config: BiasBedSettings, root: Path) -> FolderSource | None:
    """Return all images of the training set; None with train=none."""
    name = {"auto": "imagenet"}.get(config.train, config.train)
    if name == "none":
        return None
    refuse_unknown(name, TRAINING, f"train={name}: the suite 'biasbed' trains on imagenet or stylized")
    return replace(TRAINING[name].open(root), name=name)


def published_copies(root: Path, training: Mapping[str, Callable[[], Source]]) -> dict[str, Callable[[], Source]]:
    """Return the published copies (`COPIES`) under `root` of the images that train, by name, opened on first use."""
    copies: dict[str, Callable[[], Source]] = {}
    for train_name, originals in training.items():
        for name, data in COPIES.items():
            if name != train_name and data.find(root) is not None:
                # Cached because a listing may have a million files.
                copies[name] = cache(partial(_open_copies, data, root, name, originals))
    return copies


def _open_copies(data: DataSet, root: Path, name: str, originals: Callable[[], Source]) -> FolderSource:
    """Return the published copies of the originals, matched by name. Raises UsageError if there are none."""
    copies = data.open(root)
    names = {identifier.rpartition(".")[0] for identifier in originals().ids}
    rows = [row for row, identifier in enumerate(copies.ids) if identifier.rpartition(".")[0] in names]
    if not rows:
        raise UsageError(f"no image in {copies.root} has the name of a training image, as {next(iter(names))}")
    if len(rows) != len(names):
        log.warning("%s has copies of %d of the %d training images", copies.root, len(rows), len(names))
    return copies.subset(rows, name)


# --- test sets --------------------------------------------------------------------------------------------------------


def _open_images(store: PreparedStore, root: Path, name: str, open_data: Callable[[str], FolderSource]) -> FolderSource:
    """Return a set's images, on disk or prepared from ImageNet's validation images. Raises MissingData without any."""
    standard_set = TEST_SETS[name]
    data, made_by = standard_set.data, standard_set.made_by
    if data.find(root) is not None:
        return open_data(name)
    if made_by is None or TEST_SETS["imagenet"].data.find(root) is None:
        raise MissingData(data.describe_missing(root))
    originals = open_data("imagenet")
    manifest = ImagesManifest.read(store.images(originals, made_by))
    if manifest is None or not manifest.complete:
        raise MissingData(f"{data.describe_missing(root)}; or prepare it: {store.hint(made_by, split='imagenet')}")
    return replace(store.open_images(originals, made_by, originals), name=name)


def _make_set(config: BiasBedSettings, name: str, source: FolderSource) -> EvaluationSet:
    """Return a set of the suite with its preprocessing, label map and measures."""
    standard_set = TEST_SETS[name]
    # FFCV reads Stylized ImageNet as it reads ImageNet; everywhere else its images are fed as they are.
    as_photographs = standard_set.are_photographs or (name == "stylized_imagenet" and config.preprocess.crop_first)
    transform, description = _make_transform(config, as_photographs)
    return EvaluationSet(
        name,
        source,
        transform,
        label_map=_choose_label_map(name, source.classes, config),
        measures=EvaluationSet.measures if source.bias is None else CUE_MEASURES,
        made_by=standard_set.made_by,
        source_images=standard_set.source_images,
        preprocessing=description,
    )


def _choose_label_map(name: str, classes: tuple[str, ...], config: BiasBedSettings) -> LabelMap:
    """Return the map from ImageNet's 1000 classes to the set's."""
    if classes == imagenet_classes():
        return IDENTITY
    subset = imagenet_subset(classes)
    return sixteen(config.categories) if subset is None else replace(subset, name=f"{name}-{len(classes)}")


def _make_transform(config: BiasBedSettings, as_photographs: bool) -> tuple[transforms.Transform, str]:
    """Return the transform of photographs, or of stimuli, and its description."""
    if as_photographs:
        return transforms.make_photo_transform(config.image_size, config.preprocess)
    return transforms.make_stimulus_transform(config.image_size, config.stimuli)
