"""The file that `export` writes and `import` reads.

A zip archive: `manifest.json` (format, version, the runs, size and SHA-256 of every other file), and per run in
`runs/<id>/` a `run.json` (what MLflow knows of it), a `metrics.csv` (metric,step,timestamp,value; every row) and its
`artifacts/`. All of an archive is checked when it is opened, before anything is made of it: it may come from anywhere.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from biasbed import __version__
from biasbed.errors import UsageError

T = TypeVar("T")

FORMAT, VERSION = "biasbed-runs", 1
MANIFEST, RUN, METRICS, ARTIFACTS = "manifest.json", "run.json", "metrics.csv", "artifacts"
PACKED = (".parquet", ".png", ".ckpt", ".jpg", ".zip", ".npz", ".pt2")  # that deflating makes no smaller
# What unpacking may need, by the archive's own size: texts and tables are packed to a hundredth at most.
LARGEST_RATIO, ALWAYS_ALLOWED = 200, 16 * 2**20
BLOCK = 2**20

Row = tuple[str, int, int, float]  # metric, step, timestamp in ms, value
RunId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


@dataclass(frozen=True)
class Input:
    """A data set that a run names."""

    name: str
    digest: str
    source_type: str
    source: str
    schema: str | None
    profile: str | None
    tags: dict[str, str]


@dataclass(frozen=True)
class ArchivedRun:
    """A run, metrics and artifacts aside. Ids are those of the server where it was trained."""

    run_id: RunId
    server: str
    name: str
    experiment: str
    status: Literal["FINISHED", "FAILED", "KILLED"]
    start_time: int
    end_time: int | None
    parent: RunId | Literal[""]
    params: dict[str, str]
    tags: dict[str, str]
    inputs: list[Input]


@dataclass(frozen=True)
class Entry:
    """A file of the archive."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What an archive says of itself."""

    format: str
    version: int
    biasbed: str
    runs: list[RunId]
    files: dict[str, Entry]


# --- writing ----------------------------------------------------------------------------------------------------------


class ArchiveWriter:
    """Writes an archive beside its place, and puts it there when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.part = path, path.with_name(f"{path.name}.part")
        self.files: dict[str, Entry] = {}
        self.runs: list[str] = []
        try:
            self.zip = zipfile.ZipFile(self.part, "w")
        except OSError as error:
            raise UsageError(f"file={path} can't be written: {error.strerror}") from None

    def add_run(self, run: ArchivedRun, rows: Iterable[Row], artifacts: Path) -> None:
        """artifacts: a folder whose files are the run's."""
        place = f"runs/{run.run_id}"
        self._add(f"{place}/{RUN}", (json.dumps(asdict(run), indent=1) + "\n").encode())
        text = io.StringIO(newline="")
        csv.writer(text).writerows([("metric", "step", "timestamp", "value"), *rows])
        self._add(f"{place}/{METRICS}", text.getvalue().encode())
        for file in sorted(path for path in artifacts.rglob("*") if path.is_file()):
            self._add(f"{place}/{ARTIFACTS}/{file.relative_to(artifacts).as_posix()}", file)
        self.runs.append(run.run_id)

    def _add(self, name: str, content: bytes | Path) -> None:
        packing = zipfile.ZIP_STORED if name.endswith(PACKED) else zipfile.ZIP_DEFLATED
        if isinstance(content, Path):
            with content.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self.zip.write(content, name, packing)
            self.files[name] = Entry(digest, content.stat().st_size)
        else:
            self.zip.writestr(name, content, packing)
            self.files[name] = Entry(hashlib.sha256(content).hexdigest(), len(content))

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            manifest = Manifest(FORMAT, VERSION, __version__, self.runs, self.files)
            self.zip.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1), zipfile.ZIP_DEFLATED)
        self.zip.close()
        if kind is None:
            os.replace(self.part, self.path)
        else:
            self.part.unlink(missing_ok=True)


# --- reading ----------------------------------------------------------------------------------------------------------


