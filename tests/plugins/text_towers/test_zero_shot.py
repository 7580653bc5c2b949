"""zero_shot and flyp: what their texts give, what is recorded, how they resume, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from biasbed import algorithms
from biasbed.algorithms.make import from_checkpoint
from biasbed.batch import Batch
from biasbed.errors import UsageError
from biasbed.networks.network import as_input, content_hash
from biasbed.plugins.text_towers import prompts
from biasbed.plugins.text_towers.flyp import contrastive_loss, draw_templates
from biasbed.plugins.text_towers.small_towers import SmallImageTower, SmallTextTower
from biasbed.plugins.text_towers.towers import text_classifier
from biasbed.settings import build
from biasbed.training.job import plan
from biasbed.training.resolve import resolve
from helpers.grouped import SUITE, killed_and_resumed, trained_by_two, trainer, words
from helpers.making import images, make
from helpers.runs import assert_equal, history, weights
from helpers.toy_suite import CLASSES, shades

TOWER = ("--backbone", "small_clip", "--eval_batch_size", "256")
ZERO = ("zero_shot", *TOWER, "--hparams.prompts", "clip7")
FLYP = ("flyp", *TOWER, "--hparams.prompts", "clip7", "--optim.lr", "0.01")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return trainer(tmp_path_factory)


def load(folder: Path) -> Any:
    return from_checkpoint(folder / "best.ckpt").algorithm


# --- zero_shot --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_run_decides_by_its_texts_and_records_them(trained: Callable[..., Path]) -> None:
    folder = trained(*ZERO)
    method = load(folder)
    assert method.text is None
    shown = as_input(torch.from_numpy(shades("x", 8, 0.5, 1, labels=True).images))
    features = method.network.features(shown).double()
    cosines = functional.cosine_similarity(features[:, None], method.classifier.double()[None], dim=2)
    torch.testing.assert_close(method.predict(shown).double(), cosines / 0.07, atol=1e-4, rtol=1e-5)
    texts = json.loads((folder / "data" / "texts.json").read_text())
    assert texts == {"templates": list(prompts.SETS["clip7"]), "classes": {name: name for name in CLASSES}}
    facts = json.loads(json.loads((folder / "run.json").read_text())["tags"]["biasbed.method_facts"])
    assert facts["sha256"] == content_hash({"classifier": method.classifier})
    assert facts["prompts"] == "clip7"
    single_prompt = load(trained("zero_shot", *TOWER))
    assert not torch.equal(single_prompt.classifier, method.classifier)
    assert_equal(single_prompt.network.state_dict(), method.network.state_dict())


def test_a_file_counts_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a photo of a {}.\n\na sketch of a {}.\n")
    (tmp_path / "b.yaml").write_text("- a photo of a {}.\n- a sketch of a {}.\n")
    (tmp_path / "c.txt").write_text((tmp_path / "a.txt").read_text())
    (tmp_path / "d.txt").write_text("a photo of a {}.")
    flags = {"suite": SUITE, "algorithm": "zero_shot", "backbone": "small_clip", "device": "cpu", "nproc": 1}
    jobs = {
        name: plan(resolve({**flags, "hparams.prompts": str(tmp_path / name)})) for name in ("a.txt", "c.txt", "d.txt")
    }
    assert jobs["a.txt"].config_hash == jobs["c.txt"].config_hash != jobs["d.txt"].config_hash
    recorded = jobs["a.txt"].config.hparams.prompts  # type: ignore[attr-defined]
    typed = "a photo of a {}. | a sketch of a {}."
    assert prompts.read_templates(recorded) == prompts.read_templates(typed)
    assert prompts.read_templates(str(tmp_path / "b.yaml")) == prompts.read_templates(typed)
    (tmp_path / "a.txt").unlink()
    assert build(algorithms.load("zero_shot").HParams, {"prompts": recorded}).prompts == recorded


def test_names_are_made_readable() -> None:
    assert prompts.read_class_names("suite", ["n01440764", "n02129604", "polar_bear"]) == (
        "tench",
        "tiger",
        "polar bear",
    )
    assert prompts.read_class_names("dark night | grey", ["0", "1"]) == ("dark night", "grey")


BAD: Mapping[str, tuple[Mapping[str, str], str]] = {
    "no slot": ({"prompts": "no.txt"}, "a template should have {} once.*as 'a photo of a {}.*not 'a photo'"),
    "a mapping": ({"prompts": "map.yaml"}, "should be a list of texts"),
    "no slot typed": ({"prompts": "a photo of a dog"}, "neither a file nor a template.*as 'a photo of a {}"),
    "too few names": ({"class_names": "two.txt"}, "has 2 names, and the suite has 3 classes"),
    "unknown class": ({"class_names": "map.yaml"}, "lacks"),
}


@pytest.mark.parametrize("case", BAD)
def test_texts_that_cannot_be_used_are_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    contents = {"no": "a photo\n", "empty": "\n \n", "doubles": "a {}\nthe {}\na {}\n", "two": "a\nb\n"}
    for name, text in contents.items():
        Path(f"{name}.txt").write_text(text)
    Path("map.yaml").write_text("dark: night\n")
    Path("bytes.txt").write_bytes(b"\xff\xfe\x00")
    values, message = BAD[case]
    flags = {"suite": SUITE, "algorithm": "zero_shot", "backbone": "small_clip", "device": "cpu", "nproc": 1}
    with pytest.raises(UsageError, match=message) as caught:
        plan(resolve({**flags, **{f"hparams.{name}": value for name, value in values.items()}}))
    assert "sha256" not in str(caught.value)


@pytest.mark.parametrize("classes", [("0", "1"), ("n99999999", "cat")])
def test_classes_without_names_are_refused(classes: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"has no name that a text tower could read.*hparams.class_names"):
        algorithms.load("zero_shot").check_classes(algorithms.load("zero_shot").HParams(), classes)


# --- flyp -------------------------------------------------------------------------------------------------------------


def test_a_tokenizer_that_knows_no_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a folder without its files: every word is the same unknown one, and all classes would be one."""
    method: Any = make("flyp", {"prompts": "photo"})
    monkeypatch.setattr(method.text, "tokenize", lambda texts: torch.ones(len(texts), 4, dtype=torch.int64))
    with pytest.raises(UsageError, match=r"the same tokens of the texts of '.*' and '.*': are the tokenizer's files"):
        method.make_tokens()


