"""A suite's defaults: for every training, and for a data set and a method; which of all layers wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from biasbed import algorithms, suites
from biasbed.errors import UsageError
from biasbed.evaluation.evaluate_model import build_config
from biasbed.options import EvaluateOptions
from biasbed.prepare.run import _build_suite_config as prepared
from biasbed.suites.domains import Domains
from biasbed.training.resolve import resolve
from helpers.domain_tree import make_domains

OWN = f"{__file__}:ByData"


class ByData(Domains[Any]):
    """Digits are small and trained in steps, on them one method has settings of its own."""

    defaults: ClassVar[Mapping[str, Any]] = {"image_size": 64, "epochs": 30, "optim.lr": 0.5, "optim.beta1": 0.5}

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if given.get("train") != "digits":
            return {}
        own = {"hparams.drop_rate": 0.25, "optim.lr": 0.02} if given.get("algorithm") == "infodrop" else {}
        return {"image_size": 28, "steps": 500, "optim.lr": 0.01, **own}


def resolved(**flags: Any) -> Any:
    return resolve({"suite": OWN, **flags})


def test_what_a_suite_says_for_data_set_and_method_wins_over_what_either_says_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(algorithms.load("infodrop"), "defaults", {"optim.lr": 0.3, "hparams.drop_rate": 0.75})
    photos, digits = (resolved(algorithm="infodrop", train=name) for name in ("photos", "digits"))
    assert (photos.image_size, photos.epochs, photos.steps) == (64, 30, None)
    assert (photos.optim.lr, photos.optim.beta1, photos.hparams.drop_rate) == (0.3, 0.5, 0.75)
    assert (digits.image_size, digits.epochs, digits.steps) == (28, None, 500)
    assert (digits.optim.lr, digits.optim.beta1, digits.hparams.drop_rate) == (0.02, 0.5, 0.25)
    assert resolved(train="digits").optim.lr == 0.01


def test_presets_and_flags_win_over_it() -> None:
    recipe = resolved(algorithm="infodrop", train="digits", preset="authors")
    assert (recipe.hparams.drop_rate, recipe.optim.lr, recipe.epochs) == (1.5, 0.001, 120)
    flags = resolved(algorithm="infodrop", train="digits", **{"hparams.drop_rate": "0.6", "epochs": "3"})
    assert (flags.hparams.drop_rate, flags.epochs, flags.steps) == (0.6, 3, None)


def test_testing_and_preparing_have_it_without_what_is_a_method_s_own(tmp_path: Path) -> None:
    given = {"suite": OWN, "train": "digits"}
    assert prepared(given).image_size == 28
    assert prepared({"suite": OWN}).image_size == 64
    model: Any = SimpleNamespace(preprocessing={}, algorithm="infodrop", seed=0)
    assert build_config(EvaluateOptions(), given, model).image_size == 28
    assert build_config(EvaluateOptions(), {**given, "algorithm": "infodrop"}, model).image_size == 28

    data = make_domains(tmp_path / "digits", images=1).parent
    flags = {"data_dir": str(data), "test_domains": "art"}
    hints = [
        suites.make_suite(resolved(train="digits", **flags, image_size=size)).store.hint("stylized")
        for size in (28, 64)
    ]
    assert "image_size" not in hints[0]
    assert "--image_size 64 " in hints[1]


def test_a_wrong_default_is_refused_as_a_wrong_flag_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites.load("demo"), "defaults_for", lambda given: {"hparams.drop_rat": 1.0})
    with pytest.raises(UsageError, match=r"unknown setting 'hparams.drop_rat'; did you mean 'hparams.drop_rate'"):
        resolve({"suite": "demo", "algorithm": "infodrop"})
