"""probe, knn, lp_ft and wise_ft: what their features give, how these are kept, and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from biasbed import algorithms, cli
from biasbed.algorithms import knn, logistic_regression
from biasbed.algorithms.make import from_checkpoint
from biasbed.algorithms.requests import Stage, StreamRequest
from biasbed.errors import Failure, UsageError
from biasbed.networks import build as build_network
from biasbed.networks import features as kept_features
from biasbed.networks.features import FeatureCounts, FeatureStore, compute_features
from biasbed.networks.interpolation import Snapshot, interpolate
from biasbed.networks.network import as_input
from biasbed.settings import build
from biasbed.suites.label_maps import Subset
from helpers.grouped import SEED, TRAIN, journal, reader, rows, words
from helpers.making import batch_for, images, make
from helpers.resumable import ON_SHADES
from helpers.runs import assert_equal, history, run_folders
from helpers.toy_suite import CLASSES, shades

PROBE, KNN, WISE = (ON_SHADES[name] for name in ("probe", "knn", "wise_ft"))
VALIDATION = shades("shades_val", 24, 0.75, SEED, labels=True)


def load(folder: Path) -> Any:
    return from_checkpoint(folder / "best.ckpt").algorithm


def features(algorithm: Any, source: Any) -> np.ndarray:
    with torch.no_grad():
        return algorithm.network.features(as_input(torch.from_numpy(source.images))).numpy()


# --- the search for C -------------------------------------------------------------------------------------------------


def test_the_search_finds_the_best_of_eight_values_a_decade() -> None:
    """As a search of all 97 would, where the score has one peak, in 15 fits at most."""
    strengths = algorithms.load("probe").HParams().strengths
    grid = [10 ** (exponent / 8) for exponent in range(-48, 49)]
    for peak in (-7.0, -1.3, 0.06, 2.88, 6.5):
        calls = []

        def score(strength: float, peak: float = peak, calls: list[float] = calls) -> float:
            calls.append(strength)
            return -abs(math.log10(strength) - peak)

        chosen = logistic_regression.search(score, strengths, 4)
        assert chosen == pytest.approx(max(grid, key=lambda value: -abs(math.log10(value) - peak)))
        assert len(calls) == len(set(calls)) <= 15


def test_of_equal_values_the_smallest_is_taken_and_no_halving_keeps_the_grid() -> None:
    assert logistic_regression.search(lambda strength: float(strength >= 1), (0.01, 1.0, 100.0), 0) == 1.0
    assert logistic_regression.search(lambda strength: float(strength >= 1), (0.01, 1.0, 100.0), 1) == 1.0
    assert logistic_regression.search(lambda strength: float(strength >= 0.1), (0.01, 1.0), 1) == pytest.approx(0.1)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_fit_decides_with_scikit_learn_s_probabilities(classes: int) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(90) % classes
    x = generator.normal(size=(90, 4)) + y[:, None]
    layer = logistic_regression.fit(x, y, 0.3)
    scores = torch.from_numpy(x @ layer.weights.T + layer.intercepts)
    expected = LogisticRegression(C=0.3, max_iter=1000, tol=1e-6).fit(x, y)
    np.testing.assert_allclose(scores.softmax(1).numpy(), expected.predict_proba(x), rtol=1e-9)
    assert logistic_regression.accuracy(layer, x, y) == expected.score(x, y)


# --- trainings --------------------------------------------------------------------------------------------------------


def test_a_probe_s_run_is_scikit_learn_s_fit_of_its_features(trained: Callable[..., Path]) -> None:
    """To 1e-5, as the network holds it in fp32; with the C that the validation images choose."""
    algorithm = load(trained(*PROBE))
    x, of_validation = features(algorithm, TRAIN), features(algorithm, VALIDATION)

    def score(strength: float) -> float:
        return (
            LogisticRegression(C=strength, max_iter=1000, tol=1e-6).fit(x, TRAIN.y).score(of_validation, VALIDATION.y)
        )

    strength = logistic_regression.search(score, algorithm.hparams.strengths, algorithm.hparams.halvings)
    assert float(algorithm.strength) == strength
    expected = LogisticRegression(C=strength, max_iter=1000, tol=1e-6).fit(x, TRAIN.y)
    head = algorithm.network.head
    np.testing.assert_allclose(head.weight.detach().numpy(), expected.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(head.bias.detach().numpy(), expected.intercept_, rtol=1e-5, atol=1e-6)


def test_only_the_last_layer_of_a_probe_differs_from_its_beginning(trained: Callable[..., Path]) -> None:
    probe, neighbours = load(trained(*PROBE)).network, load(trained(*KNN)).network
    pairs = zip(probe.named_parameters(), neighbours.parameters(), strict=True)
    changed = [name for (name, left), right in pairs if not torch.equal(left, right)]
    assert changed == ["backbone.fc.weight", "backbone.fc.bias"]


def vote_by_hand(bank: np.ndarray, labels: np.ndarray, query: np.ndarray, k: int, temperature: float) -> list[float]:
    """Wu et al. 2018, section 3.4, one image at a time in float64; the parts of the classes."""
    cosines = [
        float(row @ query) / float(np.linalg.norm(row) * np.linalg.norm(query)) for row in bank.astype(np.float64)
    ]
    nearest = sorted(range(len(bank)), key=lambda number: -cosines[number])[:k]
    votes = [0.0] * len(CLASSES)
    for number in nearest:
        votes[labels[number]] += math.exp(cosines[number] / temperature)
    return [vote / sum(votes) for vote in votes]


def test_knn_is_a_search_by_brute_force(trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "PART", 5)
    algorithm = load(trained(*KNN))
    bank, queries = features(algorithm, TRAIN), features(algorithm, VALIDATION)
    expected = np.array([vote_by_hand(bank, TRAIN.y, query.astype(np.float64), 7, 0.07) for query in queries])
    with torch.no_grad():
        logits = algorithm.predict(as_input(torch.from_numpy(VALIDATION.images)))
    assert logits.argmax(1).tolist() == expected.argmax(1).tolist()
    np.testing.assert_allclose(logits.exp().numpy(), expected.clip(1e-12), rtol=2e-4, atol=1e-9)
    assert len(set(logits.argmax(1).tolist())) > 1


def test_wise_ft_at_0_is_the_probe_bit_for_bit(trained: Callable[..., Path]) -> None:
    mixed = load(trained("wise_ft", "--eval_batch_size", "256", "--hparams.alpha", "0"))
    assert_equal(mixed.network.state_dict(), load(trained(*PROBE)).network.state_dict())
    assert mixed.initial is None


def test_wise_ft_takes_the_alpha_that_decides_validation_images_best(trained: Callable[..., Path]) -> None:
    """The accuracy at 1 is that of the last validation of fine-tuning."""
    folder = trained(*WISE)
    algorithm = load(folder)
    accuracies = algorithm.accuracies.tolist()
    assert float(algorithm.alpha) == (0, 0.5, 1)[int(np.argmax(accuracies))]
    last = [line["metrics"] for line in journal(folder) if line.get("stage") == "fine_tuning"][-1]
    tuned = {name: value for name, value in last.items() if "accuracy/shades_val" in name and ":" not in name}
    assert accuracies[2] == pytest.approx(next(iter(tuned.values())))
    assert history(folder)[1]["train/alpha"] == float(algorithm.alpha)


def test_lp_ft_begins_with_the_probe_and_trains_all_of_it(trained: Callable[..., Path]) -> None:
    probe = load(trained(*PROBE)).network.state_dict()
    barely = load(trained("lp_ft", "--eval_batch_size", "256", "--optim.lr", "1e-9")).network.state_dict()
    trained_for_real = load(trained("lp_ft", "--eval_batch_size", "256", "--optim.lr", "0.1")).network.state_dict()
    for name, tensor in probe.items():
        torch.testing.assert_close(barely[name], tensor, rtol=1e-4, atol=1e-6)
        assert not torch.equal(trained_for_real[name], tensor)


# --- weights between two ends -----------------------------------------------------------------------------------------


def test_weights_at_the_ends_are_the_ends_bit_for_bit() -> None:
    """Also of a negative zero, of infinities and of counters; between them, a mean."""
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    ends = []
    for values in ([-0.0, math.inf, 0.1], [1.0, -2.0, 0.3]):
        with torch.no_grad():
            module[0].weight.copy_(torch.tensor([values, values]))
            module[1].running_mean += 1
            module[1].num_batches_tracked += 5
        ends.append(Snapshot(module))
    for alpha, end in ((0.0, ends[0]), (1.0, ends[1])):
        interpolate(module, *ends, alpha)
        state = module.state_dict()
        for name, tensor in end.tensors.items():
            assert state[name].numpy().tobytes() == tensor.numpy().tobytes(), name
    interpolate(module, *ends, 0.25)
    assert module[0].weight[0, 2].item() == pytest.approx(0.15)
    assert module[1].running_mean.tolist() == pytest.approx([1.25, 1.25])


def test_weights_are_mixed_before_a_trial_and_stay_while_it_looks() -> None:
    method: Any = make("wise_ft", {"alpha": "validation", "alphas": (0.0, 0.3, 1.0)})
    method.keep_initial()
    with torch.no_grad():
        for parameter in method.network.parameters():
            parameter += 1
    method.tuned.copy_from(method.network)
    method.eval()
    for alpha, trial in zip(method.hparams.alphas, method.trials(), strict=True):
        trial.begin()
        mixed = {name: value.clone() for name, value in method.network.state_dict().items()}
        for name, value in method.network.named_parameters():
            torch.testing.assert_close(value, method.initial.tensors[name] + alpha)
        for part in batch_for(method).split(2):
            trial.look(part)
        assert_equal(method.network.state_dict(), mixed)


# --- kept features ----------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the batches whose features are computed."""
    sizes: list[int] = []

    def compute(network: Any, x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return compute_features(network, x)

    monkeypatch.setattr(kept_features, "compute_features", compute)
    return sizes


def test_forty_probes_take_one_pass(
    counted: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another setting computes no features again, and its numbers are those of a training that finds none."""
    numbers, said = [], []
    for home, more in (("a", ()), ("a", ("--hparams.halvings", "1")), ("b", ("--hparams.halvings", "1"))):
        monkeypatch.setenv("BIASBED_HOME", str(tmp_path / home))
        before = len(counted)
        assert cli.main(words(*PROBE, *more)) == 0
        numbers.append(len(counted) - before)
        said.append(
            re.findall(r"features of ([\d,]+) images read from \S+, of ([\d,]+) computed", capsys.readouterr().err)
        )
    assert numbers[0] > 0
    assert numbers[1:] == [0, numbers[0]]
    ((_, computed),), ((read, again),), ((none, anew),) = said
    assert computed == read == anew != "0"
    assert (again, none) == ("0", "0")
    second, third = (history(run_folders(tmp_path / home)[-1]) for home in ("a", "b"))
    halved = [history(folder) for folder in run_folders(tmp_path / "a")]
    assert third in halved
    assert second in halved


def test_kept_features_belong_to_network_and_images(counted: list[int], tmp_path: Path) -> None:
    torch.manual_seed(0)
    store, x = FeatureStore(tmp_path, {"device": "cpu"}), images(6)
    network = build_network("timm:test_resnet", 5).eval()
    with torch.no_grad():
        first = store(network, x)
        assert store.describe([store.counts]) == f"features of 0 images read from {tmp_path}, of 6 computed"
        assert torch.equal(store(network, x), first)
        assert counted == [6]
        both = store.describe([store.counts, store.counts])  # of two processes
        assert both == f"features of 12 images read from {tmp_path}, of 12 computed"
        assert FeatureStore(tmp_path, {}).describe([FeatureCounts(0, 0)]) == ""
        store(network, x[:4])
        assert network.head is not None
        network.head.get_parameter("weight").zero_()  # on which no feature depends
        store(network, x)
        assert counted == [6, 4]
        next(network.parameters()).mul_(2)
        store(network, x)
        network.normalise.mean.add_(0.1)
        shifted = FeatureStore(tmp_path, {"device": "cpu"})(network, x)
        assert counted == [6, 4, 6, 6]
        FeatureStore(tmp_path, {"device": "cuda"})(network, x)
        store(network.train(), x)
        assert counted[4:] == [6, 6]
    assert not torch.equal(first, shifted)


def test_a_damaged_file_is_written_anew(counted: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, x, network = FeatureStore(tmp_path, {}), images(6), build_network("timm:test_resnet", 5).eval()
    with torch.no_grad():
        first = store(network, x)
        (path,) = tmp_path.rglob("*.npz")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        for damaged in (bytes(content), content[:40], b""):
            path.write_bytes(damaged)
            assert torch.equal(store(network, x), first)
            assert "is damaged and is written anew" in caplog.text
            caplog.clear()
        assert torch.equal(store(network, x), first)
    assert len(counted) == 4


def test_a_folder_that_cannot_be_written_costs_the_files_alone(
    counted: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    store, x, network = FeatureStore(tmp_path / "file", {}), images(6), build_network("timm:test_resnet", 5).eval()
    with torch.no_grad():
        assert torch.equal(store(network, x), store(network, x))
    assert len(counted) == 2
    assert caplog.text.count("features are not kept") == 1


# --- refusals ---------------------------------------------------------------------------------------------------------

BAD: list[tuple[str, Mapping[str, Any], str]] = [
    ("probe", {"strengths": "none"}, "one value of C or more, rising, all above 0"),
    ("probe", {"strengths": "-1,1"}, "rising, all above 0"),
    ("probe", {"strengths": "1,0.1"}, "rising, all above 0"),
    ("dfr", {"strengths": "0.1,-1"}, "one value of C or more, all above 0"),
    ("wise_ft", {"alpha": 1.5}, "alpha=1.5: from 0 to 1, or validation"),
    ("wise_ft", {"alphas": "0,2"}, "each from 0 to 1"),
]


@pytest.mark.parametrize(("name", "values", "message"), BAD)
def test_settings_out_of_range_are_refused(name: str, values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(algorithms.load(name).HParams, dict(values))


def test_a_class_without_images_is_refused() -> None:
    algorithm: Any = make("probe", {"strengths": "1"})
    with pytest.raises(Failure, match="no training image is of class 3; a last layer can't be fitted without one"):
        algorithm.fit(
            {"features": torch.zeros(6, algorithm.network.num_features), "y": torch.tensor([0, 1, 2, 4, 4, 0])}
        )


def test_validation_images_of_other_classes_choose_nothing() -> None:
    read = reader("probe")
    suite = read.job.suite
    (member,) = suite.validation
    for shown, message in (
        ((replace(member, label_map=Subset((0, 2))),), "the classes of 'shades_val' are not those that it learns"),
        ((), "chooses a setting on validation images, and there are none"),
    ):
        read.job = replace(read.job, suite=replace(suite, validation=shown))
        with pytest.raises(UsageError, match=message):
            read.check(make("probe").stages())


@pytest.mark.parametrize("name", ["probe", "knn", "wise_ft"])
def test_a_step_without_change_takes_fewer_images_than_a_batch(name: str) -> None:
    """The suite leaves out a batch that is not full. Of fine-tuning, which learns from batches, that holds as ever."""
    read = reader(name, batch_size=2 * len(TRAIN))
    read.job = replace(read.job, suite=replace(read.job.suite, usual=StreamRequest(drop_last=True)))
    *earlier, last = make(name).stages()
    read.check([last])
    assert read.plan_last_stage([last]).steps == 1
    assert sorted(rows(read.plan_stage(last, 0), 0)) == list(range(len(TRAIN)))
    learning = [stage for stage in earlier if isinstance(stage, Stage)]
    assert bool(learning) == (name == "wise_ft")
    for stage in [*learning, replace(last, learns=True)]:
        with pytest.raises(
            UsageError, match=f"{len(TRAIN)} training images are too few for batch_size={2 * len(TRAIN)}"
        ):
            read.check([replace(stage, name="learning"), last])


def test_two_processes_look_at_every_training_and_validation_image_once() -> None:
    read, seen, indices = reader("probe"), [], []
    for rank in range(2):
        read.group = SimpleNamespace(rank=rank, world=2, device=torch.device("cpu"))  # type: ignore[assignment]
        order, loader = read.open_pass(8, ("train", "validation"))
        batches = [batch for _, _, batch, _ in loader.from_step(0, len(order))]
        seen.append(torch.cat([batch.y for batch in batches]).tolist())
        indices += [index for batch in batches if batch.index is not None for index in batch.index.tolist()]
    y = np.concatenate([TRAIN.y, VALIDATION.y])
    assert seen == [y[rank::2].tolist() for rank in range(2)]
    assert sorted(indices) == list(range(len(y)))
