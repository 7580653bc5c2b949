"""Robustness to corruptions, renditions and natural adversarial examples (Hendrycks et al. 2021).

The test sets are the released ones of The Many Faces of Robustness (ICCV 2021) and others that are usually tested
beside them. Training is on ImageNet (`train=imagenet`), or on CIFAR (`train=cifar10`, `train=cifar100`) with its
corrupted test images. A corrupted data set is one evaluation set with many conditions, from which mCE is derived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from biasbed.config import Auto, Preprocess, StimuliPreprocess
from biasbed.data import transforms
from biasbed.data.source import Source
from biasbed.datasets import cifar, geirhos, imagenet, imagenet_c
from biasbed.datasets.base import OnDisk
from biasbed.datasets.classes import CATEGORIES_16, imagenet_classes
from biasbed.datasets.corruption_benchmarks import BENCHMARK, EXTRAS
from biasbed.datasets.imagenet_c import Corrupted
from biasbed.errors import MissingData, UsageError
from biasbed.plugin_loader import Joined
from biasbed.record import Derived
from biasbed.settings import refuse_unknown, setting
from biasbed.suites import corruption_errors, derived
from biasbed.suites.biasbed import OpenTests, published_copies
from biasbed.suites.corrupted_sets import corrupted_set
from biasbed.suites.corruption_errors import CorruptionError
from biasbed.suites.files import FileSettings, FileSuite
from biasbed.suites.label_maps import IDENTITY, LabelMap, imagenet_subset, sixteen
from biasbed.suites.sets import CUE_MEASURES, EvaluationSet
from biasbed.suites.suite import OpenSuite, choose
from biasbed.tasks import MULTI_CLASS

VALIDATION_IMAGES = "imagenet_val"  # `source_images` of sets that show ImageNet's validation images


@dataclass(frozen=True)
class RobustSet:
    """One evaluation set."""

    data: Any  # data set whose `open` returns a source
    classes: str = "imagenet"  # the training data whose classes a model must have
    is_usual: bool = True  # tested by default
    source_images: str | None = None  # sets with the same name here show the same images
    block: str = ""  # as `EvaluationSet.block`
    measures: tuple[str, ...] = ()  # as `EvaluationSet.measures`
    clean: str = ""  # the set of the same images without corruptions
    cadence: int | Literal["end"] = 1
    made_here: tuple[str, ...] = ()  # corruptions of the images of `data`, made on the fly
    headline: str = ""  # as `EvaluationSet.headline`
    counts: bool = True  # as `EvaluationSet.counts`; False where more is not better
    make_label_map: Callable[[Path], LabelMap] | None = None  # of `data_dir`; by default the classes' names say it
    # Returns the transform of images and its description; by default as photographs. int: the image size.
    make_transform: Callable[[Source, int, Preprocess], tuple[transforms.Transform, str]] | None = None


def _corrupted(data: OnDisk, classes: str = "imagenet", **values: Any) -> RobustSet:
    """Return a set of corrupted images, which is tested on the best and the last weights."""
    defaults = {"clean": classes, "cadence": "end", "source_images": f"{classes}_val"}
    return RobustSet(data, classes, **{**defaults, **values})


def transform_whole(source: Source, size: int, how: Preprocess) -> tuple[transforms.Transform, str]:
    """Return the transform of square images, which are not cropped, and its description."""
    return transforms.make_stimulus_transform(size, StimuliPreprocess(interpolation=how.interpolation))


_SETS: Mapping[str, RobustSet] = {
    "imagenet": RobustSet(imagenet.ImageNet(), source_images=VALIDATION_IMAGES),
    "imagenet_200": RobustSet(imagenet.ImageNet200(), source_images=VALIDATION_IMAGES),
    "imagenet_real": RobustSet(
        imagenet.ImageNetReaL(), source_images=VALIDATION_IMAGES, measures=(MULTI_CLASS.measures[0], "ece")
    ),
    "imagenet_v2": RobustSet(imagenet.ImageNetV2()),
    "imagenet_v2_threshold": RobustSet(imagenet.ImageNetV2Threshold(), block="imagenet_v2"),
    "imagenet_v2_top": RobustSet(imagenet.ImageNetV2Top(), block="imagenet_v2"),
    "imagenet_sketch": RobustSet(imagenet.ImageNetSketch()),
    "imagenet_c": _corrupted(imagenet_c.ImageNetC()),
    "imagenet_c_small": _corrupted(imagenet_c.ImageNetCSmall(), is_usual=False, block="imagenet_c", cadence=1),
    "imagenet_c_extra": _corrupted(imagenet_c.ImageNetCExtra(), is_usual=False, block="imagenet_c", cadence=1),
    "imagenet_c_generated": _corrupted(imagenet.ImageNet(), is_usual=False, made_here=BENCHMARK),
    "imagenet_c_bar": _corrupted(imagenet_c.ImageNetCBar()),
    "imagenet_3dcc": _corrupted(imagenet_c.ImageNet3DCC()),
    "imagenet_a": RobustSet(imagenet.ImageNetA(), measures=(*MULTI_CLASS.measures, "rms", "rms_reference", "aurra")),
    "imagenet_r": RobustSet(imagenet.ImageNetR()),
    "real_blurry": RobustSet(imagenet.RealBlurry(), source_images="real_blurry"),
    "real_blurry_100": RobustSet(imagenet.RealBlurry100(), source_images="real_blurry", block="real_blurry"),
    "cue_conflict": RobustSet(
        geirhos.CueConflict(), is_usual=False, measures=CUE_MEASURES, make_transform=transform_whole
    ),
    "cifar10": RobustSet(cifar.CIFAR10(), "cifar10", source_images="cifar10_val"),
    "cifar10_c": _corrupted(cifar.CIFAR10C(), "cifar10"),
    "cifar100": RobustSet(cifar.CIFAR100(), "cifar100", source_images="cifar100_val"),
    "cifar100_c": _corrupted(cifar.CIFAR100C(), "cifar100"),
}
SETS: Joined[RobustSet] = Joined("robustness_sets", _SETS)
# Sets that are parts or other views of the files of another one.
PARTS = ("imagenet_200", "imagenet_c_small", "imagenet_c_generated", "real_blurry_100")
TRAIN_EXTRA = "train_extra"  # held-out training images under the four extra corruptions
# Sets that may validate, besides held-out training images; the 15 corruptions are for the test alone.
MAY_VALIDATE = ("imagenet", "imagenet_c_extra", TRAIN_EXTRA)
TRAINING: Mapping[str, Any] = {
    "imagenet": imagenet.ImageNetTrain(),
    "cifar10": cifar.CIFAR10Train(),
    "cifar100": cifar.CIFAR100Train(),
}
# Defaults of trainings on CIFAR: AugMix's optimizer and augmentation (Hendrycks et al., ICLR 2020, section 4.1).
SMALL_IMAGES: Mapping[str, Any] = {
    **{"backbone": "resnet18", "image_size": 32, "epochs": 100, "batch_size": 128, "val_fraction": 0.1},
    **{"augment.crop": False, "augment.padding": 4, "optim.warmup": 0.0, "optim.schedule": "cosine"},
    **{"optim.lr": 0.1, "optim.lr_batch": 128, "optim.nesterov": True, "optim.weight_decay": 5e-4},
}


@dataclass(frozen=True)
class RobustnessSettings(FileSettings):
    """Settings of this suite only."""

    # Like `sets`, it is in the protocol.
    corruption_error: CorruptionError | Auto = setting(
        "auto",
        "headline of a set of corruptions (auto: mce of released ImageNet-C, else mean_error)",
        identity=False,
    )


class Robustness(FileSuite[RobustnessSettings]):
    """Suite of the images under `data_dir`."""

    Settings = RobustnessSettings
    set_names = SETS
    held_out_words = ("auto", TRAIN_EXTRA)
    defaults: ClassVar[Mapping[str, Any]] = {
        "val_fraction": 0.02,
        "optim.warmup": 5.0,
        "checkpoint_every": 1000,
        "eval_batch_size": 256,
    }

    @classmethod
    def defaults_for(cls, flags: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults of CIFAR if the flags choose it."""
        sets = flags.get("sets", ())
        names = sets.split(",") if isinstance(sets, str) else sets
        return {} if _family(str(flags.get("train", "auto")), names) == "imagenet" else SMALL_IMAGES

    def data_sets(self) -> tuple[OnDisk, ...]:
        """Return all data sets that the suite looks for under `data_dir`; sets of the same files count once."""
        tests = (robust_set.data for name, robust_set in SETS.items() if name not in PARTS)
        return (*tests, *TRAINING.values())

    @property
    def family(self) -> str:
        """Name of the data whose classes the model has: the training data, else those of the first set."""
        train, sets = self.config.train, self.config.sets
        names = ("auto", "none", *TRAINING)
        refuse_unknown(train, names, f"train={train}: the suite '{self.name}' has no such training data")
        return _family(train, () if isinstance(sets, str) else sets)

    def open(self) -> OpenSuite:
        """Return the suite with its images open. Raises UsageError if something is missing or doesn't fit."""
        config, root = self.config, self.data_root
        self._check_validation()
        tests, left_out = self._open_tests(root)
        images = None if config.train == "none" else replace(TRAINING[self.family].open(root), name=self.family)
        suite = self.of_files(self._classes(tests), self._add_validation(root, tests), images, self._make_held_out)
        copies = published_copies(root, suite.training) if self.family == "imagenet" else {}
        return replace(
            suite,
            training={**suite.training, **copies},
            left_out=left_out,
            derivations=tuple(_derived(list(tests.values()))),
            remarks=(*_remarks(tests), *self._clean_remark(tests)),
        )

    # --- sets ---

    def _open_tests(self, root: Path) -> OpenTests:
        """Return the test sets. Raises MissingData if one that the settings name is missing, or if all are."""
        names = self._choose_names()
        present = {name for name in names if SETS[name].data.find(root) is not None}
        missing = {name: SETS[name].data.describe_missing(root) for name in names if name not in present}
        if missing and self.config.sets != "auto":
            raise MissingData("; ".join(missing.values()))
        if not present:
            raise MissingData(f"data_dir={root} has none of the test sets {', '.join(names)}: see docs/data.md")
        sets = {}
        for name in names:
            if name in present:
                sets[name] = self._make_set(name, SETS[name].data.open(root), present)
        return OpenTests(sets, missing)

    def _choose_names(self) -> tuple[str, ...]:
        """Return the names of the sets to test, in order. Raises UsageError for one of other classes than the rest."""
        selected, family = self.config.sets, self.family
        names = choose(SETS, selected)
        if isinstance(selected, str):
            usual = (name for name in names if SETS[name].is_usual)
            return tuple(name for name in usual if SETS[name].classes == family)
        for name in names:
            if SETS[name].classes != family:
                raise UsageError(
                    f"sets={','.join(selected)}: '{name}' has the classes of {SETS[name].classes}, the others, or what "
                    f"trains, those of {family}"
                )
        return names

    def _make_set(self, name: str, source: Source, present: set[str]) -> EvaluationSet:
        """Return an evaluation set. present: the names of all sets that are tested."""
        robust_set = SETS[name]
        transform, description = self._default_transform
        if robust_set.make_transform is not None:
            transform, description = robust_set.make_transform(source, self.config.image_size, self.config.preprocess)
        evaluation_set = EvaluationSet(
            name,
            source,
            transform,
            label_map=self._choose_label_map(name, source),
            measures=robust_set.measures,
            headline=robust_set.headline,
            counts=robust_set.counts,
            preprocessing=description,
            source_images=robust_set.source_images,
            block=robust_set.block,
            cadence=robust_set.cadence,
        )
        if robust_set.made_here:
            evaluation_set = corrupted_set(evaluation_set, self.config, self.store, robust_set.made_here, name)
        clean = robust_set.clean
        if isinstance(robust_set.data, Corrupted):
            description = f"{imagenet_c.SIDE} x {imagenet_c.SIDE} as released"
            exact = transforms.Exact(imagenet_c.SIDE)
            evaluation_set = replace(evaluation_set, transform=exact, preprocessing=description)
        if not clean:
            has_conditions = evaluation_set.source.condition is not None
            return replace(evaluation_set, headline=corruption_errors.MEAN_ERROR) if has_conditions else evaluation_set
        error = self.config.corruption_error
        if name != "imagenet_c" and name not in self.config.sets:  # the setting is meant for sets that are named
            error = "auto"
        headline = corruption_errors.headline(error, name, _why_no_mce(robust_set, source), clean in present, clean)
        return replace(evaluation_set, headline=headline)

    def _make_held_out(self, source: Source) -> EvaluationSet:
        """Return the evaluation set of held-out training images, corrupted with `validation=train_extra`."""
        transform, description = self._default_transform
        plain = EvaluationSet("val", source, transform, preprocessing=description)
        if self.config.validation != TRAIN_EXTRA:
            return plain
        corrupted_copy = corrupted_set(plain, self.config, self.store, EXTRAS, TRAIN_EXTRA)
        return replace(corrupted_copy, headline="", cadence=1)

    def _choose_label_map(self, name: str, source: Source) -> LabelMap:
        """Return the map from the model's classes to the set's."""
        robust_set = SETS[name]
        if source.classes == CATEGORIES_16:
            return sixteen()
        if robust_set.make_label_map is not None:
            return robust_set.make_label_map(self.data_root)
        if robust_set.classes != "imagenet" or source.classes == imagenet_classes():
            return IDENTITY
        subset = imagenet_subset(source.classes)
        assert subset is not None
        return replace(subset, name=f"{name}-{len(source.classes)}")

    def _check_validation(self) -> None:
        """Raise UsageError if `validation` names a set that is for the test alone."""
        name = self.config.validation
        names = ("auto", *MAY_VALIDATE)
        refuse_unknown(name, names, f"validation={name}: the suite '{self.name}' has all other sets for the test alone")
        if name == TRAIN_EXTRA and self.family != "imagenet":
            raise UsageError(
                f"validation={name}: corruptions are defined for images of {imagenet_c.SIDE} x {imagenet_c.SIDE} "
                f"pixels, and those of {self.family} have {cifar.SIDE} x {cifar.SIDE}"
            )

    def _add_validation(self, root: Path, tests: Mapping[str, EvaluationSet]) -> Sequence[EvaluationSet]:
        """Return the test sets, and the validation set if it is not among them."""
        name, sets = self.config.validation, list(tests.values())
        if name in self.held_out_words or name in tests or self.config.train == "none":
            return sets
        return [*sets, replace(self._make_set(name, SETS[name].data.open(root), {*tests}), counts=False, headline="")]

    def _classes(self, tests: Mapping[str, EvaluationSet]) -> tuple[str, ...]:
        if self.family == "imagenet":
            return imagenet_classes()
        return next(iter(tests.values())).source.classes

    def _clean_remark(self, tests: Mapping[str, EvaluationSet]) -> list[str]:
        """Return a line if the clean images are preprocessed unlike the originals of the corrupted ones."""
        clean, released = self._default_transform[1], transforms.make_photo_transform(imagenet_c.SIDE, Preprocess())[1]
        if clean == released or not {"imagenet", "imagenet_c"} <= tests.keys():
            return []
        return [f"relative_mce takes the accuracy on imagenet at {clean}; ImageNet-C was made of {released}"]

    @property
    def _default_transform(self) -> tuple[transforms.Transform, str]:
        """Transform of photographs, or of CIFAR's small images, and its description."""
        size = self.config.image_size
        if self.family == "imagenet":
            return transforms.make_photo_transform(size, self.config.preprocess)
        return transforms.SquareResize(size), f"as it is, or resized to {size}, bilinear"


