"""Tables of studies: every file of sweeps/studies/ holds, and a wrong one is refused in one line that says where."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed import algorithms, networks
from biasbed.errors import UsageError
from biasbed.evaluation import command
from biasbed.networks import library
from biasbed.plugins.layouts import layout_file
from biasbed.studies.study_table import parse_seeds, read_table
from biasbed.training.resolve import resolve
from helpers.commands import ROOT

FILES = sorted((ROOT / "sweeps" / "studies").iterdir())
GOOD = "suite: demo\nstudy: mine\nalgorithms: [erm, padain]\nseeds: 0..2\nsettings: {epochs: 3, optim.lr: 1e-3}\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_table_can_be_planned(path: Path) -> None:
    """As far as without its data: suite, methods and settings are there and fit."""
    table = read_table(path.stem)
    assert table.seeds == tuple(range(len(table.seeds)))
    for row in table.rows.values():
        words = {**table.settings, **row, "suite": table.suite, "study": table.study}
        if "model" in row:
            assert set(row) <= set(command.settings(table.suite))
            networks.resolve(row["model"])
            published = library.published_weights(row["model"])
            assert row["weights"] in published or row["weights"].startswith("weights/"), row
            continue
        config = resolve({**words, "nproc": "1"})
        assert (config.suite, config.study, config.algorithm) == (table.suite, table.study, row["algorithm"])
    assert path.read_text().startswith("# "), "says which published table it is for"


def test_every_row_of_a_layout_is_in_its_study_or_it_is_said_why_not() -> None:
    for name in layout_file.names():
        layout = layout_file.read(name)
        rows = read_table(layout.study).rows if layout.study else {}
        missing = set(layout.needed) - set(rows)
        is_of_a_search = not layout.study and missing <= set(algorithms.REGISTRY) and not layout.lacking
        assert is_of_a_search or missing == set(layout.lacking), name


def test_biasbed_s_protocol_is_the_published_runs() -> None:
    """Methods, numbers of seeds and sets are those of the results that are included."""
    from biasbed.published import find

    table, paper = read_table("biasbed_paper"), find("biasbed")
    assert len(table.seeds) == 10
    assert paper.protocol.suite == table.suite
    import csv
    import importlib.resources

    rows = csv.DictReader((importlib.resources.files("biasbed.published") / paper.file).read_text().splitlines())
    assert {row["algorithm"] for row in rows} == set(table.rows)
    config = resolve({**table.settings, "suite": table.suite, "algorithm": "erm"})
    assert (config.epochs, config.optim.lr, config.preprocess.size, config.sets) == (100, 1e-4, 256, "all")


def test_a_table_of_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "suite: folders\nstudy: mine\nseeds: [3, 5]\n"
        "algorithms: {erm: , infodrop: {hparams.drop_rate: 1.0}}\n"
        "settings: {epochs: 3, optim.lr_batch: null, sets: [ink, paint], augment.flip: no, workers: 0}\n"
    )
    table = read_table(str(path))
    drops = {"algorithm": "infodrop", "hparams.drop_rate": "1.0"}
    assert table.rows == {"erm": {"algorithm": "erm"}, "infodrop": drops}
    assert table.seeds == (3, 5)
    config = resolve({**table.settings, **table.rows["infodrop"]})
    assert (config.epochs, config.optim.lr_batch, config.sets) == (3, None, ("ink", "paint"))
    assert not config.augment.flip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'suite' is missing"),
        (GOOD + "sede: 3\n", "unknown entry 'sede'; did you mean 'seeds'?"),
        (GOOD.replace("seeds: 0..2\n", ""), "'seeds' is missing or empty"),
        (GOOD.replace("[erm, padain]", "['a.py:Net', erm, 'b.py:net']"), "would both be filed under 'net'"),
        (GOOD.replace("[erm, padain]", "{3: }"), "algorithms: should be a list"),
        (GOOD.replace("0..2", "0..2147483647"), "seeds=0..2147483647: are more than 10000 of a method"),
        (GOOD.replace("0..2", "9" * 4000), "a whole number of more than 64 bits"),
        (GOOD.replace("0..2", "ten"), "seeds=ten: should be how many"),
        (GOOD.replace("epochs: 3", "seed: 3"), "settings: has 'seed', which a study sets itself"),
        (GOOD.replace("epochs: 3", "optim: {lr: 3}"), "write optim.lr"),
        (GOOD + "study: again\n", "'study' is there twice"),
    ],
)
def test_wrong_tables_are_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_table(str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="did you mean 'biasbed_paper'"):
        read_table("biasbed_papr")
    with pytest.raises(UsageError, match="no such table"):
        read_table("erm")  # a search space


@settings(max_examples=60)
@given(
    st.text(st.sampled_from("0123456789.,- ab٣"), max_size=30)
    | st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=5)
    )
)
def test_anything_is_seeds_or_refused(value: Any) -> None:
    with contextlib.suppress(UsageError):
        seeds = parse_seeds(value)
        assert len(seeds) == len(set(seeds)) <= 10_000
        assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_number_of_seeds_begins_with_the_first_that_is_fresh() -> None:
    assert parse_seeds("3") == parse_seeds(3) == (0, 1, 2)
    assert parse_seeds("3", first=7) == (7, 8, 9)
    assert parse_seeds("3..3") == (3,)
    with pytest.raises(UsageError, match=r"seeds=0: should be how many, at least 1"):
        parse_seeds("0")


@given(st.lists(st.integers(1, 40), min_size=1, unique=True))
def test_seeds_are_read_as_they_are_written(seeds: list[int]) -> None:
    words = ",".join(map(str, seeds))
    assert parse_seeds(seeds) == tuple(seeds)
    assert parse_seeds(words) == (tuple(seeds) if len(seeds) > 1 else tuple(range(seeds[0])))
    low, high = min(seeds), max(seeds)
    assert parse_seeds(f"{low}..{high}") == tuple(range(low, high + 1))
