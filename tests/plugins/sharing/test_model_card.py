"""Cards of exported models: huggingface_hub's own reader finds every value, and a reader every remark."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from huggingface_hub import ModelCard
from hypothesis import given, settings

from biasbed.plugins.sharing import model_card
from biasbed.plugins.sharing.model_folder import TIMM, ModelFolder
from biasbed.plugins.sharing.run_results import RunResults, SeedSpread
from helpers.exported_results import expected, run_of, runs

FOLDER = ModelFolder(TIMM, ("a", "b"), "resnet18", 32, 3, (0.5,) * 3, (0.5,) * 3, {})


@settings(max_examples=25)
@given(runs)
def test_the_hub_s_reader_finds_every_value(run: RunResults) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model_card.write_card(Path(folder), run, FOLDER, "org/model")
        entries = ModelCard.load(Path(folder) / model_card.CARD).data.eval_results
        theirs = {f"test/{entry.metric_type}/{entry.dataset_name}": entry.metric_value for entry in entries}
        assert theirs == expected(run)


def test_a_card_of_a_run_on_a_part_of_the_images_says_so_first(tmp_path: Path) -> None:
    run = run_of({("accuracy", "edge", ""): 0.5})
    note = "on at most 60 images of each set: a smoke test, do not publish these numbers"
    for limit in (None, 60):
        limited = replace(run, protocol=replace(run.protocol, limit=limit))
        model_card.write_card(tmp_path, limited, FOLDER, "org/model")
        text = (tmp_path / model_card.CARD).read_text().rpartition("---\n")[2].split("\n")
        assert (text[3] == f"**Trained and tested {note}.**") == (limit == 60)


def test_a_value_has_its_unit_and_its_seeds(tmp_path: Path) -> None:
    run = run_of({("brier", "edge", ""): 0.189})
    (result,) = run.results
    model_card.write_card(
        tmp_path, replace(run, results=(replace(result, seeds=SeedSpread(2, 0.2, 0.01)),)), FOLDER, "n"
    )
    text = (tmp_path / model_card.CARD).read_text()
    assert "| edge | brier | 0.1890 of 2 |  | 200 | 0.2000 ± 0.0100 (2 seeds) |" in text
