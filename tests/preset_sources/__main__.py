"""Writes docs/presets.md."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from preset_sources import document  # noqa: E402

(TESTS.parent / "docs" / "presets.md").write_text(document())
