"""Phrases about trust, which the report's `say` fills."""

from __future__ import annotations

from pathlib import Path

from biasbed.analysis.report.phrases import read

PHRASES = read(Path(__file__).with_suffix(".yaml"))
