"""A model in memory: the command's numbers, nothing of the model changed, and one line for what can't be tested."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
import torchvision
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

import biasbed
from biasbed import cli, record
from biasbed.datasets.digits import CLASSES
from biasbed.suites import label_map_files
from biasbed.system import formats
from biasbed.tracking.folder import RunFolder
from helpers.commands import ROOT
from helpers.runs import all_runs, run_folders, stored, timeless

FOGS = f"{ROOT / 'tests/helpers/toy_suite.py'}:Fogs"
NAMES = ["dark", "grey", "light"]
SKIPPED = ("five", "seven")
TO_FLOAT = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
DEMO: dict[str, Any] = {"suite": "demo", "sets": ["cue_conflict", "edge"], "limit": 60, "image_size": 16}


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return torchvision.models.shufflenet_v2_x0_5(num_classes=3)


def small(outputs: int = 10) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(4)
    ).append(nn.Sequential(nn.Flatten(), nn.Linear(128, outputs)))


def test_a_card_shows_itself_in_a_notebook_by_the_name_that_timm_knows() -> None:
    model = small()
    model.pretrained_cfg = {"architecture": "tf_net<lite>"}  # type: ignore[assignment]
    card = biasbed.evaluate(model, classes=CLASSES, **DEMO)
    shown = card._repr_html_()
    assert "Card of tf_net_lite" in shown
    assert f"<td>{card.values['test/accuracy/edge']:.4f}</td>" in shown


def states() -> list[Any]:
    return [torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()]


def test_it_has_the_command_s_numbers_and_leaves_the_model_alone(
    network: nn.Module, tracking: str, tmp_path: Path
) -> None:
    torch.save(network.state_dict(), tmp_path / "net.pth")
    (tmp_path / "outputs.yaml").write_text(f"outputs: [{', '.join(NAMES)}]\n")
    words = {"model": "torchvision:shufflenet_v2_x0_5", "weights": tmp_path / "net.pth", "suite": FOGS, "device": "cpu"}
    words |= {"label_map": tmp_path / "outputs.yaml", "image_size": 16, "workers": 0, "row": "net", "study": "mine"}
    assert cli.main(["evaluate", *(f"--{name}={value}" for name, value in words.items())]) == 0
    (folder,) = run_folders(tmp_path / "home")
    (entry,) = RunFolder(folder).read_journal()

    network.train()
    network.conv5.eval()  # a mode of its own
    modes = {name: module.training for name, module in network.named_modules()}
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    before = states()
    card = biasbed.evaluate(network, FOGS, classes=NAMES, image_size=16, row="net", study="mine", **IMAGENET)
    assert states() == before
    assert {name: module.training for name, module in network.named_modules()} == modes
    assert all(torch.equal(tensor, weights[name]) for name, tensor in network.state_dict().items())
    assert len(list(run_folders(tmp_path / "home"))) == len(all_runs(tracking, kind="evaluate")) == 1

    assert timeless(card.values) == timeless(entry["metrics"])
    for name in card.sets:
        predictions = pd.read_parquet(folder / record.predictions_file(name, "last"))
        pd.testing.assert_frame_equal(card.predictions(name), predictions)
    saved = card.save(tmp_path / "saved")
    tables = [pd.read_csv(path / "evaluation.csv") for path in (saved, folder)]
    assert set(tables[0]["observer"]) == {"net"}  # the row: two files of one network have different ones
    pd.testing.assert_frame_equal(*tables)
    frame = card.metrics.set_index(["set", "metric"])
    table = pd.read_csv(folder / "evaluation.csv").set_index("set")
    for name in card.sets:
        row = frame.loc[(name, "accuracy")]
        assert (row.value, row.low, row.high) == tuple(table.loc[name, ["accuracy", "accuracy_low", "accuracy_high"]])
        assert row.n == table.loc[name, "images"]
    assert frame.loc[("fogged:mist_1", "accuracy_by_condition")].n == 24


def test_shape_bias_has_the_interval_and_the_categories_of_the_report() -> None:
    card = biasbed.evaluate(small(), classes=CLASSES, **DEMO)
    bias = card.shape_bias
    assert bias is not None
    decisions = card.predictions("cue_conflict")
    conflicting = decisions[decisions.label != decisions.bias]
    shape, texture = ((conflicting.decision == conflicting[cue]).sum() for cue in ("label", "bias"))
    assert bias.value == float(bias) == shape / (shape + texture)
    assert bias.low <= bias.value <= bias.high
    assert bias.n == len(conflicting) == bias.categories.images.sum()
    assert bias.categories["shape"].sum() == shape
    assert bias.decisions == shape + texture
    assert f"from {shape + texture} decisions on {bias.n} images" in repr(bias)
    row = card.metrics.set_index(["set", "metric"]).loc[("cue_conflict", "shape_bias")]
    assert (row.value, row.low, row.high, row.n) == (bias.value, bias.low, bias.high, bias.n)
    with pytest.raises(biasbed.UsageError, match="no shape and texture that conflict"):
        card.shape_bias_of("edge")
    looks = card.looks_at.set_index("measure")
    assert set(looks["cue"]) == {"shape", "texture"}
    assert looks.loc["shape_bias", "value"] == pytest.approx(bias.value)
    assert looks.loc["shape_bias", "low"] == pytest.approx(bias.low)
    assert "looks at" in str(card)
    with pytest.raises(biasbed.UsageError, match="was not tested on 'edges'; did you mean 'edge'"):
        card.predictions("edges")
    assert "shape bias" in str(card)


def test_a_transform_of_one_s_own_is_the_only_one() -> None:
    """The demo's images have their size already, so that another's code makes the same inputs, and the same numbers."""
    model = small().eval()
    sized = {**DEMO, "image_size": 40}
    usual = biasbed.evaluate(model, classes=CLASSES, **sized)
    same = biasbed.evaluate(lambda x: model(x), classes=CLASSES, transform=v2.functional.pil_to_tensor, **sized)
    dark = biasbed.evaluate(model, classes=CLASSES, transform=lambda image: TO_FLOAT(image) / 2, **sized)
    losses = [card.values["test/loss/edge"] for card in (usual, same, dark)]
    assert losses[0] == losses[1] != losses[2]


class Fails:
    """Transform that works on the grey image by which a model is tried, and on few others."""

    def __init__(self, fail: Callable[[Tensor, int], Any]) -> None:
        self.fail, self.calls = fail, 0

    def __call__(self, image: Image.Image) -> Any:
        self.calls += 1
        x = TO_FLOAT(image)
        return x if self.calls < 4 else self.fail(x, self.calls)


def look_up(x: Tensor, calls: int) -> Tensor:
    return {}["crop"]


@pytest.mark.parametrize(
    ("workers", "fail", "message"),
    [
        (1, look_up, r"transform= raises KeyError on an image \('crop'\)"),
        (
            0,
            lambda x, calls: x[:, :8],
            r"the transform makes images of \[3, 8, 16\] and \[3, 16, 16\]; give all one size",
        ),
        (0, lambda x, calls: x.numpy(), "transform= returns a ndarray and should return one image as a tensor"),
    ],
)
def test_a_transform_that_fails_in_a_loader_ends_in_a_line(workers: int, fail: Any, message: str) -> None:
    options = {**DEMO, "sets": ["edge"], "workers": workers, "classes": CLASSES}
    with pytest.raises(biasbed.Failure, match=message) as failed:
        biasbed.evaluate(small(), transform=Fails(fail), **options)
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("number", [[0.5], "0.5"])
def test_one_mean_and_std_are_for_all_channels(number: Any) -> None:
    options = {**DEMO, "sets": ["edge"], "classes": CLASSES}
    one = biasbed.evaluate(small(), mean=number, std=number, **options)
    three = biasbed.evaluate(small(), mean=(0.5,) * 3, std=(0.5,) * 3, **options)
    assert one.normalisation == three.normalisation
    assert timeless(one.values) == timeless(three.values)


def test_torchvision_s_transforms_are_read_as_settings(network: nn.Module) -> None:
    preset = torchvision.models.ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1.transforms(crop_size=16, resize_size=18)
    given = {"classes": NAMES, "suite": FOGS}
    read = biasbed.evaluate(network, transform=preset, **given)
    assert "mean 0.485, 0.456, 0.406" in read.normalisation
    told = biasbed.evaluate(network, image_size=16, **IMAGENET, **given)
    assert timeless(read.values) == timeless(told.values)


class Output(nn.Module):
    """Returns something else than logits."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(torch.zeros(len(x), 10))


