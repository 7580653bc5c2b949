"""Search spaces: which settings of a method are searched over, and where; a YAML of `sweeps/spaces/`, or a user's.

```yaml
optim.lr: {distribution: loguniform, low: 0.01, high: 1.0}
hparams.dropout: {distribution: uniform, low: 0.0, high: 0.5, step: 0.1}        # step: only with uniform and int
hparams.layers: {distribution: int, low: 0, high: 4}                            # or intlog
optim.name: {distribution: categorical, choices: [sgd, adam]}
optim.momentum: {distribution: uniform, low: 0.8, high: 0.99, when: {optim.name: sgd}}   # a setting further up
batch_size: {distribution: floor_power, low: 3, high: 5.5}                      # int(2**U(3, 5.5)); or base: 10
```

Every key is checked against the settings of the method, every bound against the range of its setting.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from biasbed import algorithms, suites
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.settings import Spec, check, flatten, nearest, specs, word
from biasbed.studies.search.files import OPTIMIZER, included, of_optimizer
from biasbed.studies.table import Words
from biasbed.system import strict_yaml
from biasbed.training.resolve import resolve

if TYPE_CHECKING:
    from optuna import Trial

RANGES = {"uniform": ("low", "high", "step"), "loguniform": ("low", "high")}
RANGES |= {"int": ("low", "high", "step"), "intlog": ("low", "high"), "categorical": ("choices",)}
RANGES |= {"floor_power": ("low", "high", "base")}  # the law of Gulrajani & Lopez-Paz (2021, table 8) for whole numbers
# Not searched over, as trials would not be comparable or it is the sweep's own to set: another task (so also what the
# suite alone can be told), another place, or (durations) another budget, which pruners take for equal.
FIXED = ("suite", "algorithm", "preset", "device", "nproc", "corrupt", "epochs", "steps")

Value = float | int | str
Parameters = Mapping[str, Value]  # as Optuna has them; choices are words


@dataclass(frozen=True)
class Dimension:
    """One setting that is searched over."""

    name: str
    distribution: str
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    choices: tuple[str, ...] = ()
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # other setting -> words under which it exists
    base: float | None = None  # floor_power: Optuna has the exponent, between low and high

    @property
    def is_int(self) -> bool:
        return self.distribution in ("int", "intlog")

    def in_words(self, value: Value) -> str:
        """The setting of a value as Optuna has it."""
        return word(value if self.base is None else self._power(self.base, float(value)))

    def _power(self, base: float, exponent: float) -> int:
        """Rounded down; the upper bound itself is never drawn."""
        return int(base ** min(exponent, math.nextafter(self.high, self.low)))

    @property
    def extremes(self) -> tuple[str, ...]:
        """The settings between which all others lie; of a categorical one all."""
        return self.choices or tuple(self.in_words(_whole(value, self)) for value in (self.low, self.high))

    @property
    def size(self) -> int | None:
        """How many values Optuna has of it, None for infinitely many."""
        if self.distribution == "categorical":
            return len(self.choices)
        step = self.step or (1 if self.is_int else None)
        return None if step is None else math.floor((self.high - self.low) / step + 1e-9) + 1

    def values(self) -> Iterator[str]:
        """The words of a finite dimension's values."""
        for index in range(self.size or 0):
            step = self.step or 1
            yield self.choices[index] if self.choices else word(_whole(self.low + index * step, self))

    def suggest(self, trial: Trial) -> Value:
        if self.distribution == "categorical":
            return str(trial.suggest_categorical(self.name, self.choices))
        log = self.distribution in ("loguniform", "intlog")
        if self.is_int:
            return trial.suggest_int(self.name, int(self.low), int(self.high), step=int(self.step or 1), log=log)
        return trial.suggest_float(self.name, self.low, self.high, step=self.step, log=log)

    def holds(self, value: Any, spec: Spec) -> Value | None:
        """The setting's value as this dimension has it, None where it is not one of its values."""
        if self.distribution == "categorical":
            return next((choice for choice in self.choices if check(spec, choice) == value), None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if self.base is not None:
            exponent = min(max(math.log(max(value, 0) + 0.5, self.base), self.low), self.high)
            return exponent if self._power(self.base, exponent) == value else None
        if not self.low <= value <= self.high:
            return None
        steps = (value - self.low) / (self.step or (1 if self.is_int else 0) or 1)
        on_grid = self.size is None or math.isclose(steps, round(steps), abs_tol=1e-9)
        return value if on_grid else None

    def plain(self) -> dict[str, Any]:
        """As a JSON value, equal exactly where the dimension is."""
        if self.distribution == "categorical":
            found: dict[str, Any] = {"choices": list(self.choices)}
        else:
            found = {"low": self.low, "high": self.high, "step": self.step}
            found |= {} if self.base is None else {"base": self.base}
        return {"distribution": self.distribution, **found, "when": {k: list(v) for k, v in self.when.items()}}


@dataclass(frozen=True)
class Default:
    """A method's own settings, of those that are searched over."""

    words: Words
    parameters: Parameters  # as Optuna has them, of those that lie in the space

    @property
    def is_inside(self) -> bool:
        """Whether all of them do."""
        return len(self.parameters) == len(self.words)


@dataclass(frozen=True)
class Space:
    """Where one method is searched."""

    algorithm: str
    dimensions: tuple[Dimension, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dimension.name for dimension in self.dimensions)

    @property
    def is_conditional(self) -> bool:
        return any(dimension.when for dimension in self.dimensions)

    @property
    def is_finite(self) -> bool:
        return all(dimension.size is not None for dimension in self.dimensions)

    def suggest(self, trial: Trial) -> dict[str, str]:
        """A trial's settings, as the words of a command line."""
        words: dict[str, str] = {}
        for dimension in self.dimensions:
            if exists(dimension, words):
                words[dimension.name] = dimension.in_words(dimension.suggest(trial))
        return words

    def words(self, parameters: Parameters) -> dict[str, str]:
        """The words of a finished trial's parameters."""
        return {one.name: one.in_words(parameters[one.name]) for one in self.dimensions if one.name in parameters}

    def default(self, config: Config) -> Default:
        """What this config has of the settings that are searched over."""
        values, known = flatten(config), specs(typing.cast(Any, type(config)))
        words: dict[str, str] = {}
        inside: dict[str, Value] = {}
        for one in self.dimensions:
            if exists(one, words):
                value = one.holds(values[one.name], known[one.name])
                words[one.name] = word(values[one.name]) if value is None else one.in_words(value)
                inside |= {} if value is None else {one.name: value}
        return Default(words, inside)

    def points(self, at_most: int) -> int:
        """How many different parameters it has, counted up to a number."""
        return at_most if not self.is_finite else min(at_most, self._count(0, {}, at_most))

    def _count(self, index: int, words: dict[str, str], at_most: int) -> int:
        """Of the dimensions from this one on, given the words of those before."""
        if index == len(self.dimensions):
            return 1
        dimension = self.dimensions[index]
        if not exists(dimension, words):
            return self._count(index + 1, words, at_most)
        total = 0
        for value in dimension.values():
            total += self._count(index + 1, {**words, dimension.name: value}, at_most)
            if total >= at_most:
                break
        return total

    def plain(self) -> dict[str, Any]:
        return {dimension.name: dimension.plain() for dimension in self.dimensions}


def exists(dimension: Dimension, words: Words) -> bool:
    """Whether a setting is one of a point that has these words of settings further up."""
    return all(words.get(name) in allowed for name, allowed in dimension.when.items())


# --- reading ----------------------------------------------------------------------------------------------------------


def read_space(name: str, words: Words) -> Space:
    """The space of a method: `auto` for biasbed's, or a file. words: settings of `train`, suite and method among them.

    Raises UsageError with one line for an empty space, an unknown or fixed setting, and a wrong range.
    """
    paths = included(words) if name == "auto" else [Path(name).expanduser()]
    base = resolve(words)
    paths = [*of_optimizer(words, base.backbone), *paths] if name == "auto" else paths
    entries: dict[Any, Any] = {}
    for path in paths:
        content = strict_yaml.read(path, "space")
        try:
            found = _entries(content)
            if paths[0].stem == OPTIMIZER and path != paths[0]:
                found = {key: entry for key, entry in found.items() if not str(key).startswith("optim.")}
            entries |= found
            space = _space(entries, base, words)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return space


def _entries(content: Any) -> dict[Any, Any]:
    if not content:
        raise UsageError("the space is empty: name at least one setting to search over")
    if not isinstance(content, dict):
        raise UsageError("a search space has an entry per setting: optim.lr: {distribution: loguniform, ...}")
    return content


def _space(content: Mapping[Any, Any], base: Config, words: Words) -> Space:
    known = specs(typing.cast(Any, type(base)))
    fixed = {*FIXED, *suites.REGISTRY.own_settings(base.suite)}
    dimensions: dict[str, Dimension] = {}
    for name, entry in content.items():
        _check_name(str(name), known, fixed, words)
        dimensions[str(name)] = _dimension(str(name), entry, known[name], dimensions)
    space = Space(algorithms.identifier(base.algorithm), tuple(dimensions.values()))
    for dimension in space.dimensions:  # what settings demand of each other
        for value in dimension.extremes:
            condition = {parent: allowed[0] for parent, allowed in dimension.when.items()}
            resolve({**words, **condition, dimension.name: value})
    return space


def _check_name(name: str, known: Mapping[str, Spec], fixed: Container[str], words: Words) -> None:
    if name not in known:
        raise UsageError(f"unknown setting '{name}'{nearest(name, known)}")
    if name in fixed or not known[name].identity:
        raise UsageError(f"{name} can't be searched over: give one value as a flag")
    if name in words:
        raise UsageError(f"{name} is searched over and given as {name}={words[name]}, too: leave one out")


def _dimension(name: str, entry: Any, spec: Spec, above: Mapping[str, Dimension]) -> Dimension:
    """One entry of the file, checked. above: those further up, which it may depend on."""
    given = entry.get("distribution") if isinstance(entry, dict) else None
    if str(given) not in RANGES:
        raise UsageError(f"{name}: give its distribution{nearest(str(given), RANGES)}")
    kind = str(given)
    for key in entry:
        if key not in (allowed := ("distribution", *RANGES[kind], "when")):
            raise UsageError(f"{name}: {kind} has no '{key}'{nearest(str(key), allowed)}")
    when = _condition(name, entry.get("when"), above)
    if kind == "categorical":
        return Dimension(name, kind, choices=_choices(name, entry, spec), when=when)
    _check_type(name, kind, spec)
    low, high = (_number(name, key, entry) for key in ("low", "high"))
    step = _number(name, "step", entry) if "step" in entry else None
    base = _number(name, "base", {"base": 2, **entry}) if kind == "floor_power" else None
    dimension = Dimension(name, kind, low, high, step, when=when, base=base)
    if not low < high or (step is not None and not 0 < step <= high - low):
        raise UsageError(f"{name}: low={low:g}, high={high:g}: low should be below high, and a step fit between them")
    if step is not None and (low + step == low or high - step == high):
        raise UsageError(f"{name}: step={step:g} is too small to tell values between {low:g} and {high:g} apart")
    if kind in ("loguniform", "intlog") and low <= 0:
        raise UsageError(f"{name}: low={low:g}: {kind} needs a low above 0")
    if dimension.is_int and any(number != int(number) for number in (low, high, step or 1)):
        raise UsageError(f"{name}: {kind} needs whole numbers")
    for value in _extremes(dimension):
        check(spec, value)
    return dimension


def _extremes(dimension: Dimension) -> tuple[str, ...]:
    """UsageError where powers are one and the same, or none."""
    name, base = dimension.name, dimension.base
    if base is not None and base <= 1:
        raise UsageError(f"{name}: base={base:g}: should be above 1")
    try:
        found = dimension.extremes
    except OverflowError:
        raise UsageError(f"{name}: high={dimension.high:g}: {base:g} to the power of it is too large") from None
    if base is not None and found[0] == found[1]:
        raise UsageError(f"{name}: low={dimension.low:g}, high={dimension.high:g}: all its powers come to {found[0]}")
    return found


def _whole(value: Any, dimension: Dimension) -> Any:
    return int(value) if dimension.is_int else value


def _number(name: str, key: str, entry: Mapping[str, Any]) -> float:
    """A bound; YAML reads 1e-3 as a word."""
    value = entry.get(key)
    try:
        number = float("nan") if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not math.isfinite(number):
        raise UsageError(f"{name}: {key}={value}: should be a number")
    return number


def _choices(name: str, entry: Mapping[str, Any], spec: Spec) -> tuple[str, ...]:
    found = entry.get("choices")
    if not isinstance(found, list) or len(found) < 2:
        raise UsageError(f"{name}: categorical needs at least two choices")
    choices = tuple(word(choice) for choice in found)
    values = [check(spec, choice) for choice in choices]
    if any(value in values[:index] for index, value in enumerate(values)):
        raise UsageError(f"{name}: choices={','.join(choices)}: one is there twice")
    return choices


def _condition(name: str, when: Any, above: Mapping[str, Dimension]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    if when is not None and not (isinstance(when, dict) and when):
        raise UsageError(f"{name}: 'when' should be like {{optim.name: sgd}}")
    for parent, value in (when or {}).items():
        if parent not in above:
            raise UsageError(f"{name}: when {parent}: no setting of this name stands further up")
        allowed = tuple(word(entry) for entry in (value if isinstance(value, list) else [value]))
        other = above[parent]
        if other.size is None or (not other.choices and not other.is_int):
            raise UsageError(f"{name}: when {parent}: only a categorical or whole-numbered setting can decide")
        values = list(other.values())
        wrong = [entry for entry in allowed if entry not in values]
        if wrong or not allowed:
            never = ",".join(wrong)
            raise UsageError(f"{name}: when {parent} is {never}: it never is{nearest(never, values)}")
        found[str(parent)] = allowed
    return found


def _check_type(name: str, kind: str, spec: Spec) -> None:
    """That a setting with numbers has this kind of them."""
    members = typing.get_args(spec.type) if not isinstance(spec.type, type) else (spec.type,)
    if typing.get_origin(spec.type) in (tuple, typing.Literal):
        members = ()
    kinds = {member for member in members if member in (int, float)} - {NoneType}
    if not kinds:
        raise UsageError(f"{name} is no number: its distribution should be categorical")
    if kinds == {int} and kind not in ("int", "intlog", "floor_power"):
        raise UsageError(f"{name} is a whole number: its distribution should be int, intlog or floor_power")
