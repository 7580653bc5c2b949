"""Coloured and rotated MNIST: what is made of the digits, from which files, and that a seed settles it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from biasbed.data.source import MemorySource, Source
from biasbed.datasets import mnist
from biasbed.errors import UsageError
from helpers.domain_tree import data_set
from helpers.mnist_files import digits, make_mnist

BOTH = ("colored_mnist", "rotated_mnist")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `MNIST/raw`: 60 + 30 digits. Not to be changed."""
    root = tmp_path_factory.mktemp("mnist")
    make_mnist(root / "MNIST" / "raw")
    return root


def pixels(sources: Mapping[str, Source]) -> list[np.ndarray]:
    assert all(isinstance(source, MemorySource) for source in sources.values())
    return [source.load_all(np.arange(len(source))).numpy() for source in sources.values()]


# --- what is made of digits -------------------------------------------------------------------------------------------


def test_bicubic_is_another_rotation(data_dir: Path) -> None:
    usual, other = (data_set("rotated_mnist", data_dir).with_interpolation(how) for how in ("bilinear", "bicubic"))
    first, second = (pixels(data.open_domains(data_dir)) for data in (usual, other))
    np.testing.assert_array_equal(first[0], second[0])  # nothing to turn
    assert np.abs(first[2].astype(int) - second[2]).max() > 5
    assert np.abs(first[2].astype(float) - second[2]).mean() < 10
    assert usual.fingerprint(data_dir) != other.fingerprint(data_dir)


@pytest.mark.parametrize(("size", "by_hand"), [(14, 2), (7, 4)])
def test_smaller_images_are_means(size: int, by_hand: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 2, 28, 28), dtype=np.uint8)
    exact = images.reshape(5, 2, size, by_hand, size, by_hand).astype(float).mean((3, 5))
    assert np.abs(mnist.shrink_by_means(images, size) - exact).max() <= 0.5
    assert mnist.shrink_by_means(images, 28) is images


# --- domains ----------------------------------------------------------------------------------------------------------


def test_every_digit_is_in_one_domain_and_may_be_looked_up(data_dir: Path) -> None:
    images, labels = digits(90)
    number = {f"train/{n:05d}": n for n in range(60)} | {f"t10k/{n:05d}": 60 + n for n in range(30)}
    colored = data_set("colored_mnist", data_dir).open_domains(data_dir)
    assert [len(source) for source in colored.values()] == [30, 30, 30]
    assert sorted(name for source in colored.values() for name in source.ids) == sorted(number)
    agrees = []
    for source, (x,) in zip(colored.values(), ([p] for p in pixels(colored)), strict=True):
        rows = np.array([number[name] for name in source.ids])
        np.testing.assert_array_equal(x.max(axis=1), images[rows])
        colour = x[:, 1].any(axis=(1, 2)).astype(int)
        assert not x[np.arange(len(x)), 1 - colour].any()
        assert 0 < (source.y != (labels[rows] < 5)).mean() < 0.5
        agrees.append((colour == source.y).mean())
    assert agrees[0] > 0.7
    assert agrees[1] > 0.6
    assert agrees[2] < 0.3
    turned = data_set("rotated_mnist", data_dir).open_domains(data_dir)
    rows = np.array([number[name] for name in turned["0"].ids])
    np.testing.assert_array_equal(pixels(turned)[0][:, 0], images[rows])
    np.testing.assert_array_equal(turned["0"].y, labels[rows])


def test_shares_are_those_that_the_domains_are_called_after(tmp_path: Path) -> None:
    make_mnist(tmp_path, 1_400, 397)
    shares = {}
    for name, source in data_set("colored_mnist", tmp_path).open_domains(tmp_path).items():
        x = source.load_all(np.arange(len(source))).numpy()
        shares[name] = float((x[:, 1].any(axis=(1, 2)) == source.y).mean())
    assert shares == pytest.approx({"plus_90": 0.9, "plus_80": 0.8, "minus_90": 0.1}, abs=0.05)


@pytest.mark.parametrize("name", BOTH)
def test_a_seed_settles_everything(name: str, data_dir: Path, tmp_path: Path) -> None:
    data = data_set(name, data_dir)
    assert data.is_computed
    make_mnist(tmp_path / "mnist", packed=True)  # the same digits, elsewhere and packed
    first, again, other = (
        data.open_domains(root, seed) for root, seed in ((data_dir, 3), (tmp_path, 3), (data_dir, 4))
    )
    for one, same, different in zip(first.values(), again.values(), other.values(), strict=True):
        assert one.fingerprint() == same.fingerprint() != different.fingerprint()
        assert one.origin == same.origin == different.origin == data.fingerprint(data_dir)
        assert one.channels == data.channels == pixels(first)[0].shape[1]
    make_mnist(tmp_path / "more" / "MNIST", train=61)
    assert data.fingerprint(tmp_path / "more") != data.fingerprint(data_dir)


@pytest.mark.parametrize(("wanted", "comes"), [(None, 28), (28, 28), (14, 14), (7, 7), (32, 28), (20, 28)])
def test_images_come_at_the_size_that_is_wanted_where_it_divides_theirs(
    wanted: int | None, comes: int, data_dir: Path
) -> None:
    source = data_set("colored_mnist", data_dir).open_domains(data_dir, 0, wanted)["plus_80"]
    assert source.shape == (2, comes, comes)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["MNIST/raw", "MNIST/MNIST/raw", "mnist", "raw", "."])
@pytest.mark.parametrize(("packed", "dot"), [(False, "-"), (True, "."), (True, "-"), (False, ".")])
def test_files_are_found_under_the_usual_names(place: str, packed: bool, dot: str, tmp_path: Path) -> None:
    make_mnist(tmp_path / place, packed=packed, dot=dot)
    assert len(data_set("rotated_mnist", tmp_path).open_domains(tmp_path)["15"]) == 15


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _no_idx(path: Path) -> None:
    path.write_text("<html>404</html>")


def _cut_when_packed(path: Path) -> None:
    content = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_name(f"{path.name}.gz").write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "cannot reshape array of size 46940 into shape (60,28,28)"),
        (_no_idx, "it is no IDX file of bytes"),
        (_cut_when_packed, "train-images-idx3-ubyte.gz: Compressed file ended before"),
    ],
)
def test_damaged_files_get_one_line(damage: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    damage(make_mnist(tmp_path / "MNIST" / "raw") / "train-images-idx3-ubyte")
    with pytest.raises(UsageError) as caught:
        data_set("colored_mnist", tmp_path).open_domains(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.real_data
def test_the_real_digits(shared: Path) -> None:
    root = shared / "data"
    data = data_set("colored_mnist", root)
    if data.find(root) is None:
        pytest.skip("no MNIST here")
    contents = data.contents(root)
    assert (contents.images, contents.labels, contents.differences) == (70_000, 2, ())
    assert list(map(len, data.open_domains(root).values())) == [23_334, 23_333, 23_333]
