"""Which runs count: finished, of one suite, study and protocol, one per run key, alike within an algorithm.

Everything irregular is found here, before any number is computed: what stops the analysis becomes one `Failure` that
lists it all, what does not becomes a note that is printed first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.analysis.runs import consistency, not_applicable
from biasbed.analysis.runs.comparable import TESTED, alike, apart, cells_of, list_scopes, with_protocols
from biasbed.analysis.runs.run import Collection, Run, Scope
from biasbed.analysis.runs.store import parameters
from biasbed.errors import Failure, UsageError, listed, shown
from biasbed.settings import nearest
from biasbed.system import places
from biasbed.system.commands import typed
from biasbed.system.strict import parse_int, parse_json

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.runs.store import RunStore

PUBLISHED_MARK = "@"  # erm@biasbed: the ERM of the BiasBed paper, beside one's own
# Tags with names, by which runs are put together, and by whose numbers they are sorted.
NAMES = (
    *(record.ROW, record.ALGORITHM, record.CELL, record.SEED, record.TEST_DOMAINS, record.TRIAL, record.REPEAT),
    *(record.SUITE, record.STUDY, record.PROTOCOL_HASH, record.SELECTION),
)
LONGEST_NAME = 1000  # characters: Python reads numbers of up to 4,300 digits


def read_runs(runs: Iterable[Any]) -> tuple[list[Run], list[str]]:
    """Return the runs, and a note on those that are left out, as anybody may write tags that can't be read."""
    read, wrong = [], []
    for run in runs:
        try:
            read.append(read_run(run))
        except ValueError as error:
            wrong.append(f"{run.info.run_id} ({error})")
    if not wrong:
        return read, []
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return read, [f"left out, for their tags can't be read: run {', '.join(wrong[:3])}{more}"]


def read_run(run: Any) -> Run:
    """An MLflow run by our tags; a tag that is absent is left empty. ValueError names one that can't be read."""
    tag = run.data.tags.get
    for name in NAMES:
        if len(tag(name, "")) > LONGEST_NAME:
            raise _unreadable(name, tag(name), f"it has more than {LONGEST_NAME} characters")
    if not re.search("[0-9]", tag(record.TRIAL, "0")):
        raise _unreadable(record.TRIAL, tag(record.TRIAL), "it has no number")
    return Run(
        id=run.info.run_id,
        name=run.info.run_name or run.info.run_id,
        experiment=run.info.experiment_id,
        status=run.info.status,
        started=run.info.start_time or 0,
        ended=run.info.end_time or 0,
        kind=tag(record.KIND, ""),
        suite=tag(record.SUITE, ""),
        study=tag(record.STUDY, record.ADHOC),
        protocol=tag(record.PROTOCOL_HASH, ""),
        algorithm=tag(record.ROW, "") or tag(record.ALGORITHM, ""),
        method=tag(record.ALGORITHM, ""),
        cell=tag(record.CELL, ""),
        seed=tag(record.SEED, ""),
        test_domains=tag(record.TEST_DOMAINS, ""),
        run_key=tag(record.RUN_KEY, "") or run.info.run_id,
        config_hash=tag(record.CONFIG_HASH, ""),
        data_fingerprint=tag(record.DATA_FINGERPRINT, ""),
        code_hash=tag(record.CODE_HASH, ""),
        tested=tag(record.TESTED, ""),
        needs=_words(tag(record.NEEDS, "")),
        provides=_words(tag(record.PROVIDES, "")),
        repeat=tag(record.REPEAT, ""),
        space=tag(record.SPACE, ""),
        trial=tag(record.TRIAL, ""),
        trial_state=tag(record.TRIAL_STATE, ""),
        git_commit=tag(record.GIT_COMMIT, ""),
        git_dirty=tag(record.GIT_DIRTY, ""),
        selection=tag(record.SELECTION, ""),
        selection_n=_number(run, record.SELECTION_N),
        source=tag(record.SOURCE, ""),
        summary=_mapping(run, record.SUMMARY),
        skipped_images=tag(record.SKIPPED_IMAGES, ""),
        oracle=tag(record.ORACLE, ""),
        training_data=_mapping(run, record.TRAINING_DATA),
        overlaps=_words(tag(record.OVERLAPS, "")),
        weights=tag(record.WEIGHTS, ""),
        init=_mapping(run, record.INIT),
        parameters=_number(run, record.PARAMETERS),
        images_per_second=float(run.data.metrics.get("time/images_per_second", 0.0)),
        is_quick=bool(tag(record.QUICK, "")),
        config=parameters(run),
    )


