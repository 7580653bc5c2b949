"""Bad input to every command, as data: what is typed, what lies there, and how the command must end.

A module of this folder holds the cases of one kind as `CASES`. Each is tried in a process of its own and held to one
law (`law.py`): it ends in one line and the right exit code, in time, and leaves nothing that it should not. Cases that
are rightly accepted stand among them, so that too much strictness is noticed as well.
"""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MODULES = ("flags", "settings_of_all", "yaml_files", "images", "checkpoints")

Maker = Callable[[Path], object]  # of files, in the folder that is the command's working directory


@dataclass(frozen=True)
class Case:
    """One command. `{m}` in words and variables is the folder of what all cases read, `{c}` the case's own."""

    name: str  # unique
    words: tuple[str, ...]
    says: str = ""  # what the line must hold
    code: int = 2  # 0: rightly accepted
    env: Mapping[str, str | None] = field(default_factory=dict)  # None: a variable that is not there
    make: Maker | None = None
    writes: tuple[str, ...] = ()  # below the working directory, as the command was told to
    needs_user: bool = False  # root may read and write everything

    def filled(self, places: Mapping[str, str]) -> Case:
        """With the places that braces stand for."""

        def fill(text: str) -> str:
            for name, path in places.items():
                text = text.replace(f"{{{name}}}", path)
            return text

        env = {name: None if value is None else fill(value) for name, value in self.env.items()}
        return Case(self.name, tuple(map(fill, self.words)), fill(self.says), self.code, env, self.make, self.writes)


def of(module: str) -> tuple[Case, ...]:
    """Return the cases of a module of this folder."""
    cases: tuple[Case, ...] = importlib.import_module(f".{module}", __name__).CASES
    return cases


def every() -> Iterator[Case]:
    return itertools.chain.from_iterable(map(of, MODULES))


def spread(number: int, seed: int) -> list[Case]:
    """So many cases, drawn by a seed, from every module in turn."""
    draws = random.Random(seed)
    decks = [draws.sample(of(module), len(of(module))) for module in MODULES]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*decks))
    return list(itertools.islice((case for case in turns if case is not None), number))


def written(name: str, content: str | bytes) -> Maker:
    """Return a function that writes one file there."""

    def make(here: Path) -> None:
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return make
