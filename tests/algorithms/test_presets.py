"""Presets: each is its source, wherever it is used.

docs/presets.csv has what each source fixes and leaves open, tests/algorithms/defaults.csv what is below it.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from biasbed import algorithms, config, suites
from biasbed.algorithms.presets import NETWORK_RECIPES, OPEN, TESTING, TRAINING, fixed_settings, is_within
from biasbed.compute.optim import rate_factor
from biasbed.errors import UsageError
from biasbed.networks.library import published_weights
from biasbed.settings import Spec, check, specs
from biasbed.training.resolve import resolve
from helpers.commands import ROOT

EVERY_METHOD = "every method"  # owner of recipes of networks


def _read_defaults() -> dict[str, dict[str, str]]:
    """Return settings and values as they are typed, by owner: a suite, a method, `optional` (what presets may omit)."""
    defaults: dict[str, dict[str, str]] = {}
    with (ROOT / "tests" / "algorithms" / "defaults.csv").open() as file:
        for row in csv.DictReader(file):
            defaults.setdefault(row["owner"], {})[row["setting"]] = row["value"]
    return defaults


DEFAULTS = _read_defaults()


@dataclass(frozen=True)
class Recipe:
    """A preset of a suite or of methods. fixed: settings and values as they are typed. left_open: other settings."""

    preset: str
    title: str
    owners: tuple[str, ...]
    fixed: Mapping[str, str]
    left_open: frozenset[str]

    @property
    def omitted(self) -> dict[str, str]:
        """Optional settings at their defaults, if it is a recipe of training, unless the source leaves them open."""
        if not any(is_within(setting, TRAINING) for setting in {*self.fixed, *self.left_open}):
            return {}
        optional = {**DEFAULTS["optional"], **DEFAULTS.get(f"optional {self.owners[0]}", {})}
        return {setting: value for setting, value in optional.items() if setting not in self.left_open}


def read_rows() -> list[dict[str, str]]:
    """Return the rows of docs/presets.csv. Those without a setting say what no setting expresses."""
    with (ROOT / "docs" / "presets.csv").open() as file:
        return list(csv.DictReader(file))


def _read_recipes() -> list[Recipe]:
    """Return the recipes of docs/presets.csv in their order."""
    groups = itertools.groupby(read_rows(), key=lambda row: (row["preset"], row["recipe"], row["owners"]))
    recipes = []
    for (preset, title, owners), group in groups:
        rows = [row for row in group if row["setting"]]
        fixed = {row["setting"]: row["value"] for row in rows if row["value"] != "open"}
        left_open = frozenset(row["setting"] for row in rows if row["value"] == "open")
        recipes.append(Recipe(preset, title, tuple(owners.split(", ")), fixed, left_open))
    return recipes


RECIPES = _read_recipes()


def expected(suite: str, method: str, presets: Sequence[str]) -> dict[str, str]:
    """Return every setting of a training that counts, as it is typed, by its source or by what is below it."""
    layers = ("optional", f"optional {method}", "every suite", f"suite {suite}", method)
    values = {"suite": suite, "algorithm": method}
    for owner in (*layers, f"choice of {method}", f"choice of {method} on {suite}"):
        values |= DEFAULTS.get(owner, {})
    for preset in presets:
        for owner in (EVERY_METHOD, f"suite {suite}", method):
            for recipe in RECIPES:
                if owner in recipe.owners and recipe.preset == preset:
                    values |= {**recipe.omitted, **recipe.fixed}
    return values


METHODS = list(algorithms.names())
SUITES = list(suites.REGISTRY)


def resolved(**flags: Any) -> dict[str, Any]:
    """Return all settings that count."""
    settings = resolve(flags)
    return {**settings.identity_settings(), "validation": getattr(settings, "validation", "auto")}


def known_to(owner: str) -> Mapping[str, Spec]:
    """Return the settings that a suite's or a method's presets can be about."""
    if owner.startswith("suite "):
        return specs(suites.load(owner[6:]).Settings)
    method = "erm" if owner == EVERY_METHOD else owner
    return specs(config.config_class(config.Config, algorithms.load(method).HParams))


def typed(values: Mapping[str, str], specifications: Mapping[str, Spec]) -> dict[str, Any]:
    """Return the values of a table as their settings have them."""
    return {name: check(specifications[name], value) for name, value in values.items()}


def expected_of(suite: str, method: str, *presets: str) -> dict[str, Any]:
    """Return every setting of a training that counts, by docs/presets.csv and the table of defaults."""
    specifications = specs(config.config_class(suites.load(suite).Settings, algorithms.load(method).HParams))
    values = expected(suite, method, presets)
    return {
        "validation": values.pop("validation"),
        **typed(values, specifications),
    }  # a word that not every suite knows


# --- against the sources ----------------------------------------------------------------------------------------------


def test_each_row_has_a_source_and_each_recipe_a_setting_once() -> None:
    rows = read_rows()
    assert all(row["source"] and row["recipe"] for row in rows)
    names = [(row["preset"], row["owners"], row["setting"]) for row in rows if row["setting"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("suite", SUITES)
def test_every_preset_is_its_source_on_every_suite(suite: str, method: str) -> None:
    """All settings: those that the source fixes, those that it leaves open, and those that no preset touches."""
    assert resolved(suite=suite, algorithm=method) == expected_of(suite, method)
    for preset in {*suites.load(suite).presets, *algorithms.load(method).presets}:
        assert resolved(suite=suite, algorithm=method, preset=preset) == expected_of(suite, method, preset), preset


@pytest.mark.parametrize("name", NETWORK_RECIPES)
def test_every_recipe_of_a_network_is_its_source_with_any_method(name: str) -> None:
    """Nothing of the method is fixed, and every other setting of training has a row or is optional."""
    (recipe,) = (recipe for recipe in RECIPES if recipe.owners == (EVERY_METHOD,) and recipe.preset == name)
    specifications = known_to(EVERY_METHOD)
    fixed = typed({**recipe.omitted, **recipe.fixed}, specifications)
    assert fixed_settings(NETWORK_RECIPES[name], specifications, name) == fixed
    settings = {n for n in specifications if is_within(n, TRAINING) and not n.startswith("hparams.")}
    assert settings - set(fixed) == recipe.left_open
    for suite, method in (("folders", "sagnet"), ("domainbed", "dann"), ("biasbed", "mldg")):
        assert resolved(suite=suite, algorithm=method, preset=name) == expected_of(suite, method, name)
    weights = recipe.fixed["init"].removeprefix("named:")
    assert weights == "scratch" or weights in published_weights(recipe.fixed["backbone"])


@pytest.mark.parametrize("owner", [*METHODS, *(f"suite {suite}" for suite in SUITES)])
def test_nothing_is_fixed_or_open_without_a_row(owner: str) -> None:
    """Also where the value is what every suite has anyway."""
    is_suite = owner.startswith("suite ")
    presets = (suites.load(owner[6:]) if is_suite else algorithms.load(owner)).presets
    specifications = known_to(owner)
    recipes = {recipe.preset: recipe for recipe in RECIPES if owner in recipe.owners}
    assert set(presets) == set(recipes)
    for name, preset in presets.items():
        is_of_testing = any(is_within(setting, TESTING) for setting in preset)
        omitted = {**recipes[name].omitted, **(DEFAULTS["optional of testing"] if is_of_testing else {})}
        fixed = fixed_settings(preset, specifications, name)
        assert fixed == typed({**omitted, **recipes[name].fixed}, specifications), name
        parts = [part for part in (TRAINING, TESTING) if any(is_within(n, part) for n in preset)]
        settings = {n for n in specifications if any(is_within(n, part) for part in parts)} | (
            set(preset) & set(specifications)
        )
        assert settings - set(fixed) == recipes[name].left_open, name


# A suite that chooses every setting of training otherwise.
OTHERWISE: Mapping[str, Any] = {
    **dict.fromkeys(("augment.jitter", "augment.crop_scale"), 0.33),
    **dict.fromkeys(("augment.grey", "label_smoothing", "ema.decay", "network.dropout", "network.drop_path"), 0.77),
    **dict.fromkeys(("optim.lr", "optim.momentum", "optim.beta1", "optim.beta2", "optim.weight_decay"), 0.77),
    **dict.fromkeys(("optim.gamma", "optim.layer_decay"), 0.77),
    **dict.fromkeys(("optim.warmup", "optim.head_factor", "optim.clip", "swad.tolerance"), 7.0),
    **dict.fromkeys(("network.channels", "augment.padding", "swad.optimum_patience", "swad.overfit_patience"), 7),
    **dict.fromkeys(("network.freeze_statistics", "optim.nesterov", "ema.warmup"), True),
    **dict.fromkeys(("augment.crop", "augment.flip", "optim.decay_norms", "optim.decay_embeddings"), False),
    **{"backbone": "resnet34", "init": "elsewhere.pt", "network.scale": "unit", "image_size": 99, "batch_size": 36},
    **{"steps": 77, "epochs": None, "average": "sma", "average_from": 77, "precision": "bf16"},
    **{"optim.name": "adamw", "optim.schedule": "constant", "optim.lr_batch": 99, "augment.crop_ratio": (0.9, 1.1)},
    **{"optim.milestones": (0.77,), "optim.restarts": (0.77,), "optim.points": (0.0, 1.0), "optim.factors": (1.0, 0.0)},
}


def test_no_default_of_a_suite_moves_what_a_source_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite that chooses every setting otherwise: what a source fixes stays, and only what it leaves open follows."""
    general = {name for name in specs(config.Config) if is_within(name, TRAINING)}
    assert general == set(OTHERWISE), "a new setting of training belongs in the table above and in docs/presets.csv"
    monkeypatch.setattr(suites.load("folders"), "defaults", OTHERWISE)
    for recipe in RECIPES:
        for method in {"erm"} if recipe.owners == (EVERY_METHOD,) else set(recipe.owners) & set(METHODS):
            settings = resolved(suite="folders", algorithm=method, preset=recipe.preset)
            specifications = known_to(method)
            below = {**OTHERWISE, **typed(DEFAULTS.get(f"choice of {method}", {}), specifications)}
            expected_settings = {setting: below[setting] for setting in recipe.left_open if setting in below}
            expected_settings |= typed({**recipe.omitted, **recipe.fixed}, specifications)
            expected_settings = {
                setting: value for setting, value in expected_settings.items() if not setting.startswith("hparams.")
            }
            assert {setting: settings[setting] for setting in expected_settings} == expected_settings, (
                method,
                recipe.preset,
            )


