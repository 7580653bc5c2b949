"""Decoded test images, kept between the tests of a training: `cache.gb`."""

from __future__ import annotations

OFFERS = {"image_cache": {"test_images": "biasbed.plugins.test_images.image_cache:TestCache"}}
