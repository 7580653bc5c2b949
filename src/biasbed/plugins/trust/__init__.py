"""Trust beyond accuracy: calibration, conformal prediction sets and detection of shifted images, from kept scores."""

from __future__ import annotations

OFFERS = {
    "analyze_settings": {"trust": "biasbed.plugins.trust.options:TrustOptions"},
    "decision_metrics": {"trust": "biasbed.plugins.trust.evaluation:measure"},
    "decision_table": {"trust.csv": "biasbed.plugins.trust.evaluation:make_table"},
    "measures": {"trust": "biasbed.plugins.trust.measures:MEASURES"},
    "function": {"trust": "biasbed.plugins.trust.user_scores:trust"},
    "training_section": {"trust": "biasbed.plugins.trust.section:TRUST"},
}
