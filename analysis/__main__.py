"""`python -m biasbed.analysis` is `biasbed analyze`."""

from __future__ import annotations

import sys

from biasbed.cli import main

if __name__ == "__main__":
    sys.exit(main(["analyze", *sys.argv[1:]]))
