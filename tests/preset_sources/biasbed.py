"""BiasBed (Kalischek et al. 2023): its text, and its code."""

from __future__ import annotations

from collections.abc import Iterable

from preset_sources.lines import (
    AUGMENTATIONS,
    EXACT,
    METHODS,
    UNREAD_BY_SGD,
    Lines,
    Recipe,
    leaves,
    optional_own,
    own,
    says,
)

# --- BiasBed's text ---------------------------------------------------------------------------------------------------

APPENDIX_A = "appendix A"
PAPER: Lines = (
    *says(f"{APPENDIX_A}: ResNet-50 for all methods", backbone="resnet50"),
    *leaves("not in the text", "init"),
    *leaves("not in the text", "image_size", *AUGMENTATIONS),
    *says(f"{APPENDIX_A}: 100 epochs", epochs=100, steps=None),
    *leaves("not in the text", "batch_size"),
    *says(f"{APPENDIX_A}: SGD with momentum 0.9", optim__name="sgd", optim__momentum=0.9, optim__nesterov=False),
    *UNREAD_BY_SGD,
    *says(f"{APPENDIX_A}: 1e-4 for all methods, whatever the batch", optim__lr=1e-4, optim__lr_batch=None),
    *says(f"{APPENDIX_A}: weight decay 1e-4", optim__weight_decay=1e-4),
    *says(
        f"{APPENDIX_A}: x0.1 after 30, 60 and 90 epochs",
        optim__schedule="step",
        optim__milestones=(0.3, 0.6, 0.9),
        optim__gamma=0.1,
    ),
    *says(f"{APPENDIX_A} describes the whole course of the rate: no warm-up", optim__warmup=0.0, optim__restarts=()),
    *says(f"{APPENDIX_A}: half precision", precision="fp16"),
)


def paper(methods: Iterable[str]) -> Recipe:
    methods = tuple(methods)
    names = [*(f"hparams.{name}" for name in METHODS[methods[0]]), *optional_own(methods[0])]
    whose = f" (`{'`, `'.join(methods)}`)"
    return Recipe("paper", methods, f"BiasBed's text{whose}", (*PAPER, *leaves("not in the text", *names)))


# --- BiasBed's code ---------------------------------------------------------------------------------------------------

LOADER = "datasets/ImageNet1k/dataloader.py"


def code(
    config: str,
    rate: float,
    init: str = "scratch",
    why: str = "algorithms/ERM/algorithm.py: pretrained=False",
    network: str = "ResNet-50",
) -> Lines:
    """Training by BiasBed's code. config: the folder of the method's config.yaml; network: how that names it."""
    own_file = f"algorithms/{config}/config.yaml"
    optimizer = f"algorithms/{config}/algorithm.py: optim.SGD, plain"
    return (
        *says(f"{own_file}: {network}", backbone="resnet50"),
        *says(why, init=init),
        *says(f"{LOADER}: self.res", image_size=256),
        *says(f"{LOADER}: RandomResizedCropRGBImageDecoder, scale=(0.5, 1.0)", augment__crop=True),
        *says(f"{LOADER}: RandomResizedCropRGBImageDecoder, scale=(0.5, 1.0)", augment__crop_scale=0.5),
        *says(f"{LOADER}: RandomResizedCropRGBImageDecoder, ratio=(0.8, 1.0)", augment__crop_ratio=(0.8, 1.0)),
        *says(f"{LOADER}: RandomHorizontalFlip", augment__flip=True),
        *says("config.yaml: training.epochs", epochs=100, steps=None),
        *says("config.yaml: training.batch_size, to be divided by world_size, so of all processes", batch_size=128),
        *says(optimizer, optim__name="sgd", optim__nesterov=False),
        *UNREAD_BY_SGD,
        *says(f"{own_file}: momentum", optim__momentum=0.9),
        *says(f"{own_file}: learning_rate, used as it is", optim__lr=rate, optim__lr_batch=None),
        *says(f"{own_file}: weight_decay", optim__weight_decay=1e-4),
        *says(f"algorithms/{config}/algorithm.py: MultiStepLR", optim__schedule="step"),
        *says(f"{own_file}: milestones, of 100 epochs", optim__milestones=(0.3, 0.6, 0.9)),
        *says(f"{own_file}: gamma", optim__gamma=0.1),
        *says(
            f"algorithms/{config}/algorithm.py: MultiStepLR is the only schedule", optim__warmup=0.0, optim__restarts=()
        ),
        *says(f"{own_file}: mixedprec, fp16 by torch.cuda.amp", precision="fp16"),
    )


