"""Every general setting, and how a run's settings come about: suite, algorithm, preset, then the command line.

A setting marked `how` says where or how a run is carried out; all others are *what* it computes and enter
`config_hash`. No torch here: a refused command costs no import.

Answers: Which settings does a training have?
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from biasbed import record
from biasbed.settings import check, flatten, refuse_unknown, setting, specs, word

Auto = Literal["auto"]
LARGEST_SIDE = 4096  # pixels of an image's side


@dataclass(frozen=True)
class Optim:
    """Optimizer and learning-rate schedule."""

    name: Literal["sgd", "adam", "adamw"] = setting("sgd", "optimizer")
    lr: float = setting(0.1, "learning rate for a batch of lr_batch images", gt=0)
    lr_batch: int | None = setting(256, "batch size that lr is meant for (linear scaling); none: lr as given", ge=1)
    momentum: float = setting(0.9, "momentum (sgd)", ge=0, lt=1)
    nesterov: bool = setting(False, "Nesterov's momentum (sgd)")
    beta1: float = setting(0.9, "decay of the mean gradient (adam, adamw)", ge=0, lt=1)
    beta2: float = setting(0.999, "decay of the squared gradient (adam, adamw)", ge=0, lt=1)
    weight_decay: float = setting(1e-4, "weight decay, on every parameter (but see decay_norms)", ge=0)
    decay_norms: bool = setting(True, "weight decay also on parameters of one dimension: norms, biases", optional=True)
    decay_embeddings: bool = setting(
        True, "weight decay also on position embeddings, class tokens and relative position tables", optional=True
    )
    head_factor: float = setting(
        1.0, "learning rate of the networks' classifiers, as a multiple of all others'", gt=0, optional=True
    )
    layer_decay: float = setting(
        1.0, "rate of each layer, as a multiple of the next layer's; the classifier has lr", gt=0, le=1, optional=True
    )
    clip: float | None = setting(
        None, "largest norm of each optimizer's gradient; a longer one is scaled down; none: any", gt=0, optional=True
    )
    schedule: Literal["step", "cosine", "constant", "piecewise"] = setting("step", "course of the rate after warm-up")
    milestones: tuple[float, ...] = setting(
        (0.3, 0.6, 0.9), "step: parts of the training (between restarts) after which lr drops"
    )
    gamma: float = setting(0.1, "step: factor of each drop", gt=0, le=1)
    points: tuple[float, ...] = setting(
        (0.0, 0.4, 1.0),
        "piecewise: parts of the training (between restarts) between which the rate is linear",
        optional=True,
    )
    factors: tuple[float, ...] = setting(
        (0.0, 1.0, 0.0), "piecewise: the rates there, as multiples of lr", optional=True
    )
    warmup: float = setting(0.0, "epochs in which the rate grows linearly from zero", ge=0)
    restarts: tuple[float, ...] = setting(
        (), "parts of the training after which schedule, warm-up and momenta begin anew, each to last until the next"
    )

    def __post_init__(self) -> None:
        for name in ("milestones", "restarts"):
            parts = getattr(self, name)
            if not all(0 < part < 1 for part in parts) or list(parts) != sorted(set(parts)):
                raise ValueError(f"optim.{name}={parts}: parts of the training, rising, between 0 and 1")
        if self.nesterov and not self.momentum:
            raise ValueError("optim.nesterov needs optim.momentum above 0")
        is_rising = list(self.points) == sorted(set(self.points))
        if not is_rising or self.points[:1] != (0,) or self.points[-1:] != (1,):
            raise ValueError(f"optim.points={self.points}: parts of the training, rising, from 0 to 1")
        if len(self.factors) != len(self.points) or not all(0 <= factor < math.inf for factor in self.factors):
            raise ValueError(f"optim.factors={self.factors}: one for each of optim.points={self.points}, 0 or more")
        if self.schedule == "piecewise" and self.warmup:
            raise ValueError("optim.schedule=piecewise has its warm-up in optim.points: give optim.warmup=0")

    def rate(self, batch_size: int) -> float:
        """Return the initial learning rate for this global batch size."""
        return self.lr if self.lr_batch is None else self.lr * batch_size / self.lr_batch


@dataclass(frozen=True)
class NetworkSettings:
    """Settings that every network of a training has, whatever its backbone."""

    dropout: float = setting(
        0.0, "probability of dropping each feature before the classifier", ge=0, lt=1, optional=True
    )
    freeze_statistics: bool = setting(
        False, "batch norm keeps the mean and variance that came with the initial weights", optional=True
    )
    drop_path: float | None = setting(
        None,
        "stochastic depth: probability of skipping the last block, rising linearly; none: the library's default",
        ge=0,
        lt=1,
        optional=True,
    )
    channels: int = setting(3, "channels of the images", ge=1, le=64, optional=True)
    scale: Literal["auto", "unit", "unit_255"] = setting(
        "auto",
        "images as the backbone expects them (auto), in [0,1] (unit), or in [0,1] / 255 (unit_255)",
        optional=True,
    )


@dataclass(frozen=True)
class Swad:
    """Settings of SWAD, which chooses the steps to average over (Cha et al. 2021, algorithm 1); their values."""

    optimum_patience: int = setting(
        3,
        "N_s: the average starts at an evaluation whose validation loss is the smallest of N_s in a row",
        ge=1,
        optional=True,
    )
    overfit_patience: int = setting(
        6, "N_e: the average ends before N_e evaluations in a row with a loss above the tolerance", ge=1, optional=True
    )
    tolerance: float = setting(
        1.3, "r: tolerance, as a multiple of the mean loss of those N_s evaluations", ge=1, optional=True
    )

    def __post_init__(self) -> None:
        if self.overfit_patience < self.optimum_patience:
            raise ValueError(f"swad.overfit_patience={self.overfit_patience}: at least swad.optimum_patience")


@dataclass(frozen=True)
class Ema:
    """Exponential moving average of the weights, by timm's update (`ModelEmaV3`)."""

    decay: float = setting(0.9999, "part of the average that each step keeps", gt=0, lt=1, optional=True)
    warmup: bool = setting(
        False, "let the decay rise to its value by 1 - (1 + step)^(-2/3), for short trainings", optional=True
    )


