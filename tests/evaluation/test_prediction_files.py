"""Files of predictions: what was written is read again, and anything else is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from biasbed.data.names import Coded, Names
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.prediction_files import read_predictions, write_predictions


def test_parquet_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "junk.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match="no predictions of biasbed"):
        read_predictions(tmp_path / "junk.parquet")
    parquet.write_table(pa.table({"image": ["x"]}), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="no column label"):
        read_predictions(tmp_path / "other.parquet")
    parquet.write_table(pa.table({"image": ["x"], "label": [None], "decision": ["x"]}), tmp_path / "null.parquet")
    with pytest.raises(UsageError, match="the column label has the type null"):
        read_predictions(tmp_path / "null.parquet")
    parquet.write_table(
        pa.table({"image": ["x", "y"], "label": ["x", None], "decision": ["x"] * 2}), tmp_path / "hole.parquet"
    )
    with pytest.raises(UsageError, match="the column label has missing values"):
        read_predictions(tmp_path / "hole.parquet")
    parquet.write_table(pa.table({"decision": ["x"], "label": ["x"], "image": ["x"]}), tmp_path / "name.parquet")
    content = (tmp_path / "name.parquet").read_bytes()
    (tmp_path / "name.parquet").write_bytes(content.replace(b"decision", b"\xffecision"))
    with pytest.raises(UsageError, match="no predictions of biasbed"):
        read_predictions(tmp_path / "name.parquet")


def test_a_flipped_bit_is_noticed_wherever_decisions_lie(tmp_path: Path) -> None:
    """As of a disk that has aged: a file with one is refused, or says the same."""
    path, generator = tmp_path / "p.parquet", np.random.default_rng(0)
    label, decision = (Coded.from_names([f"c{number}" for number in generator.integers(5, size=400)]) for _ in range(2))
    images, numbers = Names([f"a/{number}.png" for number in range(400)]), generator.random(400, "float32")
    classes = tuple(f"c{number}" for number in range(5))
    write_predictions(path, Decisions("a", "s", images, label, decision, classes, confidence=numbers, loss=numbers), 3)
    content, whole = path.read_bytes(), told(read_predictions(path))
    end, refused = len(content) - 8 - int.from_bytes(content[-8:-4], "little"), 0  # of the columns
    for place in range(0, end, 9):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            assert told(read_predictions(path)) == whole
        except UsageError:
            refused += 1
    assert refused > 0.9 * end / 9


def told(one: Decisions) -> list[object]:
    columns = (one.images, one.label, one.decision, one.confidence, one.loss)
    return [one.classes, one.label_map, *(None if column is None else list(column) for column in columns)]
