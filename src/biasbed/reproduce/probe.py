"""What a training would be here, by its settings: tags and protocol. Also a script, for the code of another commit.

As a script it reads settings as JSON from its input and prints JSON. It uses only what commits of all ages have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def describe(words: Mapping[str, str]) -> dict[str, Any]:
    """{"tags", "protocol"} of a training with these settings; UsageError where it could not start."""
    try:
        from biasbed.compute.device import settle_device
        from biasbed.training import job
        from biasbed.training.resolve import resolve
    except ModuleNotFoundError:  # a commit from before there were rooms
        from biasbed import job  # type: ignore[attr-defined,no-redef]
        from biasbed.config import resolve  # type: ignore[attr-defined,no-redef]
        from biasbed.processes import settle_device  # type: ignore[import-not-found,no-redef]

    resolved = resolve(words)
    settle_device(resolved.device, resolved.nproc)
    planned = job.plan(resolved)
    return {"tags": planned.tags(), "protocol": json.loads(planned.protocol.to_json())}


def main() -> None:
    from biasbed.errors import Failure, UsageError

    try:
        found = describe(json.load(sys.stdin))
    except (UsageError, Failure) as error:
        found = {"refused": str(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
