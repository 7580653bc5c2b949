"""Rows with one run, from stored decisions to the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from biasbed import record
from biasbed.analysis import scores
from biasbed.analysis.columns import Column
from biasbed.analysis.report import summary
from biasbed.analysis.report.answer import answer_sentences, further_sentences
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections.single_runs import SCOPE, SINGLE_RUNS
from biasbed.analysis.statistics import exact
from biasbed.data.names import number_photographs
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.evaluation.report import set_row
from helpers.toy_runs import Recorder, make_protocol

IMAGES, FOGS = 40, ("fog-1", "fog-2", "fog-3")
PROTOCOL = make_protocol(("plain", "fogged"))
LAST = 3


def decided(right: Sequence[bool], names: Sequence[str] = (), fogs: Sequence[str] = ()) -> Decisions:
    """Decisions on images; under each of the fogs the same ones."""
    names = names or [f"cat/{number}.png" for number in range(len(right))]
    count = len(right) * max(1, len(fogs))
    return Decisions(
        observer="model",
        set="any",
        images=[f"{fog}/{name}" for fog in fogs for name in names] or names,  # type: ignore[arg-type]
        label=["cat"] * count,  # type: ignore[arg-type]
        decision=[("dog", "cat")[is_right] for is_right in right] * max(1, len(fogs)),  # type: ignore[arg-type]
        classes=("cat", "dog"),
        condition=[fog for fog in fogs for _ in names] if fogs else None,  # type: ignore[arg-type]
        label_map="identity",
    )


def log(recorder: Recorder, run: str, name: str, decisions: Decisions, step: int = LAST) -> None:
    path = recorder.folder / run / record.predictions_file(name, "last")
    write_predictions(path, decisions, step)
    recorder.client.log_artifact(run, str(path), str(Path(record.predictions_file(name, "last")).parent))


def rights(seed: int, share: float) -> list[bool]:
    return [bool(value) for value in np.random.default_rng(seed).random(IMAGES) < share]


def computed(recorder: Recorder, **options: str) -> Analysis:
    """Without files."""
    return compute(RunStore(recorder.uri), recorder.options(**options))


def fill(recorder: Recorder) -> dict[str, str]:
    """Three rows with one run, whose decisions are there; their ids."""
    run_ids = {}
    for seed, (name, share) in enumerate({"erm": 0.4, "mixup": 0.9, "padain": 0.5}.items()):
        right = rights(seed, share)
        run_ids[name] = recorder.train(name, 0, (sum(right) / IMAGES, 0.5), protocol=PROTOCOL)
        log(recorder, run_ids[name], "plain", decided(right))
        log(recorder, run_ids[name], "fogged", decided(right, fogs=FOGS))
    return run_ids


@pytest.mark.usefixtures("without_figures", "few_draws", "without_evidence")
def test_from_stored_decisions_to_the_report(recorder: Recorder) -> None:
    fill(recorder)
    outcome = recorder.analyze()
    out = recorder.folder / "out"
    pairs = pd.read_csv(out / "over_images.csv").set_index(["dataset", "a", "b"])
    assert len(pairs) == 6
    assert (pairs["num_runs_a"] == 1).all()
    a, b = np.array(rights(0, 0.4)), np.array(rights(1, 0.9))
    pair = pairs.loc["plain", "erm", "mixup"]
    assert (pair["only_a"], pair["only_b"]) == ((a & ~b).sum(), (~a & b).sum())
    assert pair["p"] == pytest.approx(exact.sign_test(int(pair["only_a"]), int(pair["only_b"])))
    assert pair["p_holm"] == pytest.approx(3 * pair["p"])
    assert pair["num_tests"] == 3
    assert pair["significant"]
    assert pair["difference"] == pytest.approx(100 * (a.mean() - b.mean()))
    assert pair["low"] < pair["difference"] < pair["high"] < 0
    fogged = pairs.loc["fogged", "erm", "mixup"]
    assert np.isnan(fogged["p"])
    assert (fogged["images"], fogged["photographs"]) == (3 * IMAGES, IMAGES)
    assert (fogged["low"], fogged["high"]) == pytest.approx((pair["low"], pair["high"]))
    for name in ("report.html", "summary.txt"):
        words = " ".join((out / name).read_text(encoding="utf-8").split())
        assert SCOPE in words, name
        assert "480 stored decisions" in words, name
    assert outcome.analysis.data(SINGLE_RUNS).left_out == ()


@pytest.mark.usefixtures("without_figures", "few_draws", "without_evidence")
def test_what_images_show_is_said_first_and_nothing_contradicts_it(recorder: Recorder) -> None:
    fill(recorder)
    analysis = computed(recorder)
    assert not analysis.comparisons[0].skipped
    first, over_sets = answer_sentences(analysis)
    assert first.startswith("Item by item, Mixup beats ERM on plain (p = ")
    assert "say nothing about other seeds" in first
    assert over_sets.startswith("Any of the 3 algorithms may be first (*): 2 sets can show no other rank")
    further = further_sentences(analysis)
    assert further[0].startswith("Over the sets together it is not shown that the algorithms differ.")
    assert "These runs do not show" not in " ".join([first, over_sets, *further])


def test_what_is_missing_or_damaged_is_said_and_the_rest_compared(
    recorder: Recorder, few_draws: None, without_evidence: None
) -> None:
    ids = fill(recorder)
    for row, decisions in {
        "cut": None,
        "none": None,
        "other": decided(rights(0, 0.5), [f"dog/{number}.png" for number in range(IMAGES)]),
        "twice": decided(rights(0, 0.5), ["same.png"] * IMAGES),
        "older": decided(rights(0, 0.5)),
    }.items():
        ids[row] = recorder.train(row, 0, (0.5, 0.5), protocol=PROTOCOL)
        if decisions is not None:
            log(recorder, ids[row], "plain", decisions, LAST - (row == "older"))
    recorder.client.log_text(ids["cut"], "no parquet", record.predictions_file("plain", "last"))
    compared = computed(recorder, sets="plain", selection="last").data(SINGLE_RUNS)
    lines = "\n".join(compared.left_out)
    assert "plain, cut: the stored decisions can't be read" in lines
    assert "plain, none: no decisions are stored" in lines
    assert "plain, twice: the stored decisions name an image twice" in lines
    assert f"plain, older: the decisions of step {LAST}, which the rule chose, are not kept" in lines
    assert "plain, erm and other: they were not tested on the same images" in lines
    assert len(compared.table) == 3
    assert len(compared.left_out) == 7


def test_nothing_is_fetched_where_every_row_has_several_runs(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, few_draws: None, without_evidence: None
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("decisions were fetched")

    monkeypatch.setattr(RunStore, "file", refuse)
    for name in ("erm", "mixup"):
        for seed in (0, 1):
            recorder.train(name, seed, (0.5 + 0.01 * seed, 0.5), protocol=PROTOCOL)
    analysis = computed(recorder)
    assert not analysis.data(SINGLE_RUNS).applies
    assert "over images" not in summary.render(analysis)


def test_views_are_known_by_their_names_below_the_folders_of_conditions() -> None:
    names = ["noise/fog/1/n01/a.png", "noise/fog/1/n02/a.png", "blur/glass/1/n01/a.png", "blur/glass/1/n02/a.png"]
    assert number_photographs(names, ["fog-1", "fog-1", "glass-1", "glass-1"]).tolist() == [0, 1, 0, 1]
    assert number_photographs(["0", "1", "0"], ["x", "x", "y"]).tolist() == [0, 1, 0]
    # As ImageNet-C is released: the severity is a folder of its own, and there may be one image under each.
    folders = [f"noise/{kind}/{severity}" for kind in ("shot", "snow") for severity in (1, 2)]
    images = [f"{folder}/{name}" for folder in folders for name in ("n01/a.JPEG", "n02/b.JPEG")]
    assert number_photographs(images, [folder for folder in folders for _ in range(2)]).tolist() == [0, 1] * 4
    assert number_photographs(images[::2], folders).tolist() == [0] * 4
    below = [f"shared/{name}" for name in images]
    assert number_photographs(below, [p for p in folders for _ in (0, 1)]).tolist() == [0, 1] * 4
    assert number_photographs([], []).tolist() == []


def test_intervals_of_accuracies_take_the_views_of_a_photograph_for_one() -> None:
    right = rights(0, 0.5)
    once, views = set_row(decided(right)), set_row(decided(right, fogs=FOGS))
    width, of_views = (row["accuracy_high"] - row["accuracy_low"] for row in (once, views))
    assert of_views == pytest.approx(width, rel=0.15)
    alone, shown = (
        Column("x", record.SetRecord("x", "accuracy", images, 2, 0.5, conditions=conditions))
        for images, conditions in ((40, {}), (120, dict.fromkeys(FOGS, 40)))
    )
    assert scores.binomial_interval(50.0, shown) == scores.binomial_interval(50.0, alone)
