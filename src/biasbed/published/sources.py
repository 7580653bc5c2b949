"""Command `import`: a paper by name, an archive of `export`, or a sweep of DomainBed's own code.

Answers: What does `import source=` take for what?
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from biasbed import published
from biasbed.errors import UsageError
from biasbed.published.sweeps import RESULTS
from biasbed.tracking.server import resolve_uri

if TYPE_CHECKING:
    from biasbed.options import ImportOptions

ARCHIVE = "a file that export wrote (.zip)"
SWEEP = f"{RESULTS} of a sweep"
TABLES = ("", ".csv", ".tsv", ".txt", ".yaml", ".yml")  # endings whose wrong files the reader of sweeps explains


def import_source(options: ImportOptions) -> None:
    """Import a source: an archive, a paper's name, or a sweep. Raises UsageError if it is none of these."""
    source, path = options.source, Path(options.source).expanduser()
    if source.endswith(".zip"):
        from biasbed.tracking.transfer import import_archive

        import_archive(source)
    elif source in published.names() or not (options.is_path or path.exists()):
        published.import_runs(source, resolve_uri())
    else:
        from biasbed.published.sweep_runs import import_sweep

        _refuse_unknown(path)
        import_sweep(source, options.study)


def _refuse_unknown(path: Path) -> None:
    """Raise UsageError for a folder without results, and for a file that is no table."""
    if path.is_dir() and next(path.rglob(RESULTS), None) is None:
        raise UsageError(f"source={path}: no results are in the folder; looked for {SWEEP}")
    if path.is_file() and path.suffix.lower() not in TABLES:
        raise UsageError(f"source={path}: is none of the files that are read: {ARCHIVE}, {SWEEP}")
