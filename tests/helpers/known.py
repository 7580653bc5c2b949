"""Imports of our files and installed distributions, which take every command a second to find out.

The fork server imports this file, so that what it starts knows already.
"""

from __future__ import annotations

from biasbed import algorithms, suites
from biasbed.system import code
from biasbed.system.code_hash import code_hash

for _suite in suites.REGISTRY:
    code_hash(algorithms.load("erm"), suites.load(_suite))
code.distributions()
