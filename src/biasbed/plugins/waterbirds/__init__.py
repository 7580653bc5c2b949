"""Waterbirds composed of birds and places at any severity: `train=waterbirds_ac`, `prepare what=waterbirds`."""

from __future__ import annotations

from pathlib import Path

OFFERS = {
    "biased": {"waterbirds_ac": "biasbed.plugins.waterbirds.data_set:ComposedWaterbirds"},
    "releases": {"waterbirds": "biasbed.plugins.waterbirds:RELEASES"},
    "what": {"waterbirds": "biasbed.plugins.waterbirds.maker:WaterbirdsMaker"},
}
RELEASES = Path(__file__).with_name("releases.yaml")