@dataclass(frozen=True)
class Augment:
    """Random changes to training images."""

    crop: bool = setting(True, "random resized crop")
    crop_scale: float = setting(0.08, "smallest part of the image's area that a crop keeps", gt=0, le=1)
    crop_ratio: tuple[float, float] = setting(
        (3 / 4, 4 / 3), "smallest and largest aspect ratio of a crop, width by height"
    )
    flip: bool = setting(True, "horizontal flip of every second image")
    jitter: float = setting(
        0.0,
        "largest change of brightness, contrast, saturation (as parts) and hue (of the circle)",
        ge=0,
        le=0.5,
        optional=True,
    )
    grey: float = setting(0.0, "probability of taking all colour away", ge=0, le=1, optional=True)
    padding: int = setting(
        0,
        "without crop: black pixels around the resized image, from which a part of its size is cut",
        ge=0,
        le=512,
        optional=True,
    )

    def __post_init__(self) -> None:
        if not 0 < self.crop_ratio[0] <= self.crop_ratio[1] < math.inf:
            raise ValueError(
                f"augment.crop_ratio={self.crop_ratio}: the smallest, above 0, and then the largest, finite"
            )


RESIZED = re.compile(r"[1-9]\d*-(raw|jpeg[1-9]\d?0?)")  # form of packed images that were resized once


