"""The authors of methods that weigh groups, or find them: their programs on Waterbirds."""

from __future__ import annotations

from preset_sources.lines import UNREAD_BY_SGD, Lines, Recipe, leaves, own, says


def waterbirds(program: str) -> Lines:
    """The network, and an optimizer of torch whose rate stays."""
    return (
        *says(f"{program}: resnet50, pretrained", backbone="resnet50", init="named:IMAGENET1K_V1"),
        *says(f"{program}: target_resolution 224", image_size=224),
        *says(f"{program}: optim.SGD, momentum 0.9", optim__name="sgd", optim__momentum=0.9),
        *says(f"{program}: torch's default", optim__nesterov=False),
        *UNREAD_BY_SGD,
        *says(f"{program}: the rate as given, whatever the batch", optim__lr_batch=None),
        *says(f"{program}: no scheduler", optim__schedule="constant", optim__warmup=0.0, optim__restarts=()),
        *leaves("of the schedule in steps; a constant rate doesn't read it", "optim.milestones", "optim.gamma"),
        *says(f"{program}: no autocast", precision="fp32"),
    )


def whole(program: str) -> Lines:
    """Images that are not augmented."""
    return (
        *says(f"{program}: no augment_data: resized, the middle", augment__crop=False, augment__flip=False),
        *leaves("nothing is cropped", "augment.crop_scale", "augment.crop_ratio"),
    )


def lasting(source: str, epochs: int, batch_size: int, lr: float, weight_decay: float) -> Lines:
    """A command's options."""
    return (
        *says(source, epochs=epochs, steps=None, batch_size=batch_size),
        *says(source, optim__lr=lr, optim__weight_decay=weight_decay),
    )


DRO = "group_DRO's README, Waterbirds"
JTT = "JTT's README, Waterbirds"
DFR = "DFR's README, Waterbirds"
DRO_CODE, JTT_CODE, DFR_CODE = "group_DRO's program", "JTT's program", "DFR's train_classifier.py"
REFIT = "DFR's dfr_evaluate_spurious.py"
BEYOND = "tests show the middle 224 of 256 pixels, the suite's the whole image at 224"
DEBIASING_GROUPS = (
    Recipe(
        "authors",
        ("group_dro",),
        "GroupDRO's authors, Waterbirds (`group_dro`)",
        (
            *waterbirds(DRO_CODE),
            *whole(DRO_CODE),
            *lasting(f"{DRO}: 300 epochs, batch_size 128, lr 0.001, weight_decay 0.0001", 300, 128, 1e-3, 1e-4),
            *own(
                "group_dro",
                (f"{DRO_CODE}: robust_step_size 0.01", {"eta": 0.01}),
                ("of DomainBed alone", {"mean_over_domains": False}),
                (f"{DRO}: groups of class and background", {"groups": "group"}),
                (f"{DRO}: generalization_adjustment 0", {"adjustment": 0.0}),
            ),
        ),
        (BEYOND, "images are drawn with replacement; here in rounds over all groups"),
    ),
    Recipe(
        "authors",
        ("jtt",),
        "JTT's authors, Waterbirds (`jtt`)",
        (
            *waterbirds(JTT_CODE),
            *whole(JTT_CODE),
            *lasting(f"{JTT}: 60 epochs, then 300; batch 64, lr 1e-5, weight_decay 1", 360, 64, 1e-5, 1.0),
            *own(
                "jtt",
                (f"{JTT}: final_epoch 60, of 60 + 300", {"identification": 1 / 6}),
                (f"{JTT}: up_weight 100 copies beside the image itself (run_expt.py)", {"upweight": 101}),
            ),
        ),
        (BEYOND, "both trainings have the same rate and decay, as here"),
    ),
    Recipe(
        "authors",
        ("dfr",),
        "DFR's authors, Waterbirds (`dfr`)",
        (
            *waterbirds(DFR_CODE),
            *says(f"{DFR_CODE}: RandomResizedCrop, flip", augment__crop=True, augment__flip=True),
            *says(f"{DFR_CODE}: scale 0.7 to 1", augment__crop_scale=0.7, augment__crop_ratio=(0.75, 4 / 3)),
            *lasting(f"{DFR}: 100 epochs, batch_size 32, init_lr 1e-3, weight_decay 1e-3", 100, 32, 1e-3, 1e-3),
            *own(
                "dfr",
                ("biasbed's own: theirs holds out nothing and takes validation images", {"held_out": 0.2}),
                (f"{REFIT}: groups of class and background", {"by": "bias"}),
                (f"{REFIT}: C_OPTIONS", {"strengths": (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)}),
                ("paper, 10 draws; the program's default is 20", {"draws": 10}),
            ),
        ),
        (BEYOND, "the last layer is fitted on validation images"),
    ),
)
