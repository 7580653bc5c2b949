"""Layouts of published tables: every printed number, and what is refused of a user's own file."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from biasbed.errors import UsageError
from biasbed.plugins.layouts import layout_file

# As the tables' file calls a column, and as layouts head it; tables 7 and 10 have errors by corruption elsewhere.
HEADS = {
    **{"imagenet_200": "ImageNet-200", "imagenet_r": "ImageNet-R", "gap_r": "Gap", "imagenet": "Clean"},
    **{"imagenet_a": "ImageNet-A", "real_blurry": "Real Blurry", "imagenet_c_blur_mean": "Mean of blurs"},
    **{f"imagenet_c_{name}_blur": f"{name.title()} blur" for name in ("defocus", "glass", "motion", "zoom")},
    **{"svsf_iid": "IID", "svsf_camera_old": "Old camera", "svsf_2017": "Year 2017", "svsf_2018": "Year 2018"},
    **{"svsf_france": "France", "dfr_iid": "IID", "dfr_ood_mean": "OOD", "dfr_size_small": "Small"},
    **{"dfr_size_large": "Large", "dfr_occlusion_slight": "Slight occlusion"},
    **{"dfr_occlusion_heavy": "Heavy occlusion", "dfr_viewpoint_no_wear": "No wear"},
    **{"dfr_viewpoint_side_back": "Side or back", "dfr_zoom_medium": "Medium zoom", "dfr_zoom_large": "Large zoom"},
}


def tables(shared: Path) -> dict[str, list[dict[str, str]]]:
    """Table -> its printed numbers."""
    lines: dict[str, list[dict[str, str]]] = {}
    with (shared / "published" / "robustness_tables.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            lines.setdefault(line["table"], []).append(line)
    return lines


def test_every_number_stands_where_it_is_printed(shared: Path) -> None:
    for number, lines in tables(shared).items():
        layout = layout_file.read(f"robustness_{number}")
        printed = {(row, head): f"{cell.value:.{cell.digits}f}" for (row, head), cell in layout.published().items()}
        assert list(layout.rows) == list(dict.fromkeys(line["row"] for line in lines))
        for line in lines:
            assert printed[line["row"], HEADS[line["column"]]] == line["printed"], line


def test_errors_by_corruption_stand_in_tables_7_and_10() -> None:
    for number, row, heads in (("7", "augmix", ("Gauss", "JPEG")), ("10", "deepaug_cae", ("Fog", "Pixel"))):
        layout = layout_file.read(f"robustness_{number}")
        assert len(layout.columns) == 17
        printed = layout.published()
        assert all(printed[row, head].digits == 0 for head in heads)
    assert layout_file.read("robustness_7").published()["augmix", "Gauss"].value == 67


def test_every_layout_is_whole() -> None:
    for name in layout_file.names():
        layout = layout_file.read(name)
        printed = layout.published()
        assert layout.title
        assert {row for row, _ in printed} >= set(layout.needed), name
        assert {head for _, head in printed} == set(layout.columns), name


WRONG = {
    "title: a\nrows: {x: }\n": "'columns' is missing",
    "columns: {A: {set: a}}\n": "a layout has either rows or hypotheses",
    "columns: {A: {sett: a}}\nrows: {x: }\n": "columns.A: unknown entry 'sett'; did you mean 'set'?",
    "columns: {A: {set: a}}\nhypotheses: {h: {row: x}}\n": "hypotheses.h: 'over' is missing",
    "columns: {A: {set: a}}\nrows: {x: }\nprinted: {B: {x: 1}}\n": "printed.B: there is no such column",
    "columns: {A: {set: a}}\nrows: {x: }\nprinted: {A: {x: y}}\n": "printed.A.x: should be a number",
    "columns: {A: {set: a}}\nrows: {x: }\nshow: errors\n": "'accuracy' or 'error'; did you mean 'error'?",
    "columns: [a]\nrows: {x: }\n": "columns: should be names with values",
}


def test_a_wrong_file_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for text, message in WRONG.items():
        path.write_text(text)
        with pytest.raises(UsageError, match=rf"^report={path}: .*{re.escape(message)}[^\n]*$"):
            layout_file.read(str(path))
    with pytest.raises(UsageError, match=r"report=robustness_12: there is no such layout, .*; did you mean"):
        layout_file.read("robustness_12")
