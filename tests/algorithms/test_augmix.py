"""AugMix: mixtures, views, divergence, and overlaps with test sets; settings of augmentations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from biasbed import algorithms, record
from biasbed.algorithms.augmix import AugMix, jensen_shannon
from biasbed.batch import MAIN, Batch
from biasbed.config import Augment
from biasbed.data import augmix, contact_sheet, views
from biasbed.data.loading import TrainLoader
from biasbed.data.source import MemorySource
from biasbed.data.streams import BatchPlan, Part, Stream
from biasbed.data.transforms import TrainingTransform, keyed_randomness
from biasbed.errors import UsageError
from biasbed.settings import build
from biasbed.training import job
from biasbed.training.resolve import resolve
from helpers.making import make

SIDE = 24


def photograph(side: int = SIDE, channels: int = 3) -> Tensor:
    """Return smooth bytes [C,side,side], of which none is 0."""
    coarse = torch.rand(1, channels, 5, 5, generator=torch.Generator().manual_seed(3))
    smooth = functional.interpolate(coarse, side, mode="bilinear")[0]
    return (20 + 230 * smooth).to(torch.uint8)


def mixed(**settings: Any) -> augmix.MixedChains:
    view = views.make("augmix", settings)
    assert isinstance(view, augmix.MixedChains)
    return view


def test_a_mixture_is_of_floats_that_no_byte_has() -> None:
    image = photograph()
    with keyed_randomness(1):
        mixture = mixed()(image)
    assert mixture.dtype == torch.float32
    assert mixture.shape == image.shape
    assert mixture.min() >= 0
    assert mixture.max() <= 1
    assert ((255 * mixture) - (255 * mixture).round()).abs().max() > 0.1
    with keyed_randomness(1):
        assert torch.equal(mixed()(image), mixture)
    with keyed_randomness(2):
        assert not torch.equal(mixed()(image), mixture)


def test_a_mixture_without_operations_is_the_image() -> None:
    image = photograph().permute(1, 2, 0).numpy()
    empty = augmix.Mixture((0.2, 0.5, 0.3), 0.7, ((), (), ()))
    np.testing.assert_allclose(augmix.mix(image, empty) * 255, image, atol=1e-4)
    negative = augmix.Mixture((1.0,), 1.0, ((("solarize", 10.0),),))  # of all levels: the negative
    np.testing.assert_allclose(augmix.mix(image, negative) * 255, 255 - image, atol=1e-4)


@pytest.mark.parametrize("shape", [(SIDE, 36), (36, SIDE)])
def test_images_that_are_not_square_move_by_their_own_sides(shape: tuple[int, int]) -> None:
    """By a third of the width, or height, at the highest level; what comes in is black."""
    image = torch.full((1, *shape), 200, dtype=torch.uint8).permute(1, 2, 0).numpy()
    for name, axis in (("translate_y", 0), ("translate_x", 1)):
        moved = augmix.mix(image, augmix.Mixture((1.0,), 1.0, (((name, 10.0),),)))[..., 0]
        assert moved.shape == shape
        black = (moved == 0).all(1 - axis)
        assert int(black.sum()) == shape[axis] // 3
        assert black[-1]


def drawn(count: int, **settings: Any) -> list[augmix.Mixture]:
    view = mixed(**settings)
    with keyed_randomness(5):
        return [view.draw() for _ in range(count)]


def steps(mixtures: list[augmix.Mixture]) -> list[tuple[str, float]]:
    return [step for mixture in mixtures for chain in mixture.chains for step in chain]


def test_what_is_drawn_is_what_the_settings_say() -> None:
    mixtures = drawn(600)
    assert {len(mixture.chains) for mixture in mixtures} == {3}
    lengths = np.bincount([len(chain) for mixture in mixtures for chain in mixture.chains])[1:]
    assert len(lengths) == 3
    assert (lengths > 500).all()  # of 1800, each a third
    weights, shares = np.array([m.weights for m in mixtures]), np.array([m.share for m in mixtures])
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights.mean(0), 1 / 3, atol=0.04)
    np.testing.assert_allclose(shares.std(), 12**-0.5, atol=0.03)  # uniform
    assert {name for name, _ in steps(mixtures)} == set(augmix.OPERATIONS)
    levels = np.array([level for name, level in steps(mixtures) if name in augmix.SIGNED])
    assert 0.1 <= np.abs(levels).min() < 0.11
    assert 0.99 < np.abs(levels).max() <= 1
    assert abs((levels < 0).mean() - 0.5) < 0.05
    assert min(level for name, level in steps(mixtures) if name == "posterize") >= 0.1


@pytest.mark.parametrize("name", ["augmix", "trivialaugment"])
def test_images_of_other_channels(name: str) -> None:
    view = views.make(name, {}, 1)
    for key in range(40):
        with keyed_randomness(key):
            assert view(photograph(channels=1)).shape == (1, SIDE, SIDE)
    with pytest.raises(UsageError, match=f"'{name}' takes images of 1 or 3 channels, and the training images have 2"):
        views.make(name, {}, 2)


def source() -> MemorySource:
    images = np.stack([photograph(32).numpy() + step for step in range(6)])
    return MemorySource(name="x", classes=("a", "b"), y=np.arange(6) % 2, ids=list("abcdef"), images=images)


def read(name: str, **hparams: Any) -> tuple[Batch, Batch]:
    """(a batch as the method reads it, the same images in plain)."""
    cls = algorithms.load(name)
    request = cls.streams(build(cls.HParams, hparams))[MAIN]
    cut = TrainingTransform(SIDE, Augment())
    batches = []
    for changes in (tuple(views.make(view.name, view.settings) for view in request.views), ()):
        stream = Stream((Part(source(), 1.0, cut),), 6, views=changes, shared=request.shared)
        ((_, _, batch, _),) = TrainLoader(BatchPlan({MAIN: stream}, 3), 0, False).from_step(0, 1)
        batches.append(batch)
    return batches[0], batches[1]


def test_views_share_crop_and_flip_and_the_first_is_clean() -> None:
    batch, plain = read("augmix")
    assert batch.x.shape == (6, 3, 3, SIDE, SIDE)
    assert batch.x.dtype == torch.float32
    assert torch.equal(batch.x[:, 0], plain.x.float() / 255)
    assert not torch.equal(batch.x[:, 1], batch.x[:, 2])
    # At level 1 and lower, mixtures stay near the image; another crop or flip would not.
    away = (batch.x[:, 1:] - batch.x[:, :1]).abs().mean((2, 3, 4))
    others = (batch.x[:, :1] - batch.x[:, :1].flip(-1)).abs().mean((2, 3, 4))
    assert away.median() < 0.5 * others.median()
    assert torch.equal(batch.y, plain.y)


def test_without_divergence_each_image_is_one_mixture() -> None:
    batch, plain = read("augmix", jsd=False)
    assert batch.x.shape == (6, 3, SIDE, SIDE)
    assert batch.x.dtype == torch.float32
    assert not torch.equal(batch.x, plain.x.float() / 255)


def test_the_pictures_show_all_views_of_an_image(tmp_path: Path) -> None:
    """Three of each image side by side: the first as plain training has it, then two others."""
    requests = AugMix.streams(AugMix.HParams(severity=10))[MAIN].views
    changes = tuple(views.make(view.name, view.settings) for view in requests)
    made: dict[str, Tensor] = {}

    def keep(tiles: Tensor, path: Path, nrow: int, **_: Any) -> None:
        made[path.stem] = tiles
        assert nrow == {"views": 6, "plain": 8}[path.stem]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contact_sheet, "save_image", keep)
        for name, about in (("views", {"views": changes, "shared": True}), ("plain", {})):
            contact_sheet.save_examples(tmp_path / f"{name}.png", source(), TrainingTransform(SIDE, Augment()), **about)
    assert len(made["views"]) == 3 * len(made["plain"]) == 18
    assert torch.equal(made["views"][::3], made["plain"])
    assert not torch.equal(made["views"][1::3], made["views"][2::3])
    assert made["views"].mean() > 0.6 * made["plain"].mean()


def test_the_divergence_is_that_of_its_definition() -> None:
    logits = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(-1)
    m = p.mean(0)
    expected = (p * (p / m).log()).sum(-1).mean()
    torch.testing.assert_close(jensen_shannon(logits), expected)
    both = torch.stack([logits.sigmoid(), 1 - logits.sigmoid()], -1)
    labels = (both * (both / both.mean(0)).log()).sum(-1).mean()
    torch.testing.assert_close(jensen_shannon(logits, several=True), labels)
    assert float(jensen_shannon(logits[:1].expand(3, -1, -1))) == pytest.approx(0, abs=1e-12)


def test_predictions_that_are_certain_and_differ_have_a_finite_gradient() -> None:
    """All of three different classes: the divergence is log 3, and the authors' own has no gradient."""
    logits = (1e4 * torch.eye(3)).view(3, 1, 3).requires_grad_()
    divergence = jensen_shannon(logits)
    divergence.backward()
    assert float(divergence.detach()) == pytest.approx(np.log(3))
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_the_clean_view_alone_is_classified_and_counted() -> None:
    """And all views are one batch to the norms, the clean ones first."""
    algorithm = make("augmix", {"jsd_weight": 0.0})
    x = torch.rand(4, 3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    y = torch.arange(4)
    seen: list[Tensor] = []
    network = algorithm.get_submodule("network")
    network.register_forward_hook(lambda module, x_seen, made: seen.extend([x_seen[0], made.detach()]))
    terms = algorithm.update(Batch(x, y))
    x_seen, made = seen
    assert torch.equal(x_seen, torch.cat([x[:, 0], x[:, 1], x[:, 2]]))
    assert float(terms["classification"]) == pytest.approx(float(functional.cross_entropy(made[:4], y)))
    assert float(terms["divergence"]) == 0
    correct = algorithm.take_correct()
    assert correct is not None
    assert int(correct) == int((made[:4].argmax(1) == y).sum())


@pytest.mark.parametrize(
    ("algorithm", "flags", "tag"),
    [
        ("erm", {}, None),
        ("augmix", {}, None),
        ("augmix", {"hparams.all_ops": "yes"}, "brightness,contrast,saturate"),
        ("speckle", {}, "gaussian_noise,impulse_noise,shot_noise,speckle_noise"),
    ],
)
def test_a_run_says_what_it_overlaps(algorithm: str, flags: dict[str, str], tag: str | None) -> None:
    planned = job.plan(resolve({"suite": "demo", "algorithm": algorithm, "nproc": "1", **flags}))
    assert planned.tags().get(record.OVERLAPS) == tag


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("speckle", {"sigmas": "0.1,0"}, "one strength or more, all above 0"),
        ("random_erasing", {"scale": "0.5,0.1"}, "the least part, then the largest"),
        ("random_erasing", {"ratio": "0,2"}, "the least, then the largest, above 0"),
    ],
)
def test_settings_that_can_not_be(name: str, values: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(algorithms.load(name).HParams, values)
