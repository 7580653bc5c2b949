"""Words for runs on a part of the images (`limit=`), which training and analysis share."""

from __future__ import annotations

from biasbed import record

NOTE = "a smoke test, do not publish these numbers"


def note(limit: int | None, quick: bool = False) -> str:
    """Return the note beside every number of such a run; empty without a limit. quick: of a study for a first look."""
    if limit is None:
        return ""
    return f"{'quick: ' if quick else ''}on at most {limit:,} images of each set: {NOTE}"


def clause(limit: int | None) -> str:
    """Return the note as the end of a sentence."""
    return "" if limit is None else f", {note(limit)}"


def marked(name: str, limit: int | None, quick: bool = False) -> str:
    """Return a run's name for MLflow's pages, with `quick` and `limit=<n>` added if they hold."""
    return " ".join(filter(None, (name, "quick" if quick else "", f"limit={limit}" if limit is not None else "")))


def tags(limit: int | None) -> dict[str, str]:
    """Return the tags of such a run; empty without a limit."""
    return {} if limit is None else {record.LIMIT: str(limit)}