def _family(train: str, sets: Sequence[str]) -> str:
    """Return the name of the data whose classes the model has: the training data, else those of the first set."""
    if train != "none":
        return train if train in TRAINING else "imagenet"
    return next((SETS[name].classes for name in sets if name in SETS), "imagenet")


def _why_no_mce(robust_set: RobustSet, source: Source) -> str:
    """Return why AlexNet's errors don't apply to a set of corruptions, as text; empty if they do."""
    data = robust_set.data
    if robust_set.made_here:
        return "is made here"
    if not isinstance(data, Corrupted) or data.corruptions != BENCHMARK:
        return "is another set"
    if data.small:
        return "is a part of it"
    differences = data.differences(source)
    return f"has {' and '.join(differences)}" if differences else ""


def _derived(sets: Sequence[EvaluationSet]) -> list[Derived]:
    """Return the values that follow from the accuracies on several sets, or under several conditions."""
    names = {evaluation_set.name for evaluation_set in sets}
    derivations: list[Derived] = []
    for evaluation_set in sets:
        robust_set = SETS[evaluation_set.name]
        if evaluation_set.source.condition is not None:
            clean = robust_set.clean if robust_set.clean in names else None
            is_released = not _why_no_mce(robust_set, evaluation_set.source)
            corruptions = robust_set.made_here or robust_set.data.corruptions
            derivations += corruption_errors.derivations(evaluation_set.name, corruptions, clean, is_released)
    groups = {evaluation_set.name: evaluation_set.record().groups for evaluation_set in sets}
    derivations += derived.from_public_sets(groups)
    return derivations


def _remarks(tests: Mapping[str, EvaluationSet]) -> tuple[str, ...]:
    """Return a line about each set that differs from its release, and what it lacks for that reason."""
    remarks = []
    for name, evaluation_set in tests.items():
        data, source, is_made_here = SETS[name].data, evaluation_set.source, bool(SETS[name].made_here)
        if isinstance(data, Corrupted):
            differences = "; ".join(data.differences(source))
            lost = "" if data.corruptions != BENCHMARK or data.small else ": no mCE"
            if differences:
                remarks.append(f"{name} has {differences}{lost}")
            continue
        images = len(source) // (len(source.conditions) if is_made_here else 1)
        if data.release.images not in (0, images):
            per_condition = " under each condition" if is_made_here else ""
            remarks.append(f"{name} has {images:,} images{per_condition}, its release {data.release.images:,}")
    return tuple(remarks)
