"""Image files: decoded as Pillow does, no larger than needed, in whatever form they come."""

from __future__ import annotations

import io
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as reference

from biasbed.config import Augment, Preprocess, StimuliPreprocess
from biasbed.data import transforms
from biasbed.data.decoding import SUFFIXES, UNDO, JpegFile, PillowFile, open_file
from biasbed.data.folders import open_folder
from biasbed.data.source import Decoded, Names
from biasbed.data.transforms import Transform
from biasbed.errors import CorruptImage
from biasbed.prepare.doctor import _check_header, _check_pixels
from helpers.commands import ROOT


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    """Something smooth with edges, 640 x 480, so that JPEG and resizing have something to keep."""
    y, x = np.mgrid[:480, :640]
    waves = [127 + 90 * np.sin(x / p) * np.cos(y / q) for p, q in ((40, 23), (17, 51), (80, 33))]
    pixels = np.stack(waves, axis=-1)
    pixels[120:300, 200:420] = 230
    return Image.fromarray(pixels.round().astype(np.uint8))


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def as_pillow(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("quality", [60, 95])
def test_a_jpeg_is_decoded_as_pillow_does(photo: Image.Image, tmp_path: Path, mode: str, quality: int) -> None:
    path = saved(photo.convert(mode), tmp_path / "a.JPEG", quality=quality)
    picture = open_file(path)
    assert (picture.height, picture.width) == (480, 640)
    assert isinstance(picture, PillowFile if mode == "CMYK" else JpegFile)
    assert (picture.pixels().int() - as_pillow(path).int()).abs().max() <= 1


@pytest.mark.parametrize("mode", ["RGB", "P", "LA", "RGBA", "1"])
def test_other_files_become_rgb(photo: Image.Image, tmp_path: Path, mode: str) -> None:
    path = saved(photo.convert(mode), tmp_path / "a.png")
    assert torch.equal(open_file(path).pixels(), as_pillow(path))


@pytest.mark.parametrize(("suffix", "decoder"), SUFFIXES.items())
def test_every_suffix_is_read_by_its_decoder(photo: Image.Image, tmp_path: Path, suffix: str, decoder: str) -> None:
    """In a class folder, in small letters and in capitals, with the pixels that Pillow gives."""
    mode = "L" if suffix == ".pgm" else "1" if suffix == ".pbm" else "RGB"
    kept = photo.resize((40, 30)).convert(mode)
    for name in (f"one{suffix}", f"two{suffix.upper()}"):
        (tmp_path / "a").mkdir(exist_ok=True)
        kept.save(tmp_path / "a" / name, "MPO" if suffix == ".mpo" else decoder)
    source = open_folder(tmp_path, "x")
    assert len(source) == 2
    for row, name in enumerate(source.ids):
        assert (source.open(row).pixels().int() - as_pillow(tmp_path / name).int()).abs().max() <= 1


def test_the_documentation_lists_the_suffixes() -> None:
    text = (ROOT / "docs" / "suites.md").read_text()
    listed = text.partition("`data_dir/<folder>/<class>/**/<image>` (")[2].partition(")")[0]
    assert [f".{word}" for word in listed.replace("\n", " ").split(", ")] == list(SUFFIXES)


@pytest.mark.parametrize(("shrink", "size"), [(1, (480, 640)), (2, (240, 320)), (4, (120, 160)), (8, (60, 80))])
def test_shrinking_is_the_decoder_s(photo: Image.Image, tmp_path: Path, shrink: int, size: tuple[int, int]) -> None:
    picture = open_file(saved(photo, tmp_path / "a.jpg", quality=95))
    found = picture.pixels(shrink)
    assert tuple(found.shape[1:]) == size
    whole = torch.nn.functional.interpolate(picture.pixels()[None].float(), size=size, mode="area")[0]
    assert (found.float() - whole).abs().mean() < 2


@pytest.mark.parametrize("kind", [{}, {"progressive": True}, {"restart_marker_rows": 2}])
@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize("shrink", [1, 8])
def test_the_first_rows_are_those_of_the_whole(
    photo: Image.Image, tmp_path: Path, kind: dict[str, object], sampling: str, shrink: int
) -> None:
    path = saved(photo, tmp_path / "a.jpg", subsampling=sampling, **kind)
    whole = open_file(path).pixels(shrink)
    for rows in (1, 17, 101, 464, 480):
        found = open_file(path).pixels(shrink, rows)
        needed = -(-rows // shrink) + 1
        assert torch.equal(found[:, :needed], whole[:, :needed])
        assert found.shape[1] < whole.shape[1] or rows > 460  # the rest was not decoded
        assert found.shape[2] == whole.shape[2]


def test_parts_are_those_of_the_whole_picture(photo: Image.Image, tmp_path: Path) -> None:
    picture = open_file(saved(photo, tmp_path / "a.jpg"))
    whole = Decoded(picture.pixels())
    for transform in (
        transforms.CentreCrop(224, 300, "bicubic"),
        transforms.CentreCrop(100, 241),
        transforms.CropThenResize(224, 0.875),
    ):
        assert torch.equal(transform(open_file(tmp_path / "a.jpg")), transform(whole))
    for number in range(5):
        transform = transforms.TrainingTransform(400, Augment())
        with transforms.keyed_randomness(number):
            found = transform(open_file(tmp_path / "a.jpg"))
        with transforms.keyed_randomness(number):
            assert torch.equal(found, transform(whole))


@pytest.mark.parametrize(
    "transform",
    [
        transforms.TrainingTransform(100, Augment()),
        transforms.TrainingTransform(100, Augment(crop=False, padding=4)),
        transforms.make_photo_transform(100, Preprocess())[0],
        transforms.make_photo_transform(100, Preprocess(crop_first=True))[0],
        transforms.make_stimulus_transform(100, StimuliPreprocess())[0],
        transforms.Exact(480),
    ],
    ids=["crop", "padding", "natural", "crop first", "stimulus", "exact"],
)
def test_a_transform_can_be_sent_to_a_process_that_starts_afresh(photo: Image.Image, transform: Transform) -> None:
    """As loaders' processes do on a Mac, and on Linux from Python 3.14 on."""
    picture = Decoded(torch.from_numpy(np.array(photo.crop((0, 0, 480, 480)))).permute(2, 0, 1))
    sent = pickle.loads(pickle.dumps(transform))
    with transforms.keyed_randomness(1):
        expected = transform(picture)
    with transforms.keyed_randomness(1):
        assert torch.equal(sent(picture), expected)


def test_a_file_that_is_cut_off_is_told_whatever_rows_are_needed(photo: Image.Image, tmp_path: Path) -> None:
    thumbnail = io.BytesIO()
    photo.resize((64, 48)).save(thumbnail, "jpeg")
    path = saved(photo, tmp_path / "a.jpg")
    content = path.read_bytes()
    comment = thumbnail.getvalue()  # which has an end of its own
    within = content[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + content[2:]
    path.write_bytes(within)
    assert open_file(path).pixels(1, 48).shape[1] < 100
    path.write_bytes(within[: len(within) - len(content) // 4])
    with pytest.raises(CorruptImage, match=r"a\.jpg"):
        open_file(path).pixels(1, 48)


@pytest.mark.parametrize("before", [b"\xff\xd0", b"\xff\x01", b"\xff\xff", b"\xff\xfe\x00\x00", b"\xff\xfe\x00\x01"])
def test_odd_markers_before_the_frame_change_no_pixel(before: bytes, photo: Image.Image, tmp_path: Path) -> None:
    """RST and TEM have no segment; a segment shorter than its own length has no next marker."""
    path = saved(photo, tmp_path / "a.jpg")
    content = path.read_bytes()
    with Image.open(path) as image:
        expected = np.array(image.convert("RGB"))
    path.write_bytes(content[:2] + before + content[2:])
    rows = open_file(path).pixels(1, 48)[:, :48].permute(1, 2, 0).numpy()
    assert np.abs(rows.astype(int) - expected[:48]).max() < 8  # two decoders


def test_a_header_of_more_pixels_than_pillow_takes_is_refused_undecoded(photo: Image.Image, tmp_path: Path) -> None:
    path = saved(photo, tmp_path / "a.jpg")
    content = path.read_bytes()
    size = photo.height.to_bytes(2, "big") + photo.width.to_bytes(2, "big")
    path.write_bytes(content.replace(size, (30_000).to_bytes(2, "big") * 2, 1))
    tracemalloc.start()
    with pytest.raises(CorruptImage, match="decompression bomb"):
        open_file(path).pixels()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20


@pytest.mark.parametrize("content", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0 nothing of the kind", b"no image"])
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    with pytest.raises(CorruptImage, match=r"a\.jpg"):
        open_file(path).pixels()


# --- test images ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(480, 640), (300, 260), (257, 300), (255, 300), (300, 255), (226, 224), (100, 180)])
def test_natural_images_are_those_of_the_reference_pipeline(
    photo: Image.Image, tmp_path: Path, size: tuple[int, int]
) -> None:
    path = saved(photo.crop((0, 0, size[1], size[0])), tmp_path / "a.jpg")
    theirs = reference.Compose([reference.Resize(256), reference.CenterCrop(224)])
    expected = torch.from_numpy(np.array(theirs(Image.open(path)))).permute(2, 0, 1)
    transform, words = transforms.make_photo_transform(224, Preprocess())
    assert words == "short side 256, centre 224, bilinear"
    assert (transform(open_file(path)).int() - expected.int()).abs().max() <= 1


def test_stimuli_are_left_alone_unless_told_otherwise(photo: Image.Image) -> None:
    stimulus = Decoded(torch.from_numpy(np.array(photo.crop((0, 0, 224, 224)))).permute(2, 0, 1))
    assert transforms.make_stimulus_transform(224, StimuliPreprocess())[0](stimulus) is stimulus.image
    assert tuple(transforms.make_stimulus_transform(112, StimuliPreprocess())[0](stimulus).shape) == (3, 112, 112)
    enlarged = transforms.make_stimulus_transform(224, StimuliPreprocess(resize=256))[0](stimulus)
    theirs = reference.Compose([reference.Resize(256), reference.CenterCrop(224)])
    expected = torch.from_numpy(np.array(theirs(photo.crop((0, 0, 224, 224))))).permute(2, 0, 1)
    assert (enlarged.int() - expected.int()).abs().max() <= 1
    trained_larger, words = transforms.make_stimulus_transform(256, StimuliPreprocess(resize=256, size=224))
    assert torch.equal(trained_larger(stimulus), enlarged)
    assert words == "short side 256, centre 224, bilinear"
    fed, words = transforms.make_stimulus_transform(256, StimuliPreprocess(size=224))
    assert fed(stimulus) is stimulus.image
    assert words == "as it is, or resized to 224, bilinear"


def test_biasbed_crops_first(photo: Image.Image, tmp_path: Path) -> None:
    path = saved(photo, tmp_path / "a.png")
    found = transforms.make_photo_transform(224, Preprocess(size=256, crop_first=True))[0](open_file(path))
    box = ((640 - 420) // 2, (480 - 420) // 2, (640 + 420) // 2, (480 + 420) // 2)  # 7/8 of 480
    expected = photo.crop(box).resize((256, 256), Image.Resampling.BILINEAR)
    assert (found.int() - torch.from_numpy(np.array(expected)).permute(2, 0, 1).int()).abs().max() <= 1


# --- training images --------------------------------------------------------------------------------------------------


def test_padded_crops_move_the_image_and_leave_black() -> None:
    ours = transforms.TrainingTransform(16, Augment(crop=False, flip=False, padding=3))
    places = set()
    for seed in range(60):
        torch.manual_seed(seed)
        found = ours(Decoded(torch.full((3, 16, 16), 200, dtype=torch.uint8)))
        assert found.shape == (3, 16, 16)
        assert set(found.unique().tolist()) <= {0, 200}
        rows, columns = (found[0].sum(dim) > 0 for dim in (1, 0))
        assert min(rows.sum(), columns.sum()) >= 13
        places.add((int(rows[0]) - int(rows[-1]), int(columns[0]) - int(columns[-1])))
    assert places == {(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)}
    assert transforms.is_random(ours)


def test_training_crops_are_the_reference_s(photo: Image.Image, tmp_path: Path) -> None:
    """The same draws of torch's generator give torchvision's crop of the decoded image."""
    path = saved(photo, tmp_path / "a.jpg", quality=95)
    ours = transforms.TrainingTransform(160, Augment(crop_scale=0.5))
    theirs = reference.Compose([reference.RandomResizedCrop(160, (0.5, 1.0)), reference.RandomHorizontalFlip()])
    for seed in range(5):
        torch.manual_seed(seed)
        found = ours(open_file(path))
        torch.manual_seed(seed)
        expected = torch.from_numpy(np.array(theirs(Image.open(path)))).permute(2, 0, 1)
        difference = (found.int() - expected.int()).abs().float()
        assert difference.mean() < 2.5  # decoded at half its size


def test_both_ends_of_a_crop_s_ratio(photo: Image.Image, tmp_path: Path) -> None:
    """BiasBed's crops, never wider than high, are torchvision's; the usual ones are what they were."""
    path = saved(photo, tmp_path / "a.png")
    ours = transforms.TrainingTransform(160, Augment(crop_scale=0.5, crop_ratio=(0.8, 1.0), flip=False))
    theirs = reference.RandomResizedCrop(160, (0.5, 1.0), (0.8, 1.0))
    boxes = []
    for seed in range(20):
        torch.manual_seed(seed)
        boxes.append(reference.RandomResizedCrop.get_params(Image.open(path), [0.5, 1.0], [0.8, 1.0]))
        torch.manual_seed(seed)
        found = ours(open_file(path))
        torch.manual_seed(seed)
        expected = torch.from_numpy(np.array(theirs(Image.open(path)))).permute(2, 0, 1)
        assert (found.int() - expected.int()).abs().max() <= 2
    assert all(0.79 < width / height < 1.01 for _, _, height, width in boxes)
    assert Augment().crop_ratio == (1 / (4 / 3), 4 / 3)  # as when the smaller end was the larger's inverse
    for wrong in ((1.2, 0.8), (0.0, 1.0)):
        with pytest.raises(ValueError, match=r"augment\.crop_ratio"):
            Augment(crop_ratio=wrong)


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_are_a_sequence_of_strings() -> None:
    words = ["n01440764/a.JPEG", "", "übung/ß.png", "z"]
    names = Names(words)
    assert list(names) == words
    assert (names[-1], names[1:3], len(names)) == ("z", words[1:3], 4)
    assert "" in names
    with pytest.raises(IndexError):
        names[4]
    assert list(Names([])) == []
    for places in ([], [2], [3, 0, 0, 1]):
        assert list(names.at(np.array(places, dtype=np.int64))) == [words[place] for place in places]


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_deep_images_are_refused_rather_than_clipped(tmp_path: Path, mode: str) -> None:
    ramp = np.linspace(0, 65520, 64).reshape(8, 8)
    kinds = {"I;16": np.uint16, "I": np.int32, "F": np.float32}
    path = saved(Image.fromarray(ramp.astype(kinds[mode])), tmp_path / "a.tif")
    with pytest.raises(CorruptImage, match="more than 8 bits per channel"):
        open_file(path)


def test_a_pipe_by_an_image_s_name_is_not_waited_for(tmp_path: Path) -> None:
    """Neither in training nor by the data doctor; nor is a link to one."""
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("a.png")
    for path in (tmp_path / "a.png", tmp_path / "b.png"):
        with pytest.raises(CorruptImage, match=r"\.png: it is not a regular file"):
            open_file(path)
        assert _check_header(path).problem == _check_pixels(path).problem == "is not a regular file"


@pytest.mark.parametrize("number", UNDO)
@pytest.mark.parametrize(("suffix", "options"), [("jpg", {}), ("png", {}), ("webp", {"lossless": True}), ("tif", {})])
def test_every_format_is_read_as_it_is_stored_whatever_its_exif_orientation(
    tmp_path: Path, suffix: str, options: dict[str, Any], number: int
) -> None:
    """Pillow turns TIFF files by itself, and no others."""
    pixels = np.zeros((16, 24, 3), dtype=np.uint8)
    pixels[:8, :8], pixels[8:, 16:] = 255, 128
    exif = Image.Exif()
    exif[0x0112] = number
    path = saved(Image.fromarray(pixels), tmp_path / f"x.{suffix}", exif=exif, **options)
    picture = open_file(path)
    assert (picture.height, picture.width) == (16, 24)
    difference = picture.pixels().permute(1, 2, 0).numpy().astype(int) - pixels
    assert np.abs(difference).max() <= (8 if suffix == "jpg" else 0)
    for check in (_check_header, _check_pixels):
        assert check(path).is_turned
        assert not check(saved(Image.fromarray(pixels), tmp_path / f"y.{suffix}")).is_turned
