"""Runs that may stand in one table, and their order: runs and protocols by hand, without a server."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from biasbed import record
from biasbed.analysis.runs.comparable import cells_of, columns_of, select_comparable
from biasbed.analysis.runs.consistency import irregularities
from biasbed.analysis.runs.duplicates import first_of_each_key
from biasbed.analysis.runs.run import Run, TrainedOn
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import Failure
from helpers.toy_runs import domains, make_protocol

NOWHERE = RunStore("sqlite:////nowhere.db")
PACS = domains("pacs", ("art", "photo"))


def run(name: str, **changes: Any) -> Run:
    values = dict(id=name, name=name, experiment="0", status="FINISHED", started=0, ended=0, kind="train", suite="toy")
    return Run(**(values | dict(study="s", protocol="p", algorithm="erm", run_key=name) | changes))


def trained(cell: str, protocol: record.Protocol, **changes: Any) -> Run:
    held_out = cell.partition("-")[2]
    return run(f"erm-{cell}", cell=cell, protocol=protocol.hash, test_domains=held_out, **changes)


def only_tested(protocol: record.Protocol, **changes: Any) -> Run:
    return run("vit", kind="evaluate", algorithm="vit", protocol=protocol.hash, **changes)


def compared(runs: list[Run], *protocols: record.Protocol) -> tuple[list[Run], list[str]]:
    return select_comparable(NOWHERE, runs, {protocol.hash: protocol for protocol in protocols})


def test_trials_stand_in_the_order_of_their_search() -> None:
    """So that of equally good ones the first is chosen, as the sweep chooses; ids of runs are random."""
    trials = [run(name, kind="trial", trial=trial) for name, trial in (("a", "r0-10"), ("b", "r0-9"), ("c", "r0-2"))]
    assert [run_of_key.trial for run_of_key in first_of_each_key(trials)[0]] == ["r0-2", "r0-9", "r0-10"]


@pytest.mark.parametrize(
    ("unlike", "images"),
    [
        (domains("pacs", ("ink", "wax")), ""),  # other domains
        (domains("pacs", ("art", "ink")), ""),  # of some one name
        (PACS, "others"),
    ],
)
def test_two_data_sets_of_one_name_are_no_block(unlike: record.Protocol, images: str) -> None:
    runs = [trained("pacs-art", PACS, tested="images"), trained("more-art", unlike, tested=images or "images")]
    with pytest.raises(Failure, match="two data sets of one table are called 'pacs'"):
        compared(runs, PACS, unlike)


def test_a_tested_model_stands_in_the_cells_whose_columns_it_was_tested_on() -> None:
    """One without held-out domains beside trainings that each leave one out."""
    bff = make_protocol(("bff",), training_sets=("bff",))
    plain = dataclasses.replace(PACS, monitor="", validation_sets=(), training_sets=("none",))
    ours = [trained("pacs-art", PACS), trained("pacs-photo", PACS), trained("bff", bff)]
    runs, notes = compared([*ours, only_tested(plain, cell="pacs")], PACS, plain, bff)
    assert notes == []
    assert [selected.cells for selected in runs] == [(), (), (), ("pacs-art", "pacs-photo")]
    cells = cells_of(runs, {protocol.hash: protocol for protocol in (PACS, plain, bff)})
    assert [column.name for column in columns_of(cells)] == ["bff", "pacs-art", "pacs-photo"]
    assert runs[-1].among(cell.name for cell in cells) == ("pacs-art", "pacs-photo")


def test_what_is_tested_in_a_cell_of_trainings_stands_there_alone() -> None:
    runs = [trained("pacs-art", PACS), trained("pacs-photo", PACS), only_tested(PACS, cell="pacs-art")]
    assert compared(runs, PACS)[0][-1].cells == ("pacs-art",)


def test_a_tested_model_of_other_images_stops() -> None:
    runs = [trained("pacs-art", PACS, tested="some"), only_tested(PACS, cell="", tested="others")]
    with pytest.raises(Failure, match=r"pacs-art: the images that are tested differ \[different_data\]"):
        irregularities([runs[0], dataclasses.replace(runs[1], cells=("pacs-art",))], ())


def test_a_column_is_called_like_its_cell_where_its_name_does_not_say_it() -> None:
    """A name that begins with the cell's letters is not yet in it."""
    sets = make_protocol(("pacs", "office"), training_sets=("t",))
    cells = [TrainedOn("p", sets), TrainedOn("pacs", sets)]
    assert [column.name for column in columns_of(cells)] == ["p-pacs", "p-office", "pacs", "pacs-office"]