@dataclass(frozen=True)
class DataSettings:
    """Settings of how images are read; suites add settings of how they are made and divided."""

    # A resized form changes the fingerprint of the images, which is hashed.
    packed: str = setting(
        "auto",
        "packed images: auto: read where the files are packed; no; or resized ones: 256-raw, 256-jpeg90, ...",
        identity=False,
        optional=True,
    )

    def __post_init__(self) -> None:
        if self.packed not in ("auto", "no") and not RESIZED.fullmatch(self.packed):
            raise ValueError(f"data.packed={self.packed}: should be auto, no, <side>-raw or <side>-jpeg<quality>")


@dataclass(frozen=True)
class CacheSettings:
    """Cache of test images that are decoded already."""

    gb: float | Auto = setting(
        "auto",
        "gigabytes of decoded test images kept for later tests (auto: where it saves time, a tenth of the free disk; "
        "0: none)",
        ge=0,
        identity=False,
        optional=True,
    )


@dataclass(frozen=True)
class ScoreSettings:
    """Scores of all classes that are stored with the decisions on test images (docs/trust.md)."""

    keep: Literal["no", "fp16", "fp32"] = setting(
        "no",
        "store the log-probabilities of all classes of every image, in this precision, for calibration, conformal sets "
        "and detection (docs/trust.md); of sets without conditions and of up to 100,000 images",
        identity=False,
        optional=True,
    )
    calibrate: str | Auto = setting(
        "auto",
        "test set, one half of which calibrates in place of validation images (auto: the validation set; `evaluate` "
        "has none)",
        identity=False,
        optional=True,
    )
    alpha: float = setting(
        0.1, "share of the labels that conformal prediction sets may miss", gt=0, lt=1, identity=False, optional=True
    )

    @property
    def is_kept(self) -> bool:
        return self.keep != "no"

    def calibrating(self, validating: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the sets whose images calibrate: the one that is set, else those of validation."""
        return tuple(validating) if self.calibrate == "auto" else (self.calibrate,)

    def refuse_unknown_calibration(self, names: Sequence[str]) -> None:
        """Raise UsageError if `calibrate` names none of the evaluation sets."""
        if self.calibrate != "auto":
            problem = f"scores.calibrate={self.calibrate}: there is no evaluation set '{self.calibrate}'"
            refuse_unknown(self.calibrate, names, problem)


NO_SCORES = ScoreSettings()

Interpolation = Literal["bilinear", "bicubic"]
Crop = Literal["centre", "squash", "border"]
Aggregation = Literal["prob_mean", "logit_mean", "prob_sum", "prob_max"]  # of the scores of a category's classes


@dataclass(frozen=True)
class Preprocess:
    """Preprocessing of test images that are photographs of any size; training images have `augment`."""

    size: int | Auto = setting("auto", "pixels of natural images (auto: image_size)")
    resize: int | Auto = setting("auto", "of natural images: short side before the centre crop (auto: size * 256/224)")
    interpolation: Interpolation = setting("bilinear", "of resizing natural images, with antialiasing")
    crop_first: bool = setting(False, "crop the centre and then resize, in place of the other order")
    # The description of a set's preprocessing, which is in the protocol, contains it.
    crop: Crop = setting(
        "centre",
        "centre: resize the short side, then crop; squash: resize both sides, without keeping the aspect ratio, then "
        "crop; border: resize the long side and fill up with grey",
        identity=False,
        optional=True,
    )

    def __post_init__(self) -> None:
        _refuse_sides(self, "preprocess", "size", "resize")
        if self.crop_first and self.crop != "centre":
            raise ValueError(f"preprocess.crop={self.crop}: preprocess.crop_first crops the centre; choose one of them")


@dataclass(frozen=True)
class StimuliPreprocess:
    """Preprocessing of test images that are stimuli and have their size already."""

    resize: int | None = setting(
        None, "of stimuli: short side before a centre crop (none: as they are)", ge=8, le=LARGEST_SIDE
    )
    size: int | Auto = setting("auto", "pixels of stimuli (auto: image_size)")
    interpolation: Interpolation = setting("bilinear", "of resizing stimuli, with antialiasing")

    def __post_init__(self) -> None:
        _refuse_sides(self, "stimuli", "size")


def _refuse_sides(settings: Any, group: str, *names: str) -> None:
    """Raise ValueError for a number of pixels, in a setting of a group, that no image has."""
    for name in names:
        value = getattr(settings, name)
        if value != "auto" and not 8 <= value <= LARGEST_SIDE:
            raise ValueError(f"{group}.{name}={value}: should be from 8 to {LARGEST_SIDE}")


@dataclass(frozen=True)
class InCorruptedForm:
    """Evaluation sets in corrupted form, made on the fly (docs/robustness.md)."""

    # Like `Config.sets`, it is in the protocol.
    sets: tuple[str, ...] = setting(
        (), "evaluation sets that are also tested under 75 corruptions, each as <set>_c_generated", identity=False
    )
    seed: int = setting(0, "seed of the corruptions' draws, the same for all trainings", ge=0, le=2**31 - 1)
    frost: str | Auto = setting(
        "auto", "folder of the five photographs of frost (auto: frost below data_dir)", identity=False
    )


@dataclass(frozen=True)
class RelianceSettings:
    """Evaluation sets with a cue suppressed, made on the fly (docs/reliance.md)."""

    # Like `Config.sets`, both are in the protocol.
    sets: tuple[str, ...] = setting(
        (), "evaluation sets that are also tested without shape, texture or colour, as <set>_reliance", identity=False
    )
    every_strength: bool = setting(False, "suppress by all ten means in all strengths, not one a cue", identity=False)


@dataclass(frozen=True)
class Config:
    """One run. Names are the command line's flags."""

    suite: str = setting("demo", "protocol, or <file>.py:<Class> of your own")
    algorithm: str = setting("erm", "training method")
    preset: tuple[str, ...] | None = setting(
        None,
        "recipes of the algorithm (paper, authors), the suite, both (biasbed_code), or a network (vit_finetune)",
        identity=False,
    )
    seed: int = setting(0, "seed of everything that is random", ge=0, le=2**31 - 1, cell=True)
    data_dir: str | None = setting(None, "folder of the images", identity=False)
    # Like sets, it is in the protocol.
    train: str | Auto = setting(
        "auto", "training data: a folder under data_dir, or a name the suite knows", identity=False
    )
    sets: tuple[str, ...] | Literal["auto", "all"] = setting(
        "auto", "evaluation sets; auto: those that are there, all: every one or an error", identity=False
    )
    limit: int | None = setting(None, "most images of each set, for a quick check (docs/suites.md); none: all", ge=1)
    corrupted: InCorruptedForm = InCorruptedForm()
    reliance: RelianceSettings = RelianceSettings()
    data: DataSettings = DataSettings()
    cache: CacheSettings = CacheSettings()
    scores: ScoreSettings = NO_SCORES
    image_size: int = setting(224, "pixels per side", ge=8, le=LARGEST_SIDE)
    augment: Augment = Augment()
    backbone: str = setting("resnet50", "classifier of torchvision or timm, or a small one: resnet18, timm:..., mlp")
    network: NetworkSettings = NetworkSettings()
    init: str = setting("scratch", "initial weights: scratch, named:<weights>, a file, or a tracked run's id")
    init_seen: tuple[str, ...] | Auto = setting(
        "auto",
        "data that the weights have seen, as `labels of PACS,texts of LAION` or nothing (auto: by their name)",
        identity=False,
        optional=True,
    )
    mean: tuple[float, ...] | Auto = setting(
        "auto",
        "of images in [0,1], by channel: the network's input (auto: as its weights expect)",
        ge=-2,
        le=2,
    )
    std: tuple[float, ...] | Auto = setting("auto", "likewise: standard deviation", gt=0, le=4)
    epochs: int | None = setting(100, "passes over the training data", ge=1, le=10**6)
    steps: int | None = setting(None, "training steps, in place of epochs", ge=1, le=10**9)
    evaluate_every: int | Auto = setting("auto", "epochs or steps between evaluations (auto: 1 epoch, 300 steps)")
    test_every: tuple[str, ...] = setting(
        (), "when sets are tested: <set>:5 at every 5th evaluation, <set>:end on the best and last weights"
    )
    batch_size: int = setting(256, "images per step over all processes", ge=2, le=10**7)
    accumulate: int = setting(1, "parts of each batch whose gradients are added up before the step", ge=1)
    optim: Optim = Optim()
    label_smoothing: float = setting(
        0.0, "part of each label that is spread evenly over all classes", ge=0, lt=1, optional=True
    )
    average: Literal["none", "sma", "swad", "ema"] = setting(
        "none", "what is tested: the weights, or their mean over steps (docs/recipes.md)", optional=True
    )
    average_from: int = setting(100, "sma, ema: the step from which on the weights are averaged", ge=1, optional=True)
    swad: Swad = Swad()
    ema: Ema = Ema()
    precision: Literal["fp32", "bf16", "fp16"] = setting("fp32", "arithmetic; fp16 with a dynamic loss scale")
    compile: bool = setting(False, "torch.compile the networks for training (docs/recipes.md)")
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "cuda if there is a GPU")
    nproc: int | Auto = setting("auto", "processes: one per GPU, else one")
    corrupt: Literal["stop", "skip"] = setting("stop", "an image that can't be decoded: stop, or continue without it")
    resume: Literal["auto", "never", "once"] = setting(
        "auto",
        "auto: continue an unfinished run; never: start anew; once: also leave a finished one alone",
        identity=False,
    )
    study: str = setting(record.ADHOC, "study that the run belongs to", identity=False)
    row: str | Auto = setting("auto", "row of the run in tables (auto: the method); [a-z0-9_-]", identity=False)
    cell: str | Auto = setting(
        "auto", "cell of the run in tables: what it trains on (auto: the suite's); [a-z0-9_-]", identity=False
    )
    experiment: str | Auto = setting("auto", "MLflow experiment (auto: biasbed-<suite>)", identity=False)
    output_dir: str | Auto = setting(
        "auto", "folder of runs (auto: $BIASBED_HOME, or one in the home folder)", identity=False
    )
    prepared_dir: str | Auto = setting(
        "auto",
        "folder of prepared images and networks (auto: $BIASBED_HOME/prepared, or in ~/.biasbed)",
        identity=False,
    )
    workers: int | Auto = setting("auto", "loader processes per training process", identity=False)
    eval_batch_size: int = setting(256, "images per evaluation batch and process", ge=1, le=10**7, identity=False)
    checkpoint_every: int | None = setting(
        None, "steps between extra checkpoints within an epoch", ge=1, identity=False
    )
    log_model: bool = setting(True, "log the best weights as an MLflow model at the end", identity=False)
    keep: Literal["all", "best_last", "best", "none"] = setting(
        "all",
        "checkpoints of a training that has ended: all, as they are; best_last, best: these with weights only; none",
        identity=False,
    )
    tracking: Literal["on", "offline"] = setting(
        "on", "offline: journal only; `biasbed sync` sends it later", identity=False
    )

    def __post_init__(self) -> None:
        for name, least, most in (("nproc", 1, 10**4), ("workers", 0, 10**4), ("evaluate_every", 1, 10**9)):
            value = getattr(self, name)
            if value != "auto" and not least <= value <= most:
                upper = f", at most {most}" if value > most else ""
                raise ValueError(f"{name}={value}: should be at least {least}{upper}")
        for name in ("row", "cell"):
            if getattr(self, name) != record.slug(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)}: should be of a-z, 0-9, _ and -")
        _refuse_half_of_mean_and_std(self)
        if self.init_seen != "auto":
            _refuse_unknown_kinds_of_seen(self.init_seen)
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give a duration in exactly one unit: epochs or steps")
        parts = self.accumulate * (1 if self.nproc == "auto" else int(self.nproc))
        if self.batch_size % parts:
            raise ValueError(
                f"batch_size={self.batch_size} is not divisible by processes x accumulate = {parts}: "
                f"take {max(1, round(self.batch_size / parts)) * parts}"
            )

    @property
    def cadence(self) -> int:
        """Epochs or steps between evaluations."""
        default = 1 if self.steps is None else 300
        return default if self.evaluate_every == "auto" else int(self.evaluate_every)

    @property
    def unit(self) -> str:
        """Unit of the training's duration and of its evaluations: `epoch` or `step`."""
        return "epoch" if self.steps is None else "step"

    @property
    def method_settings(self) -> Any:
        """Settings of the method alone, its `HParams`; None without a method, as in an evaluation."""
        return getattr(self, "hparams", None)

    def identity_settings(self) -> dict[str, Any]:
        """Return the settings that change the numbers, by dotted name."""
        return flatten(self, lambda field: bool(field.metadata.get("identity", True)))

    def variant(self) -> dict[str, Any]:
        """Return the settings that tell the runs of one configuration apart, by dotted name."""
        return flatten(self, lambda field: bool(field.metadata.get("cell")))


