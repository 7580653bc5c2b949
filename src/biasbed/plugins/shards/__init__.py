"""Parquet and WebDataset shards, made into image folders: `prepare what=unpacked`."""

from __future__ import annotations

OFFERS = {"what": {"unpacked": "biasbed.plugins.shards.maker:Unpack"}}
