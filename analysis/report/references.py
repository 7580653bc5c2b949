"""BibTeX entries that a paper about these results has to cite: methods, data sets, the suite's paper, the tests."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path

from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections import shown

FILE = "references.bib"
TESTS = "tests"  # keyword of the entries that every analysis needs


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write the entries that this result needs; return file name -> what it is."""
    names = {analysis.collection.scope.suite, TESTS}
    names |= {section.cited for section, _ in shown(analysis, Links(analysis)) if section.cited}
    for run in analysis.collection.runs:
        names |= {run.method, *run.training_data}
    for column in analysis.sets:
        names |= {column.name, column.block, column.set_record.version_of}
    (folder / FILE).write_text("\n\n".join(cited(names)) + "\n", encoding="utf-8")
    return {FILE: "the papers of the methods, data sets and tests, BibTeX"}


def cited(names: set[str]) -> list[str]:
    """Return the entries for these names, in the order of the file."""
    return [text for text, keywords in entries() if keywords & names]


@cache
def entries() -> tuple[tuple[str, frozenset[str]], ...]:
    """Return every entry with its keywords, the names that it is cited for."""
    text = (resources.files("biasbed.published") / FILE).read_text(encoding="utf-8")
    matches = re.findall(r"^(@\w+\{.*?keywords = \{([^}]*)\}\n\})", text, re.DOTALL | re.MULTILINE)
    return tuple((bibtex, frozenset(keywords.split(", "))) for bibtex, keywords in matches)
