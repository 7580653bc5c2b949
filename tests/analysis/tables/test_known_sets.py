"""Parts of known data sets: domains, pairs of domains, corruptions and categories."""

from __future__ import annotations

import pytest

from biasbed.analysis.tables.known_sets import find_known, is_part, title_of


@pytest.mark.parametrize(
    ("names", "known"),
    [
        ("Art Cartoon Photo Sketch", "PACS"),
        ("art_painting cartoon photo sketch", "PACS"),
        ("A C P S", "PACS"),
        ("C L S V", "VLCS"),
        ("Art Clipart Product Real-World", "OfficeHome"),
        ("L100 L38 L43 L46", "TerraIncognita"),
        ("clip info paint quick real sketch", "DomainNet"),
        ("+90% +80% -90%", "ColoredMNIST"),
        ("A→W D→W W→D A→D D→A W→A", "Office-31"),
        ("C-A C-W C-D A-C A-W A-D W-C W-A W-D D-C D-A D-W", "Office-Caltech"),
        ("A R D G O W", "NICO++"),
        ("Gauss. Shot Impul. Defoc. Glass Motion Zoom Snow Frost Fog Brit. Contr. Elas. Pix. JPEG", "ImageNet-C"),
        ("Bottle Cable Capsule Carpet Grid Hazelnut Leather Metal_nut Pill", "MVTec"),
        ("PACS VLCS OfficeHome", ""),
        ("Art Cartoon Photo", "PACS"),
        ("Art Photo", ""),
        ("A B C D", ""),
        ("Art", ""),
    ],
)
def test_parts_are_recognised_if_all_are_there(names: str, known: str) -> None:
    assert find_known(names.split(" ")) == known


def test_words_around_a_table_say_which_images_were_corrupted() -> None:
    corruptions = ["gaussian", "shot", "impulse", "defocus", "glass", "motion", "zoom", "snow"]
    assert find_known(corruptions, "error on CIFAR-10-C at severity 5") == "CIFAR-10-C"


def test_names_of_sets_and_parts() -> None:
    assert title_of("Office-Home") == "OfficeHome"
    assert title_of("Target") == ""
    assert is_part("Snow", "ImageNet-C")
    assert not is_part("clean", "ImageNet-C")
