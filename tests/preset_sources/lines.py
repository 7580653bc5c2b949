"""The form of the tables: lines, recipes, and what lies below them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from biasbed.algorithms.presets import TRAINING, is_within

# --- what lies below: the suites' settings and the methods' own -------------------------------------------------------

BELOW: Mapping[str, Any] = {
    "validation": "auto",
    "image_size": 224,
    "augment.crop": True,
    "augment.crop_scale": 0.08,
    "augment.crop_ratio": (0.75, 4 / 3),
    "augment.flip": True,
    "backbone": "resnet50",
    "init": "scratch",
    "epochs": 100,
    "steps": None,
    "evaluate_every": "auto",
    "batch_size": 256,
    "accumulate": 1,
    "optim.name": "sgd",
    "optim.lr": 0.1,
    "optim.lr_batch": 256,
    "optim.momentum": 0.9,
    "optim.nesterov": False,
    "optim.beta1": 0.9,
    "optim.beta2": 0.999,
    "optim.weight_decay": 1e-4,
    "optim.schedule": "step",
    "optim.milestones": (0.3, 0.6, 0.9),
    "optim.gamma": 0.1,
    "optim.warmup": 0.0,
    "optim.restarts": (),
    "precision": "fp32",
    "compile": False,
    "device": "auto",
    "nproc": "auto",
    "corrupt": "stop",
    "limit": None,
    "mean": "auto",
    "std": "auto",
    "test_every": (),
    "corrupted.seed": 0,
}
# Settings of training that a recipe may omit: of each its default, with which a training does without what it is about.
OPTIONAL: Mapping[str, Any] = {
    "augment.jitter": 0.0,
    "augment.grey": 0.0,
    "augment.padding": 0,
    "network.dropout": 0.0,
    "network.freeze_statistics": False,
    "network.channels": 3,
    "network.scale": "auto",
    "network.drop_path": None,
    "optim.decay_norms": True,
    "optim.decay_embeddings": True,
    "optim.head_factor": 1.0,
    "optim.layer_decay": 1.0,
    "optim.clip": None,
    "optim.points": (0.0, 0.4, 1.0),
    "optim.factors": (0.0, 1.0, 0.0),
    "label_smoothing": 0.0,
    "average": "none",
    "average_from": 100,
    "swad.optimum_patience": 3,
    "swad.overfit_patience": 6,
    "swad.tolerance": 1.3,
    "ema.decay": 0.9999,
    "ema.warmup": False,
}
FILES: Mapping[str, Any] = {
    "val_fraction": 0.2,
    "preprocess.size": "auto",
    "preprocess.resize": "auto",
    "preprocess.interpolation": "bilinear",
    "preprocess.crop_first": False,
}
STIMULI: Mapping[str, Any] = {
    "stimuli.resize": None,
    "stimuli.size": "auto",
    "stimuli.interpolation": "bilinear",
}
SUITES: Mapping[str, Mapping[str, Any]] = {
    "biasbed": {
        **BELOW,
        **FILES,
        **STIMULI,
        "val_fraction": 0.02,
        "categories": "prob_mean",
        "optim.warmup": 5.0,
    },
    "robustness": {**BELOW, **FILES, "val_fraction": 0.02, "optim.warmup": 5.0},
    "deepfashion": {
        **BELOW,
        **FILES,
        **{"val_fraction": 0.02, "init": "named:IMAGENET1K_V1", "image_size": 256, "augment.crop_scale": 0.5},
        **{"epochs": 80, "batch_size": 100, "optim.name": "adam", "optim.lr": 1e-5, "optim.lr_batch": None},
        **{"optim.head_factor": 10.0, "optim.weight_decay": 0.0, "optim.schedule": "constant"},
    },
    "folders": {
        **BELOW,
        **FILES,
        "backbone": "resnet18",
        "image_size": 112,
        "epochs": 30,
        "batch_size": 64,
        "optim.warmup": 1.0,
    },
    "domains": {
        **BELOW,
        **{name: value for name, value in FILES.items() if name != "val_fraction"},
        "data.seed": 0,
        "data.val_fraction": 0.2,
        "backbone": "resnet18",
        "image_size": 112,
        "epochs": 30,
        "batch_size": 64,
        "optim.warmup": 1.0,
    },
    "domainbed": {
        **BELOW,
        "data.seed": "auto",
        "data.holdout": 0.2,
        "data.interpolation": "bilinear",
        "augmented_validation": False,
        "init": "named:IMAGENET1K_V1",
        "epochs": None,
        "steps": 5001,
        "evaluate_every": 300,
        "batch_size": 32,
        "augment.crop_scale": 0.7,
        "augment.jitter": 0.3,
        "augment.grey": 0.1,
        "network.freeze_statistics": True,
        "optim.name": "adam",
        "optim.lr": 5e-5,
        "optim.lr_batch": None,
        "optim.weight_decay": 0.0,
        "optim.schedule": "constant",
    },
    "debiasing": {
        **BELOW,
        "data.seed": 0,
        "data.halve_validation": False,
        "backbone": "resnet10",
        "image_size": 40,
        "epochs": 20,
        "batch_size": 64,
        "augment.crop_scale": 0.7,
        "augment.flip": False,
        "optim.name": "adam",
        "optim.lr": 1e-3,
        "optim.lr_batch": None,
        "optim.weight_decay": 0.0,
        "optim.schedule": "constant",
    },
    "demo": {
        **BELOW,
        **STIMULI,
        "backbone": "resnet10",
        "image_size": 40,
        "epochs": 10,
        "batch_size": 64,
        "augment.crop_scale": 0.7,
        "augment.flip": False,
    },
}
NOISE2NET: Mapping[str, Any] = {"max_eps": 0.75, "hidden": 16, "share": 0.5}
ADVERSARIAL: Mapping[str, Any] = {
    "penalty_weight": 1.0,
    "d_steps": 1,
    "grad_penalty": 0.0,
    "width": 256,
    "depth": 3,
    "dropout": 0.0,
    "lr_d": None,
    "weight_decay_d": 0.0,
}
SWAPPING: Mapping[str, Any] = {
    "alpha": 0.7,
    "q": 0.7,
    "biased_weight": 1.0,
    "swap_weight": 1.0,
    "biased_swap_weight": 1.0,
    "warmup": 0.2,
}
AUGMIX: Mapping[str, Any] = {
    "jsd": True,
    "jsd_weight": 12.0,
    "severity": 1.0,
    "width": 3,
    "depth": 0,
    "alpha": 1.0,
    "all_ops": False,
}
PROBE = {"strengths": (1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6), "halvings": 4}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "erm": {},
    "stylized_erm": {},
    "infodrop": {
        "drop_rate": 1.5,
        "temperature": 0.03,
        "band_width": 1.0,
        "radius": 3,
        "num_offsets": 9,
        "layers": 0,
        "finetune_from": 1.0,
        "approximate": False,
        "mask_in_eval": False,
    },
    "padain": {"p": 0.01, "eps": 1e-5},
    "sagnet": {"style_stage": 3, "w_adv": 0.1, "clip": 0.1, "dropout": 0.0, "eps": 1e-5},
    "debiased": {
        "alpha": 0.5,
        "label_gamma": 0.8,
        "multi_grid": False,
        "milestones": (0.3, 0.6, 0.9),
        "min_size": 32,
    },
    "deepaug_cae": {},
    "deepaug_edsr": {},
    "noise2net": NOISE2NET,
    "deepaug": {},
    "deepaug_all": NOISE2NET,
    "irm": {"penalty_weight": 100.0, "anneal": 500},
    "vrex": {"penalty_weight": 10.0, "anneal": 500},
    "group_dro": {"eta": 0.01, "mean_over_domains": False},
    "mixup": {"alpha": 0.2},
    "mldg": {"beta": 1.0, "n_meta_test": 1, "pairing": "split"},
    "coral": {"gamma": 1.0},
    "mmd": {"gamma": 1.0},
    "dann": ADVERSARIAL,
    "cdann": ADVERSARIAL,
    "end": {"alpha": 0.1, "beta": 0.1, "tanh": False},
    "biascon": {"ce_weight": 1.0, "temperature": 0.07, "pairs": 64, "balanced": True},
    "hex": {"levels": 16, "offset": (0, 1), "floor": 1e-5, "textures": 32, "warmup": 0.2},
    "softcon": {
        "ce_weight": 1.0,
        "temperature": 0.07,
        "pairs": 64,
        "biased_backbone": "simple_conv_1x1",
        "share": 0.5,
        "ratio": 10.0,
    },
    "rebias": {"weight": 1.0, "biased_weight": 1.0, "biased_backbone": "simple_conv_1x1", "width": None},
    "lnl": {"entropy_weight": 0.01, "reversal": 0.1},
    "jtt": {"identification": 1 / 6, "upweight": 20},
    "dfr": {"held_out": 0.2, "by": "alignment", "strengths": (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01), "draws": 10},
    "lff": {"alpha": 0.7, "q": 0.7, "biased_backbone": None},
    "disent": SWAPPING,
    "biasensemble": {
        **SWAPPING,
        "base": "lff",
        "biased_backbone": None,
        "models": 5,
        "share": 0.02,
        "threshold": 0.99,
        "agreement": 3,
    },
    "augmix": AUGMIX,
    "deepaug_augmix": AUGMIX,
    "trivialaugment": {"bins": 31},
    "random_erasing": {"p": 0.5, "scale": (0.02, 0.33), "ratio": (0.3, 3.3), "value": "mean"},
    "speckle": {"share": 0.5, "sigmas": (0.15, 0.2, 0.35, 0.45, 0.6)},
    "style_transfer": {},
    "fast_adversarial": {"eps": 4 / 255, "step": 1.25, "phases": ()},
    "probe": PROBE,
    "knn": {"k": 20, "temperature": 0.07},
    "lp_ft": PROBE,
    **{key: {"prompts": "photo", "class_names": "suite"} for key in ("zero_shot", "flyp")},
    "wise_ft": {**PROBE, "alpha": 0.5, "alphas": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)},
}
# The same of methods' own settings.
OPTIONAL_OWN: Mapping[str, Mapping[str, Any]] = {
    **{name: {"balance": "none"} for name in ("erm", "stylized_erm", "deepaug_cae", "deepaug_edsr", "deepaug")},
    "style_transfer": {"balance": "none"},
    "group_dro": {"groups": "domain", "adjustment": 0.0},
}
# The same of testing. In the identity it is a part of the sets' descriptions.
OPTIONAL_TESTING: Mapping[str, Any] = {"preprocess.crop": "centre"}
# Settings that a method chooses otherwise than the suites, or a suite for a method.
CHOSEN: Mapping[str, Mapping[str, Any]] = {
    **{name: {"optim.beta1": 0.5, "optim.beta2": 0.9} for name in ("dann", "cdann")},
    "group_dro on debiasing": {"hparams.groups": "group"},
}

# --- lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """Statement of a source about a setting. open: the source leaves it open, and why; the default then applies."""

    setting: str
    value: Any
    source: str
    open: bool = False


Lines = tuple[Line, ...]


def optional_own(method: str) -> dict[str, Any]:
    """A method's own settings that a recipe may omit, by dotted name, with their defaults."""
    return {f"hparams.{name}": value for name, value in OPTIONAL_OWN.get(method, {}).items()}


