"""Decisions on images, whoever made them: a model tested here, one tested elsewhere, people in an experiment.

Recorded ones are read from the CSV files of Geirhos et al. (texture-vs-shape 2019, model-vs-human 2021; one row per
trial: `subj,session,trial,rt,object_response,category,condition,imagename`) and from our own predictions. No torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from biasbed import cues, measures
from biasbed.errors import UsageError

RECORDED = (".csv", ".parquet")


@dataclass(frozen=True, eq=False)
class Answers:
    """One observer's decisions on N images of one set; classes are names."""

    observer: str
    set: str
    images: Sequence[str]
    label: np.ndarray  # [N]; under cue conflict the shape's class
    decision: np.ndarray  # [N]
    classes: tuple[str, ...]
    texture: np.ndarray | None = None  # [N] class of the texture
    condition: Sequence[str] | None = None  # of each trial of an experiment
    confidence: np.ndarray | None = None  # [N] probability of the decision
    rank: np.ndarray | None = None  # [N] place of the label among all the model's outputs
    texture_rank: np.ndarray | None = None
    label_map: str = "recorded"
    preprocessing: str = ""

    @property
    def right(self) -> np.ndarray:
        found: np.ndarray = self.decision == self.label
        return found

    def cue_counts(self, shape_class: str | None = None) -> cues.CueCounts | None:
        """Decisions for either cue, of all images or of one shape class; None without images whose cues conflict."""
        if self.texture is None:
            return None
        rows = slice(None) if shape_class is None else self.label == shape_class
        ranks = (None if of is None else of[rows] for of in (self.rank, self.texture_rank))
        counts = cues.count(self.label[rows], self.texture[rows], self.decision[rows], *ranks)
        return counts if counts.images else None


