"""Parts of a domain in a batch are whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from biasbed.algorithms.requests import StreamRequest
from biasbed.batch import MAIN
from biasbed.errors import UsageError
from biasbed.training import job


@pytest.mark.parametrize(
    ("request_", "processes", "accumulate", "refused"),
    [
        (StreamRequest(per_domain=True, size=12), 1, 3, False),
        (StreamRequest(per_domain=True, size=12), 1, 5, True),
        (StreamRequest(per_domain=True, size=12), 2, 3, False),
        (StreamRequest(per_domain=True, size=12), 2, 4, True),  # three processes of one and a half
        (StreamRequest(size=12), 1, 5, False),
        (StreamRequest(multiple=2, size=12), 2, 2, True),  # three each
        (StreamRequest(multiple=2, size=12), 2, 3, False),  # two each
        (StreamRequest(multiple=2, size=12), 1, 4, False),  # a process of its own has all of them
    ],
)
def test_parts_of_a_domain_are_whole(request_: StreamRequest, processes: int, accumulate: int, refused: bool) -> None:
    config: Any = SimpleNamespace(accumulate=accumulate, batch_size=7, algorithm="any")
    arguments = (config, SimpleNamespace(usual=None), {MAIN: request_}, processes)
    if not refused:
        job.refuse_parts(*arguments)  # type: ignore[arg-type]
        return
    with pytest.raises(UsageError, match="images of every domain"):
        job.refuse_parts(*arguments)  # type: ignore[arg-type]
