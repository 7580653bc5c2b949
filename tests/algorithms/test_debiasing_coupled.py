"""What vectors don't show of end, biascon, softcon, hex, rebias and lnl: networks, epochs, and which weights move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from biasbed import cli
from biasbed.algorithms import hex as hex_method
from biasbed.algorithms.base import Progress
from biasbed.algorithms.biascon import prior
from biasbed.algorithms.hex import NGLCM, grey_levels, project_out
from biasbed.algorithms.make import from_checkpoint
from biasbed.algorithms.rebias import hsic, median_width
from biasbed.algorithms.softcon import NOISE, unlikeness
from biasbed.batch import Batch, to_unit_length
from biasbed.errors import UsageError
from biasbed.networks import build, surgery
from helpers.commands import ROOT
from helpers.dependence import independence
from helpers.dependence import median_width as median_distance
from helpers.making import batch_for, images, make, steps
from replays.debiasing_coupled import Given, batch_of, start


def test_features_of_length_zero_get_no_gradient_and_others_their_own() -> None:
    torch.manual_seed(0)
    features = torch.randn(4, 3, dtype=torch.float64)
    features[1] = 0
    ours, plain = (features.clone().requires_grad_() for _ in range(2))
    slopes = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(to_unit_length(ours), functional.normalize(plain, dim=1), rtol=0, atol=0)
    (to_unit_length(ours) * slopes).sum().backward()
    (functional.normalize(plain, dim=1) * slopes).sum().backward()
    assert ours.grad is not None
    assert plain.grad is not None
    rows = [0, 2, 3]
    torch.testing.assert_close(ours.grad[rows], plain.grad[rows], rtol=0, atol=0)
    assert plain.grad[1].abs().max() > 1e9  # from which a training would not recover
    assert not ours.grad[1].any()


def test_end_tests_with_features_of_length_1() -> None:
    """A network whose features are ten times as large decides alike; with tanh, some features are negative."""
    algorithm: Any = make("end", {"tanh": True}, backbone="simple_conv").eval()
    with torch.no_grad():
        features = algorithm.network.features(images(4))
        before = algorithm.predict(images(4))
    assert features.norm(dim=1).tolist() == pytest.approx([1, 1, 1, 1])
    assert features.min() < 0
    torch.testing.assert_close(before, algorithm.network.classify(features))
    assert make("end", {}, backbone="simple_conv").eval().network.features(images(4)).min() >= 0


@pytest.mark.parametrize("backbone", ["mlp", "resnet10", "timm:test_resnet"])
def test_the_last_relu_of_a_network_is_replaced(backbone: str) -> None:
    network = build(backbone, 3, image_size=32).eval()
    assert network.features(images(4)).min() >= 0
    surgery.replace_last_activation(network.backbone, torch.nn.Tanh())
    assert network.features(images(4)).min() < 0


def test_a_network_without_such_a_place_is_refused() -> None:
    for function in (surgery.middle, lambda net: surgery.replace_last_activation(net, torch.nn.Tanh())):
        for network in (torch.nn.Linear(3, 2), build("bagnet18", 3, image_size=32).backbone):
            with pytest.raises(UsageError, match="is no ResNet"):
                function(network)


@pytest.mark.parametrize(
    ("backbone", "channels"),
    [
        *(("mlp", 100), ("simple_conv", 32), ("resnet10", 128), ("timm:test_resnet", 48)),
        *(("timm:test_vit", 64), ("timm:test_vit4", 96), ("timm:test_convnext", 32)),
    ],
)
def test_the_middle_of_a_network(backbone: str, channels: int) -> None:
    network = build(backbone, 3, image_size=32)
    middle = surgery.middle(network.backbone)
    seen: list[torch.Tensor] = []
    middle.after.observe(seen.append)
    network(images(4))
    assert (seen[0].shape[1], middle.channels) == (channels, channels)
    early = {id(p) for module in middle.before for p in module.parameters()} | set(map(id, middle.tokens))
    reached = torch.autograd.grad(seen[0].sum(), list(network.parameters()), allow_unused=True)
    for parameter, gradient in zip(network.parameters(), reached, strict=True):
        assert (gradient is not None) == (id(parameter) in early)


def test_lnl_s_second_phase_leaves_the_later_half_alone() -> None:
    """Where gradients of zeros would let momentum move it."""
    algorithm: Any = make("lnl", {}, backbone="simple_conv")
    batch = batch_for(algorithm)
    algorithm.update(batch)
    taken: list[list[torch.Tensor]] = []
    apply = algorithm.apply_gradients

    def record(gradients: Any) -> None:
        apply(gradients)
        taken.append([parameter.detach().clone() for parameter in algorithm.network.parameters()])

    algorithm.apply_gradients = record
    algorithm.update(batch)
    moved = [not torch.equal(first, second) for first, second in zip(*taken, strict=True)]
    assert moved == algorithm.is_early
    assert 0 < sum(moved) < len(moved)


def test_biascon_counts_labels() -> None:
    y, bias = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 0, 1])
    expected = torch.tensor([[2 / 3, 1 / 2, 1 / 2], [1 / 3, 1 / 2, 1 / 2]], dtype=torch.float64)
    torch.testing.assert_close(prior(y, bias, 2, 3), expected)


def test_biascon_s_cross_entropy_rules_out_what_never_happens() -> None:
    algorithm: Any = make("biascon", {}, num_classes=2)
    algorithm.keep({"y": torch.tensor([0, 0, 1, 0]), "bias": torch.tensor([0, 0, 1, 1])})
    batch = batch_for(algorithm, "two_classes")
    logits = algorithm.balance(torch.zeros(len(batch), 2), batch)
    first = logits[batch.bias == 0].softmax(1)
    assert first.tolist() == [[1, 0]] * len(first)
    second = logits[batch.bias == 1].softmax(1)
    torch.testing.assert_close(second, torch.full_like(second, 0.5))
    assert make("biascon", {"balanced": False}).balance(logits, batch) is logits


def test_softcon_draws_what_is_unlike_its_class_most_often() -> None:
    """Three equal images and one that is orthogonal to them; a class of one image."""
    b = torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1]])
    y = torch.tensor([0, 0, 0, 0, 1])
    found = unlikeness(b, y, 3)
    torch.testing.assert_close(found, torch.tensor([0.25, 0.25, 0.25, 0.75, NOISE]))
    algorithm: Any = make("softcon", {"ratio": 2.0})
    algorithm.unlikeness = found[:4]
    assert algorithm.drawn.tolist() == [0.25, 0.25, 0.25, 0.5]


def test_softcon_s_partners_are_of_one_class_and_seen_apart() -> None:
    """Images 0 and 1 look the same to the biased network, up to rounding; 2 is opposite, 3 of another class.

    An image is no partner of its own, though its length be rounded.
    """
    algorithm: Any = make("softcon", {})
    b = functional.normalize(torch.tensor([[1.0, 2, 3], [1, 2, 3], [-1, -2, -3], [0, 1, 0]]), dim=1)
    algorithm.bias_features = b[[3, 2, 1, 0]] * torch.tensor([0.99, 1, 1, 1])[:, None]
    pairs = Batch(torch.zeros(4, 2, 3, 1, 1), torch.tensor([0, 0, 0, 1]), index=torch.tensor([3, 2, 1, 0]))
    expected = torch.zeros(4, 4)
    expected[:2, 2] = expected[2, :2] = 2
    torch.testing.assert_close(algorithm.weights(pairs), expected)
    assert not algorithm.weights(pairs)[0, 1]


def test_softcon_keeps_the_directions_of_biased_features() -> None:
    """Whose lengths differ by image; then two images of one class weigh 1 - cosine."""
    algorithm: Any = make("softcon", {})
    batch = batch_for(algorithm)
    scales = torch.linspace(0.5, 4, len(batch))[:, None]
    table = scales * torch.randn(len(batch), algorithm.biased.num_features)
    algorithm.biased.features = lambda x: table
    found = algorithm.look(batch)["features"]
    torch.testing.assert_close(found, table / table.norm(dim=1, keepdim=True))
    algorithm.bias_features[: len(batch)] = found
    pairs = Batch(torch.zeros(2, 2, 3, 1, 1), torch.tensor([1, 1]), index=torch.tensor([0, 5]))
    cosine = functional.cosine_similarity(table[:1], table[5:6])
    torch.testing.assert_close(algorithm.weights(pairs)[0, 1], 1 - cosine[0])


def test_softcon_lets_go_of_the_biased_network_once_it_has_looked() -> None:
    algorithm: Any = make("softcon", {})
    count, width = algorithm.bias_features.shape
    algorithm.keep({"features": functional.normalize(torch.randn(count, width)), "y": torch.arange(count) % 5})
    assert algorithm.marks() == {"released": ["biased"]}
    assert set(algorithm.optimizer_states()) == {"main"}
    assert not [key for key in algorithm.state_dict() if key.startswith("biased.")]


def test_hex_projects_where_textures_are_fewer_than_classes() -> None:
    """What is left is orthogonal to every column of the texture's logits, and doing it again changes nothing."""
    generator = torch.Generator().manual_seed(0)
    texture = torch.randn(30, 2, generator=generator, dtype=torch.float64) @ torch.randn(2, 5, dtype=torch.float64)
    logits = torch.randn(30, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    found = project_out(logits, texture.requires_grad_())
    assert torch.linalg.matrix_rank(texture) == 2
    torch.testing.assert_close(texture.T @ found, torch.zeros(5, 5, dtype=torch.float64), atol=1e-10, rtol=0)
    torch.testing.assert_close(project_out(found, texture), found)
    slopes = torch.autograd.grad(found.square().sum(), [logits, texture])
    assert all(bool(slope.isfinite().all()) for slope in slopes)
    none = torch.zeros(30, 5, dtype=torch.float64)
    torch.testing.assert_close(project_out(logits, none), logits)


def test_hex_of_black_images_and_of_single_ones() -> None:
    algorithm: Any = make("hex", {"warmup": 0.0, "levels": 4}, backbone="simple_conv")
    batch = batch_for(algorithm)
    batch.x[0] = 0
    algorithm.progress = Progress()
    assert bool(algorithm.update(batch)["classification"].isfinite())
    algorithm.eval()
    with torch.no_grad():
        whole, single = algorithm.predict(batch.x), algorithm.predict(batch.x[:1])
    torch.testing.assert_close(whole[:1], single)
    assert not grey_levels(batch.x, 4)[0].any()


def test_hex_tests_with_the_norms_of_training() -> None:
    """Of one batch again and again, running norms become its own; and tests divide by them."""
    algorithm: Any = make("hex", {"warmup": 0.99}, backbone="timm:test_resnet")
    batch = batch_for(algorithm)
    features = algorithm.network.features(batch.x).detach()
    algorithm.network.features = lambda x: features
    algorithm.progress = Progress()
    for _ in range(200):
        algorithm.losses(batch)
    torch.testing.assert_close(algorithm.norms, torch.linalg.vector_norm(features, dim=0))
    logits = algorithm.network.classify(features / algorithm.norms)
    torch.testing.assert_close(algorithm.eval().predict(batch.x), logits)


def test_hex_s_running_norms_move_by_a_tenth() -> None:
    """From 1 by a tenth of the way to 5, which is 1.4, and from there to 13."""
    algorithm: Any = make("hex", {"warmup": 0.99}, backbone="timm:test_resnet")
    batch = batch_for(algorithm)
    algorithm.progress = Progress()
    for column in ((3, 4), (5, 12)):
        features = torch.zeros(len(batch), len(algorithm.norms))
        features[: len(column)] = torch.tensor(column)[:, None]
        algorithm.network.features = lambda x, features=features: features
        algorithm.losses(batch)
    torch.testing.assert_close(algorithm.norms, torch.full_like(algorithm.norms, 2.56))


def test_hex_s_texture_is_of_the_mean_over_pixels() -> None:
    """The layer's weights by the co-occurrences over 12 x 20 pixels, and nothing below 0."""
    algorithm: Any = make("hex", {"levels": 4, "textures": 6}, backbone="simple_conv").double()
    x = images(3, 12, 20).double()
    weight, shift = algorithm.texture.weight, algorithm.texture.bias
    expected = (algorithm.nglcm(x).flatten(1) / 240) @ weight.T + shift
    assert (expected < 0).any()
    torch.testing.assert_close(algorithm.textures(x), torch.where(expected > 0, expected, 0))


def test_hex_keeps_little_of_large_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into blocks, sums and gradients are what they are of all at once; and what is kept for them is the images."""
    levels, x = NGLCM(4, (1, -1), 1e-5).double(), images(6).double()
    thresholds = list(levels.parameters())

    def slopes() -> list[torch.Tensor]:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.numel()), t)[1], lambda t: t):
            found = levels(x)
        return [found, *torch.autograd.grad(found.square().sum(), thresholds)]

    kept: list[int] = []
    whole = slopes()
    monkeypatch.setattr(hex_method, "BLOCK", 4 * x[0, 0].numel())
    for cut, uncut in zip(slopes(), whole, strict=True):
        torch.testing.assert_close(cut, uncut)
    assert sum(kept) <= 2 * x[:, 0].numel() + 6 * 8, "both images of levels, and the thresholds of each block"


def test_rebias_sets_its_widths_once_an_epoch() -> None:
    algorithm: Any = make("rebias", {}, backbone="timm:test_resnet")
    batch, seen = batch_for(algorithm), []
    for step in range(6):
        steps(algorithm, batch, step, step + 1)
        seen.append(tuple(algorithm.widths.tolist()))
    assert len(set(seen)) == 2
    assert seen[0] == seen[2] != seen[3] == seen[5]
    fixed: Any = make("rebias", {"width": 3.0}, backbone="timm:test_resnet")
    fixed.progress = Progress()
    fixed.update(batch)
    assert fixed.widths.tolist() == [3, 3]


def rebias_of_given(width: float | None) -> tuple[Any, Batch, Tensor, Tensor]:
    """A ReBias of tables that its optimizers step at a rate of 2, a batch, and both networks' features before it."""
    random = np.random.RandomState(5)
    f, g = random.standard_normal((10, 5)), 4 * random.standard_normal((10, 3))
    networks_left = iter([Given(f, random.standard_normal((10, 4))), Given(g, random.standard_normal((10, 4)))])
    hparams = {"weight": 3.0, "biased_weight": 5.0, "width": width}
    algorithm: Any = start("rebias", hparams, lambda *name: next(networks_left), 4, 0)
    for name in ("main", "biased"):
        algorithm.optimizer(name).param_groups[0]["lr"] = 2.0
    algorithm.progress = Progress()
    return algorithm, batch_of(np.arange(10) % 4), torch.tensor(f), torch.tensor(g)


def test_rebias_gives_each_network_the_width_of_its_own_features() -> None:
    algorithm, batch, f, g = rebias_of_given(None)
    width_f, width_g = median_distance(f), median_distance(g)
    assert width_g > 2 * width_f
    terms = algorithm.biased_loss(batch, f)["biased"]
    assert algorithm.widths.tolist() == pytest.approx([width_f, width_g], rel=1e-12)
    classification = functional.cross_entropy(algorithm.biased.logits, batch.y)
    torch.testing.assert_close(terms[0], classification - 5 * independence(f, g, width_f, width_g))
    algorithm.network_loss(batch, f)
    torch.testing.assert_close(algorithm.take_notes()["dependence"], independence(f, g, width_f, width_g))


def test_rebias_s_network_is_to_be_independent_of_the_biased_one_after_its_step() -> None:
    """And the biased one has followed the network as it was before the step."""
    algorithm, batch, f, g = rebias_of_given(2.0)
    terms, notes = algorithm.update(batch), algorithm.take_notes()
    moved = algorithm.biased.table.detach()
    before, after = independence(f, g, 2.0, 2.0), independence(f, moved, 2.0, 2.0)
    assert abs(after - before) > 1e-3 * abs(before)
    torch.testing.assert_close(notes["dependence"], after)

    table, seen = f.clone().requires_grad_(), g.clone().requires_grad_()
    (slope,) = torch.autograd.grad(-5 * independence(f, seen, 2.0, 2.0), seen)
    torch.testing.assert_close(moved, g - 2 * slope)
    (slope,) = torch.autograd.grad(3 * independence(table, moved, 2.0, 2.0), table)
    torch.testing.assert_close(algorithm.network.table.detach(), f - 2 * slope)
    assert set(terms) == {"network", "biased"}


def test_independence_at_its_edges() -> None:
    """Of fewer than four images, and of images that are all the same."""
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert hsic(x, x, 1.0, 1.0) == 0
    still = torch.ones(6, 5, requires_grad=True)
    width = median_width([still])
    found = hsic(still, still, width, width)
    (slope,) = torch.autograd.grad(found, still)
    assert found == 0
    assert not slope.any()
    assert median_width([torch.zeros(4, 2)]) == 1


@pytest.mark.slow
def test_how_many_biases_there_are_goes_along_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    suite = f"{ROOT}/tests/helpers/toy_suite.py:Shades"
    words = ["train", "--suite", suite, "--data.labels", "yes", "--epochs", "1", "--tracking", "offline"]
    assert cli.main([*words, "--algorithm", "lnl", "--backbone", "simple_conv"]) == 0
    (path,) = tmp_path.rglob("last.ckpt")
    biases = torch.load(path, weights_only=False)["train_data"]["num_biases"]
    assert biases > 1
    trained: Any = from_checkpoint(path).algorithm
    assert trained.predictor.layers[-1].out_features == biases
