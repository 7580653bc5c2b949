"""Studies and runs that never reached the server, sent later; each row arrives once however often this is run."""

from __future__ import annotations

import sys
from pathlib import Path

from biasbed.errors import Failure, UsageError, os_reason
from biasbed.options import SyncOptions
from biasbed.system import places
from biasbed.tracking.finding import find_runs
from biasbed.tracking.folder import all_folders
from biasbed.tracking.server import resolve_uri
from biasbed.training.sync import send_finished


def sync(options: SyncOptions) -> None:
    """Send every finished run and study that the server lacks, and say how many; Failure where some could not be."""
    from biasbed.studies.study import send_studies

    uri = resolve_uri()
    find_runs(uri, kind="none")  # a server that is down is said once, not for every folder
    if options.output_dir == "auto":
        roots = list(dict.fromkeys((places.home(uri), places.home("offline"))))
    else:
        roots = [Path(options.output_dir).expanduser().resolve()]
    sent, failed = 0, 0
    for folder in [folder for root in roots for folder in all_folders(root)]:
        try:
            _refuse_detour(folder.path)
            sent += send_finished(folder, options.algorithm)
        except (Failure, UsageError, OSError) as error:
            failed += 1
            reason = os_reason(error) if isinstance(error, OSError) else error
            print(f"{folder.path}: {reason}", file=sys.stderr)
    studies = sum(send_studies(root, uri) for root in roots)
    told = f"runs: {sent}, studies: {studies}, sent to {places.public_uri(uri)}"
    print(told if sent or studies else "nothing to send: the server has it all")
    if failed:
        raise Failure(f"{failed} runs could not be sent: the same command tries again")


def _refuse_detour(folder: Path) -> None:
    """Raise Failure if a run folder, or its suite's, is a link: it may lead to folders of ours."""
    for part in (folder, folder.parent):
        if part.is_symlink():
            raise Failure(f"{part} is a symbolic link: give the folder that it leads to as output_dir")
