"""Sources of reported results: files and folders of Every Eval Ever, and model cards, told by their content.

`import` makes tracked runs of them, `compare` a table of scores. Loads neither torch nor MLflow.

Answers: Which files of reported results are read?
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from biasbed import published
from biasbed.errors import UsageError, listed
from biasbed.plugins.sharing import every_eval_ever, model_index
from biasbed.plugins.sharing.reported import ReportedModel, make_report
from biasbed.published.sources import ResultSource
from biasbed.tracking.server import resolve_uri

ReportReader = Callable[[], list[ReportedModel]]


def find_reader(path: Path, option: str) -> ReportReader | None:
    """Return the function that reads a file or folder of reported results; None if its content is none.

    option: setting that names the path, in messages.
    """
    card = path / model_index.CARD if path.is_dir() else path
    if card.suffix.lower() == ".md" and card.is_file() and model_index.has_model_index(card):
        return lambda: model_index.read_card(card, option)
    if path.is_dir():
        logs = every_eval_ever.find_logs(path)
    else:
        logs = [path] if path.is_file() and every_eval_ever.is_log(path) else []
    return (lambda: every_eval_ever.read_logs(logs, option)) if logs else None


def refuse_unknown(path: Path, option: str) -> None:
    """Raise UsageError for a file without results whose ending is that of a report: it lacks them, or is damaged."""
    if path.suffix.lower() == ".md":
        raise UsageError(
            f"{option}={path}: has no model-index in its metadata, in which a model card lists its results"
        )
    if path.suffix.lower() == ".json":
        every_eval_ever.read_json(path, option)
        marks = " and ".join(every_eval_ever.MARKS)
        raise UsageError(f"{option}={path}: is no file of Every Eval Ever, which has {marks}")


def import_reported(path: Path, study: str) -> bool:
    """Import reported results as tracked runs; False if the path holds none. Raises UsageError for a damaged file."""
    read = find_reader(path, "source")
    if read is None:
        if path.is_file():
            refuse_unknown(path, "source")
        return False
    named_by = path.parent if path.name == model_index.CARD else path  # a card's name says nothing
    published.import_paper(make_report(read(), named_by, study), resolve_uri())
    return True


REPORTED = ResultSource(
    f"{model_index.CARD} with a model-index, files of Every Eval Ever as {listed(every_eval_ever.PLACES)}",
    import_reported,
)
