"""Results of an analysis with another input, as if it had been read."""

from __future__ import annotations

import dataclasses
from typing import Any

from biasbed.analysis.result import Analysis


def with_inputs(analysis: Analysis, **changed: Any) -> Analysis:
    """Return the analysis with other fields of `AnalysisInputs`; nothing is computed anew."""
    return dataclasses.replace(analysis, inputs=dataclasses.replace(analysis.inputs, **changed))
