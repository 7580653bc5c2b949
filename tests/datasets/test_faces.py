"""BFFHQ: its authors' folders, and the composition from FFHQ's images."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biasbed.data.folders import FolderSource
from biasbed.datasets.faces import BFFHQ, CLASSES, ComposedBFFHQ, Sizes
from biasbed.errors import UsageError
from biasbed.suites import open_suite
from biasbed.training.resolve import resolve

# Images of each (class, bias), in the order 00 01 10 11.
AUTHORS = {"0.5pct": (9, 1, 1, 9), "5pct": (6, 2, 2, 6), "valid": (3, 1, 1, 3), "test": (2, 2, 2, 2)}


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (90, 120, 60)).save(path)


@pytest.fixture
def authors(tmp_path: Path) -> Path:
    for part, counts in AUTHORS.items():
        for cell, count in enumerate(counts):
            y, bias = divmod(cell, 2)
            inner = f"{'align' if y == bias else 'conflict'}/{y}/" if part.endswith("pct") else ""
            for number in range(count):
                write(tmp_path / "bffhq" / part / f"{inner}{number}_{y}_{bias}.png")
    return tmp_path


def opened(data_dir: Path, train: str, **flags: Any) -> Any:
    return open_suite(resolve({"suite": "debiasing", "train": train, "data_dir": str(data_dir), **flags}))


def cells(source: Any) -> tuple[int, ...]:
    return tuple(np.bincount(2 * source.y + source.bias, minlength=4).tolist())


def test_the_authors_folders(authors: Path) -> None:
    suite, other = opened(authors, "bffhq"), opened(authors, "BFFHQ", **{"data.severity": "5"})
    assert (suite.cell, other.cell, suite.classes) == ("bffhq-0_5", "bffhq-5", ("young", "old"))
    assert cells(suite.source("bffhq")) == AUTHORS["0.5pct"]
    assert cells(other.source("bffhq")) == AUTHORS["5pct"]
    for entry, part in ((suite.validation[0], "valid"), (suite.sets[0], "test")):
        assert cells(entry.source) == AUTHORS[part]
    assert {"bias", "validation_bias", "bias_type"} <= suite.provides(["bffhq"])
    assert BFFHQ().contents(authors).remarks[0] == (
        "0.5pct has 9 young aligned, 1 young conflicting, 9 old aligned, 1 old conflicting"
    )


def test_other_folders_are_refused(authors: Path) -> None:
    with pytest.raises(UsageError, match=r"data.severity=2: 'bffhq' is there at 0.5, 5 % only"):
        opened(authors, "bffhq", **{"data.severity": "2"})
    write(authors / "bffhq" / "0.5pct" / "align" / "0" / "7_0_1.png")
    with pytest.raises(UsageError, match=re.escape("0.5pct/align/0/7_0_1.png is conflicting by its name")):
        opened(authors, "bffhq")
    write(authors / "bffhq" / "test" / "7.png")
    with pytest.raises(UsageError, match=r"test/7.png: expected a name that ends in _<class>_<bias>, each 0 or 1"):
        opened(authors, "bffhq", **{"data.severity": "5"})


# --- composed from FFHQ -----------------------------------------------------------------------------------------------

PEOPLE = [(12, "female", 60), (29, "male", 15), (40, "female", 15), (59, "Male", 60), (35, "male", 5), (9, "female", 5)]


@pytest.fixture
def ffhq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A thousandth to a fiftieth of the images, the parts in proportion."""
    monkeypatch.setattr(ComposedBFFHQ, "sizes", Sizes(45, 5, 5 * 2))
    numbered = [(age, gender) for age, gender, count in PEOPLE for _ in range(count)]
    lines = ["image,age,gender"]
    for number, (age, gender) in enumerate(numbered):
        write(tmp_path / "ffhq" / f"{number:05}.png")
        lines.append(f"{number:05}.png,{age},{gender}")
    (tmp_path / "ffhq" / "attributes.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_paper_s_composition(ffhq: Path) -> None:
    few, many = (opened(ffhq, "bffhq_ac", **{"data.severity": s}) for s in ("0.5", "20"))
    assert cells(few.source("bffhq_ac")) == (44, 1, 1, 44)
    assert cells(many.source("bffhq_ac")) == (36, 9, 9, 36)
    assert cells(many.validation[0].source) == (4, 1, 1, 4)
    assert cells(few.sets[0].source) == (5, 5, 5, 5)
    assert list(few.sets[0].source.ids) == list(many.sets[0].source.ids)
    parts = [set(s.ids) for s in (few.source("bffhq_ac"), few.validation[0].source, few.sets[0].source)]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 120
    assert opened(ffhq, "bffhq_ac", seed=3).fingerprint == few.fingerprint
    assert opened(ffhq, "bffhq_ac", **{"data.seed": "3"}).fingerprint != few.fingerprint
    assert few.files["images.csv"].count("\n") == 121


# Of each class: conflicting images that train and that validate.
PUBLISHED = {0.5: (45, 5), 1: (90, 10), 2: (180, 20), 5: (450, 50), 20: (1800, 200)}


@pytest.mark.parametrize("severity", PUBLISHED)
def test_the_published_counts(severity: float) -> None:
    y, bias = np.repeat([0, 0, 1, 1], 11_000), np.repeat([0, 1, 0, 1], 11_000)
    whole = FolderSource(name="ffhq", classes=CLASSES, y=y, bias=bias, ids=["a.png"] * len(y), root=Path())
    rows = ComposedBFFHQ()._draw_parts(whole, severity, np.random.default_rng(0))
    training, validating = PUBLISHED[severity]
    group = 2 * y + (bias != y)
    assert {part: np.bincount(group[part_rows]).tolist() for part, part_rows in rows.items()} == {
        "train": [9000 - training, training] * 2,
        "val": [1000 - validating, validating] * 2,
        "test": [500] * 4,
    }


WRONG: Mapping[str, tuple[str, str, str]] = {
    "gender": ("00000.png,12,female", "00000.png,12,woman", "female or male, not '12' and 'woman'"),
    "age": ("00000.png,12,female", "00000.png,young,female", "line 2: expected an age in years and female or male"),
    "few": ("29,male", "30,male", "too few images for 'bffhq_ac at 20 %': 0 young conflicting images where 15"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_table_is_refused(ffhq: Path, case: str) -> None:
    old, new, message = WRONG[case]
    table = ffhq / "ffhq" / "attributes.csv"
    table.write_text(table.read_text().replace(old, new))
    with pytest.raises(UsageError, match=re.escape(message)):
        opened(ffhq, "bffhq_ac", **{"data.severity": "20"})
