"""Consistency of the runs of one algorithm: what may differ between them, and what is said of it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from biasbed.analysis.runs.run import Run, distinct, group_runs
from biasbed.errors import Failure


@dataclass(frozen=True)
class Irregularity:
    """Difference between runs that are compared."""

    allowance: str  # the value of `allow=` that accepts it
    lines: tuple[str, ...]


def irregularities(runs: Sequence[Run], allow: Sequence[str]) -> list[str]:
    """Return notes on what differs between compared runs. Raises Failure for differences that are not in `allow`."""
    differences: list[Irregularity] = []
    for row_and_cell, same in sorted(group_runs(runs, "row_and_cell").items()):
        differences += _find_differences(" on ".join(filter(None, row_and_cell)), same)
    differences += _find_other_tests(runs)
    refused = [difference for difference in differences if difference.allowance not in allow]
    if refused:
        names = ",".join(sorted({difference.allowance for difference in refused}.union(allow)))
        advice = (
            f"delete the runs that should not count (mlflow runs delete --run-id ID), give each experiment a study of "
            f"its own (study=NAME when training or testing), give models that differ rows of their own (row=NAME when "
            f"testing), or accept it: allow={names}"
        )
        lines = itertools.chain.from_iterable(difference.lines for difference in refused)
        raise Failure("runs of one algorithm differ in more than the seed:", *lines, advice)
    notes = []
    for difference in differences:
        notes.append("accepted: " + ": ".join(map(str.strip, difference.lines)))
    return notes + _oracle_notes(runs) + _commit_notes(runs) + _skipped_notes(runs)


def _oracle_notes(runs: Sequence[Run]) -> list[str]:
    """Return notes on hyper-parameters that were chosen on test images, whatever rule chooses the epoch."""
    algorithms: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        if run.oracle:
            algorithms[run.oracle].add(run.algorithm)
    notes = []
    for metric, names in sorted(algorithms.items()):
        notes.append(
            f"ORACLE: the hyper-parameters of {', '.join(sorted(names))} were chosen on the test images, by {metric}: "
            "their scores are an upper bound that no practice can reach"
        )
    return notes


def _skipped_notes(runs: Sequence[Run]) -> list[str]:
    """Return a note on runs with images that could not be read."""
    skipped = [run for run in runs if run.skipped_images not in ("", "{}")]
    if not skipped:
        return []
    listed = ", ".join(f"{run.algorithm} seed {run.seed} {run.skipped_images}" for run in skipped[:5])
    return [f"{len(skipped)} run(s) left out images that could not be read: {listed}{', ...' * (len(skipped) > 5)}"]


def _commit_notes(runs: Sequence[Run]) -> list[str]:
    """Return a note if the runs come from several commits."""
    commits: Counter[tuple[str, bool]] = Counter()
    for run in runs:
        if run.kind != "published":
            commits[run.git_commit[:10] or "unknown", run.git_dirty == "true"] += 1
    if len(commits) < 2:
        return []
    listed = ", ".join(f"{c}{'+changes' * dirty}: {count} run(s)" for (c, dirty), count in sorted(commits.items()))
    return [f"the runs come from {len(commits)} states of the repository: {listed}"]


def _find_differences(title: str, runs: Sequence[Run]) -> list[Irregularity]:
    """Return the differences between the runs of one row on one cell."""
    differences = []
    by_data = group_sorted(runs, "data_fingerprint")
    if len(by_data) > 1:
        differences.append(_make_irregularity(title, "images differ", "different_data", by_data))
    # Other images mean another config hash too, so configurations are compared among runs on the same images.
    for same in by_data.values():
        # The trials of a search differ by design; their search spaces must not.
        by_config = group_sorted(same, "space" if same[0].kind == "trial" else "config_hash")
        if len(by_config) > 1:
            settings = _list_differing_settings(by_config)
            differences.append(_make_irregularity(title, "settings differ", "different_config", by_config, *settings))
    by_code = group_sorted(runs, "code_hash")
    if len(by_code) > 1:
        differences.append(_make_irregularity(title, "code differs", "different_code", by_code))
    return differences


def _find_other_tests(runs: Sequence[Run]) -> list[Irregularity]:
    """Return the cells on which rows were tested on different images, which published runs don't tell."""
    differences = []
    cells = distinct(runs, "cell")
    for cell in cells:
        tested = [run for run in runs if run.tested and cell in run.among(cells)]
        groups = group_sorted(tested, "tested")
        if len(groups) > 1:
            subject = "the images that are tested differ"
            differences.append(_make_irregularity(cell or "all rows", subject, "different_data", groups))
    return differences


def _make_irregularity(
    title: str, difference: str, allowance: str, groups: Mapping[str, Sequence[Run]], *further_lines: str
) -> Irregularity:
    """Return a difference with its text. title: row and cell. groups: runs by the value in which they differ."""
    return Irregularity(allowance, (f"  {title}: {difference} [{allowance}]: {_list_groups(groups)}", *further_lines))


def group_sorted(runs: Iterable[Run], name: str) -> dict[str, list[Run]]:
    """Return the runs by the value of a field, sorted by value."""
    return dict(sorted(group_runs(runs, name).items()))


def _list_groups(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return the text `1a2b3c4d: 2 runs (id, id); ...`."""
    parts = []
    for name, runs in groups.items():
        ids = ", ".join(run.id for run in runs[:3]) + ", ..." * (len(runs) > 3)
        parts.append(f"{name[:8] or 'unknown'}: {len(runs)} run(s) ({ids})")
    return "; ".join(parts)


def _list_differing_settings(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return a line with the settings that agree within each group and differ between groups, if there are any."""
    names: set[str] = set()
    for runs in groups.values():
        names = names.union(*(run.config for run in runs))
    parts = []
    for name in sorted(names):
        values_by_group = [{run.config.get(name, "absent") for run in runs} for runs in groups.values()]
        agree_within_groups = all(len(values) == 1 for values in values_by_group)
        values = list(itertools.chain.from_iterable(values_by_group))
        if agree_within_groups and len(set(values)) > 1:
            parts.append(f"{name}={' / '.join(values)}")
    if not parts:
        return []
    return [f"    {', '.join(parts[:8])}{', ...' * (len(parts) > 8)}"]
