"""The browser that draws the documentation's pictures visits a page twice if the first visit does not end."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from helpers.commands import ROOT

# Hangs at the first visit of a profile, as Chromium sometimes does, and draws at the second.
BROWSER = """#!/bin/sh
for word in "$@"; do
  case "$word" in --user-data-dir=*) profile="${word#*=}" ;; esac
done
[ -e "$profile/cache" ] || { touch "$profile/cache"; exec sleep 60; }
echo drawn
"""


def test_a_visit_that_hangs_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    monkeypatch.setattr(pictures, "BROWSER", str(browser))
    monkeypatch.setattr(pictures, "LONGEST", 3)
    assert pictures.Browser(tmp_path).text("about:blank") == "drawn\n"
