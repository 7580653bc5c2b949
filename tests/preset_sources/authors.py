"""The authors of the methods: their programs and instructions."""

from __future__ import annotations

from preset_sources.lines import (
    AUGMENTATIONS,
    EXACT,
    OPTIONAL_OTHERS,
    UNREAD_BY_COSINE,
    UNREAD_BY_SGD,
    Lines,
    Recipe,
    crops,
    leaves,
    own,
    says,
)

# --- authors ----------------------------------------------------------------------------------------------------------

README = "domain_generalization/README.md, commands"
HELPER = "domain_generalization/optimizer/optimizer_helper.py"
DROP = "domain_generalization/models/resnet.py"
INFODROP_AUTHORS = Recipe(
    "authors",
    ("infodrop",),
    "InfoDrop's authors, PACS (`infodrop`)",
    (
        *says(f"{README}: --network resnet18", backbone="resnet18"),
        *says(f"{DROP}: resnet18(pretrained=True), torchvision's weights", init="named:IMAGENET1K_V1"),
        *crops(f"{README}: --image_size 222 --min_scale 0.8 --max_scale 1.0 --random_horiz_flip 0.5", 222, 0.8),
        *says(f"{README}: --epochs 100, and --epochs 20 from its checkpoint", epochs=120, steps=None),
        *says(f"{README}: --batch_size 128", batch_size=128),
        *says(f"{HELPER}: optim.SGD; no --nesterov in the command", optim__name="sgd", optim__nesterov=False),
        *UNREAD_BY_SGD,
        *says(f"{HELPER}: momentum", optim__momentum=0.9),
        *says(f"{README}: --learning_rate 0.001, in both parts", optim__lr=1e-3, optim__lr_batch=None),
        *says(f"{HELPER}: weight_decay", optim__weight_decay=5e-4),
        *says(f"{HELPER}: StepLR, its default gamma", optim__schedule="step", optim__gamma=0.1),
        *says(f"{HELPER}: step_size int(epochs * .8): after 80 of 100, 16 of 20", optim__milestones=(0.8,)),
        *says(f"{README}: the second command begins a training of its own", optim__restarts=(100 / 120,)),
        *says(f"{HELPER}: no warm-up", optim__warmup=0.0),
        *says("domain_generalization/train_jigsaw.py: no autocast", precision="fp32"),
        *own(
            "infodrop",
            (
                f"{DROP}: Info_Dropout",
                {"drop_rate": 1.5, "temperature": 0.03, "band_width": 1.0, "radius": 3, "num_offsets": 9},
            ),
            (f"{DROP}: dropout_layers 0.5", {"layers": 0}),
            (f"{README}: 100 epochs, then 20 with finetune_wo_infodrop on", {"finetune_from": 100 / 120}),
            EXACT,
            (f"{DROP}: finetune_wo_infodrop removes it, also from what is tested", {"mask_in_eval": False}),
        ),
    ),
    (
        "--jitter 0.4 (colours) and --tile_random_grayscale 0.1",
        "--bias_whole_image 0.9: a tenth of the images are scrambled; they have no loss (--jig_weight 0, "
        "--classify_only_sane), but batch norm sees them",
    ),
)
FEW_SHOT = Recipe(
    "authors_few_shot",
    ("infodrop",),
    "InfoDrop's authors, few-shot learning (`infodrop`)",
    (
        *leaves("networks of four to ten layers", "backbone", "init"),
        *leaves("images of another task", "image_size", *AUGMENTATIONS),
        *leaves("episodes, not epochs", "epochs", "steps", "batch_size"),
        *leaves("training in episodes", "optim.name", "optim.lr", "optim.lr_batch", "optim.momentum", "optim.nesterov"),
        *leaves("training in episodes", "optim.beta1", "optim.beta2", "optim.weight_decay", "optim.schedule"),
        *leaves("training in episodes", "optim.milestones", "optim.gamma", "optim.warmup", "optim.restarts"),
        *leaves("training in episodes", "precision", *OPTIONAL_OTHERS),
        *says("few_shot/backbone.py: drop_rate, temperature", hparams__drop_rate=0.1, hparams__temperature=0.5),
        *says(
            "few_shot/backbone.py: band_width, radius, patch_sampling_num",
            hparams__band_width=1.0,
            hparams__radius=3,
            hparams__num_offsets=9,
        ),
        *leaves("dropout_layers 2 counts blocks of other networks", "hparams.layers"),
        *leaves("12 epochs of episodes, after 600", "hparams.finetune_from"),
        *says("few_shot/backbone.py: random_sample draws exactly", hparams__approximate=False),
        *says("few_shot/README.md: removed before testing", hparams__mask_in_eval=False),
    ),
)
IMAGENET_PY = "classification/imagenet.py"
SCRIPT = "classification/training_scripts.sh"
PADAIN_AUTHORS = Recipe(
    "authors",
    ("padain",),
    "pAdaIN's authors, ImageNet (`padain`)",
    (
        *says(f"{SCRIPT}: -a resnet50", backbone="resnet50"),
        *says(f"{SCRIPT}: no --pretrained", init="scratch"),
        *crops(f"{IMAGENET_PY}: RandomResizedCrop(224), RandomHorizontalFlip"),
        *says(f"{SCRIPT}: --epochs 300", epochs=300, steps=None),
        *says(f"{IMAGENET_PY}: --batch-size, of all GPUs", batch_size=256),
        *says(f"{IMAGENET_PY}: torch.optim.SGD, plain", optim__name="sgd", optim__nesterov=False),
        *UNREAD_BY_SGD,
        *says(f"{IMAGENET_PY}: --momentum", optim__momentum=0.9),
        *says(f"{IMAGENET_PY}: --lr, at batch 256", optim__lr=0.1, optim__lr_batch=256),
        *says(f"{SCRIPT}: --wd 0.0001", optim__weight_decay=1e-4),
        *says(
            f"{IMAGENET_PY}: adjust_learning_rate, x0.1 every 75 of 300",
            optim__schedule="step",
            optim__milestones=(0.25, 0.5, 0.75),
            optim__gamma=0.1,
        ),
        *says(f"{IMAGENET_PY}: adjust_learning_rate, no warm-up", optim__warmup=0.0, optim__restarts=()),
        *says(f"{IMAGENET_PY}: no autocast", precision="fp32"),
        *own("padain", (f"{SCRIPT}: --padain 0.01", {"p": 0.01}), ("permutedAdaIN.py: eps", {"eps": 1e-5})),
    ),
    (
        "four GPUs with 64 images each: batch norm and swaps are per process; give `nproc=4`",
        "classification/architectures/permuteAdaIN.py adds 1e-5 to the receiver's deviation only; here, as in their "
        "released module, to the variances as well",
    ),
)
TRAIN_PY = "train.py"
SAGNET_AUTHORS = Recipe(
    "authors",
    ("sagnet",),
    "SagNet's authors, PACS (`sagnet`)",
    (
        *says(f"{TRAIN_PY}: --depth", backbone="resnet18"),
        *says(f"{TRAIN_PY}: pretrained unless --from-sketch, torchvision's weights", init="named:IMAGENET1K_V1"),
        *crops(f"{TRAIN_PY}: RandomResizedCrop(--crop-size, scale=(0.5, 1)), RandomHorizontalFlip", scale=0.5),
        *says(f"{TRAIN_PY}: --iterations", steps=2000, epochs=None),
        *says("README.md: --batch-size 32 of three domains each, or 96 of one", batch_size=96),
        *says(f"{TRAIN_PY}: optim.SGD, plain", optim__name="sgd", optim__nesterov=False),
        *UNREAD_BY_SGD,
        *says(f"{TRAIN_PY}: --momentum", optim__momentum=0.9),
        *says(f"{TRAIN_PY}: --lr", optim__lr=0.004, optim__lr_batch=None),
        *says(f"{TRAIN_PY}: --weight-decay", optim__weight_decay=1e-4),
        *says(f"{TRAIN_PY}: --scheduler cosine, T_max=--iterations, in steps", optim__schedule="cosine"),
        *UNREAD_BY_COSINE,
        *says(f"{TRAIN_PY}: CosineAnnealingLR alone, no warm-up", optim__warmup=0.0, optim__restarts=()),
        *says(f"{TRAIN_PY}: no autocast", precision="fp32"),
        *own(
            "sagnet",
            (f"{TRAIN_PY}: --style-stage", {"style_stage": 3}),
            (f"{TRAIN_PY}: --w-adv, --clip-adv", {"w_adv": 0.1, "clip": 0.1}),
            (f"{TRAIN_PY}: --drop", {"dropout": 0.5}),
            ("modules/randomizations.py: eps", {"eps": 1e-5}),
        ),
    ),
    (
        "--colorjitter 0.4 of brightness, contrast, saturation and hue",
        "tested every 100 steps there; `evaluate_every` stays the suite's",
    ),
)
TRAINING_MD = "TRAINING.md, ResNet-50"
DEBIASED_PY = "imagenet.py"
DEBIASED_AUTHORS = Recipe(
    "authors",
    ("debiased",),
    "The authors of shape-texture debiased training, ImageNet (`debiased`)",
    (
        *says(f"{TRAINING_MD}: -a resnet50", backbone="resnet50"),
        *says(f"{TRAINING_MD}: no --load", init="scratch"),
        *crops(f"{DEBIASED_PY}: RandomSizedCrop(224), RandomHorizontalFlip"),
        *says(f"{TRAINING_MD}: --epochs 100", epochs=100, steps=None),
        *says(f"{TRAINING_MD}: --train-batch 512", batch_size=512),
        *says(f"{DEBIASED_PY}: optim.SGD, plain", optim__name="sgd", optim__nesterov=False),
        *UNREAD_BY_SGD,
        *says(f"{DEBIASED_PY}: --momentum", optim__momentum=0.9),
        *says(f"{TRAINING_MD}: --lr 0.2 at batch 512 (below: 0.1 at 256)", optim__lr=0.2, optim__lr_batch=512),
        *says(f"{DEBIASED_PY}: --weight-decay", optim__weight_decay=1e-4),
        *says(
            f"{TRAINING_MD}: --schedule 30 60 90; {DEBIASED_PY}: --gamma",
            optim__schedule="step",
            optim__milestones=(0.3, 0.6, 0.9),
            optim__gamma=0.1,
        ),
        *says(f"{DEBIASED_PY}: --warm 5, linear from --warm_lr 0, per step", optim__warmup=5.0),
        *says(f"{DEBIASED_PY}: one course", optim__restarts=()),
        *says(f"{DEBIASED_PY}: no autocast", precision="fp32"),
        *own(
            "debiased",
            (f"{DEBIASED_PY}: --alpha, --label-gamma", {"alpha": 0.5, "label_gamma": 0.8}),
            (f"{TRAINING_MD}: --multi_grid, --schedule 30 60 90", {"multi_grid": True, "milestones": (0.3, 0.6, 0.9)}),
            (f"{DEBIASED_PY}: --min_size", {"min_size": 112}),
        ),
    ),
    (
        "eight GPUs with 64 images each: batch norm and permutations are per process; give `nproc=8`",
        "step m of the warm-up has m, not m + 1, parts of the rate there, so none at first",
    ),
)
DEEPAUGMENT_PY = "DeepAugment/train.py"