def test_the_contrastive_loss_is_its_formula() -> None:
    h, t = functional.normalize(torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1)).double(), dim=-1)
    s = [[3.0 * float(h[i] @ t[j]) for j in range(5)] for i in range(5)]
    expected = 0.0
    for i in range(5):
        row, column = sum(math.exp(s[i][j]) for j in range(5)), sum(math.exp(s[j][i]) for j in range(5))
        expected -= (math.log(math.exp(s[i][i]) / row) + math.log(math.exp(s[i][i]) / column)) / 10
    assert float(contrastive_loss(h, t, torch.tensor(3.0).double())) == pytest.approx(expected, rel=1e-12)


def test_templates_are_drawn_alike_often_and_anew_in_each_step() -> None:
    index = torch.arange(7000)
    first, second = (draw_templates(index, torch.tensor([key]), 7) for key in (3**38, 5**26))
    for draws in (first, second):
        assert np.abs(torch.bincount(draws, minlength=7).numpy() - 1000).max() < 150
    assert abs(float((first == second).float().mean()) - 1 / 7) < 0.03
    assert torch.equal(draw_templates(index[3::2], torch.tensor([3**38]), 7), first[3::2])


def test_the_loss_is_of_images_and_prompts_of_their_classes() -> None:
    method: Any = make("flyp", {"prompts": "photo"})
    batch = Batch(images(6), torch.tensor([0, 1, 2, 3, 4, 0]), index=torch.arange(6))
    method.network.eval()
    loss = float(method.losses(batch)["contrastive"])
    h = functional.normalize(method.network.features(batch.x), dim=1)
    t = functional.normalize(method.text(method.tokens[batch.y, 0]), dim=1)
    assert loss == pytest.approx(float(contrastive_loss(h, t, method.text.scale())), rel=1e-5)
    assert torch.equal(method.tokens[1, 0], method.text.tokenize(["a photo of a a dog."])[0])


def test_the_classifier_is_that_of_the_tuned_text_tower(trained: Callable[..., Path]) -> None:
    folder = trained(*FLYP)
    method = load(folder)
    assert "classifier" not in method.state_dict()
    torch.testing.assert_close(method.classifier, text_classifier(method.text, method.tokens))
    before: Any = make("flyp", {"prompts": "clip7"})
    before.eval()
    first = before.classifier.clone()
    before.train().update(Batch(images(6), torch.arange(6) % 5, index=torch.arange(6)))
    assert torch.equal(before.classifier, first)
    assert not torch.equal(before.eval().classifier, first)
    losses = [step["train/contrastive"] for step in history(folder).values()]
    assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("training", [ZERO, FLYP])
def test_killed_and_resumed_equals_uninterrupted(
    training: tuple[str, ...], trained: Callable[..., Path], tmp_path: Path
) -> None:
    folder = killed_and_resumed(words(*training), ("saved", 1, "SIGKILL"), tmp_path)
    assert_equal(weights(folder), weights(trained(*training)))
    assert history(folder) == history(trained(*training))


@pytest.mark.slow
@pytest.mark.parametrize("training", [ZERO, FLYP])
def test_two_processes_train_the_network_of_one(
    training: tuple[str, ...], trained: Callable[..., Path], tmp_path: Path
) -> None:
    """With fixed statistics of batch norms: moving ones are of each process's own images."""
    torch.manual_seed(0)
    towers = tmp_path / "towers.pt"
    torch.save({**SmallImageTower(3).state_dict(), **SmallTextTower().model.state_dict()}, towers)
    training = (*training, "--init", str(towers), "--network.freeze_statistics", "true")
    folder = trained_by_two(words(*training), tmp_path / "home")
    single = weights(trained(*training))
    for name, tensor in weights(folder).items():
        torch.testing.assert_close(tensor, single[name], rtol=2e-2, atol=2e-3, msg=name)
