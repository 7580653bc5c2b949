"""Decisions that are in files already: who answered what to which image, somewhere else.

Read are the CSV files of Geirhos et al. (texture-vs-shape 2019, model-vs-human 2021; one row per trial:
`subj,session,trial,rt,object_response,category,condition,imagename`) and our own predictions. A file comes from
anywhere and may have been cut off on its way: a row that is not whole is refused, not counted. No torch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from biasbed import record
from biasbed.config import Config
from biasbed.data.names import Coded, Names
from biasbed.datasets.classes import cue_classes
from biasbed.errors import UsageError, listed
from biasbed.evaluation import cue_figure, decisions, report
from biasbed.evaluation.answer_names import check_answers
from biasbed.evaluation.consistency import consistency
from biasbed.evaluation.decisions import MODELS, PEOPLE, Decisions
from biasbed.evaluation.run import EvaluationRun, finish, left_alone, run_name
from biasbed.options import EvaluateOptions
from biasbed.published import shape_bias_figure
from biasbed.settings import build, flatten
from biasbed.system.files import sha256
from biasbed.system.strict import parse_float, parse_json, read_parquet
from biasbed.system.tables import read_lines
from biasbed.tracking.folder import home
from biasbed.tracking.launched import take_run_id
from biasbed.tracking.tracker import Tracker

SUFFIXES = (".csv", ".parquet")
NEEDED = ("object_response", "category", "imagename")  # columns of a CSV file
# Columns of our predictions.
NAMES = ("image", "label", "decision", "bias", "group", "condition")
NUMBERS = ("confidence", "rank", "bias_rank", "loss")
COLUMNS = (*NAMES, *NUMBERS)
LISTS = ("targets", "scores")  # where images have several labels


def files(words: str) -> tuple[Path, ...]:
    """The files that `a.csv,b.parquet` names; none where it names anything else."""
    paths = [Path(word.strip()).expanduser() for word in words.split(",") if word.strip()]
    return tuple(paths) if paths and all(path.suffix.lower() in SUFFIXES for path in paths) else ()


def read(paths: Sequence[Path]) -> list[Decisions]:
    """Every observer in the files, in the order of appearance; UsageError says what is wrong with a file.

    The trials that several CSV files have of one subject are put together, those on cue-conflict images apart.
    """
    trials: list[Trial] = []
    found = []
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
        if path.suffix.lower() == ".csv":
            trials += _read_csv(path)
        else:
            found.append(read_predictions(path))
    parts: dict[tuple[bool, str], list[Trial]] = {}
    for trial in trials:
        parts.setdefault((trial.cues is None, trial.subject), []).append(trial)
    found += [_subject(name, rows) for (_, name), rows in parts.items()]
    names = [(one.observer, one.set) for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two of the files are of the observer '{name[0]}': give one of them, or rename it")
    return found


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of a CSV file."""

    subject: str
    response: str
    category: str
    image: str
    condition: str
    session: str
    is_timed: bool  # it has a reaction time
    cues: tuple[str, str] | None  # the classes of shape and texture


def _read_csv(path: Path) -> list[Trial]:
    """The trials of a file; UsageError names the line of one that is not whole."""
    lines = read_lines(path)
    _, names = next(lines, (0, []))
    missing = [name for name in NEEDED if name not in names]
    if missing:
        has = listed(names) or "no lines"
        raise UsageError(f"{path}: lacks the column {listed(missing)}; it has {has}")
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise UsageError(f"{path}: has the column '{twice[0]}' twice")
    trials = []
    for number, fields in lines:
        row = dict(zip(names, fields, strict=False))
        problem = _problem(names, fields, row)
        if problem:
            raise UsageError(f"{path}, line {number}: {problem}: was the file cut off, or edited?")
        trials.append(_trial(row, path.stem))
    if not trials:
        raise UsageError(f"{path}: holds no trials")
    _refuse_cut_name(path, number, trials)
    return trials


def _problem(names: Sequence[str], fields: Sequence[str], row: Mapping[str, str]) -> str | None:
    """What is wrong with a line, None where nothing is."""
    if len(fields) != len(names):
        which = "more" if len(fields) > len(names) else "fewer"
        return f"has {which} fields than the first line has names, {len(fields)} and {len(names)}"
    empty = [name for name in (*NEEDED, "subj") if row.get(name) == ""]
    return f"has an empty {empty[0]} (a trial without a response has 'na' there)" if empty else None


def _trial(row: Mapping[str, str], default_subject: str) -> Trial:
    is_timed = False
    with contextlib.suppress(ValueError):  # a model's is no number
        is_timed = math.isfinite(parse_float(row.get("rt", "nan")))
    return Trial(
        subject=row.get("subj", default_subject),
        response=row["object_response"],
        category=row["category"],
        image=row["imagename"],
        condition=row.get("condition", ""),
        session=row.get("session", ""),
        is_timed=is_timed,
        cues=cue_classes(row["imagename"]),
    )


