"""Cue conflicts from a user's own folders: `prepare what=conflicts`."""

from __future__ import annotations

OFFERS = {"what": {"conflicts": "biasbed.plugins.conflicts.maker:ConflictsMaker"}}
