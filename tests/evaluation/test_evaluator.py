"""Evaluation is exact: neither batch size nor the number of processes changes a decision or a number."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from biasbed import record
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.corruptions.suppression import GREY_BLEND
from biasbed.data.names import Coded
from biasbed.data.source import MemorySource, Picture
from biasbed.data.transforms import Exact, SquareResize
from biasbed.datasets.suppressed import CLEAN, Condition, suppressed
from biasbed.errors import CorruptImage, Failure, NotFinite
from biasbed.evaluation import report
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.evaluator import Evaluator, measure
from biasbed.evaluation.prediction_files import read_predictions, write_predictions
from biasbed.networks.network import as_input
from biasbed.suites.label_maps import Grouped, LabelMap, Subset
from biasbed.suites.sets import CUE_MEASURES, EvaluationSet
from biasbed.tasks import MultiLabel
from helpers import children
from helpers.runs import run_folders


class OneOf(Group):
    """A rank's view of a group whose gathering is done by the test."""

    def gather_objects(self, value: object) -> list[object]:
        return [value]

    def share_object(self, value: object) -> object:
        return value


def make_set(size: int, name: str = "set") -> EvaluationSet:
    generator = np.random.default_rng(size)
    images = generator.integers(0, 256, (size, 3, 8, 8), dtype=np.uint8)
    source = MemorySource(
        name=name,
        classes=("a", "b", "c", "d"),
        y=generator.integers(0, 4, size),
        ids=[f"{name}/{i}" for i in range(size)],
        bias=generator.integers(0, 4, size),
        group=np.array(["odd", "even"] * size)[:size],
        images=images,
    )
    return EvaluationSet(name, source, SquareResize(8), measures=CUE_MEASURES)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).eval()


def decide(model: nn.Module, sets: list[EvaluationSet], batch: int, observer: str = "model") -> dict[str, Decisions]:
    evaluator = Evaluator(sets, OneOf(), Precision(), batch, 0, False)
    found = evaluator.decide(model, observer=observer)
    assert found is not None
    return found