def deepaugment(program: str) -> Lines:
    return (
        *says(f"{program}: --arch", backbone="resnet50"),
        *says(f"{program}: pretrained=True is forced, torchvision's weights", init="named:IMAGENET1K_V1"),
        *crops(f"{program}: RandomResizedCrop(224), RandomHorizontalFlip"),
        *says(f"{program}: --epochs", epochs=30, steps=None),
        *says(f"{program}: --batch-size, of all GPUs", batch_size=1024),
        *says(f"{program}: torch.optim.SGD, nesterov=True", optim__name="sgd", optim__nesterov=True),
        *UNREAD_BY_SGD,
        *says(f"{program}: --momentum", optim__momentum=0.9),
        *says(f"{program}: --lr", optim__lr=0.1, optim__lr_batch=None),
        *says(f"{program}: --weight-decay", optim__weight_decay=1e-4),
        *says(f"{program}: cosine_annealing, per step", optim__schedule="cosine"),
        *UNREAD_BY_COSINE,
        *says(f"{program}: cosine_annealing alone, no warm-up", optim__warmup=0.0, optim__restarts=()),
        *says(f"{program}: no autocast", precision="fp32"),
    )


FLOOR = "the cosine ends at 1e-6 x 256 / (images per GPU) there, at 0 here"
NOISE2NET_PY = "DeepAugment/train_noise2net.py"
DEEPAUGMENT = (
    Recipe(
        "authors",
        ("deepaug_cae", "deepaug_edsr", "deepaug"),
        "DeepAugment's authors, ImageNet (`deepaug_cae`, `deepaug_edsr`, `deepaug`)",
        deepaugment(DEEPAUGMENT_PY),
        (FLOOR,),
    ),
    Recipe(
        "authors",
        ("noise2net", "deepaug_all"),
        "Noise2Net's authors, ImageNet (`noise2net`, `deepaug_all`)",
        (
            *deepaugment(NOISE2NET_PY),
            *own(
                "noise2net",
                (f"{NOISE2NET_PY}: --noisenet-max-eps", {"max_eps": 0.75}),
                (f"{NOISE2NET_PY}: hidden planes 16", {"hidden": 16}),
                (f"{NOISE2NET_PY}: no option, its loop distorts half of the batch", {"share": 0.5}),
            ),
        ),
        (FLOOR,),
    ),
)
MODELS_README = "texture-vs-shape, README.md, models"


