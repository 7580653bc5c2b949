"""Trained models found again: as an MLflow model, a checkpoint, a tracked run, a library's weights."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import numpy as np
import pytest
import timm
import torch
from mlflow.entities import LoggedModelStatus
from PIL import Image

from biasbed import networks, record
from biasbed.analysis.runs.seen import read_seen
from biasbed.config import Config
from biasbed.datasets.classes import CATEGORIES_16, imagenet_classes
from biasbed.datasets.digits import CLASSES
from biasbed.errors import UsageError
from biasbed.evaluation import command, models
from biasbed.evaluation.evaluate_model import build_config, load, plan
from biasbed.evaluation.evaluation_job import EvaluationJob
from biasbed.evaluation.label_map_choice import map_sets
from biasbed.options import EvaluateOptions
from biasbed.settings import build, flatten, word
from biasbed.suites import open_suite
from biasbed.suites.label_map_files import read_label_maps
from biasbed.suites.label_maps import IDENTITY, LabelMap
from biasbed.tracking import notes
from helpers.children import Command, train_at
from helpers.runs import all_runs, history, run_folders, timeless

TESTED = ("ink", "paint")


@pytest.fixture(scope="module")
def logged(train_flags: list[str], _empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server's database and of a training that logged its model there."""
    here = tmp_path_factory.mktemp("logged")
    words = ("train", *train_flags, "--epochs", "1", "--log_model", "true", "--algorithm", "infodrop")
    train_at(here, _empty_store, words)
    return here


@pytest.fixture
def trained(logged: Path, tracking: str) -> tuple[str, Path]:
    """(run id, folder) of that training, whose run this test's server has."""
    shutil.copy(logged / "mlflow.db", tracking.removeprefix("sqlite:///"))
    (run,) = all_runs(tracking, kind="train")
    return run.info.run_id, run_folders(logged / "home")[0]


def test_the_logged_model_has_the_logits_of_the_best_weights(trained: tuple[str, Path], tracking: str) -> None:
    run_id, folder = trained
    (output,) = mlflow.get_run(run_id).outputs.model_outputs
    loaded = mlflow.pytorch.load_model(f"models:/{output.model_id}")
    x = torch.from_numpy(np.random.default_rng(1).random((5, 3, 16, 16), dtype=np.float32))
    expected = models.find(str(folder / "best.ckpt")).predict(x)
    torch.testing.assert_close(loaded(x), expected, rtol=1e-4, atol=1e-5)
    served = mlflow.pyfunc.load_model(f"models:/{output.model_id}")
    assert served.predict(served.metadata.load_input_example()).shape == (2, 3)


def model_ids(run: Any) -> set[str]:
    """The models that a run has."""
    return {output.model_id for output in run.outputs.model_outputs}


