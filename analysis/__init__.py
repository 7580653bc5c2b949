"""From tracked runs to selected scores, tests, tables, figures and a report. No torch; reads only the tracking server.

Importing this loads neither pandas nor mlflow, so that `--help` is quick: the rest of the package does, when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from biasbed.analysis.command import Outcome
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.result import Analysis


def load(tracking_uri: str = "auto", **options: object) -> Analysis:
    """Return the same analysis for a notebook; nothing is written or printed.

    options: fields of `AnalyzeOptions`, as values or as on the command line. `result.scores`, `result.selection` and
    the others are pandas frames; `frames(result)` has all of them, named like the CSV files. Raises as `analyze` does.
    """
    from biasbed.analysis.options import AnalyzeOptions
    from biasbed.analysis.result import compute
    from biasbed.analysis.runs.store import RunStore
    from biasbed.settings import build
    from biasbed.tracking.server import resolve_uri

    uri = resolve_uri(tracking_uri)
    return compute(RunStore(uri), build(AnalyzeOptions, {"tracking_uri": uri, **options}))


def frames(analysis: Analysis) -> dict[str, pd.DataFrame]:
    """Return every table that is written, by the name of its CSV file without the ending."""
    from biasbed.analysis.report import data_files
    from biasbed.analysis.sections import sections_of

    analysis.compute_ahead(sections_of(analysis))
    return {name.removesuffix(".csv"): frame for name, (frame, _) in data_files.frames(analysis).items()}


def analyze(options: AnalyzeOptions) -> Outcome:
    """Read the runs, compute, write all files, print the summary and log everything to an MLflow run.

    Raises UsageError if the options fit no run, and Failure if runs are missing or must not be compared, or if the
    tracking server fails. Nothing is written before all numbers are computed.
    """
    from biasbed.system.garbage import without_collection

    with without_collection():
        from biasbed.analysis import command

    return command.analyze(options)
