"""What follows from a model's accuracies under corruptions: errors by corruption and group, mCE, relative mCE.

Hendrycks & Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR 2019,
section 4. All are measures of the set, `test/<measure>/<set>`; AlexNet's errors are of all released images of
ImageNet-C, so that what is divided by them is there for those alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from biasbed.datasets.corruption_benchmarks import ALEXNET, ALEXNET_CLEAN, GROUPS, conditions
from biasbed.errors import UsageError
from biasbed.record import BY_CONDITION, Derived, MetricName

CorruptionError = Literal["mce", "relative_mce", "mean_error"]
MEAN_ERROR: CorruptionError = "mean_error"
MCE: CorruptionError = "mce"


def derivations(
    name: str, corruptions: Sequence[str], clean: str | None = None, is_released: bool = False, phase: str = "test"
) -> Iterator[Derived]:
    """What is derived for a set of these corruptions, in an order in which it can be.

    is_released: it is the whole of the released ImageNet-C. clean: the set of the same images as they are, if it is
    tested too, of which relative mCE needs the accuracy.
    """

    def cells(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(str(MetricName(phase, BY_CONDITION, name, condition)) for condition in conditions(names))

    def value(measure: str, function: str, inputs: Sequence[str], references: Sequence[float] = ()) -> Derived:
        found = tuple(inputs), tuple(references)
        return Derived(phase, measure, name, function, *found, higher_is_better=False)

    def error(measure: str, names: Sequence[str]) -> Derived:
        """The plain mean of the errors: by errors of 1."""
        return value(measure, "error_ratio", cells(names), [1.0] * len(cells(names)))

    yield error(MEAN_ERROR, corruptions)
    yield from (error(f"error_{own}", [own]) for own in corruptions)
    yield from (error(f"error_{group}", own) for group, own in GROUPS.items() if set(own) <= set(corruptions))
    if not is_released:
        return
    kinds: list[tuple[str, str, tuple[str, ...], tuple[float, ...]]] = [("ce", "error_ratio", (), ())]
    if clean is not None:
        accuracy = str(MetricName(phase, "accuracy", clean))
        kinds.append(("relative_ce", "relative_error_ratio", (accuracy,), (ALEXNET_CLEAN,)))
    for kind, function, inputs, references in kinds:
        each = []
        for own in corruptions:
            errors = [ALEXNET[own]] * len(cells([own]))
            each.append(value(f"{kind}_{own}", function, (*inputs, *cells([own])), (*references, *errors)))
        yield from each
        yield value(kind.replace("ce", MCE), "mean", [one.metric for one in each])


def headline(
    wanted: CorruptionError | Literal["auto"], name: str, why_not: str, clean: bool, clean_name: str
) -> CorruptionError:
    """What stands for a set of corruptions; UsageError where it is asked for what the set can't have.

    why_not: AlexNet's errors don't apply, in words; empty where they do. clean: its images as they are are tested too.
    """
    if wanted == MEAN_ERROR or (wanted == "auto" and why_not):
        return MEAN_ERROR
    if why_not:
        raise UsageError(
            f"corruption_error={wanted}: AlexNet's errors are those on all of the released ImageNet-C, and '{name}' "
            f"{why_not}; mean_error is there for every set"
        )
    if wanted == "relative_mce" and not clean:
        raise UsageError(f"corruption_error=relative_mce: it takes the accuracy on '{clean_name}', which is not tested")
    return MCE if wanted == "auto" else wanted