def _number(run: Any, name: str) -> int:
    text = run.data.tags.get(name) or "0"
    try:
        return parse_int(text, 0)
    except ValueError as error:
        raise _unreadable(name, text, str(error)) from None


def _mapping(run: Any, name: str) -> dict[str, Any]:
    """The JSON object of a tag: names with numbers or words."""
    text = run.data.tags.get(name) or "{}"
    try:
        found = parse_json(text)
    except ValueError as error:
        raise _unreadable(name, text, str(error)) from None
    kinds = int | float if name == record.TRAINING_DATA else str | int | float | None
    if not isinstance(found, dict) or not all(isinstance(value, kinds) for value in found.values()):
        raise _unreadable(name, text, "it should be an object of plain values")
    return found


def _unreadable(name: str, text: str, reason: str) -> ValueError:
    return ValueError(f"{name}={shown(text, 30)}: {shown(reason, 100)}")


def _words(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def collect(store: RunStore, options: AnalyzeOptions) -> tuple[Collection, list[Any]]:
    """The runs that the options ask for, and all MLflow runs behind them (duplicates and other published rules too).

    UsageError for names that no run has, Failure where nothing or several things could be analysed and where runs of
    one row don't belong together.
    """
    mlflow_runs, every, unreadable = _every(store, options)
    found, notes = _in_scope(store, every, options)
    notes = [*unreadable, *notes]
    unfinished = _unfinished(every, found)
    if "unfinished" in options.allow:
        found, unfinished = [*found, *unfinished], []
    found, protocols, lost = with_protocols(store, found)
    found, more = alike(store, found, protocols)
    found, left = _of_seeds(_of_algorithms(found, options), options.seeds)
    notes += [*lost, *more, *left]
    scope = found[0].scope
    by_rule: dict[str, tuple[Run, ...]] = {}
    if scope.kind == "published":
        by_rule = published_by_rule(found, options.n)
        found = of_published_rule(found, options.selection, options.n, protocols[scope.protocol])
    counted, duplicates = consistency.first_of_each_key(found, options.duplicates)
    notes += consistency.irregularities(counted, () if options.allow == "none" else options.allow)
    notes += consistency.duplicate_notes(counted, duplicates, options.duplicates)
    others = {run.id for run in counted}
    statuses = Counter(r.status for r in every if same_study(r, scope) and not r.finished and r.id not in others)
    counted, evidence = apart(counted)
    cells = cells_of(counted, protocols)
    left_out, lost = not_applicable.read(store, scope, counted, cells)
    collection = Collection(
        scope=scope,
        cells=cells,
        protocols=protocols,
        runs=tuple(counted),
        evidence=tuple(evidence),
        duplicates=tuple(duplicates),
        unfinished=tuple(run for run in unfinished if _is_wanted(run, counted, options.seeds)),
        not_finished=dict(statuses),
        notes=(*notes, *lost),
        left_out=left_out,
        published_by_rule=by_rule,
    )
    needed = dict.fromkeys(run.id for runs in (counted, evidence, duplicates, *by_rule.values()) for run in runs)
    return collection, [mlflow_runs[run_id] for run_id in needed]


def _is_wanted(run: Run, counted: Sequence[Run], seeds: Sequence[str] | str) -> bool:
    return (seeds == "all" or run.seed in seeds) and any(run.algorithm == other.algorithm for other in counted)


# --- suite, study, protocol -------------------------------------------------------------------------------------------

TRAINED, SEARCHED = ("train", "published"), ("trial",)


def _every(store: RunStore, options: AnalyzeOptions) -> tuple[dict[str, Any], list[Run], list[str]]:
    """All runs that may be asked for, and notes; trials, which may be thousands, where nothing else is."""
    mlflow_runs: dict[str, Any] = {}
    for kinds in ((*TRAINED, *TESTED), SEARCHED):
        mlflow_runs |= {run.info.run_id: run for kind in kinds for run in store.runs(kind)}
        every, notes = read_runs(mlflow_runs.values())
        if any(run.finished and _is_asked_for(run, options.study) for run in every):
            break
    return mlflow_runs, every, notes


def _is_asked_for(run: Run, study: str) -> bool:
    """Whether what a user asks for may be there without trials: beside a search models may be tested."""
    return study == "auto" or (run.study == study and run.kind in TRAINED)


def same_study(run: Run, scope: Scope) -> bool:
    """Whether a run may belong beside the runs of this scope."""
    return (run.kind, run.suite, run.study) == (scope.kind, scope.suite, scope.study)


def _unfinished(every: Sequence[Run], found: Sequence[Run]) -> list[Run]:
    """Trainings of the same study that never finished, each once, by the last attempt."""
    done, scopes = {run.run_key for run in found}, {(run.kind, run.suite, run.study) for run in found}
    others = [r for r in every if not r.finished and r.algorithm and r.protocol and r.kind in ("train", *SEARCHED)]
    others = [r for r in others if (r.kind, r.suite, r.study) in scopes and r.run_key not in done]
    return list({run.run_key: run for run in sorted(others, key=lambda run: (run.started, run.id))}.values())


def _in_scope(store: RunStore, runs: Sequence[Run], options: AnalyzeOptions) -> tuple[list[Run], list[str]]:
    """The finished runs of the one study that the options leave, and what to say about the others."""
    finished = [run for run in runs if run.finished and run.algorithm and run.protocol]
    if not finished:
        raise Failure(*_nothing_there(store, runs))
    bare = [run.id for run in runs if run.finished and not (run.algorithm and run.protocol)]
    notes = [f"left out, for they name no algorithm or protocol: {len(bare)} run(s) ({bare[0]} ...)"] if bare else []
    chosen = _matching(finished, "suite", options.suite, runs)
    chosen = _matching(chosen, "study", options.study, runs)
    chosen = _matching(chosen, "protocol", options.protocol, runs)
    trained = [run for run in chosen if run.kind == "train"]
    searched = [run for run in chosen if run.kind in SEARCHED and run.trial_state == "complete"]
    tested = [run for run in chosen if run.kind in TESTED]
    published = [run for run in chosen if run.kind == "published"]
    if trained and published:  # published numbers are analysed when asked for by name
        studies = sorted({run.study for run in published})
        for study in studies:
            notes.append(f"published results are there too; for these: {typed('analyze', {'study': study})}")
    trained = trained or (searched if not published else [])
    beside = {(run.suite, run.study) for run in trained}
    chosen = [*trained, *(run for run in tested if (run.suite, run.study) in beside)] or published or tested
    scopes = Counter((run.suite, run.study) for run in chosen)
    if len(scopes) > 1:
        raise Failure(*list_scopes(store, chosen, Counter(run.scope for run in chosen)))
    return chosen, notes


def _matching(runs: list[Run], name: str, wanted: str, every: Sequence[Run]) -> list[Run]:
    """The runs whose suite, study or protocol is the wanted one; a protocol may be given by its first digits."""
    if wanted == "auto":
        return runs
    matching = [run for run in runs if getattr(run, name) == wanted]
    if not matching and name == "protocol" and len(wanted) >= 4:
        matching = [run for run in runs if run.protocol.startswith(wanted)]
    if not matching:
        unfinished = sum(getattr(run, name) == wanted and not run.finished for run in every)
        known = sorted({str(getattr(run, name)) for run in runs})
        more = f" ({unfinished} unfinished or failed)" if unfinished else ""
        raise UsageError(f"{name}={wanted}: no finished run has it{more}{nearest(wanted, known)}")
    return matching


def _nothing_there(store: RunStore, runs: Sequence[Run]) -> tuple[str, ...]:
    statuses = Counter(run.status for run in runs)
    there = f"only {_counts(statuses)} runs" if statuses else "no runs"
    return (
        f"there is nothing to analyse: {there} on {places.public_uri(store.uri)}",
        f"train some:                   {typed('train', {'algorithm': 'erm'})}",
        f"or take published results:    {typed('import', {'source': 'biasbed'})}",
    )


# --- algorithms and published rules -----------------------------------------------------------------------------------


def _of_algorithms(runs: list[Run], options: AnalyzeOptions) -> list[Run]:
    if options.algorithms == "all":
        return runs
    wanted = [name for name in options.algorithms if not (options.with_published and PUBLISHED_MARK in name)]
    if not wanted:
        raise UsageError(f"algorithms={','.join(options.algorithms)}: name at least one of your own")
    known = sorted({run.algorithm for run in runs})
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"algorithms={','.join(options.algorithms)}: no finished run of '{name}'{nearest(name, known)}; "
                f"to train it: {typed('train', {'algorithm': name})}"
            )
    return [run for run in runs if run.algorithm in wanted]