def _refuse_unknown_kinds_of_seen(seen: tuple[str, ...]) -> None:
    """Raise ValueError for a value of `init_seen` in other words than those of the report."""
    for part in seen:
        kind, _, name = part.partition(" of ")
        if part not in ("nothing", "unknown") and (kind not in ("labels", "images", "texts") or not name.strip()):
            raise ValueError(
                f"init_seen={word(seen)}: '{part}' should be `labels of <data>`, `images of <data>` (without labels), "
                "`texts of <data>`, nothing or unknown"
            )
    if not seen or (len(seen) > 1 and {"nothing", "unknown"} & set(seen)):
        raise ValueError(f"init_seen={word(seen)}: give data sets, or nothing, or unknown, or auto")


def _refuse_half_of_mean_and_std(config: Config) -> None:
    """Raise ValueError for a mean without a std, or for numbers that are not one per channel."""
    mean, std, channels = config.mean, config.std, config.network.channels
    if (mean == "auto") != (std == "auto"):
        raise ValueError(f"mean={word(mean)} std={word(std)}: give both of them, or none")
    if mean == "auto" or std == "auto":
        return
    for name, numbers in (("mean", mean), ("std", std)):
        if len(numbers) not in (1, channels):
            raise ValueError(f"{name}={word(numbers)}: should be 1 number, or {channels} (one per channel)")
    if config.network.scale != "auto":
        raise ValueError(f"mean={word(mean)} and network.scale={config.network.scale}: give one of them")


def layered(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge layers of settings: the last wins, and a duration in epochs replaces one in steps, or the reverse."""
    values: dict[str, Any] = {}
    for layer in layers:
        for unit, other_unit in (("epochs", "steps"), ("steps", "epochs")):
            if layer.get(unit) is not None and other_unit not in layer:
                values[other_unit] = None
        values |= layer
    return values


def config_class(settings: type[Config], hparams: type) -> type[Config]:
    """Return a suite's `Settings` with a nested `hparams` of the algorithm's own class."""
    return _config_class(typing.cast(Any, settings), hparams)


@functools.cache
def _config_class(settings: Any, hparams: Any) -> type[Config]:
    return dataclasses.make_dataclass("Config", [("hparams", hparams, hparams())], bases=(settings,), frozen=True)


def preset_names(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the presets in a command's flags."""
    return check(specs(Config)["preset"], flags.get("preset")) or ()


def plain(config: Config) -> dict[str, Any]:
    """Return the config as dotted names and JSON values, for files, tags and checkpoints."""
    return as_json(flatten(config))


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name as JSON values: tuples become lists."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
