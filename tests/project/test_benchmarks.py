"""Each benchmark's topic, measured with tiny sizes: nothing else runs these programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import benchmarks, commands

TOPICS = [topic for topic in benchmarks.load("all").TOPICS if topic != "references"]  # which needs others' programs


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_the_command_measures_each_topic_into_its_file(tmp_path: Path, topic: str) -> None:
    program = str(commands.ROOT / "benchmarks" / "all.py")
    words = [sys.executable, program, topic, "--quick", "--to", str(tmp_path / "results.md")]
    environment = commands.command_environment()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "results.md").read_text()
    assert "these numbers mean nothing" in text
    assert text.count(f"<!-- begin {topic} -->") == 1
    assert text.count("\n| ") > 2  # heading, line and rows
