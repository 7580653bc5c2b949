"""Data sets, corruptions and layers in another's program: the same pixels and numbers as biasbed's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision.transforms import v2
from torchvision.tv_tensors import BoundingBoxes, BoundingBoxFormat

import biasbed
from biasbed.algorithms.irm import scale_derivatives
from biasbed.data.corruptions import CORRUPTIONS
from biasbed.data.corruptions.released import crop_clean
from biasbed.data.corruptions.suppression import PATCH_SHUFFLE, suppress
from biasbed.data.decoding import open_file
from biasbed.data.folders import open_folder
from biasbed.datasets.on_the_fly import generated

TO_FLOAT = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


# --- corruptions ------------------------------------------------------------------------------------------------------


def test_a_corruption_has_the_pixels_of_the_corruption_sets(image_root: Path) -> None:
    source = generated(open_folder(image_root / "ink", "ink"), "ink_c", ("fog", "shot_noise"), 7, Path("none"))
    for row in (0, 40, 100):
        corruption, severity = divmod(int(source.condition[row]), 5)  # type: ignore[index]
        transform = (biasbed.corruptions.Fog, biasbed.corruptions.ShotNoise)[corruption](
            severity + 1, seed=7, jpeg=True
        )
        original = source.originals.ids[source.row[row]]
        cropped = Image.fromarray(crop_clean(open_file(image_root / "ink" / original)))
        expected = source.load(row).permute(1, 2, 0).numpy()
        assert (np.asarray(transform.of_image(cropped, original)) == expected).all()


def test_there_is_a_transform_for_each_corruption() -> None:
    classes = [kind for kind in vars(biasbed.corruptions).values() if isinstance(kind, type)]
    base = biasbed.corruptions.Corrupt
    assert {kind.name for kind in classes if issubclass(kind, base) and kind is not base} == set(CORRUPTIONS)


def test_a_suppression_is_a_transform_in_one_strength() -> None:
    """With the pixels and draws of `data/corruptions/suppression.py`."""
    pytest.importorskip("cv2", reason="OpenCV is an extra")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8))
    shuffle = biasbed.corruptions.PatchShuffle(grid=4, seed=0)
    expected = suppress(np.asarray(image), PATCH_SHUFFLE, (4,), 0, "a.png")
    assert np.array_equal(shuffle.of_image(image, "a.png"), expected)
    assert np.array_equal(shuffle(image), shuffle(v2.functional.pil_to_tensor(image)).permute(1, 2, 0))
    assert repr(biasbed.corruptions.BilateralFilter()) == "BilateralFilter(diameter=12, sigma_colour=170, seed=None)"
    with pytest.raises(biasbed.UsageError, match=r"PatchRotation: grid=0 should be a number above 0"):
        biasbed.corruptions.PatchRotation(grid=0)


def test_a_corruption_takes_what_v2_transforms_take() -> None:
    pixels = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    image, box = (
        v2.functional.to_pil_image(pixels),
        BoundingBoxes([[0, 0, 3, 3]], format=BoundingBoxFormat.XYXY, canvas_size=(32, 32)),
    )
    keyed = biasbed.corruptions.GaussianNoise(severity=3, seed=0)
    corrupted, same_box, label = v2.Compose([keyed])(pixels, box, 3)
    assert (same_box is box or torch.equal(same_box, box)) and label == 3  # noqa: PT018
    assert torch.equal(v2.functional.pil_to_tensor(keyed(image)), corrupted)
    assert torch.equal(keyed(torch.stack([pixels, pixels])), torch.stack([corrupted, corrupted]))
    array = keyed(pixels.permute(1, 2, 0).numpy())
    assert (array == corrupted.permute(1, 2, 0).numpy()).all()
    mask = np.zeros((32, 32), np.uint8)
    assert keyed(pixels, mask)[1] is mask
    drawn = biasbed.corruptions.GaussianNoise(severity=3)
    torch.manual_seed(0)
    first, second = drawn(pixels), drawn(pixels)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(drawn(pixels), first)
    for wrong, message in (
        (pixels / 255, "takes PIL images, .*put it before the step that makes floats"),
        (pixels[:1], r"not torch.uint8 \[1, 32, 32\]: put v2.RGB\(\) before it"),
        (pixels.permute(1, 2, 0).numpy() / 255, r"not float64 \[32, 32, 3\]: put it before"),
    ):
        with pytest.raises(biasbed.UsageError, match=message):
            keyed(wrong)
    with pytest.raises(biasbed.UsageError, match="severity=6: corruptions have the severities 1 to 5"):
        biasbed.corruptions.Fog(severity=6)
    with pytest.raises(biasbed.UsageError, match="give seed=0"):
        drawn.of_image(image, "a.png")


# --- data sets --------------------------------------------------------------------------------------------------------


def test_domains_of_a_folder_are_torch_data_sets(image_root: Path) -> None:
    loaded = biasbed.datasets.load(
        image_root.name, image_root.parent, transform=TO_FLOAT, columns=("label", "domain", "bias", "id")
    )
    assert list(loaded) == ["ink", "paint", "photo"]
    assert loaded.classes == ("circle", "cross", "square")
    photo = loaded["photo"]
    x, label, domain, bias, name = photo[20]
    with Image.open(image_root / "photo" / name) as image:
        assert torch.equal(x, TO_FLOAT(image.convert("RGB")))
    assert (photo.classes[label], photo.domains[domain], bias) == (Path(name).parent.name, "photo", -1)
    assert label == photo.labels[20]
    batches = list(DataLoader(photo, batch_size=17))
    assert [len(batch[0]) for batch in batches] == [17, 17, 17]
    assert torch.cat([batch[1] for batch in batches]).tolist() == photo.labels.tolist()
    with pytest.raises(IndexError):
        photo[51]
    with pytest.raises(KeyError, match="no part 'foto'; did you mean 'photo'"):
        loaded["foto"]


def test_a_biased_data_set_has_splits_with_biases() -> None:
    figures = biasbed.datasets.load("Figures", image_size=32, columns=("label", "bias"), severity=10)
    assert list(figures) == ["train", "val", "test"]
    train = figures["train"]
    image, label, bias = train[0]
    assert (image.size, label, bias) == ((32, 32), train.labels[0], train.bias[0])  # type: ignore[index]
    assert (train.labels != train.bias).mean() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [
        ("pacs", None, "'pacs' needs data_dir="),
        ("pacs", "/nowhere", "data_dir=/nowhere: there is no such folder"),
    ],
)
def test_a_data_set_that_is_not_there_is_refused(name: str, folder: str | None, message: str) -> None:
    with pytest.raises(biasbed.UsageError, match=message):
        biasbed.datasets.load(name, folder)
    with pytest.raises(biasbed.UsageError, match="there is no column 'labels'; did you mean 'label'"):
        biasbed.datasets.load("figures", columns=("labels",))


def test_unknown_names_are_answered_with_the_nearest() -> None:
    for module, name, message in (
        (biasbed, "evaluat", "module 'biasbed' has no attribute 'evaluat'; did you mean 'evaluate'"),
        (biasbed.corruptions, "Fogg", "module 'biasbed.corruptions' has no attribute 'Fogg'; did you mean 'Fog'"),
        (biasbed.methods, "corall", "module 'biasbed.methods' has no attribute 'corall'; did you mean 'coral'"),
    ):
        with pytest.raises(AttributeError, match=message):
            getattr(module, name)
        assert not hasattr(module, "__wrapped__")


# --- methods ----------------------------------------------------------------------------------------------------------


def test_infodrop_drops_plain_areas_in_training_alone() -> None:
    """Half of each image is plain and half is noise: InfoDrop keeps what tells itself apart."""
    torch.manual_seed(0)
    layer = biasbed.methods.InfoDrop(nn.Conv2d(3, 16, 3, padding=1), drop_rate=0.3)
    x = torch.full((4, 3, 16, 32), 0.5)
    x[..., 16:] = torch.rand(4, 3, 16, 16)
    dropped = (layer(x) == 0).float().mean(dim=(0, 1, 2))
    assert dropped[2:14].mean() > 4 * dropped[18:].mean()
    assert torch.equal(layer.eval()(x), layer.conv(x))
    torch.manual_seed(1)
    first = layer.train()(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    first.sum().backward()
    assert layer.conv.weight.grad is not None


def test_padain_gives_each_image_the_moments_of_another() -> None:
    torch.manual_seed(0)
    x = torch.rand(6, 4, 8, 8) * torch.arange(1, 7)[:, None, None, None]
    swapped = biasbed.methods.PAdaIN(p=1.0)(x)
    means, old = swapped.mean(dim=(2, 3)), x.mean(dim=(2, 3))
    donors = torch.cdist(means, old).argmin(dim=1)
    assert sorted(donors.tolist()) == list(range(6))
    torch.testing.assert_close(means, old[donors])
    assert torch.equal(biasbed.methods.PAdaIN(p=1.0).eval()(x), x)
    assert torch.equal(biasbed.methods.PAdaIN(p=0.0)(x), x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda methods: methods.InfoDrop(nn.Conv2d(3, 16, 3), drop_rate=0), "drop_rate=0"),
        (lambda methods: methods.PAdaIN(p=2.0), "p=2.0"),
    ],
)
def test_a_piece_says_in_a_line_what_it_takes(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(biasbed.UsageError, match=message) as refused:
        call(biasbed.methods)
    assert "\n" not in str(refused.value)


def test_irm_s_penalty_is_the_product_of_two_derivatives() -> None:
    """Against automatic differentiation by a factor of the logits (Arjovsky et al. 2019, appendix D)."""
    torch.manual_seed(0)
    logits, y = torch.randn(8, 5, dtype=torch.float64), torch.randint(5, (8,))
    derivatives = []
    for part in (slice(0, None, 2), slice(1, None, 2)):
        factor = torch.ones((), dtype=torch.float64, requires_grad=True)
        loss = nn.functional.cross_entropy(logits[part] * factor, y[part])
        derivatives.append(torch.autograd.grad(loss, factor)[0])
    torch.testing.assert_close(biasbed.methods.irm_penalty(logits, y), derivatives[0] * derivatives[1])
    assert biasbed.methods.irm_penalty(logits[:1], y[:1]) == 0
    assert len(scale_derivatives(logits, y)) == 8
