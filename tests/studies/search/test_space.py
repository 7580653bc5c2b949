"""Search spaces: all of sweeps/spaces/ hold and have their method's default; a wrong one is refused in one line."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed import algorithms, config, record, suites
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.settings import specs
from biasbed.studies.search import samplers
from biasbed.studies.search import space as spaces
from biasbed.studies.search.space import Dimension, Space, read_space
from biasbed.training.resolve import resolve
from helpers.commands import ROOT

SPACES = {path.stem: path for path in sorted((ROOT / "sweeps" / "spaces").glob("*.yaml"))} | dict(spaces.PLUGIN_SPACES)
SEARCHED = """
optim.name: {distribution: categorical, choices: [sgd, adam, adamw]}
optim.momentum: {distribution: uniform, low: 0.5, high: 0.9, step: 0.1}
hparams.layers: {distribution: int, low: 0, high: 4, step: 2}
optim.lr: {distribution: loguniform, low: 1e-3, high: 1}
hparams.num_offsets: {distribution: intlog, low: 1, high: 16}
"""


def words(algorithm: str, **more: str) -> dict[str, str]:
    return {"suite": "demo", "algorithm": algorithm, "nproc": "1", **more}


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "space.yaml").write_text(text)
    return str(tmp_path / "space.yaml")


@pytest.mark.parametrize("method", SPACES)
def test_every_space_holds_and_has_the_default(method: str) -> None:
    assert method in algorithms.REGISTRY
    assert SPACES[method].read_text().startswith("# ")
    flags = words(method)
    space = read_space("auto", flags)
    default = space.find_default(resolve(flags))
    assert default.is_inside
    assert tuple(default.overrides) == tuple(default.parameters) == space.names
    suggested = space.draw_settings(optuna.trial.FixedTrial(dict(default.parameters)))  # type: ignore[arg-type]
    assert suggested == default.overrides
    assert config.plain(resolve({**flags, **suggested})) == config.plain(resolve(flags))


def test_every_method_has_a_space() -> None:
    assert set(SPACES) == set(algorithms.REGISTRY)


def test_the_space_of_suite_and_data_set_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "SPACES", tmp_path)
    for folder, low in (("", 0.01), ("domains", 0.02), ("domains/pacs", 0.03)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "erm.yaml").write_text(f"optim.lr: {{distribution: uniform, low: {low}, high: 1}}\n")

    def low_of(suite: str, **more: str) -> float:
        return read_space("auto", {**words("erm", **more), "suite": suite}).dimensions[0].low

    assert [low_of("demo"), low_of("domains")] == [0.01, 0.02]
    assert [low_of("domains", train=name) for name in ("PACS", "pacs", "VLCS")] == [0.03, 0.03, 0.02]
    assert low_of("demo", train="stylized") == 0.01


def test_a_suite_s_optimizer_is_searched_in_place_of_the_methods_own(tmp_path: Path) -> None:
    def space_of(algorithm: str, **more: str) -> Space:
        return read_space("auto", {**words(algorithm, **more), "suite": "debiasing"})

    for algorithm, hparams in (("lff", ("hparams.q", "hparams.alpha")), ("erm", ()), ("padain", ("hparams.p",))):
        assert space_of(algorithm).names == ("optim.lr", *hparams)
    rates = {"resnet10": ("0.001", "0.0001", "1e-05"), "mlp": ("0.01", "0.001", "0.0001")}
    for backbone, choices in rates.items():
        assert space_of("erm", backbone=backbone).dimensions[0].choices == choices
    assert space_of("erm", train="colored_mnist_10", data_dir=str(tmp_path)).dimensions[0].choices == rates["mlp"]
    of_a_file = read_space(write(tmp_path, SEARCHED), {**words("infodrop"), "suite": "debiasing"})
    assert "optim.momentum" in of_a_file.names, "a file of one's own is taken as it is"


def test_spaces_lie_under_suites() -> None:
    for path in (ROOT / "sweeps" / "spaces").rglob("*.yaml"):
        where = path.relative_to(ROOT / "sweeps" / "spaces").parts[:-1]
        assert len(where) <= 2, path
        assert not where or where[0] in suites.REGISTRY, path
        assert all(part == record.slug(part) for part in where), path


def test_every_kind_of_range(tmp_path: Path) -> None:
    space = read_space(write(tmp_path, SEARCHED), words("infodrop"))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = set()
    for _ in range(120):
        suggested = space.draw_settings(study.ask())
        resolved = resolve({**words("infodrop"), **suggested})
        assert 1e-3 <= resolved.optim.lr <= 1
        assert resolved.optim.lr == float(suggested["optim.lr"])
        seen |= {suggested["optim.momentum"], suggested["hparams.layers"], suggested["optim.name"]}
    assert seen == {"0.5", "0.6", "0.7", "0.8", "0.9", "0", "2", "4", "sgd", "adam", "adamw"}
    assert not space.is_finite
    default = space.find_default(resolve(words("infodrop")))
    assert default.is_inside
    assert default.parameters == {
        **{"optim.name": "sgd", "optim.momentum": 0.9, "optim.lr": 0.1},
        **{"hparams.layers": 0, "hparams.num_offsets": 9},
    }


def test_points_of_a_finite_space_are_counted(tmp_path: Path) -> None:
    text = (
        "optim.name: {distribution: categorical, choices: [sgd, adam]}\n"
        "optim.momentum: {distribution: uniform, low: 0.1, high: 0.9, step: 0.2}\n"
        "hparams.layers: {distribution: int, low: 0, high: 3}\n"
    )
    space = read_space(write(tmp_path, text), words("infodrop"))
    assert space.count_points(at_most=1000) == 2 * 5 * 4
    assert space.count_points(at_most=7) == 7
    study = optuna.create_study(sampler=optuna.samplers.BruteForceSampler(seed=0))
    study.optimize(lambda trial: float(len(space.draw_settings(trial))), n_trials=100)
    assert len(study.trials) == 40


@pytest.mark.parametrize(
    ("line", "outside"),
    [
        ("optim.lr: {distribution: loguniform, low: 0.2, high: 1.0}", "0.1"),
        ("optim.lr: {distribution: uniform, low: 0.0001, high: 1.0, step: 0.3}", "0.1"),
        ("optim.lr_batch: {distribution: int, low: 64, high: 128}", "256"),
        ("optim.name: {distribution: categorical, choices: [adam, adamw]}", "sgd"),
        ("batch_size: {distribution: floor_power, low: 3, high: 5.5}", "64"),
        ("optim.milestones: {distribution: categorical, choices: [[0.5], [0.6, 0.9]]}", "0.3,0.6,0.9"),
    ],
)
def test_a_default_outside_of_the_space_is_words_alone(line: str, outside: str, tmp_path: Path) -> None:
    momentum = "optim.momentum: {distribution: uniform, low: 0.5, high: 0.9}\n"
    space = read_space(write(tmp_path, momentum + line), words("erm"))
    default = space.find_default(resolve(words("erm")))
    assert default.overrides == {"optim.momentum": "0.9", line.partition(":")[0]: outside}
    assert default.parameters == {"optim.momentum": 0.9}
    assert not default.is_inside
    assert config.plain(resolve({**words("erm"), **default.overrides})) == config.plain(resolve(words("erm")))


@pytest.mark.parametrize(("low", "high", "base"), [(0, 3, 2), (3, 5.5, 2), (0, 4, 10)])
def test_a_floor_power_is_its_law(low: float, high: float, base: int) -> None:
    """Gulrajani and Lopez-Paz's int(2**U(low, high)): the chance of n is the part of exponents that come to it."""
    dimension = Dimension("hparams.layers", "floor_power", low, high, base=base)
    smallest, largest = map(int, dimension.extremes)
    assert smallest == base**low
    assert largest == math.ceil(base**high) - 1
    sampler = samplers.make_keyed_sampler("random", 3)
    study = optuna.create_study(sampler=sampler)
    drawn = [int(dimension.to_setting(dimension.draw_parameter(study.ask()))) for _ in range(1000)]
    for n in (smallest, smallest + 1, smallest + 4):
        chance = math.log(min(n + 1, base**high) / n, base) / (high - low)
        assert abs(drawn.count(n) / 1000 - chance) < 4 * math.sqrt(chance / 1000)
    spec = specs(Config)["batch_size"]
    for n in range(smallest, min(largest, 600) + 1):  # each as a default
        exponent = dimension.to_parameter(n, spec)
        assert exponent is not None
        assert low <= exponent <= high
        assert dimension.to_setting(exponent) == str(n)
    assert dimension.to_parameter(smallest - 1, spec) is None
    assert dimension.to_parameter(largest + 1, spec) is None
    assert dimension.to_setting(high) == str(largest)  # a model of the exponents may come to the bound itself


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("optim.momentm: {distribution: uniform, low: 0, high: 1}", "'optim.momentm'; did you mean 'optim.momentum'"),
        ("hparams.dropout: {distribution: uniform, low: 0, high: 1}", "unknown setting 'hparams.dropout'"),
        ("stimuli.size: {distribution: int, low: 30, high: 40}", "stimuli.size can't be searched over"),
        ("accumulate: {distribution: int, low: 1, high: 2}", "accumulate is searched over and given as accumulate=1"),
        ("optim.lr: {distribution: unifrom, low: 0.1, high: 1}", "did you mean 'uniform'?"),
        ("optim.lr: {distribution: loguniform, low: 0.1, high: 1, step: 0.1}", "loguniform has no 'step'"),
        ("optim.lr: {distribution: uniform, low: .nan, high: 1}", "optim.lr: low=nan: input should be a finite number"),
        ("optim.lr: {distribution: uniform, low: 1, high: 0.1}", "low should be below high"),
        ("optim.lr: {distribution: uniform, low: 0.1, high: 0.2, step: 1e-300}", "step=1e-300 is too small to tell"),
        ("optim.lr: {distribution: loguniform, low: 0, high: 1}", "needs a low above 0"),
        ("optim.momentum: {distribution: uniform, low: 0.5, high: 1.0}", "optim.momentum=1.0: input should be less"),
        ("hparams.layers: {distribution: uniform, low: 0, high: 4}", "is a whole number"),
        ("hparams.layers: {distribution: floor_power, low: 0, high: 3}", "hparams.layers=7: input should be less"),
        ("batch_size: {distribution: floor_power, low: 3, high: 5000}", "batch_size=too large"),
        ("optim.name: {distribution: uniform, low: 0, high: 4}", "optim.name is no number"),
        ("optim.name: {distribution: categorical, choices: [sgd]}", "at least two choices"),
        ("optim.name: {distribution: categorical, choices: [sgd, adan]}", "did you mean 'adam'?"),
        ("optim.milestones: {distribution: categorical, choices: [[0.5], [0.6, 0.3]]}", "rising"),
        ("optim.lr: {distribution: uniform, low: 0.1, high: 1}\n" * 2, "'optim.lr' is there twice"),
    ],
)  # fmt: skip
def test_wrong_spaces_are_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_space(write(tmp_path, text), words("infodrop", epochs="3", accumulate="1"))
    assert message in str(caught.value)
    assert str(tmp_path / "space.yaml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_trial_trains_on_is_not_searched_over(tmp_path: Path) -> None:
    for name in ("data.seed", "data.val_fraction", "test_domains", "train", "seed", "row", "cell"):
        file = write(tmp_path, f"{name}: {{distribution: categorical, choices: [a, b]}}")
        with pytest.raises(UsageError, match=f"{name} can't be searched over: give one value as a flag"):
            read_space(file, {**words("erm"), "suite": "domains"})


def test_a_space_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="give one with space="):
        read_space("auto", words(str(ROOT / "tests" / "helpers" / "toys.py") + ":NoSuch"))