def test_a_model_is_logged_without_the_histories_of_metrics(
    trained: tuple[str, Path], tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it touch the user's own run. Only whole models are the run's."""
    run_id, folder = trained
    client = mlflow.MlflowClient(tracking)
    before = client.get_run(run_id)
    assert len(before.data.metrics) > 10
    monkeypatch.setattr(mlflow.MlflowClient, "get_metric_history", lambda *_: pytest.fail("a history was read"))
    mlflow.set_tracking_uri(tracking)
    with mlflow.start_run() as own:
        models.log_model(folder / "best.ckpt", run_id, tracking)
        assert mlflow.active_run() is not None
    (first,) = map(client.get_logged_model, model_ids(before))
    (second,) = map(client.get_logged_model, model_ids(client.get_run(run_id)) - {first.model_id})
    assert (first.status, second.status) == (LoggedModelStatus.READY, LoggedModelStatus.READY)
    assert (second.name, second.source_run_id, second.params) == (first.name, run_id, first.params)
    assert second.params == before.data.params
    assert client.get_run(run_id).info.end_time == before.info.end_time
    assert not model_ids(client.get_run(own.info.run_id))

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(mlflow.pytorch, "save_model", refuse)
    with pytest.raises(OSError, match="the disk is full"):
        models.log_model(folder / "best.ckpt", run_id, tracking)
    assert model_ids(client.get_run(run_id)) == {first.model_id, second.model_id}
    every = client.search_logged_models([before.info.experiment_id])
    (failed,) = (model for model in every if model.model_id not in (first.model_id, second.model_id))
    assert failed.status == LoggedModelStatus.FAILED


def test_the_logged_model_has_the_exact_results_with_their_data_sets(trained: tuple[str, Path], tracking: str) -> None:
    """The run's rows are not doubled, and it has the exact values of what its table shows rounded."""
    run_id, folder = trained
    run = mlflow.get_run(run_id)
    (output,) = run.outputs.model_outputs
    model = mlflow.get_logged_model(output.model_id)
    results = {metric.key: metric for metric in model.metrics}
    curve = history(folder)[1]
    assert {name: metric.value for name, metric in results.items()} == {
        name: value for name, value in curve.items() if name.startswith(("val/", "test/"))
    }
    fingerprints = {data.dataset.name: data.dataset.digest for data in run.inputs.dataset_inputs}
    for name, metric in results.items():
        data_set = name.rpartition("/")[2]
        assert (metric.dataset_name, metric.dataset_digest) == (data_set, fingerprints[data_set])
        assert len(mlflow.MlflowClient().get_metric_history(run_id, name)) == 1
    exact = json.loads(run.data.tags[record.BEST_VALUES])
    assert exact == {
        "best/val": curve["val/accuracy/val"],
        **{f"best/{n}": curve[f"test/accuracy/{n}"] for n in TESTED},
    }
    assert {name: run.data.metrics[name] for name in exact} == {name: round(exact[name], 4) for name in exact}


def test_the_card_s_snippet_loads_a_model_whose_modes_can_be_set(trained: tuple[str, Path], tracking: str) -> None:
    """PyTorch's exported models refuse eval() and train(); the card says how they can be called."""
    (output,) = mlflow.get_run(trained[0]).outputs.model_outputs
    note = mlflow.get_logged_model(output.model_id).tags[notes.NOTE]
    snippet = note.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(snippet, names)
    model, x = names["model"], torch.rand(3, 3, 16, 16)
    expected = models.find(str(trained[1] / "best.ckpt")).predict(x)
    for loaded in (model.eval(), model.train(), torch.nn.Sequential(model).eval()):
        torch.testing.assert_close(loaded(x), expected, rtol=1e-4, atol=1e-5)


def test_evaluating_a_checkpoint_and_a_run_gives_the_training_s_numbers(
    trained: tuple[str, Path], biasbed: Command, image_root: Path, tracking: str
) -> None:
    run_id, folder = trained
    words = ("--suite", "folders", "--data_dir", str(image_root), "--sets", "paint,ink")
    for model in (str(folder / "best.ckpt"), run_id):
        assert "paint" in biasbed("evaluate", "--model", model, *words).stdout
    training, *_ = all_runs(tracking, kind="train")
    evaluations = all_runs(tracking, kind="evaluate")
    assert len(evaluations) == 2
    for run in evaluations:
        assert run.info.status == "FINISHED"
        assert run.data.tags["biasbed.algorithm"] == "infodrop"
        for name in ("test/accuracy/paint", "test/accuracy/ink", "test/loss/ink"):
            assert run.data.metrics[name] == pytest.approx(training.data.metrics[name], rel=1e-5)


@pytest.fixture
def weights_file(tmp_path: Path) -> Path:
    """A ResNet-18 of 1000 classes, as torchvision would save it."""
    import torchvision

    torch.manual_seed(0)
    path = tmp_path / "resnet18.pth"
    torch.save(torchvision.models.resnet18(num_classes=1000).state_dict(), path)
    return path


def test_outputs_that_fit_no_set_are_refused_with_ways_out() -> None:
    with pytest.raises(UsageError) as error:
        plan(options(model="torchvision:resnet18"), {"suite": "demo", "image_size": 16}, library_model())
    told = str(error.value)
    assert told.startswith("the model's 1000 outputs (unknown classes) are not 'in_domain' (")
    assert "label_map=<file>.yaml" in told
    assert "suite=folders data_dir=<folder>" in told
    assert "WordNet" not in told  # there are no class folders to be renamed


def test_as_many_outputs_as_classes_are_refused_with_the_line_that_names_them() -> None:
    with pytest.raises(UsageError) as error:
        plan(options(model="torchvision:resnet18"), {"suite": "demo", "image_size": 16}, library_model(outputs=10))
    (names,) = shlex.split(str(error.value).partition("if they are these in this order: label_map=")[2])
    maps = read_label_maps(names)
    assert maps is not None
    assert maps.names == CLASSES


# --- label spaces, presets, comparisons -------------------------------------------------------------------------------


@pytest.fixture
def small_root(tmp_path: Path) -> Path:
    """Sixteen edge drawings and one image of each of ImageNet-A's classes, all of them noise."""
    generator = np.random.default_rng(0)
    image = Image.fromarray(generator.integers(0, 256, (20, 20, 3), dtype=np.uint8))
    for folder, names, suffix in (("edge", CATEGORIES_16, "png"), ("imagenet-a", imagenet_classes("a"), "jpg")):
        for name in names:
            (tmp_path / "data" / folder / name).mkdir(parents=True)
            image.save(tmp_path / "data" / folder / name / f"{name}1.{suffix}")
    return tmp_path / "data"


def options(**values: str) -> EvaluateOptions:
    return build(EvaluateOptions, values)


def library_model(**changes: Any) -> models.TestedModel:
    """A model of 1000 unnamed outputs whose weights want a short side of 232 pixels."""
    brought = {"image_size": 224, "preprocess.size": 224, "preprocess.resize": 232}
    network = torch.nn.Flatten()
    return replace(models.TestedModel(network, network, "some", 0, None, 1000, brought), **changes)


def brought(tested: Config) -> dict[str, Any]:
    """Return the preprocessing that a model of ours brings if it was tested so."""
    return {name: value for name, value in flatten(tested).items() if name.startswith(("preprocess.", "stimuli."))}


def test_precedence_of_the_settings_that_a_model_brings() -> None:
    suite = {"suite": "biasbed", "data_dir": "data"}
    plain = build_config(options(), suite, library_model())
    assert (plain.image_size, plain.preprocess.resize, plain.preprocess.crop_first) == (224, 232, False)
    scaled = build_config(options(image_size="448"), suite, library_model())
    assert (scaled.image_size, scaled.preprocess.size, scaled.preprocess.resize) == (448, 448, 464)
    chosen = build_config(options(), {**suite, "preprocess.resize": "300"}, library_model())
    assert chosen.preprocess.resize == 300
    preset = build_config(options(), {**suite, "preset": "biasbed_code"}, library_model())
    assert preset.preprocess.crop_first
    assert preset.categories == "logit_mean"
    assert (preset.preprocess.size, preset.stimuli.size) == (256, 224)
    assert (preset.image_size, preset.validation) == (224, "auto"), "of a recipe counts here what it says of testing"
    smaller = {**brought(preset), "image_size": 256}
    halved = build_config(options(image_size="128"), suite, library_model(preprocessing=smaller))
    assert (halved.image_size, halved.preprocess.size, halved.stimuli.size) == (128, 128, 112)
    with pytest.raises(UsageError, match="no preset 'biasbed_cod'"):
        build_config(options(), {**suite, "preset": "biasbed_cod"}, library_model())


def fitted(root: Path, model: models.TestedModel, **given: str) -> tuple[dict[str, LabelMap], Mapping[str, str]]:
    """(label maps by set, why sets are left out) of a model in the suite of ten sets."""
    config = build_config(options(), {"suite": "biasbed", "data_dir": str(root), **given}, model)
    sets, left_out = map_sets(open_suite(config), model, config, config.categories)
    return {entry.name: entry.label_map for entry in sets}, left_out


def test_label_maps_follow_from_names(small_root: Path) -> None:
    found, left_out = fitted(small_root, library_model(), categories="prob_sum")
    assert {name: label_map.name for name, label_map in found.items()} == {
        "edge": "grouped-prob_sum",
        "imagenet_a": "imagenet_a-200",
    }
    assert not left_out
    trained_on_a = library_model(classes=imagenet_classes("a"), outputs=200)
    found, left_out = fitted(small_root, trained_on_a)
    assert found == {"imagenet_a": IDENTITY}
    assert list(left_out) == ["edge"]
    assert "\n" not in left_out["edge"]


def test_as_many_outputs_as_classes_are_not_the_same_classes(small_root: Path) -> None:
    """200 unnamed outputs may be those of ImageNet-A or of ImageNet-R, or birds."""
    with pytest.raises(UsageError, match=r"200 outputs \(unknown classes\) are not 'edge'"):
        fitted(small_root, library_model(outputs=200))
    with pytest.raises(UsageError, match="are not 'edge'"):
        fitted(small_root, library_model(classes=imagenet_classes("a"), outputs=200), sets="edge,imagenet_a")


def test_a_user_s_own_label_space(biasbed: Command, small_root: Path, tracking: str, tmp_path: Path) -> None:
    import torchvision

    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18(num_classes=20).state_dict(), tmp_path / "w.pth")
    classes = ", ".join(f"{name}: {number}" for number, name in enumerate(CATEGORIES_16) if name != "bear")
    (tmp_path / "mine.yaml").write_text(f"outputs: 20\nmaps:\n- classes: {{{classes}, bear: [1, 16, 19]}}\n")
    words = (
        "--model",
        "torchvision:resnet18",
        "--weights",
        "w.pth",
        "--suite",
        "biasbed",
        "--data_dir",
        str(small_root),
    )
    shown = biasbed("evaluate", *words, "--label_map", "mine.yaml", "--image_size", "32", "--workers", "0").stdout
    assert "mine-prob_mean" in shown
    assert "left out: the model's 20 outputs" in shown
    (run,) = all_runs(tracking, kind="evaluate")
    assert set(timeless(run.data.metrics)) == {f"test/{name}/edge" for name in ("accuracy", "accuracy_full", "ece")}
    assert run.data.params["config/label_map"] == "mine.yaml"
    (tmp_path / "mine.yaml").write_text("outputs: [a, b]")
    done = biasbed("evaluate", *words, "--label_map", "mine.yaml", check=False)
    assert done.returncode == 2
    assert "describes 2 outputs, but the model has 20" in done.stderr


