"""Values derived from others of the same evaluation: means, differences, ratios of errors, the share that is lost.

`suites/derived.py` says which values a protocol derives of which.

Answers: How is a derived value computed?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence


def _mean(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    return math.fsum(values) / len(values)


def _harmonic_mean(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    return 0.0 if min(values) <= 0 else len(values) / math.fsum(1 / value for value in values)


def _difference(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    first, second = values
    return first - second


def _worst(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    return min(values) if higher_is_better else max(values)


def _weighted_mean(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    pairs = list(zip(values[::2], values[1::2], strict=True))
    return math.fsum(value * weight for value, weight in pairs) / math.fsum(weight for _, weight in pairs)


def _error_ratio(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    if len(values) != len(references):
        raise ValueError("as many references as values")
    return math.fsum(1 - value for value in values) / math.fsum(references)


def _relative_error_ratio(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    (clean, *others), (clean_reference, *reference_errors) = values, references
    if len(others) != len(reference_errors):
        raise ValueError("as many references as values")
    lost = math.fsum(clean - value for value in others)
    return lost / math.fsum(error - clean_reference for error in reference_errors)


def _mean_ratio(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    ratios = [value / divisor for value, divisor in zip(values[::2], values[1::2], strict=True) if divisor]
    return math.fsum(ratios) / len(ratios)


def _error_quotient(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    """Return the error of the first accuracy, divided by that of the second."""
    first, second = values
    return (1 - first) / (1 - second)


def _share(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    """Return the first value, divided by the sum of both."""
    first, second = values
    return first / (first + second)


def _lost_share(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    """Return the part of the first accuracy above chance (the reference) that the mean of the others lacks."""
    (clean, *others), (chance,) = values, references
    if clean <= chance:
        raise ValueError("nothing to lose")
    return 1 - math.fsum(value - chance for value in others) / len(others) / (clean - chance)


def _undefined_ratios(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    """Return the number of ratios without a value: those that the references count, and those with divisor 0."""
    return math.fsum(references) + sum(not divisor for divisor in values[1::2])


def _remainder(values: Sequence[float], references: Sequence[float], higher_is_better: bool) -> float:
    """Return the mean over the images outside of a part, from the mean of all and that of the part."""
    (mean_of_all, part), (rest_images, part_images) = values, references
    mean = (mean_of_all * (rest_images + part_images) - part * part_images) / rest_images
    return min(1.0, max(0.0, mean))  # the printed values are rounded, which may lead beyond


# How a derived value (`record.Derived`) follows from its inputs and constants, and from whether more of it is better.
FUNCTIONS: Mapping[str, Callable[[Sequence[float], Sequence[float], bool], float]] = {
    "mean": _mean,
    "harmonic_mean": _harmonic_mean,  # zero where one of the values is
    "difference": _difference,  # the first less the second
    "worst": _worst,  # the least, where less is better the largest
    "mean_ratio": _mean_ratio,  # of each second value, if it is not zero, the one before it is divided by it
    "undefined_ratios": _undefined_ratios,  # how many second values are zero, and those that the constants say lack
    "weighted_mean": _weighted_mean,  # of each value before its weight
    "remainder": _remainder,  # of the mean of all images and that of a part, that of the rest; numbers of rest and part
    "error_ratio": _error_ratio,  # errors of accuracies, summed, by those of a reference model, one for each (CE)
    # The same of how far accuracies are below the first, by how far errors of the reference are above its first.
    "relative_error_ratio": _relative_error_ratio,
    "error_quotient": _error_quotient,  # error of the first accuracy by that of the second
    "lost_share": _lost_share,  # of how far the first is above chance, what the others' mean lacks
    "share": _share,  # of the first value in the sum of both
}


def derive(
    function: str,
    inputs: Sequence[float | None],
    references: Sequence[float] = (),
    higher_is_better: bool = True,
) -> float | None:
    """Return the value that a function of `FUNCTIONS` computes from inputs and constants.

    Returns None if an input is missing or not finite, if there are too few or too many, or if it is undefined.
    higher_is_better: direction of the value.
    """
    finite = [value for value in inputs if value is not None and math.isfinite(value)]
    if not finite or len(finite) != len(inputs):
        return None
    try:
        return FUNCTIONS[function](finite, references, higher_is_better)
    except (ValueError, ZeroDivisionError):
        return None
