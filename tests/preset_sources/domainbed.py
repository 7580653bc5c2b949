"""DomainBed (Gulrajani and Lopez-Paz 2021): its program at the time of its tables, where methods have changed since."""

from __future__ import annotations

from preset_sources.lines import AUGMENTATIONS, METHODS, OPTIONAL_OTHERS, Lines, Recipe, leaves, says

ALGORITHMS = "domainbed/algorithms.py"
WHY = "the protocol's, or drawn by its search"
OPEN = leaves(
    WHY,
    *("backbone", "init", "image_size", *AUGMENTATIONS, "epochs", "steps", "batch_size", "precision"),
    *("optim.name", "optim.lr", "optim.lr_batch", "optim.momentum", "optim.nesterov", "optim.beta1", "optim.beta2"),
    *("optim.weight_decay", "optim.schedule", "optim.milestones", "optim.gamma", "optim.warmup", "optim.restarts"),
    *OPTIONAL_OTHERS,
)


def paper_2020(title: str, methods: tuple[str, ...], lines: Lines) -> Recipe:
    fixed = {line.setting for line in lines}
    others = [f"hparams.{name}" for name in METHODS[methods[0]] if f"hparams.{name}" not in fixed]
    title = f"{title} in DomainBed's tables (`{'`, `'.join(methods)}`)"
    return Recipe("paper2020", methods, title, (*OPEN, *lines, *leaves(WHY, *others)))


PAPER_2020 = (
    paper_2020(
        "GroupDRO",
        ("group_dro",),
        says(f"{ALGORITHMS}: GroupDRO, dot(losses, q) / len(minibatches)", hparams__mean_over_domains=True),
    ),
    paper_2020(
        "Mixup",
        ("mixup",),
        says("domainbed/hparams_registry.py: mixup_alpha, 10**uniform(-1, -1)", hparams__alpha=0.1),
    ),
    paper_2020(
        "MLDG",
        ("mldg",),
        says(f"{ALGORITHMS}: MLDG, random_pairs_of_minibatches, which is a ring", hparams__pairing="ring"),
    ),
    Recipe(
        "paper2020",
        ("suite domainbed",),
        "Testing in DomainBed's tables (`suite=domainbed`)",
        (
            *says("domainbed/scripts/train.py: a domain has one transform", augmented_validation=True),
            *says("domainbed/datasets.py: RotatedMNIST, resample=Image.BICUBIC", data__interpolation="bicubic"),
        ),
    ),
    paper_2020(
        "Adversaries",
        ("dann", "cdann"),
        says(f"{ALGORITHMS}: AbstractDANN, the slope of a sum that is constant: no penalty", hparams__grad_penalty=0.0),
    ),
)
