"""Meaning of heads: data set, measure and direction."""

from __future__ import annotations

import pytest

from biasbed.analysis.tables.meanings import apply_blocks, find_meanings


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


GROUPED = "LibriSpeech/clean LibriSpeech/other TED/dev TED/test Others/AMI Others/VoxPopuli"


@pytest.mark.parametrize(
    ("heads", "blocks", "rule"),
    [
        ("Natural/u Natural/v Deep/w Deep/x", "/u /v /w /x", "by the name Natural"),
        ("Deep/CIFAR-10 Deep/DTD Wide/w Wide/x", "/CIFAR-10 /DTD /w /x", "as below Deep"),
        (GROUPED, GROUPED.replace("Others", ""), "by this name"),
        ("Natural/u Natural/v PACS/Art PACS/Photo", "/u /v PACS/Art PACS/Photo", "by the name Natural"),
        ("Natural/u Natural/v Deep/u Deep/v", "Natural/u Natural/v Deep/u Deep/v", ""),
    ],
)
def test_heads_beside_a_group_of_data_sets_are_groups_too(heads: str, blocks: str, rule: str) -> None:
    meanings, notes = find_meanings([tuple(head.split("/")) for head in heads.split()])
    assert " ".join(f"{meaning.block}/{meaning.dataset}" for meaning in meanings) == blocks
    assert all(f"group data sets, {rule}: each counts (`blocks=`" in note for note in notes)
    assert bool(notes) == bool(rule)


def test_the_blocks_of_the_user_replace_those_of_the_heads() -> None:
    meanings, _ = find_meanings([tuple(head.split("/")) for head in GROUPED.replace("Others", "TED2").split()])
    changed = apply_blocks(meanings, {"A": ("clean", "other")})
    assert [meaning.block for meaning in changed] == ["A", "A", "", "", "", ""]
    assert [meaning.dataset for meaning in changed] == ["clean", "other", "TED/dev", "TED/test", "AMI", "VoxPopuli"]
