"""Search spaces: the settings of a method that a sweep searches, and their ranges, from a YAML of `sweeps/spaces/`.

```yaml
optim.lr: {distribution: loguniform, low: 0.01, high: 1.0}
hparams.dropout: {distribution: uniform, low: 0.0, high: 0.5, step: 0.1}        # step: only with uniform and int
hparams.layers: {distribution: int, low: 0, high: 4}                            # or intlog
optim.name: {distribution: categorical, choices: [sgd, adam]}
batch_size: {distribution: floor_power, low: 3, high: 5.5}                      # int(2**U(3, 5.5)); or base: 10
```

Every key is checked against the settings of the method, every bound against the range of its setting.
"""

from __future__ import annotations

import contextlib
import math
import typing
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, RootModel, model_validator

from biasbed import algorithms, record, suites
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.plugin_loader import Offered
from biasbed.settings import Spec, check, flatten, nearest, refuse_unknown, specs, word
from biasbed.studies.study_table import Overrides
from biasbed.system import formats
from biasbed.system.formats import ByName, Format, Listed
from biasbed.training.resolve import resolve

if TYPE_CHECKING:
    from optuna import Trial

RANGES = {"uniform": ("low", "high", "step"), "loguniform": ("low", "high")}
RANGES |= {"int": ("low", "high", "step"), "intlog": ("low", "high"), "categorical": ("choices",)}
RANGES |= {"floor_power": ("low", "high", "base")}  # Gulrajani & Lopez-Paz (2021, table 8), for whole numbers
# Settings that cannot be searched, besides those of the suite: they would change the task, the place of the training or
# its budget, which pruners assume to be equal.
FIXED = ("suite", "algorithm", "preset", "device", "nproc", "corrupt", "epochs", "steps")

SPACES = Path(__file__).resolve().parents[2] / "sweeps" / "spaces"
PLUGIN_SPACES: Offered[Path] = Offered("space")
EVERY_METHOD = "every_method"  # a suite's file of settings that are searched for every method
OPTIMIZER = "optimizer"  # a suite's file of settings of `optim` that replace those of the methods' own files

Value = float | int | str
Parameters = Mapping[str, Value]  # Optuna's values; choices are strings


