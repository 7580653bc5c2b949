"""Sample images of the sets in a report: cut out of what a run has kept."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
from PIL import Image

from biasbed import record
from biasbed.analysis.report import sample_images
from biasbed.analysis.runs.store import RunStore
from biasbed.tracking.server import resolve_uri
from helpers.toy_runs import Recorder

STEP, ROWS = 20, 3  # pixels from tile to tile, rows of a sheet


def keep_sheets(recorder: Recorder, run_id: str, *names: str) -> None:
    """Log a sheet for each set, whose rows have grey values of their own."""
    for name in names:
        rows = np.repeat(np.arange(ROWS, dtype=np.uint8) * 100, STEP)
        pixels = np.repeat(rows[:, None], sample_images.COLUMNS * STEP, axis=1)
        edge = ((0, sample_images.GAP), (0, sample_images.GAP))
        path = recorder.folder / f"{name}.png"
        Image.fromarray(np.pad(pixels, edge)).save(path)
        recorder.client.log_artifact(run_id, str(path), record.PICTURES_FOLDER)


def test_the_first_row_of_each_sheet_is_cut_out_and_no_thread_is_left(recorder: Recorder, tmp_path: Path) -> None:
    """Figures are drawn in copies of the process, and a process with threads can't be copied."""
    run_id = recorder.train("erm")
    keep_sheets(recorder, run_id, "ink", "edge", "other")
    store, folder = RunStore(resolve_uri(recorder.uri)), tmp_path / "report"
    folder.mkdir()
    before = set(threading.enumerate())
    sample_images.fetch(store, [run_id], ["edge", "ink", "untested"], folder)
    for thread in set(threading.enumerate()) - before:
        thread.join(600)  # as its pool is gone
        assert not thread.is_alive()
    pictures = sorted((folder / sample_images.FOLDER).glob("*.png"))
    assert [path.stem for path in pictures] == ["edge", "ink"]
    for path in pictures:
        with Image.open(path) as row:
            assert row.size == (sample_images.COLUMNS * STEP + sample_images.GAP, STEP + sample_images.GAP)
            assert np.asarray(row.convert("L"))[:STEP].max() == 0  # the second row has another grey
    shown = sample_images.shown(folder)
    assert shown is not None
    assert (shown["run"], list(shown["sets"])) == (run_id, ["edge", "ink"])


def test_without_pictures_a_report_has_none(recorder: Recorder, tmp_path: Path) -> None:
    sample_images.fetch(RunStore(recorder.uri), [recorder.train("erm")], ["edge"], tmp_path)
    assert sample_images.shown(tmp_path) is None
