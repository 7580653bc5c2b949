"""Results of one or many studies as static pages: the command `site`."""

from __future__ import annotations

OFFERS = {
    "command": {"site": "biasbed.plugins.site.entry:SITE"},
}
