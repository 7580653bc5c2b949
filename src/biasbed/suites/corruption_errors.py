"""Errors under corruptions, derived from a model's accuracies: by corruption and group, mCE, relative mCE.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019,
section 4. All are measures of the set, `test/<measure>/<set>`. AlexNet's errors are on all released images of
ImageNet-C, so mCE and relative mCE exist only for these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from biasbed.datasets.corruption_benchmarks import ALEXNET, ALEXNET_CLEAN, GROUPS, conditions
from biasbed.errors import UsageError
from biasbed.record import BY_CONDITION, Derived, MetricName
from biasbed.suites import derived

CorruptionError = Literal["mce", "relative_mce", "mean_error"]
MEAN_ERROR: CorruptionError = derived.MEAN_ERROR
MCE: CorruptionError = "mce"


def derivations(
    name: str, corruptions: Sequence[str], clean: str | None = None, is_released: bool = False, phase: str = "test"
) -> Iterator[Derived]:
    """Yield the derived values of a set of these corruptions; each comes after its inputs.

    is_released: the set is all of the released ImageNet-C. clean: the set of the same images without corruptions, if
    it is tested too; relative mCE needs its accuracy.
    """

    def cells(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(str(MetricName(phase, BY_CONDITION, name, condition)) for condition in conditions(names))

    def value(measure: str, function: str, inputs: Sequence[str], references: Sequence[float] = ()) -> Derived:
        return Derived(phase, measure, name, function, tuple(inputs), tuple(references), higher_is_better=False)

    def mean_error(measure: str, names: Sequence[str]) -> Derived:
        return derived.mean_error(phase, measure, name, conditions(names))

    yield mean_error(MEAN_ERROR, corruptions)
    for corruption in corruptions:
        yield mean_error(f"error_{corruption}", [corruption])
    for group, members in GROUPS.items():
        if set(members) <= set(corruptions):
            yield mean_error(f"error_{group}", members)
    if not is_released:
        return
    kinds: list[tuple[str, str, tuple[str, ...], tuple[float, ...]]] = [("ce", "error_ratio", (), ())]
    if clean is not None:
        accuracy = str(MetricName(phase, "accuracy", clean))
        kinds.append(("relative_ce", "relative_error_ratio", (accuracy,), (ALEXNET_CLEAN,)))
    for kind, function, inputs, references in kinds:
        ratios = []
        for corruption in corruptions:
            accuracies = cells([corruption])
            errors = [ALEXNET[corruption]] * len(accuracies)
            ratios.append(value(f"{kind}_{corruption}", function, (*inputs, *accuracies), (*references, *errors)))
        yield from ratios
        yield value(kind.replace("ce", MCE), "mean", [ratio.metric for ratio in ratios])


def headline(
    setting: CorruptionError | Literal["auto"], name: str, why_no_mce: str, has_clean: bool, clean_name: str
) -> CorruptionError:
    """Return the headline measure of a set of corruptions. Raises UsageError if the set can't have the one chosen.

    why_no_mce: the reason why AlexNet's errors don't apply; empty if they do. has_clean: the set `clean_name` of the
    images without corruptions is tested too.
    """
    if setting == MEAN_ERROR or (setting == "auto" and why_no_mce):
        return MEAN_ERROR
    if why_no_mce:
        raise UsageError(
            f"corruption_error={setting}: AlexNet's errors are those on all of the released ImageNet-C, and '{name}' "
            f"{why_no_mce}; mean_error is there for every set"
        )
    if setting == "relative_mce" and not has_clean:
        raise UsageError(f"corruption_error=relative_mce: it takes the accuracy on '{clean_name}', which is not tested")
    return MCE if setting == "auto" else setting
