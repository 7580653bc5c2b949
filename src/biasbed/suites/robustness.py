"""What a classifier loses under corruptions, on renditions, on natural adversarial examples: Hendrycks et al. 2021.

The sets of The Many Faces of Robustness (ICCV 2021) that were released, and those that are tested beside them: a
training is on ImageNet (`train=imagenet`), or on CIFAR (`train=cifar10`, `train=cifar100`) with its corrupted test
images. Images under corruptions are one set each, of many conditions; what a paper calls mCE is derived of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from biasbed.config import Auto, Preprocess
from biasbed.data import transforms
from biasbed.data.source import Source
from biasbed.datasets import cifar, imagenet, imagenet_c
from biasbed.datasets.base import OnDisk
from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.corruption_benchmarks import BENCHMARK, EXTRAS
from biasbed.datasets.imagenet_c import Corrupted
from biasbed.errors import MissingData, UsageError
from biasbed.record import Derived, MetricName
from biasbed.settings import nearest, setting
from biasbed.suites import corruption_errors
from biasbed.suites.biasbed import published_copies
from biasbed.suites.corrupted_sets import corrupted_set
from biasbed.suites.corruption_errors import CorruptionError
from biasbed.suites.files import FileSettings, FileSuite
from biasbed.suites.label_maps import IDENTITY, imagenet_subset
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite, choose
from biasbed.tasks import MULTI_CLASS

VALIDATION_IMAGES = "imagenet_val"  # what sets have in common that show ImageNet's validation images


@dataclass(frozen=True)
class RobustSet:
    """One evaluation set."""

    data: Any  # a data set that `open` gives a source of
    classes: str = "imagenet"  # whose classes a model must know: what trains such a one
    is_usual: bool = True  # tested unless sets are named
    source_images: str | None = None  # sets with equal ones show the same images
    block: str = ""  # as `EvaluationSet.block`
    measures: tuple[str, ...] = ()  # the same
    clean: str = ""  # of corrupted images, the set that shows them as they are
    cadence: int | Literal["end"] = 1
    made_here: tuple[str, ...] = ()  # corruptions of the images of `data`, made on the fly


def _corrupted(data: OnDisk, classes: str = "imagenet", **values: Any) -> RobustSet:
    """One of corrupted images, which is tested on the best and the last weights."""
    clean = {"clean": classes, "cadence": "end", "source_images": f"{classes}_val"}
    return RobustSet(data, classes, **{**clean, **values})


SETS: Mapping[str, RobustSet] = {
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
    "cifar10": RobustSet(cifar.CIFAR10(), "cifar10", source_images="cifar10_val"),
    "cifar10_c": _corrupted(cifar.CIFAR10C(), "cifar10"),
    "cifar100": RobustSet(cifar.CIFAR100(), "cifar100", source_images="cifar100_val"),
    "cifar100_c": _corrupted(cifar.CIFAR100C(), "cifar100"),
}
# Other ways to look at a set beside them.
PARTS = ("imagenet_200", "imagenet_c_small", "imagenet_c_generated", "real_blurry_100")
TRAIN_EXTRA = "train_extra"  # held-out training images under the four extra corruptions
# Besides held-out training images as they are; the 15 corruptions are for the test alone.
MAY_VALIDATE = ("imagenet", "imagenet_c_extra", TRAIN_EXTRA)
TRAINING: Mapping[str, Any] = {
    "imagenet": imagenet.ImageNetTrain(),
    "cifar10": cifar.CIFAR10Train(),
    "cifar100": cifar.CIFAR100Train(),
}
# What is trained on CIFAR: AugMix's settings of optimizer and augmentation (Hendrycks et al., ICLR 2020, section 4.1).
SMALL_IMAGES: Mapping[str, Any] = {
    **{"backbone": "resnet18", "image_size": 32, "epochs": 100, "batch_size": 128, "val_fraction": 0.1},
    **{"augment.crop": False, "augment.padding": 4, "optim.warmup": 0.0, "optim.schedule": "cosine"},
    **{"optim.lr": 0.1, "optim.lr_batch": 128, "optim.nesterov": True, "optim.weight_decay": 5e-4},
}
GAP = "gap_r"


@dataclass(frozen=True)
class RobustnessSettings(FileSettings):
    """What this suite alone can be told."""

    # Like `sets`, it is in the protocol.
    corruption_error: CorruptionError | Auto = setting(
        "auto",
        "what stands for a set of corruptions (auto: mce of released ImageNet-C, else mean_error)",
        identity=False,
    )


class Robustness(FileSuite[RobustnessSettings]):
    """The suite with the images that are under `data_dir`."""

    Settings = RobustnessSettings
    held_out_words = ("auto", TRAIN_EXTRA)
    defaults: ClassVar[Mapping[str, Any]] = {
        "val_fraction": 0.02,
        "optim.warmup": 5.0,
        "checkpoint_every": 1000,
        "eval_batch_size": 256,
    }

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """For CIFAR, its own."""
        names = given.get("sets", ())
        words = names.split(",") if isinstance(names, str) else names
        return {} if _family(str(given.get("train", "auto")), words) == "imagenet" else SMALL_IMAGES

    def data_sets(self) -> tuple[OnDisk, ...]:
        """All that the suite looks for under `data_dir`; once where sets are parts of the same files."""
        tests = (entry.data for name, entry in SETS.items() if name not in PARTS)
        return (*tests, *TRAINING.values())

    @property
    def family(self) -> str:
        """Whose classes are told apart: those of what trains, else of the sets that are named."""
        train, sets = self.config.train, self.config.sets
        if train not in ("auto", "none", *TRAINING):
            names = ", ".join(TRAINING)
            raise UsageError(f"train={train}: the suite '{self.name}' trains on {names}{nearest(train, TRAINING)}")
        return _family(train, () if isinstance(sets, str) else sets)

    def open(self) -> OpenSuite:
        """UsageError where what is asked for is missing, or doesn't fit."""
        config, root = self.config, self.data_root
        self._refuse_validation()
        tests, left_out = self._tests(root)
        whole = None if config.train == "none" else replace(TRAINING[self.family].open(root), name=self.family)
        suite = self.of_files(self._classes(tests), self._with_validation(root, tests), whole, self._held_out)
        copies = published_copies(root, suite.training) if self.family == "imagenet" else {}
        return replace(
            suite,
            training={**suite.training, **copies},
            left_out=left_out,
            derivations=tuple(_derived(list(tests.values()))),
            remarks=(*_remarks(tests), *self._clean_remark(tests)),
        )

    # --- sets ---

    def _tests(self, root: Path) -> tuple[dict[str, EvaluationSet], dict[str, str]]:
        """(test sets by name, why the others are left out)."""
        names = self._chosen()
        there = {name for name in names if SETS[name].data.find(root) is not None}
        missing = {name: SETS[name].data.missing(root) for name in names if name not in there}
        if missing and self.config.sets != "auto":
            raise MissingData("; ".join(missing.values()))
        if not there:
            raise MissingData(f"data_dir={root} has none of the test sets {', '.join(names)}: see docs/data.md")
        opened = cache(lambda name: SETS[name].data.open(root))
        return {name: self._set(name, opened(name), there) for name in names if name in there}, missing

    def _chosen(self) -> tuple[str, ...]:
        """Names of the sets that are wanted, in order; UsageError for one of other classes than the rest."""
        wanted, family = self.config.sets, self.family
        found = choose(SETS, wanted)
        if isinstance(wanted, str):
            return tuple(name for name in found if SETS[name].classes == family and SETS[name].is_usual)
        for name in found:
            if SETS[name].classes != family:
                raise UsageError(
                    f"sets={','.join(wanted)}: '{name}' has the classes of {SETS[name].classes}, the others, or what "
                    f"trains, those of {family}"
                )
        return found

    def _set(self, name: str, source: Source, there: set[str]) -> EvaluationSet:
        entry, data = SETS[name], SETS[name].data
        transform, words = self._usual
        found = EvaluationSet(
            name,
            source,
            transform,
            label_map=self._label_map(name, source),
            measures=entry.measures,
            preprocessing=words,
            source_images=entry.source_images,
            block=entry.block,
            cadence=entry.cadence,
        )
        if entry.made_here:
            found = corrupted_set(found, self.config, self.store, entry.made_here, name)
        if not entry.clean:
            return found
        wanted = self.config.corruption_error
        if name != "imagenet_c" and name not in self.config.sets:  # not asked for by name: it has what it can have
            wanted = "auto"
        headline = corruption_errors.headline(
            wanted, name, _why_no_mce(entry, source), entry.clean in there, entry.clean
        )
        if isinstance(data, Corrupted):
            words = f"{imagenet_c.SIDE} x {imagenet_c.SIDE} as released"
            found = replace(found, transform=transforms.Exact(imagenet_c.SIDE), preprocessing=words)
        return replace(found, headline=headline)

    def _held_out(self, source: Source) -> EvaluationSet:
        """Training images that are for validation."""
        transform, words = self._usual
        found = EvaluationSet("val", source, transform, preprocessing=words)
        if self.config.validation != TRAIN_EXTRA:
            return found
        made = corrupted_set(found, self.config, self.store, EXTRAS, TRAIN_EXTRA)
        return replace(made, headline="", cadence=1)

    def _label_map(self, name: str, source: Source) -> Any:
        """From the classes of what trains to the set's."""
        if SETS[name].classes != "imagenet" or source.classes == imagenet_classes():
            return IDENTITY
        subset = imagenet_subset(source.classes)
        assert subset is not None
        return replace(subset, name=f"{name}-{len(source.classes)}")

    def _refuse_validation(self) -> None:
        """UsageError for a set to validate on that is there for the test."""
        name = self.config.validation
        if name not in ("auto", *MAY_VALIDATE):
            raise UsageError(
                f"validation={name}: the suite '{self.name}' is validated on held-out training images (auto), or on "
                f"{' or '.join(MAY_VALIDATE)}{nearest(name, MAY_VALIDATE)}; all other sets are for the test alone"
            )
        if name == TRAIN_EXTRA and self.family != "imagenet":
            raise UsageError(
                f"validation={name}: corruptions are defined for images of {imagenet_c.SIDE} x {imagenet_c.SIDE} "
                f"pixels, and those of {self.family} have {cifar.SIDE} x {cifar.SIDE}"
            )

    def _with_validation(self, root: Path, tests: Mapping[str, EvaluationSet]) -> Sequence[EvaluationSet]:
        """The sets, and that on which a run is validated if it is none of them."""
        name, known = self.config.validation, list(tests.values())
        if name in self.held_out_words or name in tests or self.config.train == "none":
            return known
        return [*known, replace(self._set(name, SETS[name].data.open(root), {*tests}), counts=False, headline="")]

    def _classes(self, tests: Mapping[str, EvaluationSet]) -> tuple[str, ...]:
        if self.family == "imagenet":
            return imagenet_classes()
        return next(iter(tests.values())).source.classes

    def _clean_remark(self, tests: Mapping[str, EvaluationSet]) -> list[str]:
        """A line where the clean images come otherwise than those that were corrupted."""
        how, made = self._usual[1], transforms.natural(imagenet_c.SIDE, Preprocess())[1]
        if how == made or not {"imagenet", "imagenet_c"} <= tests.keys():
            return []
        return [f"relative_mce takes the accuracy on imagenet at {how}; ImageNet-C was made of {made}"]

    @property
    def _usual(self) -> tuple[transforms.Transform, str]:
        """What is done to photographs, or to CIFAR's small images, and the same in words."""
        size = self.config.image_size
        if self.family == "imagenet":
            return transforms.natural(size, self.config.preprocess)
        return transforms.SquareResize(size), f"as it is, or resized to {size}, bilinear"


