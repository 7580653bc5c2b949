"""Deliberate faults of the product, each with the test that must notice it.

A module of this folder holds those of one part of the product as `MUTANTS`. `python -m tests.mutants [pattern]` tries
them on a copy of the checkout and ends with "n of m killed".
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MODULES = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("__init__", "__main__"))


@dataclass(frozen=True)
class Mutant:
    """One change of one file, and what runs into it."""

    name: str  # unique, says what is wrong in a few words
    file: str  # from the root of the checkout
    before: str  # occurs in the file exactly once
    after: str
    killer: str  # a test that fails for it, as pytest takes it, from the folder of tests
    why: str  # what would be wrong with results

    def applied(self, text: str) -> str:
        """The file's text with the fault; ValueError where the snippet isn't there exactly once."""
        count = text.count(self.before)
        if count != 1:
            raise ValueError(f"mutant '{self.name}': {self.file} has its snippet {count} times: {self.before!r}")
        return text.replace(self.before, self.after)


def of(file: str, killer: str, *faults: tuple[str, str, str, str] | tuple[str, str, str, str, str]) -> list[Mutant]:
    """Faults (name, before, after, why) of one file.

    killer: the test file that notices them, from the folder of tests. A fifth item of a fault names a test within it
    (`::test_name` or `::test_name[case]`), or a test elsewhere.
    """
    found = []
    for name, before, after, why, *at in faults:
        test = killer if not at else killer + at[0] if at[0].startswith("::") else at[0]
        found.append(Mutant(name, file, before, after, test, why))
    return found


def every() -> Iterator[Mutant]:
    for module in MODULES:
        yield from importlib.import_module(f".{module}", __name__).MUTANTS
