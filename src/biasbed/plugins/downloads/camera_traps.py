"""Terra Incognita (Beery et al., ECCV 2018): pictures of camera traps, sorted by place and animal."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path


def sort_images(
    content: Path, annotations: str, images: str, locations: Collection[str], labels: Collection[str]
) -> None:
    """Move images to `location_<place>/<label>`; one with several labels is in each of their folders.

    annotations: folder below `content` with files in the format COCO Camera Traps. images: folder of the images. Both
    are removed, with the images of other places or labels. A call that was cut off is continued.
    """
    for path in sorted((content / annotations).glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        names = {category["id"]: category["name"] for category in data["categories"]}
        pictures = {image["id"]: image for image in data["images"]}
        for annotation in data["annotations"]:
            image, label = pictures[annotation["image_id"]], names[annotation["category_id"]]
            if str(image["location"]) not in locations or label not in labels:
                continue
            folder = content / f"location_{image['location']}" / label
            folder.mkdir(parents=True, exist_ok=True)
            name = Path(image["file_name"]).name
            if not (folder / name).exists():
                os.link(content / images / name, folder / name)
    for folder in (content / images, content / annotations):
        shutil.rmtree(folder, ignore_errors=True)
