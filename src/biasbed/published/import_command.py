"""Command `import`: a paper by name, an archive of `export`, or a sweep of DomainBed's own code.

Answers: What does `import source=` take for what?
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from biasbed import published
from biasbed.tracking.server import resolve_uri

if TYPE_CHECKING:
    from biasbed.options import ImportOptions


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

        import_sweep(source, options.study)