CODE_BEYOND = (
    "their loss scaler is off on one GPU; here fp16 always has one",
    "their loader drops the last, smaller batch; FFCV resizes by areas",
)
DROP = "algorithms/InformativeDropout/utils/infodrop.py"
CODE = (
    Recipe(
        "biasbed_code",
        ("erm", "stylized_erm", "deepaug_cae", "deepaug_edsr"),
        "BiasBed's code (`erm`, `stylized_erm`, `deepaug_cae`, `deepaug_edsr`)",
        code("ERM", 1e-4),
        (*CODE_BEYOND, "its DeepAugment (CAE) never opens the distorted images: docs/methods/deepaugment.md"),
    ),
    Recipe(
        "biasbed_code",
        ("suite biasbed",),
        "BiasBed's code, training and testing (suite `biasbed`, any method)",
        (
            *code("ERM", 1e-4),
            *says(
                f"{LOADER}: val_loader is ImageNet's validation set, train_loader all of train", validation="imagenet"
            ),
            *says(f"{LOADER}: CenterCropRGBImageDecoder at self.res", preprocess__size=256),
            *says(f"{LOADER}: default_crop_ratio 224/256, cropped, then resized", preprocess__crop_first=True),
            *says(f"{LOADER}: default_crop_ratio 224/256, which auto is", preprocess__resize="auto"),
            *says("datasets/CueConflict/dataloader.py: Resize, bilinear", preprocess__interpolation="bilinear"),
            *says("datasets/CueConflict/dataloader.py: Resize, bilinear", stimuli__interpolation="bilinear"),
            *says("datasets/CueConflict/dataloader.py: Resize(256)", stimuli__resize=256),
            *says("datasets/CueConflict/dataloader.py: CenterCrop(224)", stimuli__size=224),
            *says("mappings/mappings.py: mean of a category's logits", categories="logit_mean"),
        ),
        (
            *CODE_BEYOND,
            "the last, smaller batch of ImageNet's validation images is dropped there",
            "ImageNet-A, -R and the two DeepAugment test sets have no loader there: tested as ImageNet is",
            "Stylized ERM is validated on *stylized* validation images there, here as every method",
        ),
    ),
    Recipe(
        "biasbed_code",
        ("infodrop",),
        "BiasBed's code (`infodrop`)",
        (
            *code("InformativeDropout", 0.2, why="algorithms/InformativeDropout/algorithm.py: pretrained=False"),
            *own(
                "infodrop",
                (
                    f"{DROP}: Info_Dropout",
                    {"drop_rate": 1.5, "temperature": 0.03, "band_width": 1.0, "radius": 3, "num_offsets": 9},
                ),
                (f"{DROP}: dropout_layers", {"layers": 0}),
                (f"{DROP}: no look at epoch or mode", {"finetune_from": 1.0, "mask_in_eval": True}),
                EXACT,
            ),
        ),
        (
            *CODE_BEYOND,
            "a batch that fails is left out there without a word; draws in evaluation are new ones each time",
        ),
    ),
    Recipe(
        "biasbed_code",
        ("padain",),
        "BiasBed's code (`padain`)",
        (
            *code("pAdaIN", 0.2, why="algorithms/pAdaIN/algorithm.py: pretrained=False"),
            *own(
                "padain",
                ("algorithms/pAdaIN/config.yaml: padain", {"p": 0.01}),
                ("algorithms/pAdaIN/utils/padain.py: eps", {"eps": 1e-5}),
            ),
        ),
        CODE_BEYOND,
    ),
    Recipe(
        "biasbed_code",
        ("debiased",),
        "BiasBed's code (`debiased`)",
        (
            *code("Debiased", 0.2, why="algorithms/Debiased/algorithm.py: pretrained=False"),
            *says("algorithms/Debiased/algorithm.py: alpha=0.5", hparams__alpha=0.5),
            *says("algorithms/Debiased/config.yaml: label_alpha", hparams__label_gamma=0.8),
            *says("algorithms/Debiased/algorithm.py: both halves at one size", hparams__multi_grid=False),
            *leaves("of multi_grid, which is off", "hparams.milestones", "hparams.min_size"),
        ),
        (*CODE_BEYOND, "its normalisation and its loss are defects that are not repeated: docs/methods/debiased.md"),
    ),
    Recipe(
        "biasbed_code",
        ("sagnet",),
        "BiasBed's code (`sagnet`)",
        (
            *code("SagNet", 1e-4, "named:IMAGENET1K_V1", "algorithms/SagNet/config.yaml: pretrained", "depth: 50"),
            *own(
                "sagnet",
                ("algorithms/SagNet/config.yaml: style_stage", {"style_stage": 3}),
                ("algorithms/SagNet/config.yaml: w_adv, clip_adv", {"w_adv": 0.1, "clip": 0.1}),
                ("algorithms/SagNet/config.yaml: dropout", {"dropout": 0.0}),
                ("algorithms/SagNet/algorithm.py: Randomizer, eps", {"eps": 1e-5}),
            ),
        ),
        (*CODE_BEYOND, "what it computes is not SagNet, and is not repeated: docs/methods/sagnet.md"),
    ),
)
