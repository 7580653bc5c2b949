"""Loader of logged models that take images: paths, encoded bytes or arrays in, names of classes and scores out.

MLflow copies this file into each logged model, and imports it where biasbed need not be installed. So it imports
nothing of biasbed.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn
from torch.nn import functional

SETTINGS_FILE = "images.json"
COLUMN = "image"
TOP = 5
GREY = 128  # level beside an image that is smaller than the crop
# EXIF orientation of a TIFF file -> what undoes the turn that Pillow gives to no other format (`data/decoding.py`).
UNDO = {
    **{2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM},
    **{5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE},
    **{8: Image.Transpose.ROTATE_270},
}
SERVER = "__pyfunc_model_path__"  # environment variable of the processes of `mlflow models serve`


class ImageClassifier:
    """Exported network with its preprocessing and the names of its classes.

    settings: `size` of the network's images; `short`, the short side before the centre crop, None for a resize without
    a crop; `share` of the short side that is cropped first, if the crop comes first; `crop`, `squash` if `short` is
    for both sides and `border` if it is for the long side; `interpolation`; `channels`; `classes`; `several`, True if
    an image may have several labels.
    """

    def __init__(self, network: nn.Module, settings: dict[str, Any]) -> None:
        self.network, self.settings = network, settings

    def get_raw_model(self) -> nn.Module:
        """Return the network: images float32 [N,C,S,S] in [0,1] -> logits."""
        return self.network

    @torch.no_grad()
    def predict(self, data: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return a row for each image: class, score, and the best classes with their scores.

        data: frame with the column `image`, whose cells are paths of files, the content of image files as bytes or in
        base64, arrays uint8 [H,W,3], or arrays of floats [C,S,S] in [0,1] that are prepared already. Raises ValueError,
        in one line, for a cell that is none of these.
        """
        cells = data[COLUMN]
        if len(cells) == 1 and isinstance(cells[0], list) and all(isinstance(cell, str) for cell in cells[0]):
            cells = cells[0]  # a dict of lists arrives as one row
        images = [self._prepare(cell) for cell in cells]
        if not images:
            return pd.DataFrame(columns=["class", "score", "classes", "scores"])
        logits = torch.cat([self.network(image[None]).float() for image in images])
        scores = logits.sigmoid() if self.settings["several"] else logits.softmax(dim=1)
        return pd.DataFrame([self._row(*rows) for rows in zip(logits, scores, strict=True)])

    def _row(self, logits: Tensor, scores: Tensor) -> dict[str, Any]:
        names = self.settings["classes"]
        # By logits, as in evaluation: small probabilities may be equal where logits are not.
        order = logits.argsort(descending=True, stable=True)[:TOP].tolist()
        values = scores.double().tolist()
        best = names[order[0]]
        if self.settings["several"]:
            best = "+".join(name for name, score in zip(names, values, strict=True) if score > 0.5)
        return {
            "class": best,
            "score": values[order[0]],
            "classes": [names[k] for k in order],
            "scores": [values[k] for k in order],
        }

    def _prepare(self, cell: Any) -> Tensor:
        """Return an image as the network takes it: float32 [C,S,S] in [0,1]."""
        if isinstance(cell, str | bytes | Path):
            return self._transform(self._open(cell))
        array = np.asarray(cell)
        size, channels = self.settings["size"], self.settings["channels"]
        if array.dtype.kind == "f" and array.shape == (channels, size, size):
            return torch.as_tensor(array, dtype=torch.float32)
        is_levels = array.dtype.kind in "iu" and array.ndim == 3 and array.min(initial=0) >= 0
        if is_levels and array.shape[2] == channels and array.max(initial=0) <= 255:
            return self._transform(torch.as_tensor(array.astype(np.uint8)).permute(2, 0, 1))
        raise ValueError(
            f"image: an array of {array.dtype} {list(array.shape)}; give integers from 0 to 255 [H,W,{channels}], "
            f"or floats [{channels},{size},{size}] in [0,1]"
        )

    def _open(self, cell: str | bytes | Path) -> Tensor:
        """Decode an image: uint8 [C,H,W]."""
        content = read_content(cell)
        try:
            with Image.open(io.BytesIO(content)) as image:
                turn = UNDO.get(image.getexif().get(0x0112, 1)) if image.format == "TIFF" else None
                converted = image.convert("L" if self.settings["channels"] == 1 else "RGB")
                pixels = np.array(converted if turn is None else converted.transpose(turn))
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"image: {len(content)} bytes that can't be decoded as an image ({error})") from None
        return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)

    def _transform(self, image: Tensor) -> Tensor:
        """Crop and resize uint8 [C,H,W] as in the tests of the training (biasbed's `data/transforms.py`)."""
        size, share = self.settings["size"], self.settings["share"]
        height, width = image.shape[1:]
        least = min(height, width)
        if share is not None:
            side = int(share * least)
            top, left = (height - side) // 2, (width - side) // 2
            resized = self._resize(image[:, top : top + side, left : left + side], [size, size])
        elif self.settings["short"] is None:
            resized = self._resize(image, [size, size])
        else:
            resized = self._crop(self._resize(image, self._target(height, width)))
        return resized.float() / 255

    def _target(self, height: int, width: int) -> list[int]:
        """Return height and width of an image before the centre crop."""
        short, crop = self.settings["short"], self.settings.get("crop", "centre")
        if crop == "squash":
            return [short, short]
        if crop == "border":
            ratio = max(height, width) / short
            return [max(1, round(length / ratio)) for length in (height, width)]
        return [int(short * length / min(height, width)) for length in (height, width)]

    def _crop(self, image: Tensor) -> Tensor:
        """Return the centre of an image, with grey where the image is smaller."""
        size = self.settings["size"]
        top, left = (max(round((length - size) / 2), 0) for length in image.shape[1:])
        image = image[:, top:, left:][:, :size, :size]
        result = image.new_full((len(image), size, size), GREY)
        top, left = ((size - length) // 2 for length in image.shape[1:])
        result[:, top : top + image.shape[1], left : left + image.shape[2]] = image
        return result

    def _resize(self, image: Tensor, target: list[int]) -> Tensor:
        if list(image.shape[1:]) == target:
            return image
        mode = self.settings["interpolation"]
        return functional.interpolate(image[None], size=target, mode=mode, antialias=True)[0]


def read_content(cell: str | bytes | Path) -> bytes:
    """Return the content of an image file: bytes, base64 (also as a data URL), or of the file at a path.

    A server reads no paths: its clients could ask it for any file. Raises ValueError for text that is neither.
    """
    if isinstance(cell, bytes):
        return cell
    text = str(cell)
    path = Path(text).expanduser() if len(text) < 4096 and "\0" not in text else None
    if SERVER not in os.environ and path is not None and path.is_file():
        return path.read_bytes()
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        expected = "base64" if SERVER in os.environ else "the path of a file, nor base64"
        raise ValueError(f"image: {shown!r} is not {expected}") from None


def _load_pyfunc(path: str) -> ImageClassifier:
    """Load a logged model. MLflow calls it by name."""
    import mlflow.pytorch

    settings = json.loads((Path(path) / SETTINGS_FILE).read_text())
    return ImageClassifier(mlflow.pytorch.load_model(path), settings)