@pytest.mark.slow
@pytest.mark.real_data
def test_an_imagenet_model_on_the_real_stimuli(
    shared: Path, weights_file: Path, biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    """Random weights on the real stimuli; then its stored decisions are scored."""
    words = ("--model", "torchvision:resnet18", "--weights", str(weights_file), "--suite", "biasbed")
    words += ("--data_dir", str(shared / "data"), "--image_size", "32", "--sets", "edge,silhouette,cue_conflict")
    shown = biasbed("evaluate", *words).stdout
    assert "grouped-prob_mean" in shown
    assert "mean reciprocal rank" in shown
    (live,) = all_runs(tracking, kind="evaluate")
    (folder,) = run_folders(tmp_path / "home")
    with (folder / "shape_bias.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["class"] for row in rows] == ["all", *CATEGORIES_16]
    stored = folder / "predictions" / "cue_conflict" / "last.parquet"
    biasbed("evaluate", "--model", str(stored))
    recorded = next(run for run in all_runs(tracking, kind="evaluate") if run.info.run_id != live.info.run_id)
    known = {name: value for name, value in timeless(live.data.metrics).items() if "/cue_conflict" in name}
    assert len(known) == 9
    assert known == pytest.approx({name: recorded.data.metrics[name] for name in known}, rel=1e-9)


REFUSED = {
    "another size than the network's": (
        "--model timm:vit_tiny_patch16_224 --weights vit.pth --suite biasbed --data_dir {small} --image_size 64",
        2,
        "doesn't take images of 64 x 64 pixels",
    ),
    "no checkpoint": ("--model junk.ckpt", 1, "can't be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_evaluation_is_one_line_and_leaves_no_run(
    case: str, small_root: Path, biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    words, code, message = REFUSED[case]
    (tmp_path / "junk.ckpt").write_bytes(b"nothing of the kind")
    if "vit.pth" in words:
        torch.save(timm.create_model("vit_tiny_patch16_224", num_classes=1000).state_dict(), tmp_path / "vit.pth")
    done = biasbed("evaluate", *words.format(small=small_root).split(), check=False)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not all_runs(tracking)


def test_a_corrupt_image_ends_an_evaluation_in_one_line(
    trained: tuple[str, Path], biasbed: Command, image_root: Path, tracking: str, tmp_path: Path
) -> None:
    shutil.copytree(image_root / "ink", tmp_path / "data" / "ink")
    victim = next((tmp_path / "data" / "ink" / "circle").iterdir())
    victim.write_bytes(b"no image")
    words = ("--suite", "folders", "--data_dir", str(tmp_path / "data"))
    done = biasbed("evaluate", "--model", str(trained[1] / "best.ckpt"), *words, check=False)
    assert done.returncode == 1
    assert str(victim) in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = all_runs(tracking, kind="evaluate")
    assert run.info.status == "FAILED"


# --- mean and standard deviation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "kind", "mean"),
    [
        ({}, "architecture", (0.5,) * 3),  # timm's of test_resnet
        ({"mean": "0.5", "std": "0.25"}, "given", (0.5,) * 3),
        ({"weights": "own.pth", "mean": "0", "std": "1"}, "given", (0.0,) * 3),
    ],
)
def test_the_run_says_how_images_are_normalised(
    more: dict[str, str], kind: str, mean: Any, image_root: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    tensors = timm.create_model("test_resnet", num_classes=3).state_dict()
    torch.save(tensors, tmp_path / "plain.pth")
    inside = {"normalize.mean": torch.zeros(3), "normalize.std": torch.ones(3)}
    torch.save({**{f"model.{key}": value for key, value in tensors.items()}, **inside}, tmp_path / "own.pth")
    (tmp_path / "labels.yaml").write_text("outputs: [circle, cross, square]\n")
    weights = tmp_path / more.get("weights", "plain.pth")
    flags = {"model": "timm:test_resnet", "weights": str(weights), "label_map": str(tmp_path / "labels.yaml")}
    flags |= {"suite": "folders", "data_dir": str(image_root), "sets": "ink", "image_size": "32"}
    options, given = command.read({**flags, **{name: value for name, value in more.items() if name != "weights"}})
    run = plan(options, given, load(options, given)).job
    recorded = json.loads(run.tags()[record.NORMALISATION])
    assert (recorded["kind"], tuple(recorded["mean"])) == (kind, mean)
    assert recorded["why"] in run.describe()
    plain, shared = command.read(flags | {"weights": str(tmp_path / "plain.pth")})
    usual = plan(plain, shared, load(plain, shared)).job
    assert (run.config_hash == usual.config_hash) == (kind == "architecture")


def as_texts(job: EvaluationJob) -> dict[str, str]:
    """The settings of a job as the tracking server has them."""
    return {name: word(value) for name, value in job.settings.items()}


def test_what_the_weights_have_seen_is_recorded_and_changes_no_number(image_root: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.yaml").write_text("outputs: [circle, cross, square]\n")
    model = timm.create_model("test_resnet", num_classes=3)
    torch.save(model.state_dict(), tmp_path / "own.pth")
    flags = {"model": "timm:test_resnet", "weights": str(tmp_path / "own.pth"), "suite": "folders", "sets": "ink"}
    flags |= {"label_map": str(tmp_path / "labels.yaml"), "data_dir": str(image_root), "image_size": "32"}
    options, shared = command.read({**flags, "init_seen": "images of PACS,texts of LAION"})
    saying = plan(options, shared, load(options, shared)).job
    run: Any = SimpleNamespace(kind="evaluate", init={}, method="test_resnet", config=as_texts(saying))
    assert read_seen(run).text == "images of PACS,texts of LAION"
    options, shared = command.read(flags)
    silent = plan(options, shared, load(options, shared)).job
    assert silent.run_key == saying.run_key
    run.config = as_texts(silent)
    assert read_seen(run).text == "unknown"
    options, shared = command.read({**flags, "init_seen": "PACS"})
    with pytest.raises(UsageError, match="init_seen=PACS: 'PACS' should be `labels of <data>`"):
        plan(options, shared, load(options, shared))


def test_a_checkpoint_of_ours_has_those_of_its_training(trained: tuple[str, Path]) -> None:
    path = str(trained[1] / "best.ckpt")
    with pytest.raises(UsageError, match="has those of its training"):
        models.find(path, mean_std=networks.MeanStd((0.5,), (0.5,)))
    with pytest.raises(UsageError, match="tested whole"):
        models.find(f"{path}#algorithm")
    assert models.find(path).normalisation is not None
