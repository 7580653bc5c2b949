"""The authors of debiasing methods by relative difficulty: their programs on Colored MNIST."""

from __future__ import annotations

from typing import Any

from preset_sources.debiasing_coupled import UNREAD_BY_ADAM
from preset_sources.lines import Lines, Recipe, leaves, own, says

LFF = "LfF's program"
DISENT = "DisEnt's program, Colored MNIST"
ENSEMBLE = "BiasEnsemble's program, Colored MNIST"


def digits(program: str) -> Lines:
    """The images of Colored MNIST, in these programs' scale."""
    return (
        *says(f"{program}: images of 28 pixels, no changes", image_size=28, augment__crop=False, augment__flip=False),
        *leaves("nothing is cropped", "augment.crop_scale", "augment.crop_ratio"),
        *says(f"{program}: the perceptron divides what ToTensor gave by 255 once more", network__scale="unit_255"),
        *says(f"{program}: no autocast", precision="fp32"),
    )


def adam(program: str, rate: float) -> Lines:
    """torch's, at its defaults but for the rate."""
    return (
        *says(f"{program}: optim.Adam, lr {rate:g}", optim__name="adam", optim__lr=rate, optim__lr_batch=None),
        *says(f"{program}: torch's default betas", optim__beta1=0.9, optim__beta2=0.999),
        *says(f"{program}: weight_decay 0", optim__weight_decay=0.0),
        *UNREAD_BY_ADAM,
    )


def halves(program: str, milestones: tuple[float, ...], rule: str) -> Lines:
    """A rate that falls to a half. rule: when, in the program's words."""
    return (
        *says(f"{program}: {rule}", optim__schedule="step", optim__gamma=0.5, optim__milestones=milestones),
        *says(f"{program}: no warm-up, one course", optim__warmup=0.0, optim__restarts=()),
    )


def perceptron(program: str) -> Lines:
    return says(f"{program}: three hidden layers of 100, 100 and 16 units", backbone="mlp", init="scratch")


def swapping(program: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (
        (f"{program}: ema_alpha 0.7; q of the loss is 0.7, whatever is given", {"alpha": 0.7, "q": 0.7}),
        (f"{program}: lambda_dis_align 10, lambda_swap_align 10", {"biased_weight": 10.0, "biased_swap_weight": 10.0}),
        (f"{program}: lambda_swap 1, from iteration 10,000 of 50,000", {"swap_weight": 1.0, "warmup": 0.2}),
    )


DEBIASING_DIFFICULTY = (
    Recipe(
        "authors",
        ("lff",),
        "LfF's authors, Colored MNIST (`lff`)",
        (
            *leaves("a perceptron of three hidden layers of 100 units, which is none of ours", "backbone"),
            *says(f"{LFF}: no weights are loaded for it", init="scratch"),
            *digits(LFF),
            *says(f"{LFF}: 100 epochs of batches of 256", epochs=100, steps=None, batch_size=256),
            *adam(LFF, 1e-3),
            *says(f"{LFF}: no schedule", optim__schedule="constant"),
            *leaves("the rate is constant", "optim.milestones", "optim.gamma"),
            *says(f"{LFF}: no warm-up, one course", optim__warmup=0.0, optim__restarts=()),
            *own(
                "lff",
                (f"{LFF}: EMA with alpha 0.7; q 0.7", {"alpha": 0.7, "q": 0.7}),
                (f"{LFF}: both networks alike", {"biased_backbone": None}),
            ),
        ),
        ("its last, partial batch of an epoch is kept",),
    ),
    Recipe(
        "authors",
        ("disent",),
        "DisEnt's authors, Colored MNIST (`disent`)",
        (
            *perceptron(DISENT),
            *digits(DISENT),
            *says(f"{DISENT}: 50,000 iterations of batches of 256", epochs=None, steps=50_000, batch_size=256),
            *adam(DISENT, 1e-2),
            *halves(DISENT, (0.4, 0.6, 0.8), "x0.5 every 10,000 iterations, counted from 10,000 on"),
            *own("disent", *swapping(DISENT)),
        ),
        ("other weights, rates and decays of its other data: docs/methods/disent.md",),
    ),
    Recipe(
        "authors",
        ("biasensemble",),
        "BiasEnsemble's authors, Colored MNIST, with LfF (`biasensemble`)",
        (
            *perceptron(ENSEMBLE),
            *digits(ENSEMBLE),
            *says(f"{ENSEMBLE}: 50,000 iterations after 5 times 1,000", epochs=None, steps=55_000),
            *says(f"{ENSEMBLE}: batches of 256", batch_size=256),
            *adam(ENSEMBLE, 1e-2),
            *halves(ENSEMBLE, (0.2, 0.4, 0.6, 0.8), "x0.5 every 10,000 iterations"),
            *own(
                "biasensemble",
                *swapping(ENSEMBLE),
                (f"{ENSEMBLE}: with LfF, both networks alike", {"base": "lff", "biased_backbone": None}),
                (f"{ENSEMBLE}: 5 biased networks of 1,000 iterations", {"models": 5, "share": 1 / 55}),
                (f"{ENSEMBLE}: above 0.99 in at least 3", {"threshold": 0.99, "agreement": 3}),
            ),
        ),
        ("with DisEnt in place of LfF, `hparams.base=disent`, the rate falls after 0.4, 0.6 and 0.8",),
    ),
)
