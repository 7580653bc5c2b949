"""Command `sync`: send studies and runs that never reached the server. Repeating it sends nothing twice."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biasbed import record, redaction
from biasbed.errors import Failure, UsageError, os_reason
from biasbed.options import SyncOptions
from biasbed.studies.study import NOTE, StudyRun, write_note
from biasbed.system import places
from biasbed.tracking.folder import RunFolder, all_folders, read_mapping
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import resolve_uri
from biasbed.training.sync import send_finished


def sync(options: SyncOptions) -> None:
    """Send every finished run and study that the server lacks, and print how many. Raises Failure if some remain."""
    uri = resolve_uri()
    find_runs(uri, kind="none")  # a server that is down is reported once, not for every folder
    if options.output_dir == "auto":
        roots = list(dict.fromkeys((places.home(uri), places.home("offline"))))
    else:
        roots = [Path(options.output_dir).expanduser().resolve()]
    folders: list[RunFolder] = []
    for root in roots:
        folders += all_folders(root)
    sent, failed = 0, 0
    for folder in folders:
        try:
            _refuse_links(folder.path)
            sent += send_finished(folder, options.algorithm)
        except (Failure, UsageError, OSError) as error:
            failed += 1
            reason = os_reason(error) if isinstance(error, OSError) else error
            print(f"{folder.path}: {reason}", file=sys.stderr)
    studies = sum(send_studies(root, uri) for root in roots)
    if sent or studies:
        print(f"runs: {sent}, studies: {studies}, sent to {redaction.public_uri(uri)}")
    elif not failed:
        print("nothing to send: the server has it all")
    if failed:
        raise Failure(f"runs that could not be sent: {failed} (see above); then repeat this command")


def _refuse_links(folder: Path) -> None:
    """Raise Failure if a run folder, or its suite's, is a link: its target may be another of our folders."""
    for part in (folder, folder.parent):
        if part.is_symlink():
            raise Failure(f"{part} is a symbolic link: give the folder that it leads to as output_dir")


def send_studies(root: Path, uri: str) -> int:
    """Make or complete the runs of studies that the server lacks, of those in a folder of runs; return their number.

    Trainings that were sent before become their children. Each machine adds its own ledger. Raises Failure if the
    server cannot be used.
    """
    sent = 0
    for path in sorted(root.glob(f"studies/*/{NOTE}")):
        links = [part for part in (path, path.parent, path.parents[1]) if part.is_symlink()]
        if links:
            print(f"{links[0]} is a symbolic link, which is not followed: the study is not sent", file=sys.stderr)
            continue
        note = read_mapping(path)
        if note is None or not _is_complete(note):
            print(f"{path} is damaged; the study's own command mends it", file=sys.stderr)
            continue
        if note["sent"] or note["status"] == "RUNNING":
            continue
        study_run = StudyRun(uri, note["study"], note["suite"], note["experiment"], None, note["tags"])
        study_run.log_files(path.parent, ledger_under=f"machines/{record.slug(socket.gethostname())}")
        study_run.finish(note["status"])
        if study_run.is_behind:
            raise Failure(f"the study {note['study']} could not be sent: the same command tries again")
        write_note(path.parent, {**note, "sent": True})
        print(f"study {note['study']} -> run {study_run.run_id}")
        study_run.publish()
        sent += 1
    return sent


def _is_complete(note: Mapping[str, Any]) -> bool:
    """Return True if a study's note has every entry that biasbed writes, of the right type."""
    tags = note.get("tags")
    if "sent" not in note or not isinstance(tags, dict):
        return False
    texts = [note.get(name) for name in ("study", "suite", "experiment", "status")]
    return all(isinstance(text, str) for text in (*texts, *tags.keys(), *tags.values()))
