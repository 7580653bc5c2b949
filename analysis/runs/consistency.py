"""What must be alike among the runs of one algorithm, and which of several runs of one key counts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from biasbed.errors import Failure

if TYPE_CHECKING:
    from biasbed.analysis.runs.run import Run


def first_of_each_key(runs: Iterable[Run], which: str = "first") -> tuple[list[Run], list[Run]]:
    """The runs that count and the others that finished with the same run key.

    The first to finish counts, so that a bad seed can't be re-rolled; `which="last"` turns that round.
    """
    by_key: defaultdict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda r: (r.ended, r.started, r.id)):
        by_key[run.run_key].append(run)
    index = 0 if which == "first" else -1
    counted = [same[index] for same in by_key.values()]
    ids = {run.id for run in counted}
    others = [run for same in by_key.values() for run in same if run.id not in ids]
    order = _display_order
    return sorted(counted, key=order), sorted(others, key=order)


def _display_order(run: Run) -> tuple[str, int, str, str, list[int], str]:
    """Trials of a search by their places there: of equally good ones a rule takes the first, as the sweep does."""
    seed = int(run.seed) if run.seed.isdecimal() else 0
    place = [int(number) for number in re.findall(r"\d+", run.trial)]  # of r1-3: repeat 1, trial 3
    return run.algorithm, seed, run.seed, run.cell or run.test_domains, place, run.id


def duplicate_notes(counted: Sequence[Run], duplicates: Sequence[Run], which: str) -> list[str]:
    """What is said about runs that do not count because another has their key."""
    if not duplicates:
        return []
    keys = Counter(run.run_key for run in duplicates)
    code = {run.run_key: run.code_hash for run in counted}
    changed = sum(code[run.run_key] != run.code_hash for run in duplicates)
    note = f"{len(duplicates)} further run(s) finished with the same run key as {len(keys)} that count(s); the {which}"
    note += " to finish counts, the others are listed with their numbers"
    return [note + (f" ({changed} of them ran other code)" if changed else "")]


@dataclass(frozen=True)
class Irregularity:
    """A way in which runs differ that are compared."""

    allowance: str  # of `ALLOWANCES`, that accepts it
    lines: tuple[str, ...]


def irregularities(runs: Sequence[Run], allow: Sequence[str]) -> list[str]:
    """Notes on what differs between runs that are compared; Failure for what must not differ and is not allowed."""
    differences = [
        found for same in _by_place(runs) for found in _differences(" on ".join(filter(None, same[0].place)), same)
    ]
    differences += _tested_otherwise(runs)
    stops = [difference for difference in differences if difference.allowance not in allow]
    if stops:
        wanted = {stop.allowance for stop in stops}
        names = ",".join(sorted({*wanted, *allow} - {"none"}))
        advice = (
            f"delete the runs that should not count (mlflow runs delete --run-id ID), give each experiment a study of "
            f"its own (study=NAME when training or testing), give models that differ rows of their own (row=NAME when "
            f"testing), or accept it: allow={names}"
        )
        found = [line for stop in stops for line in stop.lines]
        raise Failure("runs of one algorithm differ in more than the seed:", *found, advice)
    notes = ["accepted: " + ": ".join(line.strip() for line in difference.lines) for difference in differences]
    return notes + _oracle_notes(runs) + _commit_notes(runs) + _skipped_notes(runs)


def _oracle_notes(runs: Sequence[Run]) -> list[str]:
    """Hyper-parameters that were chosen on test images, whatever rule then chooses the epoch."""
    chosen = sorted({(run.oracle, run.algorithm) for run in runs if run.oracle})
    metrics = sorted({metric for metric, _ in chosen})
    return [
        f"ORACLE: the hyper-parameters of {', '.join(a for m, a in chosen if m == metric)} were chosen on the test "
        f"images, by {metric}: their scores are an upper bound that no practice can reach"
        for metric in metrics
    ]


def _skipped_notes(runs: Sequence[Run]) -> list[str]:
    skipped = [run for run in runs if run.skipped_images not in ("", "{}")]
    if not skipped:
        return []
    listed = ", ".join(f"{run.algorithm} seed {run.seed} {run.skipped_images}" for run in skipped[:5])
    return [f"{len(skipped)} run(s) left out images that could not be read: {listed}{', ...' * (len(skipped) > 5)}"]


def _commit_notes(runs: Sequence[Run]) -> list[str]:
    own = [run for run in runs if run.kind != "published"]
    commits = Counter((run.git_commit[:10] or "unknown", run.git_dirty == "true") for run in own)
    if len(commits) < 2:
        return []
    listed = ", ".join(f"{c}{'+changes' * dirty}: {count} run(s)" for (c, dirty), count in sorted(commits.items()))
    return [f"the runs come from {len(commits)} states of the repository: {listed}"]


def _by_place(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of each row on each cell."""
    found: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        found[run.place].append(run)
    return [found[place] for place in sorted(found)]


def _differences(place: str, runs: Sequence[Run]) -> list[Irregularity]:
    """Each way in which the runs of one row on one cell differ."""
    found = []
    by_data = _group(runs, "data_fingerprint")
    if len(by_data) > 1:
        found.append(_irregularity(place, "images", "different_data", by_data))
    # Other images mean another config hash too, so configurations are compared among runs on the same images.
    for same in by_data.values():
        # What a search varies is meant to differ; what is searched is not.
        by_config = _group(same, "space" if same[0].kind == "trial" else "config_hash")
        if len(by_config) > 1:
            found.append(_irregularity(place, "settings", "different_config", by_config, *_settings(by_config)))
    by_code = _group(runs, "code_hash")
    if len(by_code) > 1:
        found.append(_irregularity(place, "code", "different_code", by_code))
    return found


def _tested_otherwise(runs: Sequence[Run]) -> list[Irregularity]:
    """Where rows on one cell were tested on other images; runs from before don't say."""
    found = []
    cells = sorted({run.cell for run in runs})
    for cell in cells:
        groups = _group((run for run in runs if run.tested and cell in run.among(cells)), "tested")
        if len(groups) > 1:
            found.append(_irregularity(cell or "all rows", "the images that are tested", "different_data", groups))
    return found


def _irregularity(
    place: str, what: str, allowance: str, groups: Mapping[str, Sequence[Run]], *more: str
) -> Irregularity:
    verb = "differs" if what == "code" else "differ"
    return Irregularity(allowance, (f"  {place}: {what} {verb} [{allowance}]: {_groups(groups)}", *more))


def _group(runs: Iterable[Run], name: str) -> dict[str, list[Run]]:
    groups: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[str(getattr(run, name))].append(run)
    return dict(sorted(groups.items()))


def _groups(groups: Mapping[str, Sequence[Run]]) -> str:
    """`1a2b3c4d: 2 runs (id, id); ...`."""
    parts = []
    for name, runs in groups.items():
        ids = ", ".join(run.id for run in runs[:3]) + ", ..." * (len(runs) > 3)
        parts.append(f"{name[:8] or 'unknown'}: {len(runs)} run(s) ({ids})")
    return "; ".join(parts)


def _settings(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """A line with the settings that are one within each group and differ between groups, if there are any."""
    names = sorted({name for runs in groups.values() for run in runs for name in run.config})
    parts = []
    for name in names:
        values = [{run.config.get(name, "absent") for run in runs} for runs in groups.values()]
        flat = [next(iter(value)) for value in values]
        if all(len(value) == 1 for value in values) and len(set(flat)) > 1:
            parts.append(f"{name}={' / '.join(flat)}")
    return [f"    {', '.join(parts[:8])}{', ...' * (len(parts) > 8)}"] if parts else []