# --- what it comes to -------------------------------------------------------------------------------------------------


def rates(settings: config.Config, steps_per_epoch: int) -> list[float]:
    """Return the learning rate of every step."""
    total = settings.steps or (settings.epochs or 0) * steps_per_epoch
    rate = settings.optim.rate(settings.batch_size)
    return [rate * rate_factor(settings.optim, step, total, steps_per_epoch) for step in range(total)]


def test_two_thousand_steps_without_a_warm_up() -> None:
    """SagNet's, on ImageNet, of which 2,000 steps of 96 images are less than a sixth of an epoch."""
    settings = resolve({"suite": "biasbed", "algorithm": "sagnet", "preset": "authors"})
    course = rates(settings, 13_344)
    assert (len(course), course[0], course[1000]) == (2000, 0.004, pytest.approx(0.002))
    assert all(a > b for a, b in itertools.pairwise(course))


def test_infodrop_s_authors_train_twice() -> None:
    settings = resolve({"suite": "biasbed", "algorithm": "infodrop", "preset": "authors"})
    for steps_per_epoch in (1, 7, 13):
        course = rates(settings, steps_per_epoch)[::steps_per_epoch]
        assert course == pytest.approx([1e-3] * 80 + [1e-4] * 20 + [1e-3] * 16 + [1e-4] * 4)


