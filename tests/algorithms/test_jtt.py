"""Just Train Twice: error set, two trainings, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from biasbed.batch import Batch
from biasbed.errors import Failure
from helpers.grouped import JTT, TRAIN, journal, reader, rows
from helpers.making import make
from helpers.runs import weights


def test_jtt_keeps_its_error_set_by_image(trained: Callable[..., Path]) -> None:
    folder = trained(*JTT)
    frame = pd.read_parquet(folder / "examples.parquet")
    assert frame.columns.tolist() == ["image", "set", "label", "error"]
    assert frame["image"].tolist() == list(TRAIN.ids)
    assert 0 < frame["error"].sum() < len(TRAIN)
    assert frame["error"].tolist() == weights(folder)["error"].tolist()
    assert not [name for name in weights(folder) if name.startswith("first.")]
    assert torch.load(folder / "last.ckpt", weights_only=True)["marks"] == {"released": ["first"]}


def test_jtt_s_first_training_is_a_part_of_it_and_every_evaluation_has_a_number_of_its_own(
    trained: Callable[..., Path],
) -> None:
    records = journal(trained(*JTT))
    first = [line for line in records if line.get("stage") == "identification"]
    assert [line["step"] for line in first] == [1]
    assert "identification/accuracy/shades_val" in first[0]["metrics"]
    last = [line["step"] for line in records if "stage" not in line]
    assert last == [1, 2]  # 0.7 of two epochs: the second is cut short


def test_jtt_s_second_training_reads_the_error_set_so_many_times() -> None:
    algorithm: Any = make("jtt", {"upweight": 4}, backbone="simple_conv_1x1")
    read = reader("jtt", batch_size=8)
    algorithm.error = torch.arange(48) % 6 == 0
    stage = algorithm.stages()[-1]
    tables = read.copy_tables(stage, algorithm)
    passed = read.plan_stage(stage, 0, tables)
    assert passed.steps_per_epoch == 9  # 40 images, and 8 of them four times
    drawn = Counter(row for step in range(9) for row in rows(passed, step))
    assert drawn == {row: 4 if row % 6 == 0 else 1 for row in range(48)}
    first = read.plan_stage(algorithm.stages()[0], 1)
    assert Counter(row for step in range(6) for row in rows(first, step)) == dict.fromkeys(range(48), 1)


def test_jtt_s_second_network_is_another_one_that_the_first_training_leaves_alone() -> None:
    algorithm: Any = make("jtt", {}, backbone="simple_conv_1x1")
    pairs = zip(algorithm.network.parameters(), algorithm.first.parameters(), strict=True)
    assert not all(torch.equal(second, first) for second, first in pairs)
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}
    algorithm.update_other("first", Batch(torch.rand(8, 3, 32, 32), torch.arange(8) % 5))
    changed = {
        name.partition(".")[0] for name, value in algorithm.state_dict().items() if not value.equal(before[name])
    }
    assert changed == {"first"}


@pytest.mark.parametrize(("error", "message"), [(False, "none of 40 .*: lower"), (True, "every one of 40 .*: raise")])
def test_jtt_is_never_erm(error: bool, message: str) -> None:
    algorithm: Any = make("jtt", {}, backbone="simple_conv_1x1")
    with pytest.raises(Failure, match=f"jtt: the first training gets {message} hparams.identification=0.167"):
        algorithm.store_errors({"error": torch.full((40,), error)})


def test_jtt_s_error_set_is_what_the_first_network_gets_wrong() -> None:
    algorithm: Any = make("jtt", {}, backbone="simple_conv_1x1").eval()
    x, y = torch.rand(12, 3, 32, 32), torch.arange(12) % 5
    errors = algorithm.find_errors(Batch(x, y))["error"]
    assert 0 < errors.sum() < 12
    assert errors.equal(algorithm.first(x).argmax(1) != y)
