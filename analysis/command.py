"""Command `analyze`: compute, write all files, print, and log everything to an MLflow run of kind `analysis`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from biasbed import record
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report import sample_images, summary, terminal_table
from biasbed.analysis.report.answer import answer_sentences
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.run import distinct
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections import all_sections, sections_of
from biasbed.errors import UsageError, first_line, shown
from biasbed.redaction import public_value
from biasbed.settings import flatten, word
from biasbed.system import commands, formats
from biasbed.system.files import atomic_file, refuse_links, scratch_folder
from biasbed.system.garbage import without_collection
from biasbed.system.strict import read_json
from biasbed.tracking import notes, study_row
from biasbed.tracking.comparison import STUDY, Comparison, offer
from biasbed.tracking.launched_run import check_run_id
from biasbed.tracking.pages import address
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import guarded, resolve_uri

SUMMARY = "summary.txt"
MANIFEST = "manifest.json"  # lists the files that an analysis has written


@without_collection()
def analyze(options: AnalyzeOptions) -> Outcome:
    """See `biasbed.analysis.analyze`."""
    store = RunStore(resolve_uri(options.tracking_uri))
    check_run_id(tracking_uri=options.tracking_uri)
    if options.output_dir != "auto":
        check_folder(Path(options.output_dir).expanduser().absolute())
    analysis = compute(store, options, all_sections())
    target = output_folder(store, options, analysis)
    print(terminal_table.render(analysis), end="\n\n", flush=True)
    with new_folder() as folder:
        sample_images.fetch(store, [run.id for run in analysis.collection.unpublished], analysis.set_names, folder)
        write(analysis, folder)
        output_dir = publish(folder, target)
        print(f"Tables, figures and report: {output_dir}", flush=True)
        answer = " ".join(answer_sentences(analysis))
        run_id = log(store, options, analysis, f"**{answer}**", folder)
        pictures = folder / "figures"
        study_row.refresh(store.uri, analysis.collection.scope.study, answer, pictures)
    print(f"This analysis: {address(store.uri, run_id)}", flush=True)
    offer(store.uri, compared(analysis))
    return Outcome(analysis, output_dir, run_id)


# --- files ------------------------------------------------------------------------------------------------------------


@without_collection()
def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write every file of the result into an empty folder; return file name -> what it is, as in the manifest."""
    from biasbed.analysis.report import figures

    analysis.compute_ahead(sections_of(analysis))
    with figures.drawing(analysis, folder) as drawing:
        from biasbed.analysis.report import data_files, html, paper_tables, references

        files = data_files.write(analysis, folder)
        files |= paper_tables.write(analysis, folder)
        files |= references.write(analysis, folder)
        text = summary.render(analysis)
        report = html.prepare(analysis, folder)
        files |= drawing.finish()
        files |= sample_images.files(folder)
        files |= report.write()
        (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
        files |= {SUMMARY: "everything that was found, as text"}
    files = dict(sorted(files.items()))
    (folder / MANIFEST).write_text(json.dumps(files, indent=2) + "\n", encoding="utf-8")
    return files


def output_folder(store: RunStore, options: AnalyzeOptions, analysis: Analysis) -> Path:
    """Return the folder of the files: `output_dir`, or by default a folder for suite and study in biasbed's own."""
    if options.output_dir != "auto":
        return Path(options.output_dir).expanduser().absolute()
    scope = analysis.collection.scope
    return store.home / "analysis" / f"{record.slug(scope.suite)}-{record.slug(scope.study)}"


def check_folder(target: Path) -> None:
    """Raise UsageError if a folder can't be written, or holds files that are not of an earlier result."""
    existing = next(path for path in (target, *target.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):  # /proc and the like look writable, also to root
            pass
    except OSError:
        raise UsageError(
            f"output_dir={target} can't be written: {existing} is no folder that you may write into"
        ) from None
    if existing == target and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise UsageError(f"output_dir={target}: holds other files; name a new folder, or one of an earlier result")
    if existing == target:
        _earlier_files(target)


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """Yield an empty folder that is removed at the end. It has the usual permissions, which its copies inherit."""
    with scratch_folder() as private:
        folder = private / "analysis"
        folder.mkdir()
        yield folder


def publish(source: Path, target: Path) -> Path:
    """Copy the files of a result into the target, and remove those of an earlier result that this one lacks.

    Otherwise a Nemenyi table of yesterday's three algorithms would lie beside today's two. Files are replaced, not
    overwritten, as they may have hard links elsewhere.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in _earlier_files(target) - _earlier_files(source):
            (target / name).unlink(missing_ok=True)
        shutil.copytree(source, target, copy_function=_replace, dirs_exist_ok=True)
    except OSError as error:
        raise UsageError(f"output_dir={target} can't be written: {error.strerror or error}") from None
    return target


def _replace(source: str, target: str) -> None:
    """Copy a file so that the target changes at once."""
    with atomic_file(Path(target), durable=False) as temporary:
        shutil.copyfile(source, temporary)


def _earlier_files(folder: Path) -> set[str]:
    """Return the files that an earlier result wrote into a folder, as its manifest lists them.

    Raises Failure if the folder, which may be a stranger's, has links; UsageError if its manifest is not one of ours.
    """
    refuse_links(folder)
    path = folder / MANIFEST
    if not path.exists():
        return set()
    try:
        names = set(formats.check(dict[str, str], read_json(path)))
        outside = [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]
        if outside:
            raise ValueError(f"it names the file {shown(outside[0], 60)!r}")
    except ValueError as error:
        raise UsageError(f"{path} is not of an earlier result ({first_line(error)}): name a new folder") from None
    return names


# --- MLflow -----------------------------------------------------------------------------------------------------------


def log(store: RunStore, options: AnalyzeOptions, analysis: Analysis, answer: str, folder: Path) -> str:
    """Log options and all files to an MLflow run; return its id.

    No metrics are logged: pages would draw them beside those of trainings, and the tests are in files. Under `mlflow
    run` the run is the one that it opened and will end; else a new run.
    """
    from mlflow.entities import Param, RunTag

    attached = os.environ.get(commands.RUN)
    with guarded(store.uri):
        run_id = attached or _new_run(store, analysis)
        if not attached:
            _end_left_over(store, analysis)
        try:
            pictures = notes.pictures(run_id, [f"figures/{name}" for name in study_row.SHOWN], folder)
            text = (folder / SUMMARY).read_text(encoding="utf-8").rstrip("\n")
            note = notes.joined(answer, pictures, f"```\n{text[:6000]}\n```")
            tags = [RunTag(name, value) for name, value in {**_tags(analysis), notes.NOTE: note}.items()]
            prefix = record.CONFIG_PARAMETER
            parameters = [Param(prefix + name, public_value(word(value))) for name, value in flatten(options).items()]
            store.client.log_batch(run_id, params=parameters, tags=tags)
            store.client.log_artifacts(run_id, str(folder))
        except Exception:
            if not attached:
                store.client.set_terminated(run_id, "FAILED")
            raise
        if not attached:
            store.client.set_terminated(run_id, "FINISHED")
    return run_id


def compared(analysis: Analysis) -> Comparison:
    """Return the runs that MLflow's pages show: our own, or the published ones of the rule if there are no others.

    They are found by study, and by what they are tested on, or else their protocol, if that is the same for all.
    """
    scope, runs = analysis.collection.scope, analysis.collection.unpublished or analysis.collection.runs
    tags = dict(zip(STUDY, (scope.kind, scope.suite, scope.study), strict=True))
    for tag, field in ((record.TESTED, "tested"), (record.PROTOCOL_HASH, "protocol")):
        values = distinct(runs, field)
        if len(values) == 1 and values[0]:
            tags[tag] = values[0]
            break
    if analysis.collection.published:
        if runs[0].selection:
            tags |= {record.SELECTION: runs[0].selection}
        if runs[0].selection_n:
            tags |= {record.SELECTION_N: str(runs[0].selection_n)}
    return Comparison(tags, analysis.collection.protocol, Counter(run.experiment for run in runs))


def _new_run(store: RunStore, analysis: Analysis) -> str:
    """Open an MLflow run and return its id. Its tags are set at once, so that `_end_left_over` finds it if we die."""
    experiment = os.environ.get("MLFLOW_EXPERIMENT_ID") or analysis.collection.runs[0].experiment
    tags = _tags(analysis)
    return str(store.client.create_run(experiment, tags=tags, run_name=tags[notes.NAME]).info.run_id)


def _end_left_over(store: RunStore, analysis: Analysis) -> None:
    """Set the status of all RUNNING analyses of this study to KILLED: of those left over, and in advance of ours.

    So ours is right if this command is killed. A command that lives sets its run's status at its end.
    """
    for run in find_runs(store.uri, kind="analysis", study=analysis.collection.scope.study):
        if run.info.status == "RUNNING" and run.data.tags.get("mlflow.source.type") != "PROJECT":
            store.client.set_terminated(run.info.run_id, "KILLED")


def _tags(analysis: Analysis) -> dict[str, str]:
    """Return the tags of the analysis's run, besides its note."""
    scope = analysis.collection.scope
    return {
        record.KIND: "analysis",
        record.SUITE: scope.suite,
        record.STUDY: scope.study,
        record.PROTOCOL_HASH: scope.protocol,
        record.SELECTION: analysis.rule.name,
        record.SCHEMA_TAG: record.SCHEMA,
        notes.NAME: f"analysis-{scope.suite}-{scope.study}",
    }


@dataclass(frozen=True)
class Outcome:
    """Result of `analyze`: the analysis, its folder and its MLflow run."""

    analysis: Analysis
    output_dir: Path  # tables, figures and report
    run_id: str  # of the MLflow run that has these files too