def test_images_at_a_stroke_are_decided_as_one_by_one(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = make_set(11)

    def decided() -> Any:
        found = Evaluator([entry], OneOf(), Precision(), 4, 0, skip_corrupt=False).decide(model)
        assert found is not None
        return found[entry.name]

    with monkeypatch.context() as patch:
        patch.setattr(MemorySource, "open", lambda *_: pytest.fail("opened alone"))
        at_a_stroke = decided()
    monkeypatch.setattr(MemorySource, "shape", None)
    one_by_one = decided()
    for column in ("decision", "loss", "confidence", "rank", "bias_rank"):
        assert np.array_equal(getattr(at_a_stroke, column), getattr(one_by_one, column)), column


def test_batch_size_does_not_matter(model: nn.Module) -> None:
    sets = [make_set(37), make_set(5, "other")]
    reference, ids = decide(model, sets, 64), {entry.name: entry.source.ids for entry in sets}
    for batch in (1, 7, 37):
        found = decide(model, sets, batch)
        for name in reference:
            assert found[name].images == list(ids[name])
            assert np.array_equal(found[name].decision, reference[name].decision)
            for column in ("top", "rank", "bias_rank"):
                assert np.array_equal(getattr(found[name], column), getattr(reference[name], column)), column


@pytest.mark.parametrize("chosen", [None, 1])  # all sets, or only the second
def test_images_that_another_set_shows_are_decided_once(chosen: int | None, model: nn.Module) -> None:
    plain = replace(make_set(23, "photo"), measures=("accuracy",))
    shown = (Condition(CLEAN), Condition("grey_blend-100", GREY_BLEND.name, (1.0,)))
    source = suppressed(plain.source, "photo_reliance", plain.transform, "", shown, 0)
    again = replace(plain, name="photo_reliance", source=source, transform=Exact(8), plain="photo")
    seen = 0

    def predict(x: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += len(x)
        return model(x)

    def decide(second: EvaluationSet) -> dict[str, Decisions]:
        sets = [plain, second]
        evaluator = Evaluator(sets, Group(), Precision("fp32", torch.device("cpu")), 5, 0, False)
        decided = evaluator.decide(predict, sets=None if chosen is None else [sets[chosen]])
        assert decided is not None
        return decided

    twice = decide(replace(again, plain=""))
    read_twice, seen = seen, 0
    once = decide(again)
    assert read_twice - seen == (23 if chosen is None else 0)
    for name, decisions in twice.items():
        assert once[name].images == decisions.images
        for column in ("decision", "label", "confidence", "loss", "rank", "bias_rank", "condition", "top", "top_score"):
            first, second = getattr(once[name], column), getattr(decisions, column)
            assert (first is None) == (second is None)
            if isinstance(first, Coded):
                assert first.names == second.names
                assert np.array_equal(first.codes, second.codes)
            elif first is not None:
                np.testing.assert_allclose(first, second, rtol=1e-5)


def test_any_of_several_right_labels_counts(model: nn.Module, tmp_path: Path) -> None:
    plain = replace(make_set(64), measures=("accuracy", "ece"))
    before = decide(model, [plain], 7)["set"]
    number = {name: code for code, name in enumerate(plain.source.classes)}
    accepted = np.zeros((64, 4), dtype=bool)
    accepted[np.arange(64), plain.source.y] = True
    accepted[:20, 2] = True
    entry = replace(plain, source=replace(plain.source, accepted=accepted))
    found = decide(model, [entry], 7)["set"]
    assert np.array_equal(found.decision, before.decision)
    expected = [accepted[row, number[decision]] for row, decision in enumerate(before.decision.tolist())]
    assert found.right.tolist() == expected
    assert sum(expected) > before.right.sum()
    write_predictions(tmp_path / "real.parquet", found, 0)
    again = read_predictions(tmp_path / "real.parquet")
    assert again.right.tolist() == expected
    assert (
        entry.source.subset(np.arange(30), "part").fingerprint()
        != plain.source.subset(np.arange(30), "part").fingerprint()
    )


class Gathering(OneOf):
    """The first of two ranks, which gets what the second one has sent."""

    sent: object = None
    other: object = None

    def gather_objects(self, value: object) -> list[object]:
        self.sent = value
        return [value] if self.other is None or not isinstance(value, dict) else [value, self.other]


def test_decisions_of_two_ranks_are_put_in_the_set_s_order(model: nn.Module) -> None:
    entry = make_set(37)
    first, second = Gathering(0, 2), Gathering(1, 2)
    for group in (second, first):
        first.other = second.sent
        found = Evaluator([entry], group, Precision(), 5, 0, False).decide(model)
    assert found is not None
    reference = decide(model, [entry], 5)["set"]
    for name in ("images", "decision", "rank", "top"):
        assert np.array_equal(getattr(found["set"], name), getattr(reference, name)), name


@pytest.mark.slow
def test_one_and_two_processes_decide_alike_from_one_checkpoint(image_root: Path, tmp_path: Path) -> None:
    """The whole way: two processes resume, at its end, the checkpoint of a finished training, and evaluate it."""
    words = [
        *("train", "--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--image_size", "32"),
        *("--epochs", "2", "--batch_size", "12", "--backbone", "resnet10", "--workers", "0", "--device", "cpu"),
        *("--tracking", "offline", "--algorithm", "erm", "--eval_batch_size", "7"),
    ]
    children.run(words, env={"BIASBED_HOME": str(tmp_path / "two")}, processes=2)
    (folder,) = run_folders(tmp_path / "two")
    from pyarrow import parquet

    from biasbed.evaluation.models import find
    from biasbed.suites import open_suite
    from biasbed.training.resolve import resolve

    config = resolve({k[2:]: v for k, v in zip(words[1::2], words[2::2], strict=True)})
    suite = open_suite(config)
    loaded = find(str(folder / "best.ckpt"))
    found = Evaluator(suite.sets, Group(), Precision(), 64, 0, False).decide(loaded.predict)
    assert found is not None
    for entry in suite.sets:
        stored = parquet.read_table(folder / f"predictions/{entry.name}/best.parquet").to_pydict()
        assert stored["image"] == list(entry.source.ids)
        assert stored["decision"] == found[entry.name].decision.tolist()


def test_measures_are_counts_over_the_right_images(model: nn.Module) -> None:
    entry = make_set(200)
    decisions = decide(model, [entry], 64)["set"]
    values = dict(measure(entry, decisions, "test"))
    names = np.array(entry.source.classes)
    y, bias = names[entry.source.y], names[entry.source.bias]
    conflict = y != bias
    shape, texture = (decisions.decision == y)[conflict].sum(), (decisions.decision == bias)[conflict].sum()
    assert values["test/accuracy/set"] == (decisions.decision == y).sum() / 200
    assert values["test/shape_bias/set"] == shape / (shape + texture)
    assert values["test/shape_accuracy/set"] == shape / conflict.sum()
    assert values["test/cue_coverage/set"] == (shape + texture) / conflict.sum()
    assert values["test/shape_mrr/set"] == pytest.approx((1 / decisions.rank[conflict]).mean())
    assert values["test/texture_mrr/set"] == pytest.approx((1 / decisions.bias_rank[conflict]).mean())
    assert np.array_equal(decisions.rank == 1, decisions.decision == y)
    assert "test/accuracy_full/set" not in values  # it would be the accuracy
    right = decisions.decision == y
    assert values["test/accuracy/set:odd"] == right[::2].mean()
    assert values["test/accuracy/set:even"] == right[1::2].mean()


def test_evaluation_leaves_model_and_randomness_alone(model: nn.Module) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    decide(model, [make_set(9)], 4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_predictions_on_disk(model: nn.Module, tmp_path: Path) -> None:
    from pyarrow import parquet

    entry = make_set(20)
    decisions = decide(model, [entry], 8)["set"]
    write_predictions(tmp_path / "p" / "best.parquet", decisions, 3)
    table = parquet.read_table(tmp_path / "p" / "best.parquet")
    rows = table.to_pydict()
    names = list(record.PREDICTIONS)
    assert list(rows) == names[: names.index("condition")]  # the set has no conditions, and one label per image
    assert rows["image"] == list(entry.source.ids)
    assert [len(top) for top in rows["top5"]] == [4] * 20  # there are only four classes
    assert [top[0] for top in rows["top5"]] == rows["decision"]
    assert np.allclose([sum(scores) for scores in rows["top5_score"]], 1, atol=1e-5)
    assert rows["confidence"] == [scores[0] for scores in rows["top5_score"]]
    assert (np.array(rows["rank"]) == 1).tolist() == rows["correct"]
    assert set(rows["bias_rank"]) <= {1, 2, 3, 4}
    assert np.mean(rows["correct"]) == dict(measure(entry, decisions, "test"))["test/accuracy/set"]
    assert table.schema.metadata[b"label_map"] == b"identity"


# --- fewer classes than outputs ---------------------------------------------------------------------------------------


class OfFirstPixels(nn.Module):
    """Logits are the first `outputs` pixels: what a test stores in an image, it decides."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 20 * x.flatten(1)[:, : self.outputs]


def restricted(label_map: LabelMap, size: int = 60) -> EvaluationSet:
    """Cue conflicts of the categories a, b, c, by name; images hold random logits of ten outputs."""
    generator = np.random.default_rng(size)
    y, bias = generator.integers(0, 3, (2, size))
    names = [
        f"{'abc'[one]}/{'abc'[one]}{i}-{'abc'[other]}0.png" for i, (one, other) in enumerate(zip(y, bias, strict=True))
    ]
    images = generator.integers(0, 256, (size, 3, 8, 8), dtype=np.uint8)
    source = MemorySource(name="cues", classes=("a", "b", "c"), y=y, ids=names, bias=bias, images=images)
    return EvaluationSet("cue_conflict", source, SquareResize(8), label_map=label_map, measures=CUE_MEASURES)


def test_the_accuracy_among_all_outputs_has_its_own_name() -> None:
    entry = restricted(Subset((7, 2, 4)))
    decisions = decide(OfFirstPixels(10), [entry], 16)["cue_conflict"]
    values = dict(measure(entry, decisions, "test"))
    logits = entry.source.images.reshape(60, -1)[:, :10].astype(int)
    columns, y = np.array([7, 2, 4]), entry.source.y
    assert values["test/accuracy_full/cue_conflict"] == (logits.argmax(1) == columns[y]).mean()
    assert values["test/accuracy/cue_conflict"] == (logits[:, columns].argmax(1) == y).mean()
    assert values["test/accuracy_full/cue_conflict"] < values["test/accuracy/cue_conflict"]
    assert set(entry.measured) == {name.split("/")[1] for name in values}
    assert "loss" in entry.measured
    scores = 20 * logits[:, columns] / 255
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(decisions.confidence, shares.max(1), rtol=1e-5)


def test_no_loss_where_scores_are_no_logits() -> None:
    entry = restricted(Grouped(((0, 5), (1,), (2, 8, 9))))
    decisions = decide(OfFirstPixels(10), [entry], 16)["cue_conflict"]
    values = dict(measure(entry, decisions, "test"))
    assert "test/loss/cue_conflict" not in values
    assert all(np.isfinite(value) for value in values.values())
    assert entry.record().measures == entry.measured
    assert entry.record().label_map == "grouped-prob_mean"


def test_live_and_stored_decisions_give_equal_numbers(tmp_path: Path) -> None:
    entry = restricted(Grouped(((0, 5), (1,), (2, 8, 9))))
    live = decide(OfFirstPixels(10), [entry], 16, "run")["cue_conflict"]
    path = tmp_path / "run" / "predictions" / "cue_conflict" / "last.parquet"
    write_predictions(path, live, 0)
    parquet = read_predictions(path)
    assert report.cue_rows(parquet) == report.cue_rows(live)
    assert report.set_row(parquet) == {**report.set_row(live), "preprocessing": ""}
    values = dict(measure(entry, live, "test"))
    ours = report.cue_rows(live)
    assert [row["class"] for row in ours] == ["all", "a", "b", "c"]
    for key in ("shape_bias", "shape_accuracy", "texture_accuracy", "cue_coverage", "shape_mrr", "texture_mrr"):
        assert ours[0][key] == values[f"test/{key}/cue_conflict"]
    row = report.set_row(live)
    for key in ("accuracy", "accuracy_full", "ece"):
        assert row[key] == values[f"test/{key}/cue_conflict"]


def test_a_set_without_a_readable_image_is_a_failure(model: nn.Module) -> None:
    class Unreadable(MemorySource):
        shape = None  # to be read one by one

        def open(self, row: int) -> Picture:
            raise CorruptImage(f"can't read the image {row}")

    good = make_set(5)
    broken = EvaluationSet("broken", Unreadable(**vars(make_set(3).source)), SquareResize(8))
    evaluator = Evaluator([good, broken], OneOf(), Precision(), 2, 0, True)
    with pytest.raises(Failure, match="no image of 'broken' could be read"):
        evaluator.decide(model)


@pytest.mark.parametrize(("value", "skip"), [(float("nan"), False), (-float("inf"), True)])
def test_outputs_that_are_not_finite_decide_nothing(value: float, skip: bool, model: nn.Module) -> None:
    """One value for one image; before, the image counted as the first class, or as that of the infinity."""
    entries = [make_set(5, "first"), make_set(9, "second")]
    spoilt = torch.as_tensor(entries[1].source.load_all(np.arange(9))[6])

    def predict(x: torch.Tensor) -> torch.Tensor:
        logits = model(x).clone()
        logits[(x == spoilt_input).flatten(1).all(dim=1), 2] = value
        return logits

    spoilt_input = as_input(spoilt[None])
    evaluator = Evaluator(entries, OneOf(), Precision(), 4, 0, skip)
    whole = evaluator.decide_each(predict)
    assert next(whole) is not None  # a set that is decided already is kept
    told = f"outputs for the image second/6 of 'second' are not finite ({value})"
    with pytest.raises(Failure, match=re.escape(told)):
        next(whole)


def test_outputs_of_several_labels_that_are_not_finite_decide_nothing() -> None:
    source = replace(make_set(6).source, y=np.eye(6, 4, dtype=np.int64), bias=None)
    entry = EvaluationSet("labels", source, SquareResize(8), measures=("map",), task=MultiLabel())
    with pytest.raises(Failure, match=r"image set/0 of 'labels' are not finite \(nan\)"):
        decide(lambda x: torch.full((len(x), 4), torch.nan), [entry], 4)  # type: ignore[arg-type]


def test_ranks_stop_together_where_one_has_outputs_that_are_not_finite(model: nn.Module) -> None:
    """The rank whose own outputs are all right raises what the other has met."""

    class Pair(OneOf):
        calls = iter([False, True])  # first files that can't be read, then outputs

        def gather_objects(self, value: object) -> list[object]:
            return [value, ["the other's"] if value == [] and next(self.calls) else []]

    evaluator = Evaluator([make_set(5)], Pair(world=2), Precision(), 4, 0, False)
    with pytest.raises(NotFinite, match="the other's"):
        evaluator.decide(model)


def test_decisions_are_made_of_what_the_network_gives() -> None:
    """Two logits that differ by less than fp32 can tell; the second is larger."""
    logits = torch.tensor([1.0, 1.0 + 1e-12, 0.0, 0.0], dtype=torch.float64)
    decisions = decide(lambda x: logits.expand(len(x), 4), [make_set(3)], 2)["set"]  # type: ignore[arg-type]
    assert decisions.decision.tolist() == ["b", "b", "b"]
    assert decisions.loss is not None
    assert decisions.loss.dtype == np.float64