def _refuse_cut_name(path: Path, number: int, trials: Sequence[Trial]) -> None:
    """UsageError where the file ends within the name of its last image, so that nothing else is missing."""
    *before, last = (Path(trial.image).suffix for trial in trials)
    if last not in before and any(suffix.startswith(last) for suffix in before):  # .pn of .png
        name = trials[-1].image
        raise UsageError(f"{path}, line {number}: '{name}' is called unlike the other images: was the file cut off?")


def _subject(name: str, trials: Sequence[Trial]) -> Decisions:
    label = Coded.of(trial.category for trial in trials)
    found = [trial.cues for trial in trials if trial.cues is not None]
    images = [trial.image for trial in trials]
    if found:
        _check_shapes(name, images, label, found)
    # Geirhos et al. call people subject-01, subject-02, ...; a model has no reaction time.
    is_person = name.lower().startswith("subject") or any(trial.is_timed for trial in trials)
    return Decisions(
        observer=name,
        set="cue_conflict" if found else "decisions",
        images=Names(images),
        label=label,
        decision=Coded.of(trial.response for trial in trials),
        classes=tuple(sorted(set(label))),
        bias=Coded.of(texture for _, texture in found) if found else None,
        condition=Coded.of(trial.condition for trial in trials),
        session=Coded.of(trial.session for trial in trials),
        kind=PEOPLE if is_person else MODELS,
    )


def _check_shapes(observer: str, images: Sequence[str], label: Coded, found: Sequence[tuple[str, str]]) -> None:
    """UsageError where an image's name has another shape than its category, which is then something else."""
    for image, (shape, _), category in zip(images, found, label, strict=True):
        if shape != category:
            raise UsageError(f"{observer}: {image} shows the shape {shape}, but its category is {category}")


def read_predictions(path: Path) -> Decisions:
    """Predictions of our own (`decisions.write_predictions`); UsageError where they are none, or not whole."""
    from pyarrow import ArrowException

    try:
        words = [name for name in NAMES if name != "image"]
        table = read_parquet(path, (*COLUMNS, *LISTS), words)
        missing = [name for name in ("image", "label", "decision") if name not in table.column_names]
        if missing or not len(table):
            raise UsageError(f"{path}: no predictions of biasbed ({f'no column {missing[0]}' if missing else 'empty'})")
        _check_columns(path, table)
        columns: dict[str, Any] = {name: _column(table[name]) for name in table.column_names if name not in LISTS}
        about = table.schema.metadata or {}
        labels, lists = _labels(path, table, about)
    except (OSError, ArrowException, ValueError) as error:  # ValueError: names that are no UTF-8
        raise UsageError(f"{path}: can't be read as parquet ({str(error).splitlines()[0]})") from None
    in_run = path.parent.parent.name == "predictions"
    return Decisions(
        observer=path.absolute().parents[2].name if in_run else path.stem,
        set=path.parent.name if in_run else "cue_conflict" if "bias" in columns else "decisions",
        images=columns["image"],
        label=columns["label"],
        decision=columns["decision"],
        classes=labels or tuple(sorted(name for name, images in columns["label"].counts().items() if images)),
        bias=columns.get("bias"),
        group=columns.get("group"),
        condition=columns.get("condition"),
        confidence=columns.get("confidence"),
        loss=columns.get("loss"),
        rank=columns.get("rank"),
        bias_rank=columns.get("bias_rank"),
        label_map=(about.get(b"label_map") or b"recorded").decode(errors="replace"),
        targets=lists.get("targets"),
        scores=lists.get("scores"),
    )


