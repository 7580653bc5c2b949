"""`python -m biasbed`."""

import sys

from biasbed.cli import main

sys.exit(main())