EVERY_METHOD = "every method"  # owner of recipes of networks


@dataclass(frozen=True)
class Recipe:
    """A preset of a suite or of methods. beyond: what the source fixes and no setting expresses."""

    preset: str
    owners: tuple[str, ...]
    title: str
    lines: Lines
    beyond: tuple[str, ...] = ()

    @property
    def fixed(self) -> dict[str, Any]:
        return {line.setting: line.value for line in self.lines if not line.open}

    @property
    def left_open(self) -> set[str]:
        return {line.setting for line in self.lines if line.open}

    @property
    def omitted(self) -> dict[str, Any]:
        """Optional settings at their defaults, if it is a recipe of training that does not leave them open."""
        is_of_training = any(is_within(line.setting, TRAINING) for line in self.lines)
        every = {**OPTIONAL, **optional_own(self.owners[0])}
        return {n: value for n, value in every.items() if n not in self.left_open} if is_of_training else {}


def says(source: str, **values: Any) -> Lines:
    """Lines that one place of a source fixes. A double underscore stands for the dot of a setting's name."""
    return tuple(Line(name.replace("__", "."), value, source) for name, value in values.items())


def leaves(why: str, *settings: str) -> Lines:
    """Lines about settings that a source leaves open."""
    return tuple(Line(setting, None, why, open=True) for setting in settings)