def geirhos(epochs: int) -> Lines:
    """Models A and B, which differ in their length."""
    return (
        *says("models/load_pretrained_models.py: torchvision's resnet50", backbone="resnet50"),
        *says(f"{MODELS_README}: pretrained on ImageNet: True", init="named:IMAGENET1K_V1"),
        *crops(f"{MODELS_README}: RandomResizedCrop(224), RandomHorizontalFlip"),
        *says(f"{MODELS_README}: number of epochs", epochs=epochs, steps=None),
        *says(f"{MODELS_README}: batch size", batch_size=256),
        *says(f"{MODELS_README}: torch.optim.SGD", optim__name="sgd", optim__nesterov=False),
        *UNREAD_BY_SGD,
        *says(f"{MODELS_README}: momentum", optim__momentum=0.9),
        *says(f"{MODELS_README}: learning rate 0.1, at batch 256", optim__lr=0.1, optim__lr_batch=256),
        *says(f"{MODELS_README}: weight decay", optim__weight_decay=1e-4),
        *says(
            f"{MODELS_README}: x0.1 after every {epochs // 3} of {epochs} epochs",
            optim__schedule="step",
            optim__milestones=(1 / 3, 2 / 3),
            optim__gamma=0.1,
        ),
        *says(f"{MODELS_README}: PyTorch's ImageNet script, no warm-up", optim__warmup=0.0, optim__restarts=()),
        *says(f"{MODELS_README}: PyTorch's ImageNet script of 2018, no autocast", precision="fp32"),
    )


GEIRHOS_A = Recipe("geirhos_a", ("stylized_erm",), "Model A of Geirhos et al. (`stylized_erm`)", geirhos(60))
GEIRHOS_B = Recipe(
    "geirhos_b",
    ("style_transfer",),
    "Model B of Geirhos et al. (`style_transfer`)",
    geirhos(45),
    ("they shuffle clean and stylized images together, so that an epoch is twice ImageNet; an epoch is so here, too",),
)
