"""Scores of recorded decisions, of people or of models that ran elsewhere: `evaluate model=<file>.csv`."""

from __future__ import annotations

OFFERS = {
    "model": dict.fromkeys(
        (".csv", ".parquet"), "biasbed.plugins.recorded_answers.evaluate_recorded:evaluate_recorded"
    ),
}