def own(method: str, *stated: tuple[str, Mapping[str, Any]]) -> Lines:
    """A method's own settings, all of them: each place of a source with the values that it states."""
    lines = tuple(Line(f"hparams.{name}", value, source) for source, values in stated for name, value in values.items())
    names = [line.setting.removeprefix("hparams.") for line in lines]
    known = [*METHODS[method], *OPTIONAL_OWN.get(method, {})]
    if sorted(names) != sorted(known):
        raise ValueError(f"{method}: lines for {names}, settings {known}")
    return lines


EXACT = ("biasbed's own; theirs draws exactly", {"approximate": False})


UNREAD_BY_SGD = leaves("Adam's; SGD doesn't read it", "optim.beta1", "optim.beta2")
UNREAD_BY_COSINE = leaves("of the schedule in steps; a cosine doesn't read it", "optim.milestones", "optim.gamma")
AUGMENTATIONS = (
    *("augment.crop", "augment.crop_scale", "augment.crop_ratio", "augment.flip", "augment.jitter", "augment.grey"),
    "augment.padding",
)
OPTIONAL_OTHERS = tuple(name for name in OPTIONAL if name not in AUGMENTATIONS)


def crops(source: str, size: int = 224, scale: float = 0.08) -> Lines:
    """torchvision's RandomResizedCrop, whose ratio is 3/4 to 4/3 unless given, and its RandomHorizontalFlip."""
    ratio = f"{source}; torchvision's default ratio"
    return (
        *says(source, image_size=size, augment__crop=True, augment__crop_scale=scale),
        *says(ratio, augment__crop_ratio=(0.75, 4 / 3)),
        *says(source, augment__flip=True),
    )
