"""Settings of `analyze` for effective robustness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from biasbed.settings import setting

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions


@dataclass(frozen=True)
class EffectiveOptions:
    """Pairs of sets, and the rows through which the line of each goes."""

    effective: Literal["none"] | tuple[str, ...] = setting(
        "none", "effective robustness: <reference set>:<shifted set>, ..., as imagenet_200:imagenet_r", identity=False
    )
    plain: Literal["none"] | tuple[str, ...] = setting(
        "none", "of effective robustness: plain models, through which its line goes", identity=False
    )


def effective_options(options: AnalyzeOptions) -> EffectiveOptions:
    """Return the part of `analyze`'s options that is about effective robustness."""
    assert isinstance(options, EffectiveOptions)
    return options
