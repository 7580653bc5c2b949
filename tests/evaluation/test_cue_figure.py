"""Shape bias beside people and known networks: their counts, the words that name them, a point for each category."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed.errors import UsageError
from biasbed.evaluation import cue_figure, evaluate_model
from biasbed.evaluation.decisions import CUES
from biasbed.published import observers
from helpers.cue_decisions import decided


def test_published_counts_give_the_published_shape_biases() -> None:
    known = {one.name: one for one in observers.observers()}
    assert known["resnet50"].shape_bias == pytest.approx(0.2207, abs=5e-5)
    people = [one for one in known.values() if one.is_human]
    assert len(people) == 10
    assert observers.pooled("people", people).shape_bias == pytest.approx(0.957, abs=0.01)
    assert all(low < one.shape_bias < high for one in known.values() for low, high in [one.interval])
    assert set(observers.KNOWN) <= set(known)
    assert all(one.counts.keys() == observers.categories() for one in known.values())


def test_words_choose_people_or_everybody() -> None:
    assert [one.is_human for one in observers.chosen("humans")] == [True] * 10
    assert len(observers.chosen("published")) == len(observers.observers()) == 26
    assert observers.chosen("none") == ()


def test_a_category_has_a_point_for_every_observer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[tuple[float, float]]] = {}

    def scatter(axes: object, x: list[float], y: list[float], label: str, **look: object) -> None:
        drawn[label] = list(zip(x, y, strict=True))

    monkeypatch.setattr("matplotlib.axes.Axes.scatter", scatter)
    assert cue_figure.draw({"mine": decided("mine", 0.3), "theirs": decided("theirs", 0.8)}, tmp_path / "a.png")
    assert set(drawn) == {"mine", "theirs", "people", *observers.KNOWN}
    assert all(sorted(row for _, row in points) == list(range(16)) for points in drawn.values())
    assert {share for share, _ in drawn["mine"]} == {0.3}
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_the_table_is_ordered_and_names_its_sources() -> None:
    lines = cue_figure.table({"mine": decided("mine", 0.5)}, observers.chosen("published"))
    values = [float(next(word for word in line.split() if word.startswith(("0.", "1.")))) for line in lines[1:]]
    assert values == sorted(values, reverse=True)
    assert len(values) == 16 + 1 + 1  # networks, the people as one, and ours
    (own,) = [line for line in lines if "tested here" in line]
    assert "0.5000" in own


def test_sets_without_their_categories_are_refused() -> None:
    with pytest.raises(UsageError, match="none of the sets tested here has these"):
        evaluate_model._counted_observers("humans", [])
    assert evaluate_model._counted_observers("none", []) == ()
    assert CUES == ("shape", "texture")