# --- how presets combine ----------------------------------------------------------------------------------------------


def test_a_name_of_suite_and_method_means_both() -> None:
    """The suite's images and tests, the method's rate and own settings."""
    both = resolve({"suite": "biasbed", "algorithm": "infodrop", "preset": "biasbed_code"})
    assert (both.stimuli.resize, both.categories, both.optim.lr) == (256, "logit_mean", 0.2)
    assert both.identity_settings()["hparams.mask_in_eval"]
    without = resolve({"suite": "biasbed", "algorithm": "noise2net", "preset": "biasbed_code"})
    assert (without.image_size, without.preprocess.size, without.optim.lr) == (256, 256, 1e-4)
    elsewhere = resolve({"suite": "folders", "algorithm": "infodrop", "preset": "biasbed_code"})
    assert (elsewhere.image_size, elsewhere.preprocess.size, elsewhere.optim.lr) == (256, "auto", 0.2)


@pytest.mark.parametrize("method", ["infodrop", "sagnet", "deepaug_cae"])
def test_the_last_preset_wins_where_it_fixes_something(method: str) -> None:
    for order in itertools.permutations(["biasbed_code", "paper"]):
        settings = resolved(suite="biasbed", algorithm=method, preset=",".join(order))
        assert settings == expected_of("biasbed", method, *order)
    text_first = resolve({"suite": "biasbed", "algorithm": "infodrop", "preset": "biasbed_code,paper"})
    assert (text_first.optim.lr, text_first.batch_size, text_first.image_size) == (1e-4, 128, 256)


def test_flags_win_over_presets() -> None:
    settings = resolve({"algorithm": "sagnet", "preset": "authors", "epochs": "3", "optim.warmup": "1"})
    assert (settings.epochs, settings.steps, settings.optim.warmup, settings.optim.lr) == (3, None, 1, 0.004)


# --- a preset of one's own --------------------------------------------------------------------------------------------

MINE = """
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import NETWORK_RECIPES, OPEN, TRAINING
class Mine(ERM):
    presets = {
        "bare": {"optim.lr": 0.3},
        "whole": {**dict.fromkeys(TRAINING, OPEN), "optim.lr": 0.3},
        "elsewhere": {"workers": 3},
    }
"""


def test_a_preset_that_is_silent_about_a_setting_is_refused(tmp_path: Any) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    flags = {"suite": "folders", "algorithm": f"{tmp_path / 'mine.py'}:Mine"}
    with pytest.raises(
        UsageError, match=r"'bare' says nothing about .*backbone.*optim\.warmup.*or as biasbed"
    ) as caught:
        resolve({**flags, "preset": "bare"})
    assert "\n" not in str(caught.value)
    assert "optim.lr," not in str(caught.value)
    settings = resolve({**flags, "preset": "whole"})
    assert (settings.optim.lr, settings.optim.warmup, settings.image_size) == (0.3, 1.0, 112)
    assert resolve({**flags, "preset": "elsewhere"}).workers == 3


def test_open_is_said_and_not_a_value() -> None:
    assert repr(OPEN) == "open"
    said = {"categories": "prob_sum", "preprocess": OPEN, "stimuli": OPEN}
    assert fixed_settings(said, specs(suites.load("biasbed").Settings), "x") == {"categories": "prob_sum"}
