"""Settings of `analyze` for the section on trust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from biasbed.settings import setting

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions


@dataclass(frozen=True)
class TrustOptions:
    """Images that calibrate, and how many labels prediction sets may miss."""

    calibrate: str = setting(
        "auto",
        "set of the training distribution, one half of whose images calibrates where scores are stored "
        "(docs/trust.md; auto: the validation sets)",
        identity=False,
    )
    miss: float = setting(
        0.1, "share of the labels that conformal prediction sets may miss (docs/trust.md)", gt=0, lt=1, identity=False
    )


def trust_options(options: AnalyzeOptions) -> TrustOptions:
    """Return the part of `analyze`'s options that is about trust."""
    assert isinstance(options, TrustOptions)
    return options