LOGITS = Output(lambda z: z)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (Output(lambda z: (z, z)), {}, r"returns a tuple of a tensor \[2, 10\], .*lambda x: model\(x\)\[0\]"),
        (Output(lambda z: {"logits": z}), {}, r"returns a dict with logits .*model\(x\)\['logits'\]"),
        (LOGITS, {"classes": ["a", "b"]}, r"classes= has 2 names \(a, b\), and the model 10 outputs"),
        (LOGITS, {"classes": ["a"] * 10}, "two outputs are called 'a'"),
        (
            LOGITS,
            {"transform": torchvision.models.ResNet18_Weights.DEFAULT},
            "transform= raises TypeError",
        ),
        (
            LOGITS,
            {"transform": lambda image: TO_FLOAT(image)[None]},
            r"should return one image as a tensor \[C,H,W\]",
        ),
        (
            LOGITS,
            {"classes": [*CLASSES[1:], "ten"]},
            r"10 outputs \(one, .*\) are not 'edge' \(zero is missing, ten is unknown",
        ),
        (LOGITS, {"label_map": {"outputs": CLASSES[:9]}}, "label_map: describes 9 outputs, but .* has 10"),
        (
            LOGITS,
            {"label_map": {"outputs": {0}}},
            "label_map: outputs: should be the number of the model.s outputs or a list",
        ),
        (
            Output(lambda z: z.repeat(1, 100)),
            {},
            "this is suite=demo, the default: name the suite that you mean",
        ),
        (LOGITS, {"resume": "never"}, "unknown setting 'resume'"),
        (nn.Linear(3, 10), {}, r"the model fails on images \[2, 3, 16, 16\] on cpu"),
        ("resnet18", {}, r"the model fails on images .* \('str' object is not callable\)"),
    ],
)
def test_what_can_t_be_tested_is_refused_in_a_line(model: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(biasbed.UsageError, match=message) as refused:
        biasbed.evaluate(model, **{**DEMO, "sets": ["edge"], **arguments})
    assert "\n" not in str(refused.value)


def test_a_label_map_is_read_once_and_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, its text and a dict are one map; a file that changes later changes nothing."""
    path, read = tmp_path / "map.yaml", formats.read
    text = f"outputs: [{', '.join(CLASSES)}]"
    path.write_text(text)
    paths = []

    def note_path(kind: Any, file: Path, subject: str) -> Any:
        paths.append(file)
        return read(kind, file, subject)

    monkeypatch.setattr(label_map_files.formats, "read", note_path)
    evaluator = biasbed.Evaluator(label_map=path, **DEMO)
    path.write_text("outputs: 3")
    cards = [evaluator(small()), evaluator(small())]
    assert paths.count(path) == 1
    for content in ("{" + text + "}", {"outputs": np.array(CLASSES)}, {"outputs": CLASSES}):
        cards.append(biasbed.evaluate(small(), label_map=content, **DEMO))
    assert len({card._job.config_hash for card in cards}) == 1
    assert len({card.values["test/loss/edge"] for card in cards}) == 1


def test_values_of_python_are_the_words_of_the_command() -> None:
    """Numbers, lists, arrays and paths, where the command has text."""
    typed = {"limit": np.int64(20), "sets": ("edge",), "mean": np.full(3, 0.5), "std": torch.tensor([0.5] * 3)}
    words = {"limit": "20", "sets": "edge", "mean": "0.5,0.5,0.5", "std": "0.5"}
    cards = [biasbed.evaluate(small(), classes=CLASSES, image_size=16, **given) for given in (typed, words)]
    assert timeless(cards[0].values) == timeless(cards[1].values)


def test_outputs_find_the_classes_by_their_names(network: nn.Module) -> None:
    """A model whose outputs stand in another order gets the same decisions: by `classes=`, or by a label map."""
    model = small().eval()
    turned = CLASSES[::-1]
    usual = biasbed.evaluate(model, classes=CLASSES, **DEMO)
    for naming in ({"classes": turned}, {"label_map": {"outputs": turned}}):
        card = biasbed.evaluate(lambda x: model(x).flip(1), **naming, **DEMO)
        assert card.values["test/accuracy/edge"] == usual.values["test/accuracy/edge"]
        assert (card.predictions("cue_conflict").decision == usual.predictions("cue_conflict").decision).all()
    pairs = {name: [5, 7] if name == "three" else number for number, name in enumerate(CLASSES) if name not in SKIPPED}
    with pytest.raises(
        biasbed.UsageError, match=r"label_map: .* are not 'edge' \(five, seven are missing\): give the map"
    ):
        biasbed.evaluate(model, label_map={"outputs": 10, "maps": [{"classes": pairs}]}, **DEMO)


def test_an_evaluator_is_refused_when_it_is_made() -> None:
    with pytest.raises(biasbed.UsageError, match="no evaluation set 'edgee'; did you mean 'edge'"):
        biasbed.Evaluator(**{**DEMO, "sets": ["edgee"]})


def trained(evaluator: biasbed.Evaluator | None) -> nn.Module:
    """A model after six steps of a loop with dropout, evaluated after some of them."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(6):
        loss = model(torch.rand(8, 3, 16, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if evaluator is not None:
            card = evaluator.after_epoch(model, epoch)
            assert (card is None) == bool(epoch % 2)
    return model


def test_a_loop_of_one_s_own_trains_as_without_its_evaluator(tracking: str) -> None:
    evaluator = biasbed.Evaluator(classes=CLASSES, every=2, **DEMO)
    with pytest.raises(biasbed.UsageError, match="no MLflow run is active"):
        evaluator.after_epoch(small(), 0)
    with mlflow.start_run() as run:
        watched = trained(evaluator)
    alone = trained(None)
    assert all(torch.equal(tensor, alone.state_dict()[name]) for name, tensor in watched.state_dict().items())
    history = stored(tracking, run.info.run_id)
    assert history.keys() == {0, 2, 4}
    at_end = trained(None)  # epoch 5 takes a further step, so that only the names agree
    card = evaluator(at_end)
    assert history[4].keys() == timeless(card.values).keys()
    assert timeless(card.values) == timeless(biasbed.evaluate(at_end, classes=CLASSES, **DEMO).values)


def test_a_card_is_logged_into_the_active_run_or_one_of_its_own(tracking: str) -> None:
    card = biasbed.evaluate(small(), classes=CLASSES, row="mine", study="s", **DEMO)
    with mlflow.start_run() as run:
        assert card.log(step=3) == run.info.run_id
    assert stored(tracking, run.info.run_id) == {3: timeless(card.values)}
    own = card.log()
    (found,) = all_runs(tracking, kind="evaluate", study="s")
    assert (found.info.run_id, found.info.status, found.data.tags[record.ROW]) == (own, "FINISHED", "mine")
    assert stored(tracking, own) == {0: timeless(card.values)}
    for run_id in (run.info.run_id, own):
        pd.testing.assert_frame_equal(biasbed.predictions(run_id, "edge"), card.predictions("edge"))
    with pytest.raises(biasbed.UsageError, match="no predictions of its last evaluation on a set 'sketch'"):
        biasbed.predictions(own, "sketch")
    frame = biasbed.runs(study="s")
    assert set(zip(frame.run, frame.row, frame.seed, frame.epoch, strict=True)) == {(own, "mine", "0", 0)}
    values = {
        f"{metric}/{name}": value for metric, name, value in zip(frame.metric, frame.set, frame.value, strict=True)
    }
    assert values == timeless(card.values)
    with pytest.raises(biasbed.UsageError, match="study=t: there are no runs of this study"):
        biasbed.runs(study="t")
