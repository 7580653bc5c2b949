"""Sets with a cue suppressed: which images they hold, and reliance as derived by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import average_precision_score
from torch import Tensor

pytest.importorskip("cv2", reason="OpenCV is an extra")

import biasbed
from biasbed import derived_values
from biasbed.data.corruptions.suppression import PATCH_SHUFFLE, suppress
from biasbed.datasets.digits import CLASSES
from biasbed.errors import UsageError
from biasbed.suites import make_suite, open_suite
from biasbed.suites.reliance_sets import condition_name, conditions
from biasbed.suites.suite import OpenSuite
from biasbed.training.resolve import resolve
from helpers.commands import ROOT
from helpers.nearest_mean import IMAGES, decide_by_means

MARKS = f"{ROOT / 'tests/helpers/toy_suite.py'}:Marks"


def opened(**settings: object) -> OpenSuite:
    return open_suite(resolve({"suite": "demo", "limit": 40, **settings}))


def test_a_set_shows_the_network_s_images_without_suppression_and_under_each() -> None:
    suite = opened(sets="in_domain,reliance", limit=None)
    plain, reliance = suite.sets
    assert [member.name for member in suite.sets] == ["in_domain", "in_domain_reliance"]
    assert reliance.source.conditions == (
        *("none", "patch_shuffle-4", "bilateral_filter-12", "gaussian_smoothing-9", "grey_blend-100"),
    )
    images = len(plain.source)
    assert len(reliance.source) == 5 * images
    row = 7
    ready = plain.transform(plain.source.open(row))
    assert np.array_equal(reliance.transform(reliance.source.open(row)), ready)
    shuffled = suppress(ready.permute(1, 2, 0).numpy(), PATCH_SHUFFLE, (4,), 0, plain.source.ids[row])
    assert np.array_equal(reliance.transform(reliance.source.open(images + row)).permute(1, 2, 0), shuffled)
    assert np.array_equal(reliance.source.y, np.tile(plain.source.y, 5))
    assert (reliance.counts, reliance.cadence, reliance.source_images) == (False, "end", plain.source_images)


def test_the_sets_are_those_beside_the_word_or_those_of_the_setting() -> None:
    names = [member.name for member in opened(sets="edge,sketch,reliance").sets]
    assert names == ["edge", "sketch", "edge_reliance", "sketch_reliance"]
    suite = opened(**{"reliance.sets": "sketch", "reliance.every_strength": True})
    assert [member.name for member in suite.sets if "reliance" in member.name] == ["sketch_reliance_whole"]
    every = opened(sets="reliance").sets
    assert {f"{member.name}_reliance" for member in every if member.counts and member.name != "cue_conflict"} == {
        member.name for member in every if not member.counts
    }


def test_sets_of_cue_conflicts_are_left_out_and_refused_alone() -> None:
    names = [member.name for member in opened(sets="edge,cue_conflict,reliance").sets]
    assert names == ["edge", "cue_conflict", "edge_reliance"]
    with pytest.raises(UsageError, match="sets=cue_conflict: these images have two cues"):
        opened(sets="cue_conflict,reliance")


def test_a_suite_that_is_not_opened_yet_knows_the_word_too() -> None:
    """A check asks for its data sets before any image is opened."""
    for sets, named in (("edge,reliance", ("edge",)), ("reliance", "auto")):
        suite = make_suite(resolve({"suite": "demo", "sets": sets}))
        assert suite.config.sets == named


def test_images_of_a_user_s_folder_have_reliance_too(image_root: Path) -> None:
    words = {"suite": "folders", "data_dir": str(image_root), "train": "photo", "image_size": 32, "limit": None}
    (name, _) = (member.name for member in opened(**words).sets)
    assert [member.name for member in opened(**words, sets=f"{name},reliance").sets] == [name, f"{name}_reliance"]


def test_the_whole_protocol_has_a_condition_for_each_strength() -> None:
    names = [condition.name for condition in conditions(is_whole=True)]
    assert len(names) == len(set(names)) == 1 + 8 + 8 + 6 + 7 + 5 + 5 + 1 + 8 + 13 + 6
    assert condition_name("smooth_shuffle", (12, 170, 4)) == "smooth_shuffle-12-4"
    assert condition_name("grey_blend", (0.2,)) == "grey_blend-20"
    assert condition_name("channel_shuffle", ()) == "channel_shuffle"


def test_reliance_is_the_share_of_what_is_above_chance() -> None:
    """By hand: 0.9 alone, 0.5 and 0.1 under two strengths, chance 0.1: (0.9 - 0.3) / 0.8 is lost."""
    suite = opened(sets="in_domain,reliance")
    declared = {derived.measure: derived for derived in suite.derivations if "reliance" in derived.name}
    assert set(declared) >= {"reliance_shape", "reliance_texture", "reliance_colour", "loss_by_gaussian_smoothing"}
    shape = declared["reliance_shape"]
    assert shape.inputs == (
        "test/accuracy_by_condition/in_domain_reliance:none",
        "test/accuracy_by_condition/in_domain_reliance:patch_shuffle-4",
    )
    (chance,) = shape.references
    assert chance == pytest.approx(0.1)
    lost = derived_values.derive("lost_share", [0.9, 0.5, 0.1], [0.1], higher_is_better=False)
    assert lost == pytest.approx(0.75)
    assert derived_values.derive("lost_share", [0.9, 0.9], [0.1]) == pytest.approx(0)
    assert derived_values.derive("lost_share", [0.1, 0.05], [0.1]) is None, "there is nothing to lose"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"reliance.sets": "sketh"},
            r"^reliance.sets=sketh: there is no evaluation set 'sketh'; did you mean 'sketch'",
        ),
        ({"sets": "scetch,reliance"}, "scetch"),
    ],
)
def test_what_has_no_reliance_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opened(**settings)


def test_two_classes_have_reliance_above_a_chance_of_one_half(tmp_path: Path) -> None:
    for name in ("no", "yes"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (32, 32), (40 * number, 0, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    words = {"suite": "folders", "data_dir": str(tmp_path), "train": "none", "sets": "photos,reliance", "limit": None}
    (shape,) = [value for value in opened(**words).derivations if value.measure == "reliance_shape"]
    assert shape.references == (0.5,)


def test_reliance_follows_from_the_decisions_on_the_same_images() -> None:
    """In NumPy from the predictions, beside the paper's relative accuracy: accuracy under suppression by without."""
    card = biasbed.evaluate(
        decide_by_means,
        "demo",
        sets=["in_domain", "reliance"],
        classes=CLASSES,
        limit=IMAGES,
        image_size=40,
        quiet=True,
    )
    frame = card.predictions("in_domain_reliance")
    right = frame.groupby("condition", sort=False)["correct"].mean()
    relative = right["patch_shuffle-4"] / right["none"]
    lost = 1 - (right["patch_shuffle-4"] - 0.1) / (right["none"] - 0.1)
    values = card.looks_at.set_index(["measure", "set"])["value"]
    assert right["none"] > 0.1, "it is better than chance"
    assert values["reliance_shape", "in_domain_reliance"] == pytest.approx(lost)
    chance_share = 0.1 / right["none"]
    assert relative == pytest.approx(chance_share + (1 - chance_share) * (1 - lost))


