"""Observers in files: who answered, which of their trials are on one image, and several observers as one. No torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from biasbed.data.names import Coded, Names
from biasbed.datasets.classes import image_name
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.prediction_files import read_predictions
from biasbed.plugins.recorded_answers import trials

TRIALS, PREDICTIONS = ".csv", ".parquet"  # endings of files of trials, and of biasbed's own decisions


def read_observers(paths: Sequence[Path]) -> list[Decisions]:
    """Read every observer in the files. Raises UsageError for a file that is damaged, and for an observer in two."""
    by_ending: dict[str, list[Path]] = {TRIALS: [], PREDICTIONS: []}
    for path in paths:
        by_ending[path.suffix.lower()].append(path)
    answers = trials.read(by_ending[TRIALS]) + [read_predictions(path) for path in by_ending[PREDICTIONS]]
    seen = set()
    for decisions in answers:
        if (decisions.observer, decisions.set) in seen:
            raise UsageError(
                f"two of the files are of the observer '{decisions.observer}': give one of them, or rename it"
            )
        seen.add((decisions.observer, decisions.set))
    return answers


def identify_images(answers: Sequence[Decisions]) -> list[Decisions]:
    """Return the observers of one set with a number for every image; images of the same name have the same number.

    Raises UsageError as `find_image_names` does.
    """
    keys = find_image_names(answers)
    numbers: dict[str, int] = {}
    numbered = []
    for decisions, names in zip(answers, keys, strict=True):
        image = np.array([numbers.setdefault(name, len(numbers)) for name in names])
        numbered.append(replace(decisions, image=image))
    return numbered


def pool(answers: Sequence[Decisions]) -> Decisions:
    """Return the trials of several observers of one kind as one, each trial with its image and its observer."""
    numbered = identify_images(answers)
    kinds: set[str] = set()
    images: list[str] = []
    labels: list[str] = []
    chosen: list[str] = []
    biases: list[str] = []
    classes: set[str] = set()
    for decisions in answers:
        images.extend(decisions.images)
        labels.extend(decisions.label)
        chosen.extend(decisions.decision)
        if decisions.bias is not None:
            biases.extend(decisions.bias)
        classes.update(decisions.classes)
        kinds.add(decisions.kind)
    (kind,) = kinds
    return Decisions(
        observer=f"all {kind}",
        set=answers[0].set,
        images=Names(images),
        label=Coded.from_names(labels),
        decision=Coded.from_names(chosen),
        classes=tuple(sorted(classes)),
        bias=Coded.from_names(biases) if len(biases) == len(labels) else None,
        kind=kind,
        image=np.concatenate([decisions.image_of_trial for decisions in numbered]),
        member=np.repeat(np.arange(len(answers)), [len(decisions.label) for decisions in answers]),
        cues=answers[0].cues,
        has_all_classes=all(decisions.has_all_classes for decisions in answers),
    )


# --- names of images --------------------------------------------------------------------------------------------------


def find_image_names(answers: Sequence[Decisions]) -> list[list[str]]:
    """Return a name for the image of each trial of each observer, so that equal names are equal images.

    Takes the shortest names that no observer answers twice in one session. The shortest is the bare name; then come the
    bare name with its condition, as an experiment may show an image under several, and both with one folder, with two,
    and so on. Last comes the whole id, unless there are sessions or conditions: there it would name a trial. Raises
    UsageError if none will do.
    """
    ids = [list(decisions.images) for decisions in answers]
    depth = max(image.count("/") for image in itertools.chain.from_iterable(ids))
    for folders in range(depth + 1):
        names = _names_with_folders(answers, folders)
        if _find_repeated_answer(answers, names) is None:
            return names
        with_conditions = _with_conditions(answers, names)
        if _find_repeated_answer(answers, with_conditions) is None:
            return with_conditions
    has_trials = any(not (decisions.session is None and decisions.condition is None) for decisions in answers)
    repeated = _find_repeated_answer(answers, with_conditions if has_trials else ids)
    if repeated is None:
        return ids
    observer, image = repeated
    raise UsageError(
        f"{observer} answers the same image more than once in a session ({image}): give the files of one experiment"
    )


def _names_with_folders(answers: Sequence[Decisions], folders: int) -> list[list[str]]:
    """Return the names of the images with this many folders."""
    names = []
    for decisions in answers:
        names.append([image_name(image, folders) for image in decisions.images])
    return names


def _with_conditions(answers: Sequence[Decisions], names: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the names of the images, each with the condition that it is shown under."""
    shown = []
    for decisions, of_observer in zip(answers, names, strict=True):
        shown.append(list(map("/".join, zip(_conditions_of(decisions), of_observer, strict=True))))
    return shown


def _conditions_of(decisions: Decisions) -> Sequence[str]:
    """Return the condition of each trial; empty texts if there are none."""
    if decisions.condition is None:
        return [""] * len(decisions.images)
    return decisions.condition.tolist()


def _find_repeated_answer(answers: Sequence[Decisions], names: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    """Return the first (observer, name) that is answered for a second time in one session; None if there is none."""
    for decisions, of_observer in zip(answers, names, strict=True):
        seen = set()
        for session_and_name in zip(sessions_of(decisions), of_observer, strict=True):
            if session_and_name in seen:
                return decisions.observer, session_and_name[1]
            seen.add(session_and_name)
    return None


def sessions_of(decisions: Decisions) -> Sequence[str]:
    if decisions.session is None:
        return [""] * len(decisions.images)
    return decisions.session.tolist()
