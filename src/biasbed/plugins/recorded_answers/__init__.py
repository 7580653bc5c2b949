"""Scores of recorded decisions, of people or of models that ran elsewhere: `evaluate model=<file>.csv`."""

from __future__ import annotations

OFFERS = {
    "answer_check": {"names": "biasbed.plugins.recorded_answers.answer_names:check_answers"},
    "decisions": {".csv": "biasbed.plugins.recorded_answers.trials:read"},
    "model": dict.fromkeys(
        (".csv", ".parquet"), "biasbed.plugins.recorded_answers.evaluate_recorded:evaluate_recorded"
    ),
}