def test_images_with_several_labels_have_the_share_of_average_precision_above_chance() -> None:
    """By hand, from the scores that are kept: chance is the labels' mean share of the images."""
    names = ("light", "red side", "striped")

    def network(images: Tensor) -> Tensor:
        red = images[:, 0, :, :8].mean(dim=(1, 2)) - images[:, 1, :, :8].mean(dim=(1, 2))
        stripes = images[:, :, ::2].mean(dim=(1, 2, 3)) - images[:, :, 1::2].mean(dim=(1, 2, 3))
        return torch.stack([images.mean(dim=(1, 2, 3)), red, stripes], dim=1)

    card = biasbed.evaluate(network, MARKS, sets=["marked", "reliance"], classes=names, image_size=16, quiet=True)
    (decisions,) = [decided for decided in card._results.stored.decisions if decided.set == "marked_reliance"]
    assert decisions.targets is not None
    assert decisions.scores is not None
    precisions = {}
    for condition in ("none", "grey_blend-100"):
        rows = decisions.condition == condition
        each = [average_precision_score(decisions.targets[rows, k], decisions.scores[rows, k]) for k in range(3)]
        precisions[condition] = np.mean(each)
        metric = f"test/map_by_condition/marked_reliance:{condition}"
        assert card.values[metric] == pytest.approx(precisions[condition])
    chance = decisions.targets.mean(axis=0).mean()
    lost = 1 - (precisions["grey_blend-100"] - chance) / (precisions["none"] - chance)
    assert card.values["test/reliance_colour/marked_reliance"] == pytest.approx(lost)
    assert card.values["test/reliance_colour/marked_reliance"] > 0.1