class Archive:
    """An archive that was found whole and harmless."""

    def __init__(self, path: Path) -> None:
        """Check all of it. UsageError where it is damaged, unsafe, or of another version."""
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise UsageError(f"{path} is no archive of runs: {error}") from None
        try:
            self.manifest = self._checked()
            self.runs = [self._run(run_id) for run_id in self.manifest.runs]
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError) as error:
            self.zip.close()
            raise UsageError(f"{path} is damaged ({error}): copy or export it again") from None
        except BaseException:
            self.zip.close()
            raise

    def metrics(self, run_id: str) -> list[Row]:
        """Every row of a run's metrics."""
        text = self.zip.read(f"runs/{run_id}/{METRICS}").decode()
        rows = csv.reader(io.StringIO(text, newline=""))
        next(rows, None)
        try:
            return [(metric, int(step), int(time), float(value)) for metric, step, time, value in rows]
        except ValueError as error:
            raise UsageError(f"{self.path}: the metrics of run {run_id} can't be read: {error}") from None

    def unpack(self, run_id: str, folder: Path) -> None:
        """A run's artifacts, into a folder."""
        place = f"runs/{run_id}/{ARTIFACTS}/"
        for name in self.manifest.files:
            if name.startswith(place):
                target = folder / name.removeprefix(place)
                target.parent.mkdir(parents=True, exist_ok=True)
                with self.zip.open(name) as packed, target.open("wb") as file:
                    while block := packed.read(BLOCK):
                        file.write(block)

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.zip.close()

    # --- checks ------------------------------------------------------------------------------------------------------

    def _checked(self) -> Manifest:
        members = self.zip.infolist()
        sizes = {member.filename: member.file_size for member in members}
        if sum(member.file_size for member in members) > LARGEST_RATIO * self.path.stat().st_size + ALWAYS_ALLOWED:
            raise UsageError(f"{self.path} would unpack to far more than runs need: it is not unpacked")
        unsafe = [name for name in sizes if not _is_safe(name)]
        if unsafe:
            raise UsageError(f"{self.path} holds the unsafe name {unsafe[0]!r}: it is not unpacked")
        manifest = self._manifest(sizes)
        wanted = {f"runs/{run_id}/{name}" for run_id in manifest.runs for name in (RUN, METRICS)}
        if len(sizes) != len(members) or set(sizes) != {MANIFEST, *manifest.files} or not wanted <= set(sizes):
            raise UsageError(f"{self.path} is damaged (other files than its manifest says): copy or export it again")
        for name, entry in manifest.files.items():
            with self.zip.open(name) as file:
                digest = hashlib.sha256()
                while block := file.read(BLOCK):
                    digest.update(block)
            if (digest.hexdigest(), sizes[name]) != (entry.sha256, entry.bytes):
                raise UsageError(f"{self.path} is damaged (checksum of {name}): copy or export it again")
        return manifest

    def _manifest(self, sizes: Mapping[str, int]) -> Manifest:
        if MANIFEST not in sizes:
            raise UsageError(f"{self.path} is no archive of runs: it has no {MANIFEST}")
        try:
            values = json.loads(self.zip.read(MANIFEST))
        except ValueError as error:
            raise UsageError(f"{self.path} is damaged ({MANIFEST}: {error}): copy or export it again") from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise UsageError(f"{self.path} is no archive of runs: its {MANIFEST} has another format")
        if values.get("version") != VERSION:
            raise UsageError(
                f"{self.path} was written by biasbed {values.get('biasbed')} in version {values.get('version')} of the "
                f"format; this one reads version {VERSION}"
            )
        return self._parsed(TypeAdapter(Manifest), values, MANIFEST)

    def _run(self, run_id: str) -> ArchivedRun:
        name = f"runs/{run_id}/{RUN}"
        try:
            values = json.loads(self.zip.read(name))
        except ValueError as error:
            raise UsageError(f"{self.path}: {name} can't be read: {error}") from None
        run = self._parsed(TypeAdapter(ArchivedRun), values, name)
        if run.run_id != run_id:
            raise UsageError(f"{self.path}: {name} is about another run")
        return run

    def _parsed(self, adapter: TypeAdapter[T], values: object, name: str) -> T:
        try:
            return adapter.validate_python(values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise UsageError(f"{self.path}: {name} can't be read: {place}: {first['msg']}") from None


def _is_safe(name: str) -> bool:
    """Whether a member's name stays within the folder that it is unpacked to."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\\" not in name
