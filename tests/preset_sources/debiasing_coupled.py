"""The authors of debiasing methods whose losses couple a batch: their programs on Biased-MNIST."""

from __future__ import annotations

from preset_sources.lines import UNREAD_BY_SGD, Lines, Recipe, leaves, own, says

UNREAD_BY_ADAM = leaves("SGD's; Adam doesn't read it", "optim.momentum", "optim.nesterov")


def biased_mnist(program: str) -> Lines:
    """The images and the network that these programs share."""
    return (
        *says(f"{program}: four convolutions of 7 pixels", backbone="simple_conv", init="scratch"),
        *says(f"{program}: images of 28 pixels, no changes", image_size=28, augment__crop=False, augment__flip=False),
        *leaves("nothing is cropped", "augment.crop_scale", "augment.crop_ratio"),
        *says(f"{program}: no autocast", precision="fp32"),
    )


def adam(program: str) -> Lines:
    """torch's, at its defaults but for the decay."""
    return (
        *says(f"{program}: optim.Adam, lr 1e-3", optim__name="adam", optim__lr=1e-3, optim__lr_batch=None),
        *says(f"{program}: torch's default betas", optim__beta1=0.9, optim__beta2=0.999),
        *says(f"{program}: weight_decay 1e-4", optim__weight_decay=1e-4),
        *UNREAD_BY_ADAM,
    )


def steps(program: str, milestones: tuple[float, ...], rule: str) -> Lines:
    """A rate that falls to a tenth. rule: when, in the program's words."""
    return (
        *says(f"{program}: {rule}", optim__schedule="step", optim__gamma=0.1, optim__milestones=milestones),
        *says(f"{program}: no warm-up, one course", optim__warmup=0.0, optim__restarts=()),
    )


