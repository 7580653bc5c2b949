"""Command `reproduce`: trains a tracked run again, and gives a verdict per metric.

It first prints how code, data and machine differ from the recorded ones. The second training writes to a folder of its
own, without a server. When it is complete, it is sent as a run of its own kind, so that no study and no analysis counts
it. Repeating the command continues an interrupted training.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from biasbed import algorithms, record, suites
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.options import ReproduceOptions
from biasbed.reproduce import report, verdict
from biasbed.reproduce.differences import Difference, differences, find_thread_count
from biasbed.reproduce.original import Original, history, other_seeds, read
from biasbed.reproduce.verdict import Compared
from biasbed.settings import as_flags
from biasbed.system import code, places
from biasbed.system.processes import PARENT_PROCESS, interruptible
from biasbed.tracking import notes
from biasbed.tracking.folder import RunFolder, exclusive
from biasbed.tracking.launched_run import take_run_id
from biasbed.tracking.server import guarded, resolve_uri, writer
from biasbed.tracking.tracker import Tracker

STUDY = "reproduce"


@dataclass(frozen=True)
class Reproduction:
    """Plan of a reproduction whose training can start."""

    original: Original
    settings: Mapping[str, str]  # of the training
    tags: Mapping[str, str]  # of the training
    differences: list[Difference]


def reproduce(options: ReproduceOptions) -> int:
    """Train `options.run` again and compare; return 0 if its numbers are reproduced, else 1.

    Raises UsageError before anything is trained, Failure if the training or the server fails.
    """
    uri = resolve_uri()
    original = read(uri, options.run)
    kinds = _vouched_kinds(options, original)
    root = _home(uri, options) / "reproductions" / original.id
    with interruptible(), exclusive(root, "reproduced"):
        plan = _plan(options, original, kinds, root)
        print(_introduction(plan), flush=True)
        _refuse_others(options, plan)
        run_id = take_run_id()
        folder = _train(plan, uri)
        return _conclude(plan, folder, uri, run_id, options.alpha)


# --- before the training ----------------------------------------------------------------------------------------------


def _home(uri: str, options: ReproduceOptions) -> Path:
    """Return the folder of all runs."""
    if options.output_dir != "auto":
        return Path(options.output_dir).expanduser().resolve()
    return places.home(uri)


def _vouched_kinds(options: ReproduceOptions, original: Original) -> dict[str, str]:
    """Return the names of method and suite. Raises UsageError for a user's own that the options do not name.

    A file that a server names is never imported.
    """
    where, config = f"run {original.id}", original.config
    algorithm = algorithms.REGISTRY.name_to_load(config.get("algorithm"), options.algorithm, where)
    suite = suites.REGISTRY.name_to_load(config.get("suite", Config.suite), options.suite, where)
    return {"algorithm": algorithm, "suite": suite}


def _plan(options: ReproduceOptions, original: Original, kinds: Mapping[str, str], root: Path) -> Reproduction:
    """Plan the training that repeats the run here, and compare it with the original. Nothing is started."""
    changes = {**kinds, "study": STUDY, "tracking": "offline", "resume": "auto", "log_model": "false"}
    settings = original.settings({**options.places, **changes})
    try:
        tags = _describe(settings, original.command)
    except UsageError as error:
        raise error.with_place(f"run {original.id} can't be repeated here") from None
    # A folder for each state of the code, because no training may be continued by other code.
    settings["output_dir"] = str(root / (tags.get(record.CODE_HASH) or "code")[:8])
    return Reproduction(original, settings, tags, differences(original, tags, code.environment()))


def _describe(settings: Mapping[str, str], command: str) -> dict[str, str]:
    """Return the tags that a run of these settings would have here."""
    if command == "evaluate":
        from biasbed.evaluation.command import read
        from biasbed.evaluation.evaluate_model import load, plan

        options, flags = read(settings)
        return plan(options, flags, load(options, flags)).job.tags()
    from biasbed.compute.device import choose_device
    from biasbed.training import job
    from biasbed.training.resolve import resolve

    resolved = resolve(settings)
    choose_device(resolved.device, resolved.nproc)
    return job.plan(resolved).tags()


def _introduction(plan: Reproduction) -> str:
    """Return the text that is printed first: the run, its device, and the differences between there and here."""
    original, settings = plan.original, plan.settings
    count = find_thread_count(original)
    lines = [
        f"reproducing {original.name} (run {original.id})",
        f"device {settings.get('device')}, {settings.get('nproc', '1')} processes, {settings.get('precision')}, "
        + (f"{count} torch threads each, as recorded" if count else "torch threads as usual: none are recorded"),
    ]
    rows = report.difference_rows(plan.differences)
    hidden = sum(not d.same and not d.shown for d in plan.differences)
    if not original.environment:
        lines.append("the run has no environment.txt: versions and hardware can't be compared")
    if rows:
        lines += ["different here:", report.table(report.DIFFERENCE_HEAD, rows)]
    if hidden:
        lines.append(f"{hidden} other packages differ: {record.DIFFERENCES_FILE} will list them")
    if not rows and not hidden:
        lines.append("nothing that is compared is different here")
    return "\n".join(lines)


def _refuse_others(options: ReproduceOptions, plan: Reproduction) -> None:
    """Raise UsageError if the training here would be another experiment."""
    original, tags = plan.original, plan.tags
    if original.tag(record.DATA_FINGERPRINT) != tags.get(record.DATA_FINGERPRINT) and not options.allows("data"):
        raise UsageError(
            f"the images here are not those of the run (fingerprint {tags.get(record.DATA_FINGERPRINT)}, recorded "
            f"{original.tag(record.DATA_FINGERPRINT)}): give their folder with data_dir=, or accept it with allow=data"
        )
    if original.tag(record.WEIGHTS) != tags.get(record.WEIGHTS, ""):
        raise UsageError(
            f"the model here is not that of the run (weights {tags.get(record.WEIGHTS)}, recorded "
            f"{original.tag(record.WEIGHTS)}): put it back where it was"
        )
    if original.protocol.hash != tags.get(record.PROTOCOL_HASH) and not options.allows("protocol"):
        raise UsageError(
            "the protocol here is not that of the run: accept it with allow=protocol, "
            f"or check out the commit that it was trained at ({original.tag(record.GIT_COMMIT)[:12] or 'not recorded'})"
        )


# --- the training -----------------------------------------------------------------------------------------------------


def _train(plan: Reproduction, uri: str) -> RunFolder:
    """Train, unless an interrupted command has left the finished training; return its folder."""
    folder = _find_finished(plan)
    if folder is None:
        variables = {"MLFLOW_TRACKING_URI": uri}
        count = find_thread_count(plan.original)
        if count:  # sums over a batch depend on the number of threads
            variables |= {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        exit_code = run_command(plan.original.command, plan.settings, variables)
        folder = _find_finished(plan)
        if folder is None:
            raise Failure(f"the training ended with exit code {exit_code}, see above; the same command continues it")
    return folder


def run_command(command: str, settings: Mapping[str, str], variables: Mapping[str, str]) -> int:
    """Run a command of biasbed in a process that writes to this terminal and ends with this one; return its exit code.

    It imports the code of this process, whatever its working folder.
    """
    paths = [str(code.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        PARENT_PROCESS: str(os.getpid()),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "biasbed", command, *as_flags(settings)], env=environment, stdin=subprocess.DEVNULL
    )
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _find_finished(plan: Reproduction) -> RunFolder | None:
    """Return the finished training that has no verdict yet; None if there is none."""
    folders = [RunFolder(path.parent) for path in sorted(Path(plan.settings["output_dir"]).glob("*/*/run.json"))]
    for folder in folders:
        state = folder.read_state()
        same = state.get("tags", {}).get(record.RUN_KEY) == plan.tags.get(record.RUN_KEY)
        if same and folder.is_done and not state.get("sent"):
            return folder
    return None


# --- the verdict ------------------------------------------------------------------------------------------------------


def _conclude(plan: Reproduction, folder: RunFolder, uri: str, run_id: str | None, alpha: float) -> int:
    """Send the training, compare it with the original, and print the verdict; return the exit code."""
    original = plan.original
    state = folder.read_state()
    kind = {record.KIND: "reproduction", record.STUDY: STUDY, record.REPRODUCES: original.id}
    state["tags"] |= {**kind, notes.NAME: f"reproduce-{original.name}"}
    folder.write_state(state)
    tracker = Tracker(folder, run_id)
    tracker.reopen()
    rows = _compare(plan, uri, tracker.run_id, alpha)
    for path in report.write(folder.path, plan.differences, rows):
        with guarded(uri):
            writer(uri).log_artifact(tracker.run_id, str(path))
    tracker.set_tags({record.VERDICT: verdict.overall(rows)})
    tracker.finish()
    print(f"\n{report.table(report.METRIC_HEAD, report.metric_rows(rows))}")
    print(f"\n{tracker.ending()}\nall metrics: {folder.path / record.REPRODUCTION_FILE}")
    print(f"verdict: {report.conclusion(rows)}", flush=True)
    return 0 if verdict.overall(rows) in verdict.REPRODUCED else 1


def _compare(plan: Reproduction, uri: str, run_id: str, alpha: float) -> list[Compared]:
    """Compare both histories on the server; those of other seeds are read only if they are needed."""
    original = plan.original
    first, second = history(uri, original.id), history(uri, run_id)
    rows = verdict.compare(original.protocol, first, second, (), alpha)
    if verdict.overall(rows) == verdict.BIT_EQUAL:
        return rows
    others = [history(uri, seed_run) for seed_run in other_seeds(uri, original)]
    return verdict.compare(original.protocol, first, second, others, alpha)