def test_a_method_of_ones_own_has_its_space_beside_its_file(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "helpers" / "toys.py", tmp_path / "own.py")
    mine = f"{tmp_path / 'own.py'}:Streaming"
    with pytest.raises(UsageError, match=r"give one with space=<file>, or put streaming\.yaml beside its file"):
        read_space("auto", words(mine))
    (tmp_path / "streaming.yaml").write_text("optim.lr: {distribution: loguniform, low: 0.01, high: 1}")
    space = read_space("auto", words(mine))
    assert (space.algorithm, space.names) == ("streaming", ("optim.lr",))
    (tmp_path / "streaming.yaml").write_text("optim.lrr: {distribution: loguniform, low: 0.01, high: 1}")
    with pytest.raises(UsageError, match=r"streaming\.yaml: unknown setting 'optim\.lrr'"):
        read_space("auto", words(mine))


@settings(max_examples=30)
@given(low=st.integers(0, 3), size=st.integers(1, 4), seed=st.integers(0, 99))
def test_words_of_a_trial_are_its_parameters(low: int, size: int, seed: int) -> None:
    """A finished trial was trained with its parameters, to the last digit."""
    space = Space(
        "infodrop",
        (
            Dimension("hparams.layers", "int", low, low + size),
            Dimension("optim.lr", "loguniform", 1e-4, 1.0),
            Dimension("hparams.drop_rate", "uniform", 0.0, 1.0),
        ),
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    trial = study.ask()
    suggested = space.draw_settings(trial)
    study.tell(trial, 0.0)
    assert space.to_settings(study.trials[0].params) == suggested
    assert float(suggested["optim.lr"]) == study.trials[0].params["optim.lr"]