END = "EnD, Biased-MNIST's program"
BIASCON = "BiasCon, Biased-MNIST's program"
HEX = "HEX, the experiments' program for digits"
SOFTCON = "SoftCon, Biased-MNIST's program"
REBIAS = "ReBias, Biased-MNIST's program"
LNL = "LNL's program"
DEBIASING_COUPLED = (
    Recipe(
        "authors",
        ("end",),
        "EnD's authors, Biased-MNIST (`end`)",
        (
            *biased_mnist(END),
            *says(f"{END}: 80 epochs of batches of 256", epochs=80, steps=None, batch_size=256),
            *adam(END),
            *steps(END, (0.25, 0.5, 0.75), "x0.1 every 20 epochs"),
            *own(
                "end",
                (f"{END}: alpha and beta 0.1 unless tuned", {"alpha": 0.1, "beta": 0.1}),
                (f"{END}: the last ReLU is a Tanh", {"tanh": True}),
            ),
        ),
        ("alpha and beta are tuned in [0, 1] (in [0, 50] where 99.9 % of images are aligned)",),
    ),
    Recipe(
        "authors",
        ("biascon",),
        "BiasCon's and BiasBal's authors, Biased-MNIST (`biascon`)",
        (
            *biased_mnist(BIASCON),
            *says(f"{BIASCON}: 80 epochs of batches of 128", epochs=80, steps=None, batch_size=128),
            *adam(BIASCON),
            *steps(BIASCON, (1 / 3, 2 / 3), "x0.1 after 1/3 and 2/3"),
            *own(
                "biascon",
                (f"{BIASCON}: weight of the cross-entropy 0.01", {"ce_weight": 0.01}),
                (f"{BIASCON}: temperature 0.07, contrastive batches of 64", {"temperature": 0.07, "pairs": 64}),
                (f"{BIASCON}: BiasCon and BiasBal together", {"balanced": True}),
            ),
        ),
        ("contrastive views are rotated by up to 20 degrees, their colours changed (0.4, 0.4, 0.4, 0.1; p 0.8)",),
    ),
    Recipe(
        "authors",
        ("softcon",),
        "SoftCon's authors, Biased-MNIST (`softcon`)",
        (
            *biased_mnist(SOFTCON),
            *says(f"{SOFTCON}: 80 epochs of batches of 128, after 80", epochs=160, steps=None, batch_size=128),
            *adam(SOFTCON),
            *steps(SOFTCON, (1 / 3, 2 / 3), "x0.1 after 1/3 and 2/3"),
            *own(
                "softcon",
                (f"{SOFTCON}: weight of the cross-entropy 0.01", {"ce_weight": 0.01}),
                (f"{SOFTCON}: temperature 0.07, contrastive batches of 64", {"temperature": 0.07, "pairs": 64}),
                (f"{SOFTCON}: convolutions of 1 pixel", {"biased_backbone": "simple_conv_1x1"}),
                (f"{SOFTCON}: the biased network's program has 80 epochs too", {"share": 0.5}),
                (f"{SOFTCON}: weights are cut at 10 times the least", {"ratio": 10.0}),
            ),
        ),
        (
            "contrastive views are rotated by up to 20 degrees, their colours changed (0.4, 0.4, 0.4, 0.1; p 0.8)",
            "on ImageNet all images are drawn alike, and the weight of the cross-entropy is 1",
        ),
    ),
    Recipe(
        "authors",
        ("hex",),
        "HEX's authors, patterned digits (`hex`)",
        (
            *leaves("their digits have two convolutions of their own", "backbone"),
            *says(f"{HEX}: weights from scratch", init="scratch"),
            *says(f"{HEX}: images of 28 pixels, no changes", image_size=28, augment__crop=False, augment__flip=False),
            *leaves("nothing is cropped", "augment.crop_scale", "augment.crop_ratio"),
            *says(f"{HEX}: no autocast", precision="fp32"),
            *says(f"{HEX}: half of the features are kept", network__dropout=0.5),
            *says(f"{HEX}: 100 epochs of batches of 128", epochs=100, steps=None, batch_size=128),
            *says(f"{HEX}: AdamOptimizer(1e-4)", optim__name="adam", optim__lr=1e-4, optim__lr_batch=None),
            *says(f"{HEX}: TensorFlow's default betas", optim__beta1=0.9, optim__beta2=0.999),
            *says(f"{HEX}: no decay, one rate", optim__weight_decay=0.0, optim__schedule="constant"),
            *says(f"{HEX}: no warm-up, one course", optim__warmup=0.0, optim__restarts=()),
            *leaves("one rate", "optim.milestones", "optim.gamma"),
            *UNREAD_BY_ADAM,
            *says(f"{HEX}: 16 grey levels, the next column", hparams__levels=16, hparams__offset=(0, 1)),
            *says(f"{HEX}: comparisons are cut at 0", hparams__floor=0.0),
            *says(f"{HEX}: 32 features of texture", hparams__textures=32),
            *leaves("the network is trained without the projection first, for how long is not said", "hparams.warmup"),
        ),
    ),
    Recipe(
        "authors",
        ("rebias",),
        "ReBias's authors, Biased-MNIST (`rebias`)",
        (
            *biased_mnist(REBIAS),
            *says(f"{REBIAS}: 80 epochs of batches of 256", epochs=80, steps=None, batch_size=256),
            *adam(REBIAS),
            *steps(REBIAS, (0.25, 0.5, 0.75), "x0.1 every 20 epochs"),
            *own(
                "rebias",
                (f"{REBIAS}: both lambdas 1", {"weight": 1.0, "biased_weight": 1.0}),
                (f"{REBIAS}: convolutions of 1 pixel", {"biased_backbone": "simple_conv_1x1"}),
                (f"{REBIAS}: sigma 1 for both kernels", {"width": 1.0}),
            ),
        ),
        ("AdamP is recommended in place of Adam",),
    ),
    Recipe(
        "authors",
        ("lnl",),
        "LNL's authors, their coloured digits (`lnl`)",
        (
            *leaves("a network of its own, from weights that were trained on the biased images", "backbone", "init"),
            *says(f"{LNL}: images of 28 pixels, no changes", image_size=28, augment__crop=False, augment__flip=False),
            *leaves("nothing is cropped", "augment.crop_scale", "augment.crop_ratio"),
            *says(f"{LNL}: 100 epochs of batches of 128", epochs=100, steps=None, batch_size=128),
            *says(f"{LNL}: optim.SGD, lr 0.01", optim__name="sgd", optim__lr=0.01, optim__lr_batch=None),
            *says(f"{LNL}: momentum 0.9, weight_decay 5e-4", optim__momentum=0.9, optim__weight_decay=5e-4),
            *says(f"{LNL}: torch's default", optim__nesterov=False),
            *UNREAD_BY_SGD,
            *steps(LNL, (0.4, 0.8), "x0.1 every 40 epochs"),
            *says(f"{LNL}: no autocast", precision="fp32"),
            *own(
                "lnl",
                (f"{LNL}: lambda 0.01", {"entropy_weight": 0.01}),
                (f"{LNL}: the gradient times -0.1", {"reversal": 0.1}),
            ),
        ),
        ("the bias is the colour at 14 x 14 positions, in 8 bins per channel; its script's rate is 0.001",),
    ),
)
