"""Effective robustness: accuracy on shifted sets above what accuracy elsewhere predicts."""

from __future__ import annotations

OFFERS = {
    "analyze_settings": {"effective_robustness": "biasbed.plugins.effective_robustness.options:EffectiveOptions"},
    "section": {"effective_robustness": "biasbed.plugins.effective_robustness.section:EFFECTIVE_ROBUSTNESS"},
}
