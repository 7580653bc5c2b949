"""The authors of methods for robustness: AugMix's program, and what is known of the speckle noise model's training."""

from __future__ import annotations

from preset_sources.lines import UNREAD_BY_SGD, Recipe, crops, leaves, own, says

PROGRAM = "augmix, imagenet.py"
NOISE = "Rusak et al. 2020, as their released model was trained"
FAST = "fast_adversarial, configs_fast_phase1 to 3_eps4.yml"
ROBUSTNESS = (
    Recipe(
        "authors",
        ("augmix",),
        "AugMix's authors, ImageNet (`augmix`)",
        (
            *says(f"{PROGRAM}: --model resnet50", backbone="resnet50"),
            *says(f"{PROGRAM}: without --pretrained", init="scratch"),
            *crops(f"{PROGRAM}: RandomResizedCrop(224), RandomHorizontalFlip"),
            *says(f"{PROGRAM}: --epochs", epochs=90, steps=None),
            *says(f"{PROGRAM}: --batch-size", batch_size=256),
            *says(f"{PROGRAM}: torch.optim.SGD, --momentum", optim__name="sgd", optim__momentum=0.9),
            *says(f"{PROGRAM}: torch's default", optim__nesterov=False),
            *UNREAD_BY_SGD,
            *says(f"{PROGRAM}: adjust_learning_rate, batch_size / 256", optim__lr=0.1, optim__lr_batch=256),
            *says(f"{PROGRAM}: --decay", optim__weight_decay=1e-4),
            *says(
                f"{PROGRAM}: adjust_learning_rate, x0.1 at each third",
                optim__schedule="step",
                optim__milestones=(1 / 3, 2 / 3),
                optim__gamma=0.1,
            ),
            *says(f"{PROGRAM}: no warm-up", optim__warmup=0.0, optim__restarts=()),
            *says(f"{PROGRAM}: no autocast", precision="fp32"),
            *own(
                "augmix",
                (f"{PROGRAM}: train, without --no-jsd", {"jsd": True, "jsd_weight": 12.0}),
                (f"{PROGRAM}: --aug-severity", {"severity": 1.0}),
                (f"{PROGRAM}: --mixture-width", {"width": 3}),
                (f"{PROGRAM}: --mixture-depth -1, one to three", {"depth": 0}),
                (f"{PROGRAM}: --aug-prob-coeff", {"alpha": 1.0}),
                (f"{PROGRAM}: without --all-ops", {"all_ops": False}),
            ),
        ),
        ("the released model, of 77.53 % on ImageNet, was trained for 180 epochs: `epochs=180`",),
    ),
    Recipe(
        "authors",
        ("speckle",),
        "The authors of the speckle noise model, ImageNet (`speckle`)",
        (
            *says(f"{NOISE}: ResNet-50, from ImageNet weights", backbone="resnet50", init="named:IMAGENET1K_V1"),
            *leaves("the programs that were read do not say", "image_size", "precision", "optim.weight_decay"),
            *leaves(
                "the programs that were read do not say", "augment.crop", "augment.crop_scale", "augment.crop_ratio"
            ),
            *leaves("the programs that were read do not say", "augment.flip", "augment.jitter", "augment.grey"),
            *leaves("the programs that were read do not say", "augment.padding"),
            *says(f"{NOISE}: 120 epochs, batches of 70", epochs=120, steps=None, batch_size=70),
            *says(f"{NOISE}: SGD, momentum 0.9", optim__name="sgd", optim__momentum=0.9),
            *says("torch's default", optim__nesterov=False),
            *UNREAD_BY_SGD,
            *says(f"{NOISE}: 0.001", optim__lr=1e-3, optim__lr_batch=None),
            *says(f"{NOISE}: x0.1 each 60", optim__schedule="step", optim__milestones=(0.5,), optim__gamma=0.1),
            *says("no warm-up is mentioned", optim__warmup=0.0, optim__restarts=()),
            *own(
                "speckle",
                (f"{NOISE}: p_clean 0.5", {"share": 0.5}),
                (f"{NOISE}: one of five strengths for each image", {"sigmas": (0.15, 0.2, 0.35, 0.45, 0.6)}),
            ),
        ),
    ),
    Recipe(
        "authors",
        ("fast_adversarial",),
        "The authors of fast adversarial training, ImageNet (`fast_adversarial`)",
        (
            *says(f"{FAST}: arch", backbone="resnet50"),
            *says(f"{FAST}: pretrained false", init="scratch"),
            *crops(f"{FAST}: RandomResizedCrop, RandomHorizontalFlip; tested at 224 by Hendrycks et al. 2021"),
            *says(f"{FAST}: end_epoch of the third phase", epochs=15, steps=None),
            *leaves("each phase has its own", "batch_size"),
            *says(f"{FAST}: torch.optim.SGD, momentum", optim__name="sgd", optim__momentum=0.9),
            *says("torch's default", optim__nesterov=False),
            *UNREAD_BY_SGD,
            *says(f"{FAST}: lr_values, whatever the batch", optim__lr=0.4, optim__lr_batch=None),
            *says(f"{FAST}: weight_decay, none for batch norm", optim__weight_decay=1e-4, optim__decay_norms=False),
            *says(
                f"{FAST}: lr_values at lr_epochs, in straight lines",
                optim__schedule="piecewise",
                optim__points=(0.0, 1 / 15, 6 / 15, 12 / 15, 1.0),
                optim__factors=(0.0, 1.0, 0.1, 0.01, 0.001),
            ),
            *leaves("of the schedule in steps; lines do not read it", "optim.milestones", "optim.gamma"),
            *says(f"{FAST}: the first line is the warm-up", optim__warmup=0.0, optim__restarts=()),
            *says(f"{FAST}: half", precision="fp16"),
            *own(
                "fast_adversarial",
                (f"{FAST}: clip_eps", {"eps": 4 / 255}),
                (f"{FAST}: fgsm_step, 5 / 255", {"step": 1.25}),
                (f"{FAST}: crop_size, batch_size, end_epoch", {"phases": ("128:512:6", "224:224:6", "288:128:3")}),
            ),
        ),
        (
            "their images were stored with short sides of 160, 352 and in full for the three phases; ours are read in "
            "full",
        ),
    ),
)
