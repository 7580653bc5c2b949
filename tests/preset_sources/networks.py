"""Recipes that train ViTs and ConvNeXts, whatever the method: MAE's fine-tuning, DeiT, ConvNeXt's fine-tuning."""

from __future__ import annotations

from preset_sources.lines import EVERY_METHOD, UNREAD_BY_COSINE, Lines, Recipe, crops, leaves, says

MAE, MAE_CODE = "He et al. 2022, table 9", "mae, FINETUNE.md, ViT-Base"
DEIT, DEIT_CODE = "Touvron et al. 2021, table 9, DeiT-B", "deit, main.py"
CONVNEXT, CONVNEXT_CODE = "Liu et al. 2022, table 6, 22K at 224", "ConvNeXt, TRAINING.md, ConvNeXt-B"
ADDED = "augmentation: RandAugment (9, 0.5), random erasing 0.25"
BICUBIC = "training images are resized bicubically"


def shared(table: str, code: str) -> Lines:
    """Return the settings that the three programs share, by timm's `create_transform` and `no_weight_decay`."""
    return (
        *crops(f"{code}: timm's create_transform at 224"),
        *says(f"{table}: AdamW", optim__name="adamw"),
        *says(f"{code}: AdamW's betas", optim__beta1=0.9, optim__beta2=0.999),
        *leaves("SGD's; AdamW doesn't read it", "optim.momentum", "optim.nesterov"),
        *says(
            f"{code}: no decay of parameters of one dimension and of no_weight_decay()",
            optim__decay_norms=False,
            optim__decay_embeddings=False,
        ),
        *says(f"{table}: cosine", optim__schedule="cosine", optim__restarts=()),
        *UNREAD_BY_COSINE,
        *says(f"{table}: label smoothing 0.1", label_smoothing=0.1),
        *says(f"{code}: --clip_grad is none", optim__clip=None),
        *says(f"{code}: no dropout", network__dropout=0.0),
    )


NETWORKS = (
    Recipe(
        "vit_finetune",
        (EVERY_METHOD,),
        "Fine-tuning of MAE's ViT-B (every method)",
        (
            *says(f"{MAE_CODE}: --model, --finetune", backbone="timm:vit_base_patch16_224", init="named:mae"),
            *shared(MAE, MAE_CODE),
            *says(f"{MAE}: 100 epochs (B)", epochs=100, steps=None),
            *says(f"{MAE}: batch size 1024", batch_size=1024),
            *says(f"{MAE_CODE}: --blr 5e-4, times batch / 256", optim__lr=5e-4, optim__lr_batch=256),
            *says(f"{MAE}: weight decay 0.05", optim__weight_decay=0.05),
            *says(f"{MAE}: 5 epochs of warm-up", optim__warmup=5.0),
            *says(f"{MAE_CODE}: --layer_decay 0.65", optim__layer_decay=0.65),
            *says(f"{MAE}: drop path 0.1 (B)", network__drop_path=0.1),
            *says(f"{MAE_CODE}: tests the weights themselves", average="none"),
            *says(f"{MAE_CODE}: automatic mixed precision", precision="fp16"),
        ),
        (
            "table 9 has a base rate of 1e-3 and layer decay 0.75, for models that were pretrained otherwise than the "
            "released ones: `optim.lr=1e-3 optim.layer_decay=0.75`",
            f"{ADDED}, mixup 0.8, cutmix 1.0; {BICUBIC}",
            "the classifier reads the mean of the patches and begins at a standard deviation of 2e-5; timm's network "
            "reads the class token",
            "the cosine ends at a rate of 1e-6",
        ),
    ),
    Recipe(
        "vit_scratch",
        (EVERY_METHOD,),
        "DeiT-B, from scratch (every method)",
        (
            *says(f"{DEIT_CODE}: --model", backbone="timm:deit_base_patch16_224"),
            *says(f"{DEIT}: from scratch", init="scratch"),
            *shared(DEIT, DEIT_CODE),
            *says(f"{DEIT}: 300 epochs", epochs=300, steps=None),
            *says(f"{DEIT}: batch size 1024", batch_size=1024),
            *says(f"{DEIT}: 0.0005 times batch / 512", optim__lr=5e-4, optim__lr_batch=512),
            *says(f"{DEIT}: weight decay 0.05", optim__weight_decay=0.05),
            *says(f"{DEIT}: 5 epochs of warm-up", optim__warmup=5.0),
            *says(f"{DEIT}: one rate for all layers", optim__layer_decay=1.0),
            *says(f"{DEIT}: stochastic depth 0.1", network__drop_path=0.1),
            *says(f"{DEIT_CODE}: evaluate(model), not model_ema", average="none"),
            *says(f"{DEIT_CODE}: NativeScaler, under autocast", precision="fp16"),
        ),
        (
            f"{ADDED}, mixup 0.8, cutmix 1.0, repeated augmentation; {BICUBIC}",
            "an average with decay 0.99996 is kept and not tested: `average=ema ema.decay=0.99996 average_from=1`",
            "warm-up begins at 1e-6, the cosine ends at 1e-5",
        ),
    ),
    Recipe(
        "convnext_finetune",
        (EVERY_METHOD,),
        "Fine-tuning of ConvNeXt-B from ImageNet-22K (every method)",
        (
            *says(f"{CONVNEXT_CODE}: --model, --finetune", backbone="timm:convnext_base", init="named:fb_in22k"),
            *shared(CONVNEXT, CONVNEXT_CODE),
            *says(f"{CONVNEXT}: 30 epochs", epochs=30, steps=None),
            *says(f"{CONVNEXT}: batch size 512", batch_size=512),
            *says(f"{CONVNEXT}: 5e-5 for this batch", optim__lr=5e-5, optim__lr_batch=None),
            *says(f"{CONVNEXT}: weight decay 1e-8", optim__weight_decay=1e-8),
            *says(f"{CONVNEXT}: no warm-up", optim__warmup=0.0),
            *says(f"{CONVNEXT}: layer-wise decay 0.8", optim__layer_decay=0.8),
            *says(f"{CONVNEXT}: stochastic depth 0.2 (B)", network__drop_path=0.2),
            *says(f"{CONVNEXT}: no EMA (B)", average="none"),
            *says(f"{CONVNEXT_CODE}: without --use_amp", precision="fp32"),
        ),
        (
            f"{ADDED}; no mixup and cutmix; {BICUBIC}",
            "the classifier's first weights are multiplied by 0.001 (`--head_init_scale`)",
            "the layer-wise decay has 12 groups of about three blocks each; here each block is a layer, as in timm",
            "the cosine ends at a rate of 1e-6",
        ),
    ),
)