def _family(train: str, sets: Sequence[str]) -> str:
    """Whose classes are told apart: those of what trains, else of the first of the sets that are named."""
    if train != "none":
        return train if train in TRAINING else "imagenet"
    return next((SETS[name].classes for name in sets if name in SETS), "imagenet")


def _why_no_mce(entry: RobustSet, source: Source) -> str:
    """Why AlexNet's errors don't apply to a set of corruptions, in words; empty where they do."""
    data = entry.data
    if entry.made_here:
        return "is made here"
    if not isinstance(data, Corrupted) or data.corruptions != BENCHMARK:
        return "is another set"
    if data.small:
        return "is a part of it"
    differences = data.differences(source)
    return f"has {' and '.join(differences)}" if differences else ""


def _derived(sets: Sequence[EvaluationSet]) -> list[Derived]:
    """What follows from the accuracies on several sets, or under several conditions."""
    names = {entry.name for entry in sets}
    found: list[Derived] = []
    for entry in sets:
        own = SETS[entry.name]
        if own.clean:
            clean = own.clean if own.clean in names else None
            is_released = not _why_no_mce(own, entry.source)
            corruptions = own.made_here or own.data.corruptions
            found += corruption_errors.derivations(entry.name, corruptions, clean, is_released)
    if {"imagenet_200", "imagenet_r"} <= names:
        both = [str(MetricName("test", MULTI_CLASS.measures[0], name)) for name in ("imagenet_200", "imagenet_r")]
        found.append(Derived("test", GAP, "imagenet_r", "difference", tuple(both), higher_is_better=False))
    return found


def _remarks(tests: Mapping[str, EvaluationSet]) -> tuple[str, ...]:
    """A line about each set that is not as it was released, and what it then lacks."""
    found = []
    for name, entry in tests.items():
        data, source = SETS[name].data, entry.source
        if isinstance(data, Corrupted):
            words = "; ".join(data.differences(source))
            lost = "" if data.corruptions != BENCHMARK or data.small else ": no mCE"
            found += [f"{name} has {words}{lost}"] if words else []
            continue
        images = len(source) // (len(source.conditions) if SETS[name].made_here else 1)
        if data.images not in (0, images):
            each = " under each condition" if SETS[name].made_here else ""
            found.append(f"{name} has {images:,} images{each}, its release {data.images:,}")
    return tuple(found)
