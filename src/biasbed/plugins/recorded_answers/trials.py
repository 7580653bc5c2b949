"""Trials of people or models in the CSV files of Geirhos et al. (texture-vs-shape 2019, model-vs-human 2021).

One row per trial: `subj,session,trial,rt,object_response,category,condition,imagename`. A file comes from anywhere and
may have been cut off on its way: an incomplete row is refused, not counted. No torch.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from biasbed.data.names import Coded, Names
from biasbed.datasets.classes import parse_cue_classes
from biasbed.errors import UsageError
from biasbed.evaluation import prediction_files
from biasbed.evaluation.decisions import MODELS, PEOPLE, Decisions
from biasbed.settings import hint_near
from biasbed.system.csv_tables import read_rows
from biasbed.system.strict import parse_float

NEEDED = ("object_response", "category", "imagename")  # columns of a CSV file of trials
OPTIONAL = ("subj", "session", "trial", "rt", "condition")  # columns that such a file may have


def read(paths: Sequence[Path]) -> list[Decisions]:
    """Read every subject in the files, in the order of appearance. Raises UsageError for a file that is damaged.

    Joins the trials that several files have of one subject; trials on cue-conflict images are kept apart.
    """
    trials: dict[tuple[bool, str], list[Trial]] = {}
    for path in paths:
        for trial in _read_trials(path):
            trials.setdefault((trial.cues is None, trial.subject), []).append(trial)
    return [_make_decisions(name, rows) for (_, name), rows in trials.items()]


@dataclass(frozen=True, slots=True)
class Trial:
    """Row of a CSV file."""

    subject: str
    response: str
    category: str
    image: str
    condition: str
    session: str
    is_timed: bool  # it has a reaction time
    cues: tuple[str, str] | None  # the classes of shape and texture

    @property
    def image_key(self) -> tuple[str, ...]:
        """Parts that tell one answer of a file from another."""
        return self.subject, self.session, self.condition, self.image


def _read_trials(path: Path) -> list[Trial]:
    """Read the trials of a file. Raises UsageError with the line of an incomplete trial."""
    trials: list[Trial] = []
    lines_of_trials = []
    for number, row in read_rows(path, NEEDED, OPTIONAL):
        if not trials:
            _print_unread_columns(path, row)
        empty = [name for name in (*NEEDED, "subj") if row.get(name) == ""]
        if empty:
            raise UsageError(
                f"{path}, line {number}: has an empty {empty[0]} (a trial without a response has 'na' there): was the "
                "file cut off, or edited?"
            )
        trials.append(_make_trial(row, path.stem))
        lines_of_trials.append(number)
    if not trials:
        raise UsageError(f"{path}: holds no trials")
    _refuse_cut_name(path, number, trials)
    _refuse_repeated(path, lines_of_trials, trials)
    return trials


def _print_unread_columns(path: Path, names: Iterable[str]) -> None:
    """Print a line for each column that is not read."""
    for name in names:
        if name not in (*NEEDED, *OPTIONAL):
            hint = hint_near(name, (*NEEDED, *OPTIONAL))
            print(f"{path.name}: the column '{name}' is not read{hint}", file=sys.stderr)


def _make_trial(row: Mapping[str, str], default_subject: str) -> Trial:
    """Return the trial in a row. default_subject: name of the subject if the file has no column of subjects."""
    is_timed = False
    with contextlib.suppress(ValueError):  # a model has no reaction time
        is_timed = math.isfinite(parse_float(row.get("rt", "nan")))
    return Trial(
        subject=row.get("subj", default_subject),
        response=row["object_response"],
        category=row["category"],
        image=row["imagename"],
        condition=row.get("condition", ""),
        session=row.get("session", ""),
        is_timed=is_timed,
        cues=parse_cue_classes(row["imagename"]),
    )


def _refuse_cut_name(path: Path, number: int, trials: Sequence[Trial]) -> None:
    """Raise UsageError if the file ends within the name of its last image, so that nothing else is missing."""
    *before, last = (Path(trial.image).suffix for trial in trials)
    if last not in before and any(suffix.startswith(last) for suffix in before):  # .pn of .png
        name = trials[-1].image
        raise UsageError(f"{path}, line {number}: '{name}' is called unlike the other images: was the file cut off?")


def _refuse_repeated(path: Path, lines: Sequence[int], trials: Sequence[Trial]) -> None:
    """Raise UsageError if an image is answered twice. lines: of each trial its number."""
    first_lines: dict[tuple[str, ...], int] = {}
    for number, trial in zip(lines, trials, strict=True):
        first = first_lines.setdefault(trial.image_key, number)
        if first != number:
            raise UsageError(
                f"{path}, line {number}: {trial.subject} answers the same image more than once in a session "
                f"('{trial.image}', first in line {first}): give the files of one experiment"
            )


def _make_decisions(name: str, trials: Sequence[Trial]) -> Decisions:
    """Return the trials of a subject as decisions."""
    label = Coded.from_names(trial.category for trial in trials)
    textures = []
    for trial in trials:
        if trial.cues is not None:
            shape, texture = trial.cues
            textures.append(texture)
            if shape != trial.category:  # then the column holds something else than the shape
                raise UsageError(f"{name}: {trial.image} shows the shape {shape}, but its category is {trial.category}")
    # Geirhos et al. call people subject-01, subject-02, ...; a model has no reaction time.
    is_person = name.lower().startswith("subject") or any(trial.is_timed for trial in trials)
    set_name = "cue_conflict" if textures else "decisions"
    possible = prediction_files.find_possible(set_name, {*label.counts(), *textures})
    has_conditions = any(trial.condition for trial in trials)
    return Decisions(
        observer=name,
        set=set_name,
        images=Names([trial.image for trial in trials]),
        label=label,
        decision=Coded.from_names(trial.response for trial in trials),
        classes=possible.classes,
        has_all_classes=possible.are_all,
        bias=Coded.from_names(textures) if textures else None,
        condition=Coded.from_names(trial.condition for trial in trials) if has_conditions else None,
        session=Coded.from_names(trial.session for trial in trials),
        kind=PEOPLE if is_person else MODELS,
    )
