"""Recovery of damaged or half-written results in a training's folder: checkpoints, decisions, journal and settings.

Answers: What mends a damaged run folder?
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from biasbed import record
from biasbed.compute import checkpoint
from biasbed.errors import Failure, UsageError
from biasbed.system import strict_yaml
from biasbed.system.files import write_whole
from biasbed.system.strict import read_text
from biasbed.tracking.folder import JOURNAL, RunFolder, evaluations
from biasbed.tracking.tracker import Record

if TYPE_CHECKING:
    from biasbed.compute.distributed import Group

# In a folder's state: a training went on though its best weights were lost; which checkpoints were kept in the end.
WITHOUT_BEST, KEPT = "without_best", "kept"


# --- before a training resumes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resumed:
    """Results of a training that resumes, as its newest checkpoint has them."""

    history: Sequence[Record]
    best: Mapping[str, float] | None  # {"value", "number"} of the best evaluation
    evaluated: int | None  # number of the evaluation whose weights the training has at the moment, if any
    sets: Sequence[str]  # names of all evaluation sets
    unit: str  # in which evaluations are numbered, epoch or step
    accepts_loss: bool  # of the best weights


def mend_results(
    folder: RunFolder, resumed: Resumed, group: Group, decide_again: Callable[[str, int, Collection[str]], None]
) -> None:
    """Restore the best weights and all decisions before a training goes on; every rank takes part.

    Takes lost weights from another checkpoint that has them, and lost decisions from the weights that made them.
    decide_again: decides with the weights of the `best` or the `last` evaluation, of this number, on these sets, and
    writes the decisions. Raises Failure if the best weights are lost and the training does not accept that.
    """
    best = resumed.best
    if best is None:
        return
    has_best = group.share_object(_mend_best(folder.path, best) if group.is_main else None)
    if not has_best:
        name = f"{resumed.unit} {best['number']:.0f}"
        if not resumed.accepts_loss:
            raise Failure(
                f"{folder.path / checkpoint.BEST} is lost or damaged, and no other file has the weights of {name}, the "
                "best one: resume=without_best trains on without them, resume=never starts anew"
            )
        if group.is_main:
            print(f"warning: going on without the weights of {name}, the best one", file=sys.stderr)
            (folder.path / checkpoint.BEST).unlink(missing_ok=True)
            folder.write_state({**folder.read_state(), WITHOUT_BEST: True})
    numbers = {"last": resumed.evaluated}
    if has_best:
        numbers = {"best": int(best["number"]), **numbers}
    for which, number in numbers.items():
        if number is None:
            continue
        sets = decided_sets(resumed.history, number)
        is_lost = group.is_main and _are_decisions_lost(folder.path, which, number, sets.intersection(resumed.sets))
        if group.share_object(is_lost):
            decide_again(which, number, sets)


def _mend_best(folder: Path, best: Mapping[str, float]) -> bool:
    """Take lost best weights from another checkpoint if one has them; return False if the weights are lost."""
    kept = _read_best(folder / checkpoint.BEST)
    # A later one was written just before a kill: its evaluation comes again.
    if kept is not None and kept["best"]["number"] >= best["number"]:
        return True
    for name in (checkpoint.LAST, checkpoint.PREVIOUS):
        state = _read_best(folder / name)
        if state is not None and state.get("evaluated") == best["number"]:
            checkpoint.save_whole(folder / checkpoint.BEST, {**checkpoint.described(state), "best": dict(best)})
            print(f"warning: {checkpoint.BEST} was lost or damaged; {name} has its weights", file=sys.stderr)
            return True
    return False


def _are_decisions_lost(folder: Path, which: str, number: int, sets: Iterable[str]) -> bool:
    if find_lost_decisions(folder, sets, which) is None:
        return False
    if which == "last":
        return True
    kept = _read_best(folder / checkpoint.BEST)
    # The evaluation of later weights comes again, and writes its decisions.
    return kept is not None and bool(kept["best"]["number"] == number)


# --- after a training has ended ---------------------------------------------------------------------------------------


def trim(folder: RunFolder, keep: str) -> None:
    """Keep only the checkpoints of an ended training that the setting `keep` names, with weights alone."""
    if keep == "all":
        return
    folder.write_state({**folder.read_state(), KEPT: keep})  # before anything is missing
    path = folder.path
    if keep == "none":
        (path / checkpoint.BEST).unlink(missing_ok=True)
    if keep != "best_last":
        (path / checkpoint.LAST).unlink(missing_ok=True)
    (path / checkpoint.PREVIOUS).unlink(missing_ok=True)
    if (path / checkpoint.LAST).exists():
        checkpoint.save_whole(path / checkpoint.LAST, checkpoint.described(checkpoint.load(path / checkpoint.LAST)))


def is_best_lost(folder: RunFolder, keep: str) -> bool:
    """Return True if the best weights are missing though the setting `keep` asks for them."""
    return keep != "none" and not (folder.path / checkpoint.BEST).exists()


def reopen_if_lost(folder: RunFolder) -> str | None:
    """Mark a finished training as unfinished if the folder has lost a result; return the name of that file, or None.

    The command that trained it then goes on at its end, and restores the result or says that it can't.
    """
    lost = _find_lost_result(folder)
    if lost is not None:
        folder.unmark_done()
    return lost


def _find_lost_result(folder: RunFolder) -> str | None:
    """Return the first result that is missing or damaged."""
    try:
        protocol = record.Protocol.from_json(read_text(folder.path / record.PROTOCOL_FILE))
    except Exception:  # json and Protocol raise nearly anything on a damaged text
        return record.PROTOCOL_FILE
    numbers = _kept_numbers(folder)
    if numbers is None:
        return checkpoint.BEST
    # Of the protocol, whose sets may be those of other trainings too, only sets with metrics have decisions.
    in_protocol = {*(recorded.name for recorded in protocol.sets), *protocol.validation_sets}
    records = folder.read_journal()
    for which, number in numbers.items():
        lost = find_lost_decisions(folder.path, sorted(decided_sets(records, number) & in_protocol), which)
        if lost is not None:
            return lost
    return None


def _kept_numbers(folder: RunFolder) -> dict[str, int] | None:
    """Return the evaluations whose decisions the folder should have, by number; None if its best weights are lost."""
    state, best = folder.read_state(), folder.path / checkpoint.BEST
    records = evaluations(folder.read_journal())
    last = {"last": int(records[-1]["step"])} if records else {}
    if state.get("tags", {}).get(record.KIND) == "evaluate":  # it has no weights of its own
        if not (folder.path / "predictions").exists():
            return {}
        return last
    state_of_best = _read_best(best)
    if state_of_best is not None:
        return {"best": int(state_of_best["best"]["number"]), **last}
    is_meant = state.get(WITHOUT_BEST) or state.get(KEPT) == "none"
    if is_meant and not best.exists():
        return last
    return None


# --- before a finished training is sent -------------------------------------------------------------------------------


def mend_description(folder: RunFolder) -> None:
    """Rewrite a damaged or lost journal and config from a checkpoint. Raises Failure if no checkpoint has them."""
    newest = None
    with contextlib.suppress(Failure):  # checkpoints of weights alone have no records
        newest, _ = checkpoint.load_newest(folder.path)
    if newest is None:
        newest = {"history": [], "config": _settings_of_weights(folder)}
    _mend_journal(folder, newest["history"])
    settings = newest["config"]
    path = folder.path / record.CONFIG_FILE
    if settings and not _has_settings(path, settings):
        write_whole(path, yaml.safe_dump(settings, sort_keys=False))


def _settings_of_weights(folder: RunFolder) -> Mapping[str, Any]:
    """Return the settings of a checkpoint of weights alone; empty if there is none."""
    for name in (checkpoint.LAST, checkpoint.BEST):
        with contextlib.suppress(Failure):
            settings: Mapping[str, Any] = checkpoint.load(folder.path / name, parts={"config": dict})["config"]
            return settings
    return {}


def _mend_journal(folder: RunFolder, history: Sequence[Record]) -> None:
    records = folder.read_journal()
    if len(history) > len(records):
        folder.write_journal(history)
    elif not records or not folder.has_whole_journal:
        raise Failure(f"its {JOURNAL} is damaged, and no checkpoint has the records")


def _has_settings(path: Path, settings: Mapping[str, Any]) -> bool:
    """Return True if a file has all of these settings, with any values, and is as it was written."""
    try:
        text = read_text(path)
        values = strict_yaml.parse(text, str(path))
        return list(values) == list(settings) and yaml.safe_dump(values, sort_keys=False) == text
    except (OSError, ValueError, TypeError, UsageError):
        return False


# --- files ------------------------------------------------------------------------------------------------------------


def decided_sets(records: Iterable[Mapping[str, Any]], number: int) -> set[str]:
    """Return the sets that were decided on with the weights of an evaluation, at once or at the end."""
    sets = set()
    for result in records:
        if result["step"] != number or "stage" in result:
            continue
        for metric in map(record.parse_metric, result["metrics"]):
            if metric is not None and metric.set is not None:
                sets.add(metric.set)
    return sets


def _read_best(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint of best weights; None if it is missing or damaged."""
    with contextlib.suppress(Failure):
        return checkpoint.load(path, parts={**checkpoint.DESCRIPTION, "best": dict})
    return None


def find_lost_decisions(folder: Path, sets: Iterable[str], which: str) -> str | None:
    """Return the first file of decisions that is missing or cut off, None if all are there."""
    from pyarrow import ArrowException, parquet

    for name in sets:
        file = record.predictions_file(name, which)
        try:
            parquet.read_metadata(folder / file)
        except (OSError, ArrowException):
            return file
    return None
