"""Tries mutants on a copy of the checkout: every killer passes as the code is, and fails for its mutant.

`python -m tests.mutants [pattern ...]`; patterns are of names or files, as in a shell. A line per mutant, then how
many of them were killed; exit code 1 if any survived. The working tree is only read.

The libraries are loaded once, and every trial is a fork of this process that imports the copy's code afresh.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ.pop("PYTEST_ADDOPTS", None)
    sys.dont_write_bytecode = True  # a mutant of the same length and second would be taken for what was compiled before

from . import ROOT, Mutant, every

LIBRARIES = ("torch", "torchvision", "timm", "pydantic", "pandas", "scipy.stats", "hypothesis.strategies", "pytest")
COPIED = ("src", "analysis", "sweeps", "tests", "docs", "benchmarks", "pyproject.toml")
SECONDS = 300  # for one test
FAILED = 1  # pytest's exit code where tests failed; others mean that it could not run them


def copy_of_the_checkout(folder: Path) -> Path:
    tree = folder / "tree"
    tree.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tree / name)
    return tree


def tests_of(tree: Path, killers: Sequence[str], log: Path) -> int:
    """pytest's exit code for some tests of the copy, from a process of its own; what it says goes to `log`."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    code = 70
    try:
        with log.open("w") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        os.chdir(tree)
        # The copy's own code, nothing of this checkout's.
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "biasbed")]:
            del sys.modules[name]
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={SECONDS}"]
        code = int(pytest.main([*options, *(f"tests/{killer}" for killer in killers)]))
    finally:
        os._exit(code)


def survives(mutant: Mutant, tree: Path, log: Path) -> str:
    """How the mutant got away; empty where its killer failed."""
    path = tree / mutant.file
    text = path.read_text()
    path.write_text(mutant.applied(text))
    try:
        code = tests_of(tree, [mutant.killer], log)
    finally:
        path.write_text(text)
    if code in (0, FAILED):
        return "SURVIVED" if code == 0 else ""
    return f"pytest ended with {code}: {log.read_text()[-2000:]}"


def preload() -> None:
    """The libraries that tests import; one failing example is enough, none is simplified."""
    for library in LIBRARIES:
        __import__(library)
    import hypothesis

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", phases=phases, database=None)
    hypothesis.settings.load_profile("mutants")


def main(patterns: Sequence[str]) -> int:
    chosen = [
        mutant
        for mutant in every()
        if any(fnmatch.fnmatch(text, pattern) for text in (mutant.name, mutant.file) for pattern in patterns or ["*"])
    ]
    if not chosen:
        print(f"no mutant has a name or a file like {', '.join(patterns)}", file=sys.stderr)
        return 2
    preload()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        log = Path(folder) / "log"
        tree = copy_of_the_checkout(Path(folder))
        killers = list(dict.fromkeys(mutant.killer for mutant in chosen))
        if tests_of(tree, killers, log) != 0:
            print(f"the killers fail without any mutant:\n{log.read_text()[-4000:]}")
            return 2
        survivors = 0
        for mutant in chosen:
            began = time.monotonic()
            problem = survives(mutant, tree, log)
            survivors += bool(problem)
            took = f"{time.monotonic() - began:.1f} s"
            print(f"{problem or 'killed'}: {mutant.file}: {mutant.name} ({took}, {mutant.killer})", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
