"""The card as a page: its numbers are those of the evaluation, it loads nothing, and panels without values are gone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

import biasbed
from biasbed import cli
from biasbed.api.card import Card
from biasbed.datasets.digits import CLASSES
from biasbed.evaluation import card_page
from biasbed.evaluation.card_page import CardPage, Panel, ValueBar
from biasbed.evaluation.evaluate_model import make_page, results_text
from biasbed.evaluation.report import format_interval
from biasbed.published import printed_tables
from helpers.nearest_mean import IMAGES, decide_by_means

DEMO: dict[str, Any] = {"suite": "demo", "classes": CLASSES, "limit": IMAGES, "quiet": True}


def evaluate(sets: list[str], **settings: Any) -> Card:
    return biasbed.evaluate(decide_by_means, sets=sets, **DEMO, **settings)


def page_of(card: Card) -> CardPage:
    return make_page(card._evaluation, card._results)


def find_panel(page: CardPage, title: str) -> Panel:
    """Return the first panel on the page whose title begins so."""
    return next(panel for panel in page.content()["panels"] if panel.title.startswith(title))


@pytest.fixture(scope="module")
def card() -> Card:
    pytest.importorskip("cv2")
    return evaluate(["in_domain", "cue_conflict", "reliance"])


def test_bars_are_the_card_s_values_and_intervals(card: Card) -> None:
    page = page_of(card)
    accuracies = card.metrics.set_index(["set", "metric"])
    for bar, name in zip(find_panel(page, "Accuracy").bars, ("in_domain", "cue_conflict"), strict=True):
        row = accuracies.loc[(name, "accuracy")]
        assert (bar.value, bar.low, bar.high) == (100 * row.value, 100 * row.low, 100 * row.high)
        assert bar.mark == 10
    (bias,) = find_panel(page, "Shape bias").bars
    assert card.shape_bias is not None
    assert bias.value == 100 * card.shape_bias.value
    looks = card.looks_at[card.looks_at["set"] == "in_domain_reliance"].set_index("measure")
    panel = find_panel(page, "Reliance on shape, texture and colour: In-Domain")
    assert "meant for 224 pixels; these images have 40" in panel.meaning
    bars = panel.bars
    for bar, measure in zip(bars, card_page.WITHOUT, strict=True):
        row = looks.loc[measure]
        expected = [100 * row.value, 100 * row.low, 100 * row.high]
        assert [bar.value, bar.low, bar.high] == pytest.approx(expected, nan_ok=True)
    assert bars[0].low < bars[0].value < bars[0].high
    assert [cell.split()[0] for cell in find_panel(page, "Calibration").rows[0][1:]] == [
        f"{100 * card.values['test/ece/in_domain']:.1f}",
        f"{card.values['test/loss/in_domain']:.3f}",
    ]


def test_examples_show_the_decisions_on_the_same_images(card: Card) -> None:
    page = page_of(card)
    (decisions,) = [decisions for decisions in page.reliance_decisions if decisions.set == "in_domain_reliance"]
    panel = page._examples(decisions)
    assert panel.head == ["as it is", "cells shuffled", "bilateral filter", "blur", "grey"]
    predictions = card.predictions("in_domain_reliance")
    first, last = panel.images[0], panel.images[-1]
    assert [example.decision for example in first.examples] == list(predictions["decision"][::IMAGES])
    assert [example.decision for example in last.examples] == list(predictions["decision"][IMAGES - 1 :: IMAGES])
    assert [example.is_right for example in last.examples] == list(predictions["correct"][IMAGES - 1 :: IMAGES])
    assert len({example.picture for example in first.examples}) == 5


def test_the_page_loads_nothing_and_names_what_was_tested(card: Card, tmp_path: Path) -> None:
    path = card.report(tmp_path / "card.html")
    text = path.read_text()
    assert set(re.findall(r'(?:src|href)="([^:"]*)', text)) == {"data"}
    assert "http:" not in text
    assert "https:" not in text
    assert card._job.fingerprint in text
    assert "decide_by_means" in text
    assert f"on at most {IMAGES} images" in text
    assert all(f"{bar.text}<" in text for panel in page_of(card).panels() for bar in panel.bars)


def test_a_value_of_two_names_is_printed_once(card: Card) -> None:
    printed = results_text(card._evaluation, card._results)
    assert printed.count("accuracy lost if cells are shuffled") == 1
    assert "loss_by_patch_shuffle" not in printed


def test_the_network_stands_below_the_row_s_name(card: Card) -> None:
    page = page_of(card)
    assert page.content()["subtitle"] == "decide_by_means, tested on In-Domain, Cue Conflict"
    of_checkpoint = replace(page, job=replace(page.job, backbone="timm:resnet18"))
    assert of_checkpoint.content()["subtitle"].startswith("timm:resnet18, tested on")


def test_reliance_in_every_strength_has_a_curve_for_each_suppression() -> None:
    pytest.importorskip("cv2")
    card = evaluate(["in_domain"], reliance={"sets": ["in_domain"], "every_strength": True})
    curves = {curve.name: curve for curve in find_panel(page_of(card), "Accuracy by strength").curves}
    shuffled = curves["patch shuffle"]
    assert shuffled.strengths == ("2", "4", "6", "8", "10", "12", "14", "16")
    metric = "test/accuracy_by_condition/in_domain_reliance_whole:patch_shuffle-16"
    assert shuffled.values[-1] == 100 * card.values[metric]
    assert shuffled.points.endswith(f" 100.0,{100 - shuffled.values[-1]:.1f}")
    assert "smooth shuffle" not in curves


def test_at_chance_the_page_says_that_reliance_has_no_value(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    always_zero = torch.eye(10)[:1]
    card = biasbed.evaluate(lambda x: always_zero.expand(len(x), -1), sets=["in_domain", "reliance"], **DEMO)
    page = page_of(card)
    accuracy, reliance = page.answer()
    assert accuracy.endswith("which is not shown to exceed chance, 10.0 %.")
    assert reliance.startswith("Its reliance can't be told")
    assert not [panel for panel in page.content()["panels"] if panel.title.startswith("Reliance")]
    text = card.report(tmp_path / "card.html").read_text()
    assert "nan" not in text.lower().replace("dominant", "")
    last = find_panel(page, "What it saw").images[-1]
    assert text.count(f"zero, not {last.label}<") == len(last.examples)


def test_a_value_outside_the_line_stands_at_its_end() -> None:
    assert ValueBar("x", 123.0, -5.0, 200.0).places == {"value": 100.0, "low": 0.0, "high": 100.0}
    assert ValueBar("x", -1.4).text == "-1.4 %"


def test_zero_has_no_sign() -> None:
    assert ValueBar("a", -0.01, -1e-14, 27.8).text == "0.0 % (0.0 to 27.8)"
    assert format_interval(-1e-16, 0.278) == "0.00 to 27.80"


def test_the_published_errors_under_corruptions_have_the_published_mean() -> None:
    errors = printed_tables.corruption_errors("resnet50")
    assert len(errors) == 15
    assert sum(errors) / 15 == pytest.approx(0.767, abs=0.0035)  # printed mCE, of errors before rounding


@pytest.mark.parametrize(("file", "problem"), [("card.pdf", "ends in .html"), ("none/card.html", "there is no folder")])
def test_a_page_that_can_t_be_written_is_refused_before_the_test(
    file: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", "--model=timm:resnet18", "--suite=demo", f"--report={tmp_path / file}"]) == 2
    assert problem in capsys.readouterr().err


def test_recorded_decisions_have_no_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("biasbed.plugins.recorded_answers")
    (tmp_path / "people.csv").write_text("image,label,decision\na.png,cat,cat\n")
    report = f"--report={tmp_path / 'card.html'}"
    assert cli.main(["evaluate", f"--model={tmp_path / 'people.csv'}", report]) == 2
    assert "a card is of a model that is tested here" in capsys.readouterr().err
    assert not (tmp_path / "card.html").exists()


def test_a_finished_evaluation_gets_the_same_page_without_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    words = ["evaluate", "--model=torchvision:shufflenet_v2_x0_5", "--suite=demo", "--sets=edge", "--limit=20"]
    torch.manual_seed(0)
    torch.save(torchvision.models.shufflenet_v2_x0_5(num_classes=10).state_dict(), tmp_path / "net.pth")
    words += [f"--weights={tmp_path / 'net.pth'}", "--label_map={outputs: [" + ", ".join(CLASSES) + "]}"]
    words += ["--tracking=offline", "--resume=once", "--workers=0", "--device=cpu"]
    assert cli.main([*words, f"--report={tmp_path / 'first.html'}"]) == 0
    capsys.readouterr()
    assert cli.main([*words, f"--report={tmp_path / 'second.html'}"]) == 0
    assert "is finished already" in capsys.readouterr().out
    assert (tmp_path / "second.html").read_text() == (tmp_path / "first.html").read_text()
