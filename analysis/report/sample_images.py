"""Sample images of the evaluation sets: the first examples of each, as one of the runs has kept them."""

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
from biasbed.system.garbage import collected_after
from biasbed.tracking.server import guarded

if TYPE_CHECKING:
    from biasbed.analysis.runs.store import RunStore

FOLDER = "looks"  # in the report's folder: <set>.png, and the id of their run
RUN = "run.txt"
WIDTH = 720  # pixels: images of a set side by side, as many as a run has in a row
MOST = 30  # sets
COLUMNS, GAP = 8, 2  # of a contact sheet: tiles in a row, pixels between them


def fetch(store: RunStore, runs: Sequence[str], names: Sequence[str], folder: Path) -> None:
    """Cut the first row out of the contact sheets of a run, into a folder's `FOLDER`.

    runs: ids, of which the first is used. names: of sets. If the server fails, the report has no pictures.
    """
    with (
        contextlib.suppress(Failure),
        guarded(store.uri),
        collected_after(),  # a download leaves a thread until then, with which no figures are drawn side by side
        tempfile.TemporaryDirectory() as scratch,
    ):
        for run_id in runs[:1]:
            paths = {artifact.path for artifact in store.client.list_artifacts(run_id, record.PICTURES_FOLDER)}
            kept = [name for name in names if f"{record.PICTURES_FOLDER}/{name}.png" in paths][:MOST]
            for name in kept:
                path = store.client.download_artifacts(run_id, f"{record.PICTURES_FOLDER}/{name}.png", scratch)
                (folder / FOLDER).mkdir(exist_ok=True)
                (folder / FOLDER / f"{name}.png").write_bytes(_crop_first_row(Path(path)))
            if kept:
                (folder / FOLDER / RUN).write_text(run_id)


def _crop_first_row(path: Path) -> bytes:
    """Return the upper row of a sheet of square tiles, eight to a row (`data.pictures`), at most `WIDTH` wide.

    A picture of another layout is kept as a whole.
    """
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
    """Return file name -> what it is, of the pictures that were fetched."""
    descriptions = {}
    for path in sorted((folder / FOLDER).glob("*.png")):
        descriptions[f"{FOLDER}/{path.name}"] = f"what images of {path.stem} look like"
    if descriptions:
        descriptions[f"{FOLDER}/{RUN}"] = "the run whose pictures these are"
    return descriptions


def shown(folder: Path) -> Mapping[str, Any] | None:
    """Return each set's picture as text, and the run; None without pictures."""
    paths = sorted((folder / FOLDER).glob("*.png")) if (folder / FOLDER).is_dir() else []
    if not paths:
        return None
    sets = {}
    for path in paths:
        sets[path.stem] = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    return {"run": (folder / FOLDER / RUN).read_text(), "sets": sets}
