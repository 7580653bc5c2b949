"""Results and models in the formats of other tools: Every Eval Ever, and model folders of a hub."""

from __future__ import annotations

OFFERS = {
    "format": {
        "every_eval_ever": "biasbed.plugins.sharing.export_formats:EveryEvalEver",
        "huggingface": "biasbed.plugins.sharing.export_formats:HubFolder",
    },
    "table": {"every_eval_ever": "biasbed.plugins.sharing.reported_scores:read_reported"},
}
