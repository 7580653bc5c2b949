"""Meaning of heads: data set, measure and direction."""

from __future__ import annotations

import pytest

from biasbed.analysis.tables.meanings import find_meanings


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        (
            "Web val top1 accuracy [%]|Web-C top1 accuracy|Web-C mCE",
            "Web val/top1 accuracy Web-C/top1 accuracy Web-C/mCE",
        ),
        ("NIR OA|VIS OA|NIR F1", "NIR/OA VIS/OA NIR/F1"),
        ("IN-9 Gap|IN-W Gap|Crate Gap|SIN Gap", "IN-9/Gap IN-W/Gap Crate/Gap SIN/Gap"),
        ("Top-1 Acc|CUB Acc|Cars Acc", "/Top-1 Acc CUB/Acc Cars/Acc"),
        ("Hand distance|CUB", "Hand distance/ CUB/"),
    ],
)
def test_a_head_ends_with_its_measure(heads: str, expected: str) -> None:
    meanings, _ = find_meanings([(head,) for head in heads.split("|")])
    assert " ".join(f"{meaning.dataset}/{meaning.metric}" for meaning in meanings) == expected
