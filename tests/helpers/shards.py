"""Writers of small image data sets as a folder, as Parquet files of the hub and as WebDataset shards."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import parquet


class Example(NamedTuple):
    """Image, and its columns in words."""

    name: str
    label: str
    content: bytes
    domain: str = ""
    bias: str = ""
    split: str = "train"


def make_examples(labels: Sequence[str], count: int, **columns: str) -> list[Example]:
    """Return images of random pixels, in an order that mixes the classes; every third is a PNG file."""
    generator = np.random.default_rng(len(labels))
    examples = []
    for number in range(count):
        for label in labels:
            suffix = "png" if number % 3 == 2 else "jpg"
            pixels = generator.integers(0, 256, (30 + 5 * number, 40, 3), dtype=np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, "PNG" if suffix == "png" else "JPEG")
            name = f"{columns.get('domain', '')}é{number}-{label}.{suffix}"
            examples.append(Example(name, label, buffer.getvalue(), **columns))
    return examples


def write_folder(folder: Path, examples: Sequence[Example], *parts: str) -> None:
    """Write images as `<parts>/<label>/<name>`; parts: fields, as `domain`."""
    for example in examples:
        path = folder.joinpath(*(getattr(example, part) for part in parts), example.label, example.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(example.content)


def write_parquet(
    folder: Path,
    examples: Sequence[Example],
    names: Sequence[str],
    split: str = "train",
    shards: int = 2,
    compression: str = "snappy",
    **replaced: Any,
) -> None:
    """Write shards as the `datasets` library does. names: of the labels in order. replaced: columns, None: without."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = np.linspace(0, len(examples), shards + 1).astype(int)
    for number in range(shards):
        part = examples[bounds[number] : bounds[number + 1]]
        images = [{"bytes": example.content, "path": example.name} for example in part]
        columns: dict[str, Any] = {
            "image": pa.array(images, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            "label": [names.index(example.label) for example in part],
        }
        features: dict[str, Any] = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        for role in ("domain", "bias"):
            if any(getattr(example, role) for example in part):
                columns[role] = [getattr(example, role) for example in part]
                features[role] = {"dtype": "string", "_type": "Value"}
        columns = {name: column for name, column in (columns | replaced).items() if column is not None}
        features = {name: feature for name, feature in features.items() if name in columns and name not in replaced}
        about = {"huggingface": json.dumps({"info": {"features": features}})}
        table = pa.table(columns).replace_schema_metadata(about)
        path = folder / f"{split}-{number:05}-of-{shards:05}.parquet"
        parquet.write_table(table, path, compression=compression, row_group_size=3)


def add_member(archive: tarfile.TarFile, name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(content), kind, "elsewhere" * (kind == tarfile.SYMTYPE)
    archive.addfile(member, io.BytesIO(content))


def write_webdataset(folder: Path, examples: Sequence[Example], names: Sequence[str], shards: int = 2) -> None:
    """Write shards of samples with an image, a cls and, if there are domains or biases, a json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "classes.txt").write_text("\n".join(names) + "\n")
    bounds = np.linspace(0, len(examples), shards + 1).astype(int)
    for number in range(shards):
        with tarfile.open(folder / f"{number:06}.tar", "w") as archive:
            for example in examples[bounds[number] : bounds[number + 1]]:
                key, suffix = example.name.rsplit(".", 1)
                add_member(archive, f"{key}.{suffix}", example.content)
                add_member(archive, f"{key}.cls", str(names.index(example.label)).encode())
                more = {role: getattr(example, role) for role in ("domain", "bias") if getattr(example, role)}
                if more:
                    add_member(archive, f"{key}.json", json.dumps(more).encode())
