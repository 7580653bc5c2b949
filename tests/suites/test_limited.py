"""`limit=`: a part of each set's images, in all suites by one draw, and what such runs are kept apart by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biasbed import limits
from biasbed.data.source import MemorySource
from biasbed.datasets import imagenet_c
from biasbed.errors import UsageError
from biasbed.record import Protocol
from biasbed.suites import open_suite
from biasbed.suites.limited import select
from biasbed.training import job
from biasbed.training.resolve import resolve
from helpers.corrupted_tree import make_corrupted
from helpers.domain_tree import make_domains


def source(sizes: dict[tuple[int, str], int], extension: str = "png", **columns: Any) -> MemorySource:
    """So many images of each (class, group)."""
    y = np.repeat([label for label, _ in sizes], list(sizes.values()))
    group = np.repeat([name for _, name in sizes], list(sizes.values()))
    ids = [f"{label}/{number}.{extension}" for number, label in enumerate(y)]
    images = np.zeros((len(y), 3, 1, 1), np.uint8)
    given = {"y": y, "group": group if any(group) else None, **columns}
    return MemorySource(name="a", classes=("0", "1", "2"), ids=ids, images=images, **given)


def drawn(found: MemorySource) -> dict[tuple[int, str], int]:
    groups = np.full(len(found), "") if found.group is None else found.group
    pairs = [(int(label), str(name)) for label, name in zip(found.y, groups, strict=True)]
    return {pair: pairs.count(pair) for pair in pairs}


def test_each_class_has_as_many_images_as_the_others_where_it_can() -> None:
    whole = source({(0, ""): 50, (1, ""): 3, (2, ""): 50})
    assert drawn(select(whole, 23)) == {(0, ""): 10, (1, ""): 3, (2, ""): 10}
    assert select(whole, 103) is whole


def test_within_a_class_groups_keep_their_shares_and_none_is_lost() -> None:
    whole = source({(0, "aligned"): 950, (0, "conflicting"): 50, (1, "aligned"): 99, (1, "rare"): 1})
    found = drawn(select(whole, 200))
    assert found[0, "aligned"] + found[0, "conflicting"] == 100
    assert 1 <= found[0, "conflicting"] < 12
    assert found[1, "aligned"] == 99
    assert list(drawn(select(whole, 4)).values()) == [1, 1, 1, 1]


def test_the_draw_follows_from_ids_alone_so_that_copies_are_of_the_same_originals() -> None:
    whole = source({(0, ""): 40, (1, ""): 40})
    order = np.random.default_rng(0).permutation(len(whole))
    first = [name.rpartition(".")[0] for name in select(whole, 10).ids]
    again = sorted(name.rpartition(".")[0] for name in select(whole.subset(order, "b"), 10).ids)
    copies = [name.rpartition(".")[0] for name in select(source({(0, ""): 40, (1, ""): 40}, "jpg"), 10).ids]
    assert sorted(first) == again
    assert first == copies


def test_every_condition_stays_and_a_limit_below_their_number_is_refused() -> None:
    whole = source({(0, ""): 40}, condition=np.arange(40) % 20, conditions=tuple(f"c-{n}" for n in range(20)))
    assert np.bincount(select(whole, 25).condition).min() == 1
    with pytest.raises(UsageError, match="limit=19: 'a' is reported by 20 groups or conditions"):
        select(whole, 19)


# --- suites -----------------------------------------------------------------------------------------------------------


def planned(**flags: Any) -> job.Job:
    return job.plan(resolve({"device": "cpu", **flags}))


def test_a_limited_training_is_never_taken_for_a_whole_one() -> None:
    whole, part, all_there = planned(), planned(limit=30), planned(limit=10**6)
    assert len({one.run_key for one in (whole, part, all_there)}) == 3
    assert len({one.protocol.hash for one in (whole, part, all_there)}) == 3
    assert len({one.protocol.tested for one in (whole, part, all_there)}) == 3
    assert len({one.base for one in (whole, part, all_there)}) == 3
    assert (part.name, part.tags()["biasbed.limit"]) == ("erm-seed0 limit=30", "30")
    assert "biasbed.limit" not in whole.tags()
    assert Protocol.from_json(part.protocol.to_json()) == part.protocol
    assert limits.note(30) in part.suite.remarks
    assert whole.protocol.limit is None


def test_training_validation_and_tests_are_limited() -> None:
    suite = planned(limit=30).suite
    sources = [suite.source("train"), *(entry.source for entry in suite.tested)]
    assert {len(one) for one in sources} == {30}
    assert all((np.bincount(one.y, minlength=10) == 3).all() for one in sources)


def test_all_conditions_of_corrupted_images_are_tested(tmp_path: Path) -> None:
    make_corrupted(tmp_path / "ImageNet-C", imagenet_c.ImageNetC())
    config = {"suite": "robustness", "data_dir": str(tmp_path), "train": "none", "image_size": 224}
    with pytest.raises(UsageError, match="the set 'imagenet_c' is reported by 75"):
        open_suite(resolve({**config, "limit": 60}))
    suite = open_suite(resolve({**config, "limit": 100}))
    assert sum(suite.sets[0].record().conditions.values()) == 100
    assert len(suite.sets[0].record().conditions) == 75
    assert suite.protocol(resolve(config)).limit == 100


def test_groups_and_their_counts_are_those_of_the_part() -> None:
    found = planned(suite="debiasing", image_size=16, limit=40)
    counts = found.suite.counts
    assert sum(value for name, value in counts.items() if name.startswith("train/")) == 40
    assert all(entry.record().images == 40 and min(entry.record().groups.values()) for entry in found.suite.tested)
    assert set(counts) == set(planned(suite="debiasing", image_size=16).suite.counts)


def test_domains_are_limited_alike_whatever_is_held_out(tmp_path: Path) -> None:
    make_domains(tmp_path / "Pics", images=8)
    flags = {"suite": "domainbed", "data_dir": str(tmp_path), "train": "Pics", "image_size": 16, "init": "scratch"}
    flags |= {"steps": "6", "batch_size": "4", "backbone": "resnet10", "limit": "3"}
    art, photo = (planned(**flags, test_domains=name) for name in ("art", "photo"))
    assert art.protocol == photo.protocol
    assert all(entry.record().images <= 3 for entry in art.suite.tested)
    trained = art.suite.source(art.suite.train_name)
    assert len(trained) == 3
    assert len(np.unique(trained.domain)) == 2
