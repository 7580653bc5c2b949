"""Garbage collection beside millions of objects that form no cycles: scanning them again and again is slow."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector in the block.

    It makes imports of torch and MLflow a tenth faster: they leave no cycles, and the collector would scan all loaded
    objects again and again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def collection_of_new() -> Iterator[None]:
    """Collect only cycles that the block makes, whether the collector is on or off."""
    was_on = gc.isenabled()
    gc.freeze()
    gc.enable()
    try:
        yield
    finally:
        gc.unfreeze()
        if not was_on:
            gc.disable()


@contextlib.contextmanager
def collected_after() -> Iterator[None]:
    """Collect the cycles that the block has made at its end, even if the collector is off."""
    with collection_of_new():
        yield
        gc.collect()
