"""Setting of `analyze` for tables laid out as a paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from biasbed.settings import setting

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions


@dataclass(frozen=True)
class LayoutOptions:
    """Names or files of layouts."""

    report: Literal["none"] | tuple[str, ...] = setting(
        "none", "tables laid out as a paper's: robustness_1, ..., or your own <file>.yaml, by commas", identity=False
    )


def requested_names(options: AnalyzeOptions) -> tuple[str, ...]:
    """Return the names or files of the layouts that are asked for."""
    assert isinstance(options, LayoutOptions)
    return () if options.report == "none" else options.report
