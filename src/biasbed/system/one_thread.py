"""Computing on one thread of the linear algebra library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def on_one_thread(compute: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Decorate a function so that the linear algebra library uses one thread in it.

    An analysis has small matrices: on a busy machine threads would wait for each other ten times as long as they
    compute, and the last digits would depend on the number of cores.
    """

    @functools.wraps(compute)
    def limited(*args: Arguments.args, **options: Arguments.kwargs) -> Returned:
        with threadpool_limits(limits=1, user_api="blas"):
            return compute(*args, **options)

    return limited
