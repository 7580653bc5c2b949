"""Small trainings of all that a checkpoint has parts for: stages, passes, phases, averages, values per image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from helpers import grouped
from helpers.commands import small_training

COURSE = ("--optim.schedule", "piecewise", "--optim.points", "0,0.5,1", "--optim.factors", "0,1,0.1")
PHASED = ("--hparams.phases", "16:6:1,32:12:1", "--optim.warmup", "0", *COURSE)
SWAD = ("--average", "swad", "--swad.optimum_patience", "2", "--swad.overfit_patience", "2", "--swad.tolerance", "1.05")
# Groups of rates, gradients that are scaled and an average have states of their own.
RECIPE = (
    *("--average", "ema", "--average_from", "3", "--ema.decay", "0.8", "--optim.clip", "0.2"),
    *("--label_smoothing", "0.1", "--optim.layer_decay", "0.7", "--optim.decay_norms", "no"),
)
ENSEMBLE = (
    *("biasensemble", "--hparams.models", "2", "--hparams.agreement", "2", "--hparams.share", "0.25"),
    *("--hparams.threshold", "0.32"),
)
THREE_STEPS = ("--data.conflicting", "0.1", "--data.seed", "0", "--batch_size", "16", "--epochs", "4")  # an epoch

# name -> method and flags; on image folders (42 images in batches of 12), and on a biased data set of 48.
ON_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "plain": ("helpers.toys:Plain",),
    "sagnet_like": ("helpers.toys:SagNetLike",),
    "lff_like": ("helpers.toys:LfFLike",),
    "streaming": ("helpers.toys:Streaming",),
    "staged": ("helpers.toys:Staged",),
    "coupled": ("helpers.toys:Coupled",),
    "phases": ("fast_adversarial", *PHASED),
    "swad": ("helpers.toys:Plain", *SWAD, "--checkpoint_every", "3"),
    "ema": ("erm", *RECIPE, "--checkpoint_every", "3"),
    "ema_without_norms": ("helpers.toys:Plain", *RECIPE),
    "compiled": ("erm", *RECIPE, "--checkpoint_every", "3", "--compile", "yes"),
}
ON_SHADES: Mapping[str, tuple[str, ...]] = {
    "probe": ("probe", "--eval_batch_size", "256"),
    "knn": ("knn", "--hparams.k", "7", "--eval_batch_size", "256"),
    "wise_ft": (
        *("wise_ft", "--eval_batch_size", "256", "--optim.lr", "0.01"),
        *("--hparams.alpha", "validation", "--hparams.alphas", "0,0.5,1"),
    ),
    "dfr": grouped.DFR,
    "jtt": grouped.JTT,
    "group_dro": ("group_dro", "--hparams.groups", "group"),
    "softcon": ("softcon", "--hparams.share", "0.5", "--hparams.pairs", "6", "--optim.lr", "0.01"),
    "remembering": ("helpers.toys:Remembering", *THREE_STEPS),
    "ensemble": (*ENSEMBLE, *THREE_STEPS),
}


def command(name: str, image_root: Path) -> list[str]:
    """Return the words of a training."""
    if name in ON_SHADES:
        return grouped.words(*ON_SHADES[name])
    method, *flags = ON_FOLDERS[name]
    return small_training(image_root, method, *flags, epochs=4 if name == "swad" else 2)
