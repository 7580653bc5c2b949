"""Every start of a run, kept in its folder: what a training cost, lost work included."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from biasbed.system.files import append_line
from biasbed.system.strict import parse_json
from biasbed.tracking.folder import RunFolder

FILE, LOG = "attempts.jsonl", "train.log"


def log_file(folder: RunFolder) -> Path:
    """What the trainings in a folder printed, one after the other."""
    return folder.path / LOG


def read(folder: RunFolder) -> list[dict[str, Any]]:
    """The starts with their `start`, `end` (seconds since 1970), `code` and `processes`.

    An attempt whose launcher was killed has no code, and ended with its last sign of life.
    """
    path = folder.path / FILE
    attempts: list[dict[str, Any]] = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            entry = parse_json(line)
        except ValueError:  # cut off by a kill
            continue
        if "code" in entry and attempts:
            attempts[-1] |= entry
        elif "start" in entry:
            attempts.append({**entry, "code": None})
    for number, attempt in enumerate(attempts):
        following = attempts[number + 1]["start"] if number + 1 < len(attempts) else time.time()
        attempt.setdefault("end", min(following, max(attempt["start"], _last_sign(folder))))
    return attempts


def begin(folder: RunFolder, processes: int) -> None:
    """Note a start; and, of an attempt without an end, until when it was seen."""
    previous = read(folder)
    if previous and previous[-1]["code"] is None:
        _append(folder, {"code": None, "end": previous[-1]["end"]})
    _append(folder, {"start": time.time(), "processes": processes})


def end(folder: RunFolder, code: int) -> None:
    _append(folder, {"code": code, "end": time.time()})


def _append(folder: RunFolder, entry: dict[str, Any]) -> None:
    append_line(folder.path / FILE, json.dumps(entry))


def _last_sign(folder: RunFolder) -> float:
    """When a training last wrote anything."""
    return max((path.stat().st_mtime for path in folder.path.iterdir()), default=0.0)
