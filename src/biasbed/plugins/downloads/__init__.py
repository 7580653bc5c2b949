"""Published data sets from their addresses: `prepare what=download`."""

from __future__ import annotations

OFFERS = {"what": {"download": "biasbed.plugins.downloads.maker:Download"}}