def calibration(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error of N decisions, in bins (0, 1/15], (1/15, 2/15], ... of their confidence."""
    number = measures.CALIBRATION_BINS
    confidence = confidence.astype(np.float64)
    bins = np.clip(np.ceil(confidence * number).astype(int) - 1, 0, number - 1)
    of_bin = [np.bincount(bins, weights).tolist() for weights in (None, right, confidence)]
    return measures.expected_calibration_error(*of_bin)


def pooled(answers: Sequence[Answers]) -> Answers:
    """The trials of several observers as if they were one's."""
    textures = [one.texture for one in answers]
    return Answers(
        observer="all",
        set=answers[0].set,
        images=[image for one in answers for image in one.images],
        label=np.concatenate([one.label for one in answers]),
        decision=np.concatenate([one.decision for one in answers]),
        classes=tuple(sorted({name for one in answers for name in one.classes})),
        texture=None if any(t is None for t in textures) else np.concatenate([t for t in textures if t is not None]),
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def recorded_files(words: str) -> tuple[Path, ...]:
    """The files that `a.csv,b.parquet` names; none where it names anything else."""
    paths = [Path(word.strip()).expanduser() for word in words.split(",") if word.strip()]
    return tuple(paths) if paths and all(path.suffix.lower() in RECORDED for path in paths) else ()


def read(paths: Sequence[Path]) -> list[Answers]:
    """Every observer in the files, in the order of appearance; UsageError says what is wrong with a file.

    The trials that several CSV files have of one subject are put together, those on cue-conflict images apart.
    """
    import pandas as pd

    frames, found = [], []
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
        if path.suffix.lower() == ".csv":
            frames.append(_read_csv(path))
        else:
            found.append(_read_parquet(path))
    if frames:
        trials = pd.concat(frames)
        trials["cues"] = [cues.cue_classes(name) for name in trials["imagename"]]
        parts = trials.groupby([trials["cues"].notna(), "subj"], sort=False)
        found += [_subject(str(name), rows) for (_, name), rows in parts]
    names = [(one.observer, one.set) for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two of the files are of the observer '{name[0]}': give one of them, or rename it")
    return found


def _read_csv(path: Path) -> Any:
    """The trials as a frame of text."""
    import pandas as pd

    try:
        # Without an index, pandas warns of fields that have no column, in place of shifting all the others.
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            frame = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True, index_col=False)
    except pd.errors.ParserWarning:
        raise UsageError(f"{path}: has rows with more fields than its first line has names") from None
    except (OSError, ValueError) as error:  # pandas's parser errors are ValueErrors
        raise UsageError(f"{path}: can't be read as CSV ({str(error).splitlines()[0]})") from None
    missing = [name for name in ("object_response", "category", "imagename") if name not in frame]
    if missing:
        raise UsageError(f"{path}: lacks the column {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}")
    if frame.empty:
        raise UsageError(f"{path}: holds no trials")
    if "subj" not in frame:
        frame["subj"] = path.stem
    if "condition" not in frame:
        frame["condition"] = ""
    return frame


def _subject(name: str, trials: Any) -> Answers:
    images = trials["imagename"].tolist()
    label = trials["category"].to_numpy(dtype=object)
    found = trials["cues"].tolist()
    if found[0] is not None:
        _check_shapes(name, images, label, found)
    texture = None if found[0] is None else np.array([named[1] for named in found], dtype=object)
    return Answers(
        observer=name,
        set="decisions" if texture is None else "cue_conflict",
        images=images,
        label=label,
        decision=trials["object_response"].to_numpy(dtype=object),
        classes=tuple(sorted(set(label))),
        texture=texture,
        condition=trials["condition"].tolist(),
    )


def _check_shapes(observer: str, images: Sequence[str], label: np.ndarray, found: Sequence[tuple[str, str]]) -> None:
    """UsageError where an image's name has another shape than its category, which is then something else."""
    for image, (shape, _), category in zip(images, found, label, strict=True):
        if shape != category:
            raise UsageError(f"{observer}: {image} shows the shape {shape}, but its category is {category}")


def _read_parquet(path: Path) -> Answers:
    """One of our own predictions."""
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise UsageError(f"{path}: can't be read as parquet ({str(error).splitlines()[0]})") from None
    missing = [name for name in ("image", "label", "decision") if name not in table.column_names]
    if missing or not len(table):
        raise UsageError(f"{path}: no predictions of biasbed ({f'no column {missing[0]}' if missing else 'empty'})")
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names if name != "top5"}
    in_run = path.parent.parent.name == "predictions"
    return Answers(
        observer=path.absolute().parents[2].name if in_run else path.stem,
        set=path.parent.name if in_run else "cue_conflict" if "bias" in columns else "decisions",
        images=table["image"].to_pylist(),
        label=columns["label"],
        decision=columns["decision"],
        classes=tuple(sorted(set(columns["label"]))),
        texture=columns.get("bias"),
        confidence=columns.get("confidence"),
        rank=columns.get("rank"),
        texture_rank=columns.get("bias_rank"),
        label_map=((table.schema.metadata or {}).get(b"label_map") or b"recorded").decode(),
    )


# --- error consistency ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """How two observers agree on being right, over the images that both have seen."""

    set: str
    a: str
    b: str
    images: int
    both_right: int
    only_a: int
    only_b: int
    both_wrong: int

    @property
    def kappa(self) -> float:
        return measures.error_consistency(self.both_right, self.only_a, self.only_b, self.both_wrong)


def consistency(answers: Sequence[Answers]) -> list[Pair]:
    """All pairs of observers that have seen images in common, told by their names.

    Raises UsageError where an observer has answered one image several times, or two observers' images of one name have
    different labels.
    """
    keys = image_keys(answers)
    found = [dict(zip(names, range(len(names)), strict=True)) for names in keys]
    pairs = []
    for second in range(len(answers)):
        for first in range(second):
            common = [name for name in keys[first] if name in found[second]]
            if common:
                rows = [np.array([found[number][name] for name in common]) for number in (first, second)]
                pairs.append(_pair(answers[first], answers[second], rows, common))
    return pairs


def _pair(a: Answers, b: Answers, rows: Sequence[np.ndarray], common: Sequence[str]) -> Pair:
    different = np.flatnonzero(a.label[rows[0]] != b.label[rows[1]])
    if len(different):
        at = int(different[0])
        labels = f"{a.label[rows[0][at]]} for {a.observer} and {b.label[rows[1][at]]} for {b.observer}"
        raise UsageError(f"{common[at]} is a {labels}: these are decisions on different images or classes")
    right_a, right_b = a.right[rows[0]], b.right[rows[1]]
    cells = (right_a & right_b, right_a & ~right_b, ~right_a & right_b, ~right_a & ~right_b)
    return Pair(a.set, a.observer, b.observer, len(common), *(int(cell.sum()) for cell in cells))


def matching_set(observer: Answers, sets: Mapping[str, Sequence[str]]) -> str:
    """Which of the sets, given with the ids of their images, an observer has decided on.

    That is the one of its name, else the only one with images of the same names; UsageError where there is none such.
    """
    own = {cues.image_name(image) for image in observer.images}
    found = [name for name, ids in sets.items() if any(cues.image_name(image) in own for image in ids)]
    if observer.set in found:
        return observer.set
    if len(found) != 1:
        what = f"the images of several sets ({', '.join(found)})" if found else "no image of any set"
        raise UsageError(f"compare: the names in the decisions of {observer.observer} are of {what}: choose with sets=")
    return found[0]


def image_keys(answers: Sequence[Answers]) -> list[list[str]]:
    """What each image of each observer is called, so that equal names are equal images: the shortest that is unique.

    That is the bare name; else condition and name, as where an experiment shows an image in several; else the whole id.
    """
    tried = [
        [[cues.image_name(image) for image in one.images] for one in answers],
        [
            [
                f"{c}/{cues.image_name(i)}"
                for c, i in zip(one.condition or [""] * len(one.images), one.images, strict=True)
            ]
            for one in answers
        ],
    ]
    if not any(one.condition for one in answers):  # a trial's whole name is unique even where its image is not
        tried.append([list(one.images) for one in answers])
    for names in tried:
        if all(len(set(of)) == len(of) for of in names):
            return names
    repeated = next(one for one, of in zip(answers, tried[-1], strict=True) if len(set(of)) < len(of))
    raise UsageError(f"{repeated.observer} answers the same image more than once: give the files of one experiment")
