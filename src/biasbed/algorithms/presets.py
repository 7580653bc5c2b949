"""Settings that several methods share under the name of one paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# BiasBed (Kalischek et al. 2023), appendix A: one protocol for every method. The batch size is not given there. A rate
# of 1e-4 from scratch does not reach the accuracies of that paper; the preset says what is printed.
BIASBED_PAPER: Mapping[str, Any] = {
    "epochs": 100,
    "optim.name": "sgd",
    "optim.lr": 1e-4,
    "optim.lr_batch": "none",
    "optim.momentum": 0.9,
    "optim.weight_decay": 1e-4,
    "optim.schedule": "step",
    "optim.milestones": (0.3, 0.6, 0.9),
    "optim.gamma": 0.1,
    "precision": "fp16",
}

# DeepAugment and Noise2Net (Hendrycks et al. 2021, appendix, and their code): from ImageNet weights. The cosine goes to
# zero here, to a millionth of the rate there.
DEEPAUGMENT_AUTHORS: Mapping[str, Any] = {
    "init": "named:IMAGENET1K_V1",
    "epochs": 30,
    "batch_size": 1024,
    "optim.name": "sgd",
    "optim.lr": 0.1,
    "optim.lr_batch": "none",
    "optim.momentum": 0.9,
    "optim.nesterov": True,
    "optim.weight_decay": 1e-4,
    "optim.schedule": "cosine",
    "optim.warmup": 0.0,
}
