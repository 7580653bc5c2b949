"""Values per image: tables read by index, gathered from all processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.requests import Stage, StreamRequest
from biasbed.batch import MAIN
from biasbed.compute.distributed import Group
from biasbed.data.streams import InOrder, Part, Stream
from biasbed.training import job
from biasbed.training.per_example import gather_by_index, score_conflicting
from biasbed.training.reading import Reader
from biasbed.training.resolve import resolve
from helpers import toys
from helpers.commands import ROOT

SUITES = f"{ROOT}/tests/helpers/toy_suite.py"


def plan(suite: str, **flags: Any) -> job.Job:
    settings = {name.replace("__", "."): str(value) for name, value in flags.items()}
    common = {"suite": f"{SUITES}:{suite}", "algorithm": "helpers.toys:Plain", "tracking": "offline", "nproc": "1"}
    return job.plan(resolve({**common, "device": "cpu", **settings}))


def test_a_table_is_read_at_each_image_s_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of the second data set follow those of the first; a later change of the method's table moves nothing."""
    often = torch.arange(84) % 5  # 48, the first index of the second, is no multiple

    def on_train_data(self: Algorithm, data: TrainData) -> None:
        self.register_buffer("often", often.clone())

    request = StreamRequest(data={"shades": 0.5, "validation_half": 0.5}, weights="often")
    members = {"streams": classmethod(lambda cls, hparams: {MAIN: request}), "on_train_data": on_train_data}
    monkeypatch.setattr(toys, "Wrong", type("Wrong", (toys.Plain,), members), raising=False)
    reader = Reader(plan("Shades", algorithm="helpers.toys:Wrong"), Group(), 0)
    stage = Stage(MAIN, lambda batch: {})
    method: Any = nn.Module()
    method.often = often.clone()
    tables = reader.copy_tables(stage, method)
    method.often.zero_()
    parts = reader.plan_stage(stage, 0, tables).streams[MAIN].parts
    assert [len(part.source) for part in parts] == [48, 36]
    first, second = (np.sort(part.rows_at(np.arange(len(part)))).tolist() for part in parts)
    assert first == [row for row in range(48) for _ in range(row % 5)]
    assert second == [row for row in range(36) for _ in range((48 + row) % 5)]


class Gathered(Group):
    """One of several processes, with the rows of all of them at hand."""

    def __init__(self, world: int, rows: list[Tensor]) -> None:
        super().__init__(0, world)
        self.rows = rows

    def gather(self, tensor: Tensor) -> Tensor:
        assert torch.equal(tensor, self.rows[0])
        return torch.cat(self.rows)


@pytest.mark.parametrize(("world", "images"), [(1, 7), (2, 6), (2, 7), (3, 8)])
def test_values_of_all_processes_are_in_the_order_of_the_images(world: int, images: int) -> None:
    """Every process has every so many-th image, in batches of two."""
    values = torch.arange(images * 2.0).view(images, 2)
    of_ranks = [values[rank::world] for rank in range(world)]
    source: Any = type("Images", (), {"__len__": lambda self: images})()
    part = Part(source, 1.0, lambda picture: picture)  # type: ignore[arg-type, return-value]
    order = InOrder(Stream((part,), 2), 2, 0, world)
    batches = [{"value": rows} for rows in of_ranks[0].split(2)]
    gathered = gather_by_index(batches, order, Gathered(world, of_ranks))
    assert torch.equal(gathered["value"], values)


def test_conflicting_images_are_found_by_the_average_precision() -> None:
    """By hand: after each conflicting image, from the highest value down, the share of them so far."""
    y, bias = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 1, 0, 0])  # the second and the fourth conflict
    source: Any = SimpleNamespace(y=y, bias=bias)
    values = {"first": torch.tensor([0.0, 9, 1, 8, 2]), "mixed": torch.tensor([5.0, 4, 3, 2, 1])}
    expected = {"train/first_precision": 1.0, "train/mixed_precision": (1 / 2 + 2 / 4) / 2}
    assert score_conflicting(values, [source]) == pytest.approx(expected)
    halves: Any = [SimpleNamespace(y=y[part], bias=bias[part]) for part in (slice(0, 2), slice(2, 5))]
    assert score_conflicting(values, halves) == pytest.approx(expected)
    assert score_conflicting(values, [SimpleNamespace(y=y, bias=None)]) == {}  # type: ignore[list-item]
    assert score_conflicting(values, [SimpleNamespace(y=y, bias=y)]) == {}  # type: ignore[list-item]
    assert score_conflicting(values, [SimpleNamespace(y=y, bias=1 - y)]) == {}  # type: ignore[list-item]
