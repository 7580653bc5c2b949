"""The tests themselves: deliberate faults of the product are noticed (tests/mutants)."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from mutants import ROOT, every

MUTANTS = list(every())


def test_every_mutant_still_fits_the_code() -> None:
    """Its snippet is there exactly once, what it becomes is valid Python, and its killer exists."""
    problems = []
    for mutant in MUTANTS:
        try:
            compile(mutant.applied((ROOT / mutant.file).read_text()), mutant.file, "exec")
        except (OSError, ValueError, SyntaxError) as error:
            problems.append(str(error))
        path, _, test = mutant.killer.partition("::")
        if not (ROOT / "tests" / path).is_file() or f"def {test.partition('[')[0]}(" not in _text(path) + "def (":
            problems.append(f"mutant '{mutant.name}': there is no test {mutant.killer}")
    assert not problems, "\n".join(problems)


def _text(path: str) -> str:
    file = ROOT / "tests" / path
    return file.read_text() if file.is_file() else ""


def test_mutants_are_many_and_told_apart() -> None:
    assert len(MUTANTS) >= 60
    assert all(mutant.before != mutant.after and mutant.why for mutant in MUTANTS)
    assert not [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_mutant_is_killed() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.mutants"], capture_output=True, text=True, cwd=ROOT)
    print(done.stdout)
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if not line.startswith("killed"))