@dataclass(frozen=True)
class Dimension:
    """Setting that is searched, with its range."""

    name: str
    distribution: str
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    choices: tuple[str, ...] = ()
    base: float | None = None  # floor_power: Optuna draws the exponent between low and high

    @property
    def is_int(self) -> bool:
        return self.distribution in ("int", "intlog")

    def to_setting(self, parameter: Value) -> str:
        """Return the setting, as on a command line, for a value of Optuna's."""
        if self.base is None:
            return word(parameter)
        return word(self._floor_power(self.base, float(parameter)))

    def _floor_power(self, base: float, exponent: float) -> int:
        """Return the power, rounded down; the upper bound itself is never drawn."""
        return int(base ** min(exponent, math.nextafter(self.high, self.low)))

    @property
    def extremes(self) -> tuple[str, ...]:
        """Lowest and highest setting; all choices of a categorical one."""
        if self.choices:
            return self.choices
        bounds = [int(bound) if self.is_int else bound for bound in (self.low, self.high)]
        return tuple(self.to_setting(bound) for bound in bounds)

    @property
    def size(self) -> int | None:
        """Number of values that Optuna may draw, None if infinite."""
        if self.distribution == "categorical":
            return len(self.choices)
        step = self.step or (1 if self.is_int else None)
        if step is None:
            return None
        return math.floor((self.high - self.low) / step + 1e-9) + 1  # 1e-9: against rounding

    def draw_parameter(self, trial: Trial) -> Value:
        """Let Optuna draw a value for a trial."""
        if self.distribution == "categorical":
            return str(trial.suggest_categorical(self.name, self.choices))
        log = self.distribution in ("loguniform", "intlog")
        if self.is_int:
            return trial.suggest_int(self.name, int(self.low), int(self.high), step=int(self.step or 1), log=log)
        return trial.suggest_float(self.name, self.low, self.high, step=self.step, log=log)

    def to_parameter(self, value: Any, spec: Spec) -> Value | None:
        """Return Optuna's value for a value of the setting; None if it lies outside of the dimension."""
        if self.distribution == "categorical":
            return next((choice for choice in self.choices if check(spec, choice) == value), None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if self.base is not None:
            exponent = min(max(math.log(max(value, 0) + 0.5, self.base), self.low), self.high)
            return exponent if self._floor_power(self.base, exponent) == value else None
        if not self.low <= value <= self.high:
            return None
        steps = (value - self.low) / (self.step or 1)
        on_grid = self.size is None or math.isclose(steps, round(steps), abs_tol=1e-9)
        return value if on_grid else None

    def plain(self) -> dict[str, Any]:
        """Return the dimension as a JSON value, for descriptions that are compared."""
        values: dict[str, Any] = {"choices": list(self.choices)}
        if self.distribution != "categorical":
            values = {"low": self.low, "high": self.high, "step": self.step}
        if self.base is not None:
            values["base"] = self.base
        return {"distribution": self.distribution, **values}


@dataclass(frozen=True)
class Default:
    """Default values of the settings that are searched."""

    overrides: Overrides
    parameters: Parameters  # Optuna's values, of the settings that lie inside the space

    @property
    def is_inside(self) -> bool:
        """True if every parameter lies inside the search space."""
        return len(self.parameters) == len(self.overrides)


@dataclass(frozen=True)
class Space:
    """Search space of a method."""

    algorithm: str
    dimensions: tuple[Dimension, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dimension.name for dimension in self.dimensions)

    @property
    def is_finite(self) -> bool:
        return all(dimension.size is not None for dimension in self.dimensions)

    def draw_settings(self, trial: Trial) -> dict[str, str]:
        """Let Optuna draw the settings of a trial; returns them as on a command line."""
        return {dimension.name: dimension.to_setting(dimension.draw_parameter(trial)) for dimension in self.dimensions}

    def to_settings(self, parameters: Parameters) -> dict[str, str]:
        """Return the settings, as on a command line, for a trial's parameters."""
        return {d.name: d.to_setting(parameters[d.name]) for d in self.dimensions if d.name in parameters}

    def find_default(self, config: Config) -> Default:
        """Return the config's values of the settings that are searched, as settings and as Optuna's parameters."""
        values, settings = flatten(config), specs(typing.cast(Any, type(config)))
        overrides: dict[str, str] = {}
        parameters: dict[str, Value] = {}
        for dimension in self.dimensions:
            name = dimension.name
            parameter = dimension.to_parameter(values[name], settings[name])
            if parameter is None:  # it lies outside of the space
                overrides[name] = word(values[name])
            else:
                overrides[name] = dimension.to_setting(parameter)
                parameters[name] = parameter
        return Default(overrides, parameters)

    def count_points(self, at_most: int) -> int:
        """Return the number of different points; `at_most` if there are more."""
        return min(at_most, math.prod(dimension.size or at_most for dimension in self.dimensions))

    def plain(self) -> dict[str, Any]:
        return {dimension.name: dimension.plain() for dimension in self.dimensions}


# --- the file's format ------------------------------------------------------------------------------------------------


def _parse_number(value: Any) -> Any:
    """Convert a string to a number if possible, as YAML reads 1e-3 as a string."""
    with contextlib.suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


Bound = Annotated[float, BeforeValidator(_parse_number)]
ChoiceText = Annotated[str, BeforeValidator(word)]


class RangeFile(Format):
    """Range of a setting that is searched."""

    distribution: Literal["uniform", "loguniform", "int", "intlog", "categorical", "floor_power"] = Field(
        description="how values are drawn; floor_power is int(base**U(low, high))"
    )
    low: Bound = Field(0.0, description="lowest value; for floor_power the lowest exponent")
    high: Bound = Field(0.0, description="highest value; for floor_power the exponent below which it stays")
    step: Bound | None = Field(None, description="distance of values, for uniform and int")
    base: Bound = Field(2.0, gt=1, description="base of floor_power")
    choices: Listed[ChoiceText] = Field((), description="values of categorical, at least two")

    @model_validator(mode="after")
    def _check(self) -> RangeFile:
        """Raise ValueError for entries that the distribution does not have, and for missing or wrong ones."""
        kind, entries = self.distribution, RANGES[self.distribution]
        for name in self.model_fields_set - {"distribution", *entries}:
            raise ValueError(f"{kind} has no '{name}'{nearest(name, entries)}")
        if kind == "categorical":
            if len(self.choices) < 2:
                raise ValueError("categorical needs at least two choices")
            return self
        for name in ("low", "high"):
            if name not in self.model_fields_set:
                raise ValueError(f"'{name}' is missing")
        self._check_numbers()
        return self

    def _check_numbers(self) -> None:
        """Raise ValueError for bounds or a step that the distribution can't have."""
        kind, low, high, step = self.distribution, self.low, self.high, self.step
        if not low < high or (step is not None and not 0 < step <= high - low):
            raise ValueError(f"low={low:g}, high={high:g}: low should be below high, and a step fit between them")
        if step is not None and (low + step == low or high - step == high):
            raise ValueError(f"step={step:g} is too small to tell values between {low:g} and {high:g} apart")
        if kind in ("loguniform", "intlog") and low <= 0:
            raise ValueError(f"low={low:g}: {kind} needs a low above 0")
        if kind in ("int", "intlog") and any(number != int(number) for number in (low, high, step or 1)):
            raise ValueError(f"{kind} needs whole numbers")


class SpaceFile(RootModel[Annotated[ByName[str, RangeFile], Field(min_length=1)]]):
    """Search space of a method: for each setting that is searched, by its dotted name, its range."""


# --- files ------------------------------------------------------------------------------------------------------------


def find_space_files(overrides: Overrides) -> list[Path]:
    """Return the space files that come with biasbed, or with a user's method; a later file overrides earlier ones.

    A suite's file for every method comes first, then the suite's file for this method. If the suite has no file for
    every method, the method's general file is used instead. A file for suite and data set wins over a file for the
    suite. `<file>.py:<Class>` has its space beside its file, as `<class>.yaml`.
    """
    from biasbed.datasets import domains as domain_data

    suite, algorithm = suites.identifier(overrides["suite"]), overrides["algorithm"]
    suite_folders = [SPACES / suite / domain_data.DATA_SETS.identifier(overrides.get("train", "")), SPACES / suite]
    shared = _first_file(EVERY_METHOD, suite_folders)
    source, name = Path(algorithm.rpartition(":")[0]), algorithms.identifier(algorithm)
    if algorithm in algorithms.REGISTRY:
        folders = suite_folders if shared else [*suite_folders, SPACES]
    else:
        folders = [source.parent] if source.suffix == ".py" else []
    files = shared + _first_file(name, folders)
    if not files and name in PLUGIN_SPACES:
        files = [PLUGIN_SPACES[name]]
    if not files:
        beside = f", or put {name}.yaml beside its file" if source.suffix == ".py" else ""
        raise UsageError(f"{algorithm} has no search space among biasbed's: give one with space=<file>{beside}")
    return files


def find_optimizer_files(overrides: Overrides, backbone: str) -> list[Path]:
    """Return the suite's file for the optimizer if it has one; a file for this network comes before a general one."""
    suite = SPACES / suites.identifier(overrides["suite"])
    return _first_file(OPTIMIZER, [suite / record.slug(backbone), suite])


def _first_file(name: str, folders: Sequence[Path]) -> list[Path]:
    """Return the first existing file with this name, as a list; empty if there is none."""
    files = [folder / f"{name}.yaml" for folder in folders]
    return [path for path in files if path.exists()][:1]


# --- reading ----------------------------------------------------------------------------------------------------------


def read_space(name: str, overrides: Overrides) -> Space:
    """Read a method's space from a file, or biasbed's for `auto`. overrides: of `train`, suite and method included.

    Raises UsageError with one line for an empty space, an unknown or fixed setting, and a wrong range.
    """
    paths = find_space_files(overrides) if name == "auto" else [Path(name).expanduser()]
    base = resolve(overrides)
    if name == "auto":
        paths = [*find_optimizer_files(overrides, base.backbone), *paths]
    dimensions: dict[str, RangeFile] = {}
    for path in paths:
        added = formats.read(SpaceFile, path, "space").root
        try:
            if paths[0].stem == OPTIMIZER and path != paths[0]:  # the suite's settings of the optimizer replace these
                added = {key: value for key, value in added.items() if not key.startswith("optim.")}
            dimensions |= added
            space = _parse_space(dimensions, base, overrides)
        except UsageError as error:
            raise error.with_place(f"space={path}") from None
    return space


def _parse_space(ranges: Mapping[str, RangeFile], base: Config, overrides: Overrides) -> Space:
    """Check the ranges against the method's settings and return the space. base: the config of the method's default."""
    settings = specs(typing.cast(Any, type(base)))
    fixed = {*FIXED, *suites.REGISTRY.own_settings(base.suite)}
    dimensions: dict[str, Dimension] = {}
    for name, described in ranges.items():
        _check_name(name, settings, fixed, overrides)
        dimensions[name] = _make_dimension(name, described, settings[name])
    space = Space(algorithms.identifier(base.algorithm), tuple(dimensions.values()))
    for dimension in space.dimensions:  # `resolve` refuses settings that do not fit together
        for extreme in dimension.extremes:
            resolve({**overrides, dimension.name: extreme})
    return space


def _check_name(name: str, settings: Mapping[str, Spec], fixed: Container[str], overrides: Overrides) -> None:
    refuse_unknown(name, settings, f"unknown setting '{name}'")
    if name in fixed or not settings[name].identity:
        raise UsageError(f"{name} can't be searched over: give one value as a flag")
    if name in overrides:
        raise UsageError(f"{name} is searched over and given as {name}={overrides[name]}, too: leave one out")


def _make_dimension(name: str, described: RangeFile, spec: Spec) -> Dimension:
    """Return the dimension of a setting. Raises UsageError for a range with values that the setting can't have."""
    kind = described.distribution
    if kind == "categorical":
        for choice in described.choices:
            check(spec, choice)
        return Dimension(name, kind, choices=described.choices)
    _check_type(name, kind, spec)
    base = described.base if kind == "floor_power" else None
    dimension = Dimension(name, kind, described.low, described.high, described.step, base=base)
    try:
        lowest, highest = dimension.extremes
    except OverflowError:
        lowest = highest = "too large"
    for extreme in (lowest, highest):
        check(spec, extreme)
    return dimension


def _check_type(name: str, kind: str, spec: Spec) -> None:
    """Raise UsageError if a setting has no numbers, or whole numbers and a distribution of real ones."""
    members = typing.get_args(spec.type) if not isinstance(spec.type, type) else (spec.type,)
    if typing.get_origin(spec.type) in (tuple, typing.Literal):
        members = ()
    kinds = {member for member in members if member in (int, float)} - {NoneType}
    if not kinds:
        raise UsageError(f"{name} is no number: its distribution should be categorical")
    if kinds == {int} and kind not in ("int", "intlog", "floor_power"):
        raise UsageError(f"{name} is a whole number: its distribution should be int, intlog or floor_power")
