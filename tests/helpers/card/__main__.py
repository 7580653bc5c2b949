"""Modules of this package, each with its words, on the card: `python -m helpers.card '[["steps", "erm,hex", "bf16"]]'`.

Prints a JSON line [number of the module, row] for each row. `build.run` starts it with the card's library preloaded.
"""

from __future__ import annotations

import importlib
import json
import sys

from helpers.card.simulation import switch_on

if __name__ == "__main__":
    card = switch_on()
    for number, (module, *words) in enumerate(json.loads(sys.argv[1])):
        for row in importlib.import_module(f"helpers.card.{module}").visit(card, *words):
            print(json.dumps([number, row]), flush=True)
