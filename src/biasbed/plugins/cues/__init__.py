"""Cue profiles: what a model looks at, as numbers on shape, texture, background, watermark and factors."""

from __future__ import annotations

OFFERS = {
    "decision_table": {"looks_at.csv": "biasbed.plugins.cues.table:make_table"},
    "training_section": {"cues": "biasbed.plugins.cues.section:CUE_PROFILE"},
}
