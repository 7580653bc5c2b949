"""Croissant descriptions of prepared data sets: `croissant.json`, which other tools read records from.

Croissant 1.0 is JSON-LD of schema.org (Akhtar et al., Croissant: A Metadata Format for ML-Ready Datasets, 2024). The
images are a file set; a table, `images.parquet`, has a row for each with its label and SHA-256.

Answers: What does a prepared data set's croissant.json say, and how is it made?
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biasbed import __version__
from biasbed.datasets.releases import Release
from biasbed.settings import setting
from biasbed.system import files
from biasbed.system.code import git_state
from biasbed.system.terminal import ProgressBar

DESCRIPTION, TABLE = "croissant.json", "images.parquet"
IMAGE_SET, RECORDS = "image-files", "images"
PARQUET, JSON = "application/x-parquet", "application/json"
ENCODINGS = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg"}
WHOLE_PATH = "^(.*)$"  # as text: a path itself is equal to no value of the table

# Terms of the standard, as every Croissant file has them.
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{name: {"@id": f"cr:{name}", "@type": "@json"} for name in ("data", "examples")},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    **{
        name: f"cr:{name}"
        for name in (
            *("citeAs", "column", "equivalentProperty", "extract", "field", "fileObject", "fileProperty", "fileSet"),
            *("format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
            *("references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField"),
            "transform",
        )
    },
}


@dataclass(frozen=True)
class DescribedOptions:
    """Setting of makers whose product is described for other tools."""

    croissant: bool = setting(True, "describe the images in croissant.json, with the SHA-256 of each file")


@dataclass(frozen=True)
class DataDescription:
    """Facts about a prepared data set."""

    name: str
    text: str  # what it is and how it was made, in sentences
    sources: Mapping[str, Release | None] = field(default_factory=dict)  # data sets that it was made of, by name
    cited: str = ""  # paper of the method that made it

    @property
    def licences(self) -> list[str]:
        """Licences of the sources that are published."""
        return [f"{name}: {release.licence}" for name, release in self.sources.items() if release is not None]

    @property
    def origins(self) -> list[str]:
        """Addresses of the published sources, names of the others."""
        return [name if release is None else release.source for name, release in self.sources.items()]


def describe_images(
    folder: Path, about: DataDescription, names: Sequence[str], columns: Mapping[str, Sequence[Any]], further: str = ""
) -> Path:
    """Write the table of the images in a folder and its Croissant description; return the description's path.

    names: of the images' files, relative to the folder. columns: further columns of the table. further: another file
    of the folder, to be named with its checksum.
    """
    import pyarrow
    from pyarrow import parquet

    digests: list[str] = []
    with ProgressBar(len(names), "checksum") as bar:
        for name in names:
            digests.append(files.sha256(folder / name))
            bar.tick()
    table = pyarrow.table({"file": list(names), **columns, "sha256": digests})
    with files.atomic_file(folder / TABLE) as temporary:
        parquet.write_table(table, temporary)
    suffixes = sorted({Path(name).suffix for name in names})
    patterns = sorted({f"{_first_folder(name)}*{Path(name).suffix}" for name in names})
    image_set = {
        "@type": "cr:FileSet",
        "@id": IMAGE_SET,
        "name": IMAGE_SET,
        "description": "the images",
        "encodingFormat": sorted({ENCODINGS[suffix[1:].lower()] for suffix in suffixes}),
        "includes": patterns,
    }
    distribution = [_file_object(folder, TABLE, PARQUET), image_set]
    if further:
        distribution.append(_file_object(folder, further, JSON))
    image = {"fileSet": {"@id": IMAGE_SET}, "extract": {"fileProperty": "content"}}
    path = {"fileSet": {"@id": IMAGE_SET}, "extract": {"fileProperty": "fullpath"}, "transform": {"regex": WHOLE_PATH}}
    fields = [
        {**_field("file", "sc:Text", path), "references": _column(TABLE, "file")},
        _field("image", "sc:ImageObject", image),
        *(_field(name, _kind(values), _column(TABLE, name)) for name, values in columns.items()),
        _field("sha256", "sc:Text", _column(TABLE, "sha256")),
    ]
    return _write(folder, about, distribution, fields)


def describe_shards(
    folder: Path, about: DataDescription, digests: Mapping[str, str], kinds: Mapping[str, str], has_images: bool
) -> Path:
    """Write the description of Parquet shards whose column `image` has files and their names.

    digests: SHA-256 of each shard. kinds: type of each further column, as `sc:Integer`. has_images: False if the bytes
    are raw pixels, which no other tool decodes.
    """
    distribution = [{**_file_object(folder, name, PARQUET, digest)} for name, digest in digests.items()]
    shards = {
        "@type": "cr:FileSet",
        "@id": "shards",
        "name": "shards",
        "description": "the shards",
        "encodingFormat": PARQUET,
        "includes": "images-*.parquet",
    }
    fields = [_field("file", "sc:Text", _shard_column("image", "path"))]
    if has_images:
        fields.append(_field("image", "sc:ImageObject", _shard_column("image", "bytes")))
    fields += [_field(name, kind, _shard_column(name)) for name, kind in kinds.items()]
    return _write(folder, about, [*distribution, shards], fields)


def _first_folder(name: str) -> str:
    head, slash, _ = name.partition("/")
    return f"{head}/" if slash else ""


def _shard_column(name: str, path: str = "") -> dict[str, Any]:
    column: dict[str, Any] = {"fileSet": {"@id": "shards"}, "extract": {"column": name}}
    return {**column, "transform": {"jsonPath": path}} if path else column


def _column(file: str, name: str) -> dict[str, Any]:
    return {"fileObject": {"@id": file}, "extract": {"column": name}}


def _kind(values: Sequence[Any]) -> str:
    return "sc:Integer" if len(values) and isinstance(values[0], int) else "sc:Text"


def _field(name: str, kind: str, source: Mapping[str, Any]) -> dict[str, Any]:
    identity = f"{RECORDS}/{name}"
    return {"@type": "cr:Field", "@id": identity, "name": identity, "dataType": kind, "source": dict(source)}


def _file_object(folder: Path, name: str, encoding: str, digest: str = "") -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{(folder / name).stat().st_size} B",
        "encodingFormat": encoding,
        "sha256": digest or files.sha256(folder / name),
    }


def _write(
    folder: Path, about: DataDescription, distribution: Sequence[Mapping[str, Any]], fields: Sequence[Mapping[str, Any]]
) -> Path:
    commit, is_dirty = git_state()
    code = f", commit {commit}{' with changes' * (is_dirty == 'true')}" if commit else ""
    origins = about.origins
    document: dict[str, Any] = {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "name": about.name,
        "description": f"{about.text} Made by biasbed {__version__}{code}.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "version": "1.0.0",
        "datePublished": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "creator": {"@type": "sc:Organization", "name": "made with biasbed"},
    }
    if about.licences:
        document["license"] = about.licences
    if about.cited:
        document["citeAs"] = about.cited
    addresses = [origin for origin in origins if origin.startswith(("http://", "https://")) and " " not in origin]
    if addresses:
        document["url"] = addresses[0]
    if origins:
        document["isBasedOn"] = origins
    document["distribution"] = list(distribution)
    document["recordSet"] = [{"@type": "cr:RecordSet", "@id": RECORDS, "name": RECORDS, "field": list(fields)}]
    path = folder / DESCRIPTION
    files.write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path
