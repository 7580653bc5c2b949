"""Description of a training or evaluation that would start here, by its settings.

Also a script: it reads command and settings as JSON from its input and prints JSON. Later commits call it in a worktree
of this one. So its path, its input and its output must stay.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def describe(settings: Mapping[str, str], command: str = "train") -> dict[str, Any]:
    """Return "tags" and "protocol" of a training or evaluation. Raises UsageError if it could not start."""
    if command == "evaluate":
        from biasbed.evaluation.command import read
        from biasbed.evaluation.evaluate_model import load, plan

        options, flags = read(settings)
        evaluation = plan(options, flags, load(options, flags)).job
        return {"tags": evaluation.tags(), "protocol": json.loads(evaluation.protocol.to_json())}
    from biasbed.compute.device import choose_device
    from biasbed.training import job
    from biasbed.training.resolve import resolve

    resolved = resolve(settings)
    choose_device(resolved.device, resolved.nproc)
    planned = job.plan(resolved)
    return {"tags": planned.tags(), "protocol": json.loads(planned.protocol.to_json())}


def main() -> None:
    """Print the description of the settings in the input, or why they are refused."""
    from biasbed.errors import Failure, UsageError

    try:
        description = describe(**json.load(sys.stdin))
    except (UsageError, Failure) as error:
        description = {"refused": str(error)}
    print(json.dumps(description))


if __name__ == "__main__":
    main()
