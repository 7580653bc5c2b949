"""Measures as pure functions of counts, used by evaluation and analysis alike. Standard library only."""

from __future__ import annotations


def accuracy(correct: int, images: int) -> float:
    """Fraction of images decided rightly; ValueError without images."""
    if images <= 0:
        raise ValueError("accuracy of no images")
    return correct / images


def shape_bias(shape: int, texture: int) -> float:
    """Shape decisions / (shape + texture decisions) on cue conflicts (Geirhos et al. 2019, section 3).

    Decisions for any other class count for neither. NaN where no decision was for either cue.
    """
    if shape + texture == 0:
        return float("nan")
    return shape / (shape + texture)
