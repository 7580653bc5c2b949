"""Watermark of ImageNet-W: where it is drawn, how strongly, and which fonts are refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from biasbed.data.source import Decoded
from biasbed.data.transforms import SquareResize
from biasbed.errors import UsageError
from biasbed.plugins.cues import watermark
from helpers.shortcut_trees import make_font


@pytest.fixture
def font(tmp_path: Path) -> Path:
    return make_font(tmp_path / "squares.ttf")


@pytest.mark.parametrize(("side", "size"), [(224, 36), (384, 62), (512, 82), (518, 84), (256, 41), (448, 72)])
def test_size_of_the_font(side: int, size: int) -> None:
    assert watermark.font_size(side) == size


def test_watermark_is_half_transparent_white_at_its_place(font: Path) -> None:
    grey = torch.full((3, 224, 224), 100, dtype=torch.uint8)
    marked = watermark.draw_watermark(grey, font)
    assert (marked.shape, marked.dtype) == (grey.shape, grey.dtype)
    changed = (marked != grey).any(dim=0)
    rows, columns = changed.any(dim=1).nonzero()[:, 0], changed.any(dim=0).nonzero()[:, 0]
    # The squares are 0.8 of the font's size wide, six in a row from 1 % of the width; they stand on one line.
    assert rows.min() >= 224 * 0.4
    assert rows.max() <= 224 * 0.4 + 1.2 * 36
    assert columns.min() == pytest.approx(224 * 0.01 + 3.6, abs=1.5)
    assert columns.max() == pytest.approx(224 * 0.01 + 6 * 36 - 3.6, abs=2)
    full = 100 + (255 - 100) * 128 / 255
    assert marked.max().item() == pytest.approx(full, abs=1)
    assert torch.equal(grey, torch.full((3, 224, 224), 100, dtype=torch.uint8))
    white = torch.full((3, 224, 224), 255, dtype=torch.uint8)
    assert torch.equal(watermark.draw_watermark(white, font), white)


def test_transform_draws_after_the_crop_and_travels_to_workers(font: Path) -> None:
    transform = watermark.Watermark(SquareResize(64), font)
    picture = Decoded(torch.zeros((3, 100, 100), dtype=torch.uint8))
    image = pickle.loads(pickle.dumps(transform))(picture)
    assert image.shape == (3, 64, 64)
    expected = watermark.draw_watermark(torch.zeros((3, 64, 64), dtype=torch.uint8), font)
    assert torch.equal(image, expected)
    assert image.any()


def test_fonts_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no Chinese characters"):
        watermark.read_font(make_font(tmp_path / "latin.ttf", "ab"), 36)
    with pytest.raises(UsageError, match="has no Chinese characters"):
        watermark.read_font(make_font(tmp_path / "half.ttf", "\u6377"), 36)
    text = tmp_path / "text.otf"
    text.write_text("no font")
    with pytest.raises(UsageError, match="can't be read as a font"):
        watermark.read_font(text, 36)
