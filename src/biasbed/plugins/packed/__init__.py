"""Packed images: a suite's image files in a few large ones, `prepare what=packed` and `data.packed`."""

from __future__ import annotations

OFFERS = {
    "image_store": {"packed": "biasbed.plugins.packed.store:make_pack_store"},
    "what": {"packed": "biasbed.plugins.packed.maker:PackedImages"},
}
