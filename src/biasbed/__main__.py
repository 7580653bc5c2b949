"""`python -m biasbed`."""

import sys

from biasbed.cli import main

if __name__ == "__main__":  # the workers of a sweep import this file
    sys.exit(main())
