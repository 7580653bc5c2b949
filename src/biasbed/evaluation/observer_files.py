"""Files of other observers' decisions: our own predictions, and what plug-ins read, as trials of people. No torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.prediction_files import read_predictions
from biasbed.plugin_loader import Offered


def _read_own(paths: Sequence[Path]) -> list[Decisions]:
    return [read_predictions(path) for path in paths]


# Readers of all files with one ending, by that ending.
READERS: Offered[Callable[[Sequence[Path]], list[Decisions]]] = Offered("decisions", {".parquet": _read_own})
# Checks of observers' answers against the classes of their set, if these are known.
CHECKS: Offered[Callable[[Sequence[Decisions], Collection[str]], None]] = Offered("answer_check")


def split_paths(text: str) -> tuple[Path, ...]:
    """Return the files that `a.csv,b.parquet` names; empty if it names anything else."""
    paths = [Path(part.strip()).expanduser() for part in text.split(",") if part.strip()]
    return tuple(paths) if paths and all(path.suffix.lower() in READERS for path in paths) else ()


def read_observers(paths: Sequence[Path]) -> list[Decisions]:
    """Read every observer in the files. Raises UsageError for a file that is damaged, and for an observer in two."""
    by_ending: dict[str, list[Path]] = {}
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
        by_ending.setdefault(path.suffix.lower(), []).append(path)
    answers: list[Decisions] = []
    for ending, files in by_ending.items():
        answers += READERS[ending](files)
    seen = set()
    for decisions in answers:
        if (decisions.observer, decisions.set) in seen:
            raise UsageError(
                f"two of the files are of the observer '{decisions.observer}': give one of them, or rename it"
            )
        seen.add((decisions.observer, decisions.set))
    return answers


def check_answers(answers: Sequence[Decisions], classes: Collection[str] = ()) -> None:
    """Check the answers of a set's observers as plug-ins do. classes: of the set, if they are known."""
    for check in CHECKS.values():
        check(answers, classes)
