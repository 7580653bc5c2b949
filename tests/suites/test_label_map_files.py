"""Label maps of a user's own: for which sets they are, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from biasbed.errors import UsageError
from biasbed.suites.label_map_files import read_label_maps
from biasbed.suites.label_maps import IDENTITY, Grouped, Subset


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_a_user_s_own_map_is_for_sets_of_exactly_its_classes(tmp_path: Path) -> None:
    text = "outputs: 20\nmaps:\n- {classes: {airplane: 3, bear: [7, 5]}, how: logit_mean}\n- classes: {a: 0, b: 19}\n"
    own = read_label_maps(written(tmp_path, text))
    grouped = own.map_to(("bear", "airplane"))  # the set's order counts
    assert isinstance(grouped, Grouped)
    assert grouped.members == ((7, 5), (3,))
    assert grouped.name == "mine-logit_mean"
    assert own.map_to(("b", "a")) == Subset((19, 0), "mine-subset")
    assert own.map_to(("airplane",)) is None
    assert own.map_to(("airplane", "bear", "car")) is None
    logits = torch.zeros(1, 20)
    logits[0, [5, 7]] = torch.tensor([4.0, 2.0])
    assert grouped(logits).tolist() == [[3.0, 0.0]]


def test_outputs_may_have_names(tmp_path: Path) -> None:
    own = read_label_maps(
        written(tmp_path, "outputs: [jet, grizzly, panda]\nmaps: [{classes: {plane: jet, bear: [panda, 1]}}]\n")
    )
    assert own.names == ("jet", "grizzly", "panda")
    found = own.map_to(("plane", "bear"))
    assert isinstance(found, Grouped)
    assert found.members == ((0,), (2, 1))
    alone = read_label_maps(written(tmp_path, "outputs: [jet, grizzly]\n"))
    assert alone.maps == ()
    assert alone.map_to(("jet", "grizzly")) is IDENTITY
    assert alone.map_to(("grizzly", "jet")) == Subset((1, 0), "mine-order", restricts=False)
    assert alone.map_to(("jet",)) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'outputs' is missing"),
        ("outputs: [a, a]", "outputs: two are called 'a'"),
        ("outputs: 3\nmaps: []", "'maps' is empty"),
        ("outputs: 3\nmaps: [{classes: {a: 0}, how: prob_men}]", "did you mean 'prob_mean'"),
        ("outputs: 3\nmaps: [{classes: {a: 0, b: 3}}]", "'b' has output 3, but outputs are 0 to 2"),
        ("outputs: 3\nmaps: [{classes: {a: [], b: 2}}]", "'a' has no outputs"),
        ("outputs: 3\nmaps: [{classes: {a: [0, 1], b: 1}}]", "output 1 is given to 'a' and to 'b'"),
        ("outputs: [jet, car]\nmaps: [{classes: {a: jets}}]", "did you mean 'jet'"),
        ("outputs: 3\nmaps: [{classes: {7: 1}}]", "maps.0..classes: '7' without quotes is a number or date in YAML"),
        ("outputs: [jet, car]\nmaps: [{classes: {a: no}}]", "output False, which without quotes is false in YAML"),
        ("outputs: 3\nmaps: [{classes: {a: 0, b: 1}}, {classes: {b: 2, a: 1}}]", "two maps have the same classes"),
    ],
)
def test_own_maps_that_are_wrong_are_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_label_maps(written(tmp_path, text))
    assert str(caught.value).startswith("label_map=")
    assert "\n" not in str(caught.value)