def _of_seeds(runs: list[Run], wanted: Sequence[str] | str) -> tuple[list[Run], list[str]]:
    """The runs with these seeds, and a note on algorithms that have none."""
    if wanted == "all":
        return runs, []
    known = sorted({run.seed for run in runs}, key=lambda seed: (len(seed), seed))
    for seed in wanted:
        if seed not in known:
            raise UsageError(
                f"seeds={','.join(wanted)}: no finished run has the seed {seed}; there are {listed(known)}"
            )
    found = [run for run in runs if run.seed in wanted]
    lost = sorted({run.algorithm for run in runs} - {run.algorithm for run in found})
    return found, [f"left out, for no run of theirs has these seeds: {', '.join(lost)}"] if lost else []


def published_by_rule(runs: Sequence[Run], n: int) -> dict[str, tuple[Run, ...]]:
    """Published runs by the selection rule that is in their numbers, each run once; of `last_n` those of n epochs.

    Under "" those whose paper names no rule.
    """
    found = {}
    for rule in sorted({run.selection for run in runs}):
        same = [run for run in runs if run.selection == rule and (rule != "last_n" or run.selection_n == n)]
        if same:
            found[rule] = tuple(consistency.first_of_each_key(same)[0])
    return found


def of_published_rule(runs: Sequence[Run], wanted: str, n: int, protocol: record.Protocol) -> list[Run]:
    """The published runs under one selection rule: numbers are published with it, so it can't be chosen afterwards."""
    rules = sorted({run.selection for run in runs})
    if wanted == "auto":
        if protocol.default_selection not in rules and len(rules) > 1:
            raise UsageError(f"name the rule of the published numbers: selection={' or '.join(rules)}")
        wanted = protocol.default_selection if protocol.default_selection in rules else rules[0]
    if rules == [""]:  # what names no rule stands under each
        return list(runs)
    if wanted not in rules:
        raise UsageError(f"selection={wanted}: these results were published under {' and '.join(rules)} only")
    chosen = [run for run in runs if run.selection == wanted]
    lengths = sorted({run.selection_n for run in chosen})
    if wanted == "last_n" and n not in lengths:
        raise UsageError(f"n={n}: these results were published as means over the last {lengths[0]} epochs")
    return [run for run in chosen if wanted != "last_n" or run.selection_n == n]


def _counts(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status.lower()}" for status, count in sorted(statuses.items()))
