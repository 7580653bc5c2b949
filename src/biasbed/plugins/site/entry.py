"""Entry of the command `site`. Light: `--help` imports it."""

from __future__ import annotations

from biasbed.cli import EntryPoint

SITE = EntryPoint(
    "write results of studies as static pages",
    *("biasbed.plugins.site.command:site", "biasbed.plugins.site.options:SiteOptions"),
)
