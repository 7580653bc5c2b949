"""Decisions on single images or questions as scores: `compare a.csv b.csv`, or a run's predictions."""

from __future__ import annotations

OFFERS = {"table": {"decision_files": "biasbed.plugins.decision_files.item_files:read"}}
