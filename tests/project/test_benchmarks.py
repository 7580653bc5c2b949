"""Parts of the benchmarks that nothing else runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import benchmarks, commands

TOPICS = [topic for topic in benchmarks.load("all").TOPICS if topic != "references"]  # which needs others' programs

ROWS = {"corruptions": "| all 75 / five naive glass blurs |"}  # topic -> how a row of its table begins


def test_a_row_says_what_is_asked_of_it_and_whether_it_is_met() -> None:
    sides = benchmarks.load("sides")
    values = [1.0, 1.1, 1.2, 1.3, 1.4]
    most, least = sides.Row.of("a", values, sides.Goal(1.1)), sides.Row.of("a", values, sides.Goal(1.2, at_least=True))
    assert (most.ratio, most.low, most.high, most.met, least.met) == (1.2, 1.1, 1.3, False, True)
    assert most.cells() == ("a", "1.200", "1.100 to 1.300", "at most 1.1", "**no**", "")
    assert sides.Row.of("b", [5.25], note="n", unit="s").cells() == ("b", "5.25 s", "", "", "", "n")


def test_sides_take_turns_in_an_order_that_turns_round_and_the_first_round_is_left_out() -> None:
    sides, took = benchmarks.load("sides"), []
    work = {name: (lambda name=name: took.append(name)) for name in "ab"}
    ticks = iter(range(100))
    found = sides.interleaved(work, 2, clock=lambda: float(next(ticks)))
    assert "".join(took) == "baabba"
    assert found == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


def test_a_new_table_replaces_its_old_one_and_no_other() -> None:
    results, sides = benchmarks.load("results"), benchmarks.load("sides")

    def of(name: str, ratio: float) -> dict[str, str]:
        topic = results.Topic(name, name.title(), "how", "why", 1.0)
        return {name: results.section(topic, [sides.Row.of("row", [ratio], sides.Goal(2.0))])}

    order = ("one", "two")
    text = results.replaced("head\n", "", of("two", 1.5) | of("one", 3.0), order)
    assert "| row | 3.000 |  | at most 2 | **no** |" in text
    assert "Not met: row." in text
    assert text.index("## One") < text.index("## Two")
    again = results.replaced("head\n", text, of("one", 1.0), order)
    assert "3.000" not in again
    assert again.count("## One") == again.count("## Two") == again.count("head") == 1
    assert text[text.index("<!-- begin two") :] == again[again.index("<!-- begin two") :]


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = commands.command_environment()
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_the_command_measures_each_topic_into_its_file(tmp_path: Path, topic: str) -> None:
    words = [sys.executable, str(commands.ROOT / "benchmarks" / "all.py"), topic, "--quick"]
    done = run([*words, "--to", str(tmp_path / "found.md")])
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "found.md").read_text()
    assert "these numbers mean nothing" in text
    assert text.count(f"<!-- begin {topic} -->") == 1
    assert text.count("\n| ") > 2  # heading, line and rows
    assert ROWS.get(topic, "| what |") in text


def test_quick_numbers_are_not_written_over_measured_ones() -> None:
    refused = run([sys.executable, str(commands.ROOT / "benchmarks" / "all.py"), "corruptions", "--quick"])
    assert refused.returncode == 2
    assert "--quick needs --to" in refused.stderr
