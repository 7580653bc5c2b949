"""Where prepared images and networks are kept, and how prepared images become training data.

`<prepared_dir>/<suite>/<source>-<fingerprint>/` belongs to one collection of images: what is made of other images, or
of these after a change, can't be taken for theirs. In it are `<what>/manifest.json`, `<what>/images/<id>.<format>` and
`networks/<kind>.pt`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.registry import Registry
from biasbed.system import commands
from biasbed.system.files import write_whole
from biasbed.system.places import own_home
from biasbed.system.strict import MANY_PARTS, parse_json

if TYPE_CHECKING:
    from biasbed.data.folders import FolderSource
    from biasbed.data.source import Source

# What `prepare` makes; of images, also what training data may be made of a suite's own.
MAKERS = Registry(
    "what",
    {
        "style_network": "biasbed.prepare.style:StyleNetwork",
        "cae_network": "biasbed.prepare.autoencoder:CAENetwork",
        "edsr_network": "biasbed.prepare.superresolution:EDSRNetwork",
        "stylized": "biasbed.prepare.stylize:StylizedImages",
        "deepaug_cae": "biasbed.prepare.deepaug:CAEImages",
        "deepaug_edsr": "biasbed.prepare.deepaug:EDSRImages",
        "waterbirds": "biasbed.prepare.waterbirds:WaterbirdsMaker",
        "corruptions": "biasbed.prepare.corrupted_images:CorruptionsMaker",
        "check": "biasbed.prepare.doctor:Check",
    },
    base="biasbed.prepare.maker:Maker",
    kind="maker",
)
MANIFEST = "manifest.json"


def base(prepared_dir: str) -> Path:
    """The folder of everything prepared; `auto`: in `$BIASBED_HOME`, else in `~/.biasbed`."""
    if prepared_dir != "auto":
        return Path(prepared_dir).expanduser().resolve()
    return own_home() / "prepared"


@dataclass(frozen=True)
class ImagesManifest:
    """What a folder of prepared images holds, and how it was made."""

    what: str
    source: str
    source_fingerprint: str
    images: int
    format: str
    settings: Mapping[str, Any]  # all that the images depend on, networks by fingerprint
    skipped: tuple[str, ...] = ()  # ids of images that could not be read
    complete: bool = False

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / MANIFEST, json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    @classmethod
    def read(cls, folder: Path) -> ImagesManifest | None:
        """The manifest of a folder, None where there is none; Failure where it is damaged."""
        try:
            values = parse_json((folder / MANIFEST).read_bytes(), MANY_PARTS)
            found = cls(**{**values, "skipped": tuple(values["skipped"])})
            if not isinstance(found.settings, dict):
                raise ValueError("its settings are no names with values")
            return found
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise Failure(f"{folder / MANIFEST} is damaged ({error}): remove {folder} and prepare it again") from None


@dataclass(frozen=True)
class PreparedStore:
    """The prepared images and networks of one suite."""

    root: Path
    flags: tuple[tuple[str, str], ...]  # what a command needs to mean the same training data

    def folder(self, source: Source) -> Path:
        return self.root / f"{source.name}-{source.fingerprint()[:8]}"

    def network(self, source: Source, kind: str) -> Path:
        return self.folder(source) / "networks" / f"{kind}.pt"

    def images(self, source: Source, what: str) -> Path:
        return self.folder(source) / what

    def has_images(self, source: Source, what: str) -> bool:
        """Whether copies of this name are there, by whatever maker, if not all of them."""
        return (self.images(source, what) / MANIFEST).is_file()

    def existing_network(self, source: Source, kind: str) -> Path:
        """UsageError with the command that prepares it where there is none."""
        path = self.network(source, kind)
        if not path.is_file():
            raise UsageError(
                f"this needs a network '{kind}' that has not been prepared: {self.hint(f'{kind}_network')}"
            )
        return path

    def open_images(self, whole: Source, what: str, wanted: Source) -> FolderSource:
        """The prepared copies of the images of `wanted`, a part of `whole`, with their labels.

        UsageError with the command that makes them where there are none, or not all.
        """
        from biasbed.data.folders import FolderSource

        folder = self.images(whole, what)
        manifest = ImagesManifest.read(folder)
        if manifest is None or not manifest.complete:
            state = "have not been prepared" if manifest is None else "are not complete yet"
            raise UsageError(f"the images '{what}' of '{whole.name}' {state}: {self.hint(what)}")
        skipped = set(manifest.skipped)
        rows = [row for row, name in enumerate(wanted.ids) if name not in skipped]
        ids = [f"{wanted.ids[row]}.{manifest.format}" for row in rows]
        name = record.slug(f"{wanted.name}_{what}")
        return FolderSource(
            name=name, classes=wanted.classes, y=np.asarray(wanted.y)[rows], ids=ids, root=folder / "images"
        )

    def hint(self, what: str, split: str = "train") -> str:
        """The command that prepares it, as the user runs commands."""
        words = (("what", what), *((("split", split),) if split != "train" else ()), *self.flags)
        return commands.typed("prepare", dict(words))