def _column(column: Any) -> Any:
    """Numbers [N], names that are there often, or those of images."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries().combine_chunks()
        return Coded(column.indices.to_numpy(), column.dictionary.to_pylist())
    if pa.types.is_string(column.type):
        column = column.combine_chunks()
        _, ends, content = column.buffers()
        places = np.frombuffer(ends, dtype=np.int32)[column.offset :][: len(column) + 1]
        return Names.of(np.frombuffer(content or b"", dtype=np.uint8), places)
    return column.to_numpy()


def _labels(path: Path, table: Any, about: Mapping[bytes, bytes]) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """(the labels that an image may have several of, the columns [N,K] of them); nothing in other predictions."""
    if b"labels" not in about:
        return (), {}
    labels = parse_json(about[b"labels"])
    found = {n: _lists(table[n]) for n in LISTS if n in table.column_names}
    kinds = {"targets": "b", "scores": "f"}
    shapes = {(n, of.dtype.kind, of.shape) for n, of in found.items()}
    are_words = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not are_words or shapes != {(n, kinds[n], (len(table), len(labels))) for n in LISTS}:
        raise UsageError(f"{path}: no predictions of biasbed (its columns of labels are not whole)")
    return tuple(labels), found


def _lists(column: Any) -> np.ndarray:
    """The entries [N,K] of a column of lists. Empty if they differ in length, or some are missing."""
    from pyarrow import compute, types

    has_lists = types.is_list(column.type) or types.is_fixed_size_list(column.type)
    lengths = compute.unique(compute.list_value_length(column)).to_pylist() if has_lists else []
    entries = column.combine_chunks().flatten() if len(lengths) == 1 and lengths[0] else None
    if entries is None or entries.null_count:
        return np.empty(0)
    found: np.ndarray = entries.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return found


def _check_columns(path: Path, table: Any) -> None:
    """UsageError for predictions with other types than ours, or holes."""
    import pyarrow as pa

    for name in COLUMNS:
        if name in table.column_names:
            kind = table.schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            fits = (
                pa.types.is_string(kind) if name in NAMES else pa.types.is_integer(kind) or pa.types.is_floating(kind)
            )
            if not fits or table[name].null_count:
                what = "missing values" if fits else f"the type {kind}"
                raise UsageError(f"{path}: no predictions of biasbed (the column {name} has {what})")


RECORDED_SUITE = "decisions"  # the suite that runs of recorded decisions name


def evaluate_recorded(options: EvaluateOptions, given: Mapping[str, Any], files: Sequence[Path]) -> dict[str, float]:
    """Score decisions that are on disk: each observer's, those of all people of a set, and those of all models."""
    for name in ("weights", "label_map", "compare", "algorithm"):
        if getattr(options, name) not in ("none", "auto"):
            raise UsageError(f"{name}= is for a model that is tested here, and {files[0].name} holds decisions already")
    config = build(Config, given)
    if config.limit is not None:
        raise UsageError(f"limit= is for a model that is tested here, and {files[0].name} holds decisions already")
    answers = read(files)
    by_set = {
        name: decisions.identified([one for one in answers if one.set == name])
        for name in dict.fromkeys(one.set for one in answers)
    }
    for group in by_set.values():
        check_answers(group)
    pairs = [pair for group in by_set.values() for pair in consistency(group)]
    wholes = {name: _wholes(group) for name, group in by_set.items()}
    shown = {name: [*group, *(one for one in wholes[name] if one not in group)] for name, group in by_set.items()}
    metrics: dict[str, float] = {}
    for one in (one for group in wholes.values() for one in group):
        kind = one.kind if len(wholes[one.set]) > 1 else None
        metrics |= {str(record.MetricName("test", key, one.set, kind)): value for key, value in _measured(one).items()}
    name, protocol = record.slug(files[0].stem)[:40], _protocol(by_set)
    cell = "" if config.cell == "auto" else config.cell
    run = EvaluationRun(
        name=run_name(name, str(config.row), cell),
        suite=RECORDED_SUITE,
        study=config.study,
        experiment=config.experiment,
        algorithm=name,
        seed=0,
        offline=config.tracking == "offline",
        home=home(config),
        settings=flatten(options),
        what={},
        protocol=protocol,
        data=record.digest([sha256(path) for path in files]),
        row=name if config.row == "auto" else config.row,
        cell=cell,
        tested=protocol.tested,
    )
    folder = run.folder(options.resume)
    if folder.is_done:
        return left_alone(folder)
    with folder.locked(), folder.commanded():
        tracker = Tracker(folder, take_run_id(folder.marks, run.offline), run.offline)
        report.write(folder.path, [one for group in shown.values() for one in group], pairs)
        for name, group in shown.items():
            conflicts = list(filter(cue_figure.has_bias, group))
            for_all = conflicts if len(conflicts) <= shape_bias_figure.MOST else wholes[name]
            cue_figure.draw({one.observer: one for one in for_all}, folder.path / cue_figure.FILE.format(name))
        run.start(folder, tracker)
        finish(tracker, metrics)
        for name, group in shown.items():
            print(f"{name}:")
            print(report.text(group, [pair for pair in pairs if pair.set == name], "observer"))
        print(tracker.ending())
    return metrics


def _wholes(answers: Sequence[Decisions]) -> list[Decisions]:
    """The people among the observers of a set as one, and the models: never one number for both."""
    kinds = dict.fromkeys(one.kind for one in answers)
    groups = ([one for one in answers if one.kind == kind] for kind in kinds)
    return [group[0] if len(group) == 1 else decisions.pooled(group) for group in groups]


def _measured(one: Decisions) -> dict[str, float]:
    """The measures that these decisions give, by name."""
    values = {name: measure(one) for name, measure in decisions.MEASURES.items()}
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _protocol(by_set: Mapping[str, Sequence[Decisions]]) -> record.Protocol:
    sets = []
    for name, group in by_set.items():
        classes = {label for one in group for label in one.classes}
        sets.append(
            record.SetRecord(
                name=name,
                headline="accuracy",
                images=report.distinct(np.concatenate([one.image_of_trial for one in group])),
                classes=len(classes),
                chance=1 / len(classes),
                measures=tuple(dict.fromkeys(key for one in _wholes(group) for key in _measured(one))),
                label_map=group[0].label_map if len(group) == 1 else "recorded",
            )
        )
    return record.Protocol(RECORDED_SUITE, tuple(sets), (), (), monitor="")
