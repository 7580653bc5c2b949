"""What a training, or a test of a model, would be here, by its settings. Also a script, for another commit's code.

As a script it reads command and settings as JSON from its input and prints JSON. Of trainings it uses only what commits
of all ages have.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from typing import Any


def describe(words: Mapping[str, str], command: str = "train") -> dict[str, Any]:
    """{"tags", "protocol"} of a training, or a test, with these settings; UsageError where it could not start."""
    if command == "evaluate":
        from biasbed.evaluation.command import read
        from biasbed.evaluation.evaluate_model import load, plan

        options, given = read(words)
        takes_given = len(inspect.signature(load).parameters) > 1  # not in the code of older commits
        run = plan(options, given, load(*((options, given) if takes_given else (options,)))).job
        return {"tags": run.tags(), "protocol": json.loads(run.protocol.to_json())}
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
        found = describe(**json.load(sys.stdin))
    except (UsageError, Failure) as error:
        found = {"refused": str(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
