"""What a paper about these results has to cite, as BibTeX: methods, data sets, the suite's paper, the tests."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path

from biasbed.analysis.result import Analysis

FILE = "references.bib"
TESTS = "tests"  # the keyword of what every analysis uses


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Writes the entries that this result needs; returns file name -> what it is."""
    scope = analysis.collection.scope
    names = {word for run in analysis.collection.runs for word in (run.method, *run.training_data)}
    names |= {scope.suite, TESTS}
    names |= {word for column in analysis.sets for word in (column.name, column.block, column.entry.version_of)}
    (folder / FILE).write_text("\n\n".join(cited(names)) + "\n", encoding="utf-8")
    return {FILE: "the papers of the methods, data sets and tests, BibTeX"}


def cited(names: set[str]) -> list[str]:
    """The entries for these names, in the order of the file."""
    return [text for text, keywords in entries() if keywords & names]


@cache
def entries() -> tuple[tuple[str, frozenset[str]], ...]:
    """Every entry, and the names that it is cited for."""
    text = (resources.files("biasbed.published") / FILE).read_text(encoding="utf-8")
    found = re.findall(r"^(@\w+\{.*?keywords = \{([^}]*)\}\n\})", text, re.DOTALL | re.MULTILINE)
    return tuple((entry, frozenset(keywords.split(", "))) for entry, keywords in found)
