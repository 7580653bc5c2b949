"""Small folders in the layouts of ImageNet-9, ImageNet-W, ImageNet-X, REFINED-BIAS and LAION-C, with few pictures."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.corruption_benchmarks import SEVERITIES
from biasbed.plugins.cues import classes, data_sets
from helpers.corrupted_tree import jpeg

VERSIONS = ("original", "mixed_same", "mixed_rand", "only_fg", "only_bg_t")
# Some ImageNet classes of each of the nine, by number; the release's map has 370 in all.
IN9 = {151: 0, 152: 0, 7: 1, 8: 1, 436: 2, 33: 3, 281: 4, 300: 5, 401: 6, 365: 7, 0: 8}


def put(path: Path, number: int, side: int = 64) -> None:
    """Write one of four pictures, by hard links after the first time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first = path.parents[len(path.parents) - 3] / f".picture-{os.getpid()}-{number % 4}-{side}"
    if not first.exists():
        first.write_bytes(jpeg(number % 4, side))
    os.link(first, path)


def make_imagenet(root: Path, per_class: int = 1) -> list[str]:
    """Write validation images of all classes; return their names, in the order of classes."""
    names = []
    for label, wnid in enumerate(imagenet_classes()):
        for number in range(per_class):
            name = f"ILSVRC2012_val_{label * per_class + number + 1:08}.JPEG"
            put(root / "imagenet/val" / wnid / name, label)
            names.append(name)
    return names


def make_in9(root: Path, versions: Iterable[str] = VERSIONS, per_class: int = 2) -> Path:
    """Write versions of ImageNet-9 with the map of its classes; return its folder."""
    folder = root / "bg_challenge"
    for version in versions:
        for label, name in enumerate(data_sets.ImageNet9().classes):
            for number in range(per_class):
                put(folder / version / "val" / name / f"{number}.JPEG", label + number)
    numbers = {str(position): IN9.get(position, -1) for position in range(1000)}
    (folder / data_sets.IN9_MAP).write_text(json.dumps(numbers))
    return folder


def make_refined(root: Path, per_class: int = 2) -> None:
    """Write both sets of REFINED-BIAS."""
    for data in (data_sets.RefinedShape(), data_sets.RefinedTexture()):
        for label, name in enumerate(data.classes):
            for number in range(per_class):
                put(root / data.name / name / f"{name}_{number}.png", label)


def make_laion_c(root: Path) -> Path:
    """Write an image of each class under each distortion and intensity, named as the authors' program names them."""
    folder = root / "laion-c"
    for distortion in classes.DISTORTIONS:
        kind = {"stickers": "sticker", "luminance_checkerboard": "luminance"}.get(distortion, distortion)
        for severity in SEVERITIES:
            for label, name in enumerate(classes.SUPERCLASSES):
                image = f"photo_{label}_{kind}_{severity}.JPEG"
                put(folder / distortion / f"intensity_level_{severity}" / name / image, label, 224)
    return folder


def make_annotations(folder: Path, rows: Sequence[Mapping[str, object]], prototypes: Sequence[str] = ()) -> Path:
    """Write annotations as the package imagenet-x has them. rows: `file_name`, `class`, `factor`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for row in rows:
        factors = {factor: int(factor == row["factor"]) for factor in classes.FACTORS}
        lines.append(json.dumps({"file_name": row["file_name"], "class": row["class"], **factors, "justification": ""}))
    (folder / data_sets.ANNOTATIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (folder / data_sets.PROTOTYPES).open("w", newline="") as file:
        csv.writer(file).writerows([["file_name"], *([name] for name in prototypes)])
    return folder


def make_font(path: Path, characters: str = "\u6377\u5f84") -> Path:
    """Write a font whose characters are filled squares of different heights."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    names = {ord(character): f"square{number}" for number, character in enumerate(characters)}
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", *names.values()])
    builder.setupCharacterMap(names)
    glyphs = {}
    for number, name in enumerate([".notdef", *names.values()]):
        pen = TTGlyphPen(None)
        top = 300 + 200 * number
        pen.moveTo((100, 0))
        for corner in ((100, top), (900, top), (900, 0)):
            pen.lineTo(corner)
        pen.closePath()
        glyphs[name] = pen.glyph()
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    path.parent.mkdir(parents=True, exist_ok=True)
    builder.save(str(path))
    return path
