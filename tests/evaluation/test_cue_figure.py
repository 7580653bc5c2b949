"""Shape bias beside people and known networks: their counts, and a point for each category."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed.evaluation import cue_figure
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
