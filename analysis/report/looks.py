"""What the evaluation sets look like: the first examples of each, as one of the runs has kept them."""

from __future__ import annotations

import base64
import contextlib
import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.errors import Failure
from biasbed.tracking.server import guarded

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

FOLDER = "looks"  # of the report's: <set>.png, and which run they are of
RUN = "run.txt"
WIDTH = 720  # pixels: images of a set side by side, as many as a run has in a row
MOST = 30  # sets
COLUMNS, GAP = 8, 2  # of a contact sheet: tiles in a row, pixels between them


def fetch(store: RunStore, runs: Sequence[str], names: Sequence[str], folder: Path) -> None:
    """Cut the first row out of the contact sheets of a run, into a folder's `FOLDER`.

    runs: ids, of which the first is asked. names: of sets. A server that fails costs the pictures alone.
    """
    with contextlib.suppress(Failure), guarded(store.uri), tempfile.TemporaryDirectory() as place:
        for run_id in runs[:1]:
            kept = {entry.path for entry in store.client.list_artifacts(run_id, record.PICTURES_FOLDER)}
            there = [name for name in names if f"{record.PICTURES_FOLDER}/{name}.png" in kept][:MOST]
            for name in there:
                path = store.client.download_artifacts(run_id, f"{record.PICTURES_FOLDER}/{name}.png", place)
                (folder / FOLDER).mkdir(exist_ok=True)
                (folder / FOLDER / f"{name}.png").write_bytes(_first_row(Path(path)))
            if there:
                (folder / FOLDER / RUN).write_text(run_id)


def _first_row(path: Path) -> bytes:
    """Return the upper row of a contact sheet of square tiles, eight to a row, at most `WIDTH` wide; else all of it."""
    from PIL import Image

    with Image.open(path) as sheet:
        step, odd = divmod(sheet.width - GAP, COLUMNS)
        is_known = not odd and (sheet.height - GAP) % step == 0
        row = sheet.convert("RGB").crop((0, 0, sheet.width, step + GAP if is_known else sheet.height))
        row.thumbnail((WIDTH, WIDTH), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        row.save(file, "PNG", optimize=True)
        return file.getvalue()


def files(folder: Path) -> dict[str, str]:
    """File name -> what it is, of those that were fetched."""
    about = {path.name: f"what images of {path.stem} look like" for path in sorted((folder / FOLDER).glob("*.png"))}
    about |= {RUN: "the run whose pictures these are"} if about else {}
    return {f"{FOLDER}/{name}": words for name, words in about.items()}


def shown(folder: Path) -> Mapping[str, Any] | None:
    """Set -> its picture as text, and the run; None without pictures."""
    paths = sorted((folder / FOLDER).glob("*.png")) if (folder / FOLDER).is_dir() else []
    if not paths:
        return None
    sets = {path.stem: "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode() for path in paths}
    return {"run": (folder / FOLDER / RUN).read_text(), "sets": sets}
