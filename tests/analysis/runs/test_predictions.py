"""Stored predictions: each file is fetched and parsed once, whatever is asked of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from biasbed import record
from biasbed.analysis.runs import predictions
from biasbed.analysis.runs.predictions import TrackedDecisions
from biasbed.data.names import Coded, Names
from biasbed.errors import Failure
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.prediction_files import write_predictions

STEP = 3
RUN = cast(Any, SimpleNamespace(id="a", kind="train"))


class Store:
    """Artifacts of a run, and how often each was fetched."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.fetched = files, Counter[str]()

    def file(self, run_id: str, name: str) -> bytes | None:
        self.fetched[name] += 1
        return self.files.get(name)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Decisions on two sets by the last weights, and on one by earlier weights that were the best."""
    label = Coded.from_names(["cat", "dog"])
    decided = Decisions("a", "s", Names(["b.png", "a.png"]), label, Coded.from_names(["cat", "cat"]), ("cat", "dog"))
    files = {}
    for dataset, epoch, step in (("one", "last", STEP), ("one", "best", STEP - 1), ("two", "last", STEP)):
        write_predictions(tmp_path / "p.parquet", decided, step)
        files[record.predictions_file(dataset, epoch)] = (tmp_path / "p.parquet").read_bytes()
    return Store(files)


def test_a_file_is_fetched_once_whatever_is_asked(store: Store) -> None:
    reader = TrackedDecisions(cast(Any, store))
    for _ in range(2):
        assert reader.decisions(RUN, "one", STEP).set == "one"
        assert reader.answers(RUN, "one", STEP).right.tolist() == [False, True], "in the order of names"
        with pytest.raises(Failure, match=f"the decisions of step {STEP + 1}, which the rule chose, are not kept"):
            reader.decisions(RUN, "one", STEP + 1)
        with pytest.raises(Failure, match="no decisions are stored"):
            reader.decisions(RUN, "three", STEP)
    assert set(store.fetched.values()) == {1}
    assert reader.decisions(RUN, "one", STEP - 1).epoch == STEP - 1


def test_what_was_used_longest_ago_leaves_memory_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "MOST_BYTES", 1)
    reader = TrackedDecisions(cast(Any, store))
    for dataset in ("two", "two", "one", "two"):
        reader.decisions(RUN, dataset, STEP)
    assert store.fetched[record.predictions_file("two", "last")] == 2
