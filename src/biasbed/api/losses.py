"""Losses and penalties of methods as functions of users' tensors, with one-line errors about wrong arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from biasbed.algorithms import contrastive as contrastive_method
from biasbed.algorithms import coral as coral_method
from biasbed.algorithms import infodrop, irm, padain, rebias, relative_difficulty
from biasbed.algorithms import mmd as mmd_method
from biasbed.errors import UsageError, first_line

P = ParamSpec("P")
R = TypeVar("R")
# What torch raises for tensors of other shapes and types, and Python for what is no tensor.
UNFIT = (TypeError, RuntimeError, AttributeError, IndexError, ValueError)


def explain_misfits(function: Callable[P, R], name: str, takes: str) -> Callable[P, R]:
    """Return the function with UsageError of one line for arguments that do not fit. takes: those that do."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UNFIT as error:
            raise UsageError(f"biasbed.methods.{name} takes {takes}: {first_line(error)}") from error

    return checked


DOMAINS = "a list of features [B,d], one tensor per domain"
coral = explain_misfits(coral_method.coral, "coral", DOMAINS)
mmd = explain_misfits(mmd_method.mmd, "mmd", DOMAINS)
irm_penalty = explain_misfits(irm.irm_penalty, "irm_penalty", "logits [N,K] and classes [N] of one domain")
contrastive = explain_misfits(
    contrastive_method.contrastive, "contrastive", "features [N,V,D], weights of pairs [N,N] and a temperature"
)
bias_amplified = explain_misfits(
    relative_difficulty.amplify, "bias_amplified", "cross-entropies [N] and the exponent q"
)
hsic = explain_misfits(rebias.hsic, "hsic", "features [N,D] and [N,E] and the widths of their kernels")
swap_statistics = explain_misfits(
    padain.swap_statistics, "swap_statistics", "feature maps [N,C,H,W] and a permutation [N]"
)
drop_weights = explain_misfits(
    infodrop.drop_weights, "drop_weights", "images or maps [N,C,H,W], offsets (dy, dx) and the window of a layer"
)
