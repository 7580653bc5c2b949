"""Archive of runs: the file that `export` writes and `import` reads.

A zip file with `manifest.json` (format, version, the runs) and per run in `runs/<id>/` a `run.json` (the fields of
MLflow), a `metrics.csv` (metric,step,timestamp,value; every row) and its `artifacts/`. An archive may come from
anywhere, so all of it is checked when it is opened, before anything is imported.

Answers: What is in an exported file of runs, and what is checked?
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import lzma
import posixpath
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from biasbed import __version__
from biasbed.errors import UsageError
from biasbed.settings import is_text
from biasbed.system import formats
from biasbed.system.csv_tables import BoundedLines
from biasbed.system.files import atomic_file
from biasbed.system.strict import parse_float, parse_int, parse_json
from biasbed.tracking import notes
from biasbed.tracking.metric_histories import MetricRow

FORMAT, VERSION = "biasbed-runs", 1
MANIFEST, RUN, METRICS, ARTIFACTS = "manifest.json", "run.json", "metrics.csv", "artifacts"
PACKED = (".parquet", ".png", ".ckpt", ".jpg", ".zip", ".npz", ".pt2")  # deflating makes these no smaller
# Limit of the unpacked size, relative to the archive's: texts and tables shrink to a hundredth at most.
LARGEST_RATIO, ALWAYS_ALLOWED = 200, 16 * 2**20
BLOCK = 2**20  # bytes that are unpacked at a time

RunId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]

# Limits of MLflow's stores (mlflow.utils.validation and the columns of its tables, 3.17): values that they would refuse
# in the middle of an import are refused before it.
LONGEST_NAME, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 8000
LARGEST_INT = 2**63 - 1
MOST_METRICS = 5_000_000  # lines of a run's metrics
Time = Annotated[int, Field(ge=0, le=LARGEST_INT)]
_NAME = re.compile(r"[/\w.\- :]+")


def _check_name(name: str) -> str:
    """Return the key of a parameter, tag or metric. Raises ValueError for a key that MLflow refuses."""
    is_path = posixpath.normpath(name) == name and not name.startswith(("/", "..")) and name != "."
    if not is_path or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ValueError(f"{name[:60]!r} can't be a name")
    return name


Name = Annotated[str, AfterValidator(_check_name)]
LONGEST_PART, LONGEST_PATH = 255, 1000  # bytes of a file's name, and of an artifact's whole path
# Errors that Python's reader raises for damaged zip files, and for other files.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError, ValueError),
    *(LookupError, NotImplementedError, OverflowError),
)


@dataclass(frozen=True)
class Input:
    """Data set that a run used."""

    name: Annotated[str, Field(max_length=500)]
    digest: Annotated[str, Field(max_length=36)]
    source_type: Annotated[str, Field(max_length=36)]
    source: Annotated[str, Field(max_length=65_535)]
    schema: Annotated[str, Field(max_length=1_048_575)] | None
    profile: Annotated[str, Field(max_length=16_777_215)] | None
    tags: dict[Annotated[str, Field(max_length=255)], Annotated[str, Field(max_length=500)]]


@dataclass(frozen=True)
class ArchivedRun:
    """Run without its metrics and artifacts. Ids are those of the server where it was trained."""

    run_id: RunId
    server: Annotated[str, Field(max_length=LONGEST_TAG)]
    name: Annotated[str, Field(max_length=LONGEST_NAME)]
    experiment: Annotated[str, Field(min_length=1, max_length=256)]
    status: Literal["FINISHED", "FAILED", "KILLED"]
    start_time: Time
    end_time: Time | None
    parent: RunId | Literal[""]
    params: dict[Name, Annotated[str, Field(max_length=LONGEST_PARAM)]]
    tags: dict[Name, Annotated[str, Field(max_length=LONGEST_TAG)]]
    inputs: list[Input]


@dataclass(frozen=True)
class ArchiveManifest:
    """Manifest: table of contents of an archive."""

    format: str
    version: int
    biasbed: str
    runs: list[RunId]


# --- writing ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def new_archive(path: Path) -> Iterator[ArchiveWriter]:
    """Yield an archive to add runs to; the file appears at the end of the block."""
    with atomic_file(path) as temporary, zipfile.ZipFile(temporary, "w") as packed:
        archive = ArchiveWriter(packed)
        yield archive
        archive.describe()


class ArchiveWriter:
    """Writer of runs into a zip file."""

    def __init__(self, packed: zipfile.ZipFile) -> None:
        self.zip = packed
        self.runs: list[str] = []

    def add_run(self, run: ArchivedRun, rows: Iterable[MetricRow], artifacts: Path) -> None:
        """Add a run with its metric rows and the files in the folder `artifacts`."""
        folder = f"runs/{run.run_id}"
        self._add(f"{folder}/{RUN}", (json.dumps(asdict(run), indent=1) + "\n").encode())
        text = io.StringIO(newline="")
        csv.writer(text).writerows([("metric", "step", "timestamp", "value"), *rows])
        self._add(f"{folder}/{METRICS}", text.getvalue().encode())
        for file in sorted(path for path in artifacts.rglob("*") if path.is_file()):
            self._add(f"{folder}/{ARTIFACTS}/{file.relative_to(artifacts).as_posix()}", file)
        self.runs.append(run.run_id)

    def _add(self, name: str, content: bytes | Path) -> None:
        packing = zipfile.ZIP_STORED if name.endswith(PACKED) else zipfile.ZIP_DEFLATED
        if isinstance(content, Path):
            self.zip.write(content, name, packing)
        else:
            self.zip.writestr(name, content, packing)

    def describe(self) -> None:
        """Write the manifest."""
        manifest = ArchiveManifest(FORMAT, VERSION, __version__, self.runs)
        self.zip.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1), zipfile.ZIP_DEFLATED)


# --- reading ----------------------------------------------------------------------------------------------------------


class Archive:
    """Open archive whose content has been checked: it is complete, undamaged and safe to unpack."""

    def __init__(self, path: Path) -> None:
        """Open and check an archive. Raises UsageError if it is damaged, unsafe, or of another version."""
        self.path = path
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(path.open("rb"))
            try:
                self.zip = opened.enter_context(zipfile.ZipFile(file))
                self.manifest = self._check()
                self.runs = [self._read_run(run_id) for run_id in self.manifest.runs]
                for run_id in self.manifest.runs:
                    for _ in self.metrics(run_id):  # reading checks every row; none is kept
                        pass
            except _DAMAGED as error:
                reason = " ".join(str(error).split())[:400] or type(error).__name__
                raise UsageError(f"{path} is no whole archive of runs ({reason}): export or copy it again") from None
            opened.pop_all()

    def metrics(self, run_id: str) -> Iterator[MetricRow]:
        """Yield every row of a run's metrics. Raises ValueError for a line that is invalid or that MLflow refuses."""
        lines = BoundedLines(io.StringIO())
        try:
            with self.zip.open(f"runs/{run_id}/{METRICS}") as file:
                lines = BoundedLines(io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline=""))
                rows = csv.reader(lines, strict=True)
                next(rows, None)
                for row in rows:
                    lines.end_row()
                    if lines.number > MOST_METRICS:
                        raise ValueError(f"it has more than {MOST_METRICS:,} lines")
                    metric, step, time, value = row
                    yield _check_name(metric), parse_int(step), parse_int(time, 0), parse_float(value)
        except (ValueError, csv.Error) as error:
            raise ValueError(f"the metrics of run {run_id}, line {lines.number}: {error}") from None

    def unpack(self, run_id: str, folder: Path) -> None:
        """Unpack a run's artifacts into a folder."""
        prefix = f"runs/{run_id}/{ARTIFACTS}/"
        for name in self.zip.namelist():
            if name.startswith(prefix):
                target = folder / name.removeprefix(prefix)
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

    # --- checks, which raise ValueError or what Python's reader raises -----------------------------------------------

    def _check(self) -> ArchiveManifest:
        """Check sizes, names and checksums of all members, and return the manifest."""
        members = self.zip.infolist()
        names = {member.filename for member in members}
        if sum(member.file_size for member in members) > LARGEST_RATIO * self.path.stat().st_size + ALWAYS_ALLOWED:
            raise ValueError("it would unpack to far more than runs need")
        unsafe = [name for name in names if not _is_safe(name)]
        if unsafe:
            raise ValueError(f"it holds the unsafe name {unsafe[0][:200]!r}")
        folders: set[str] = set()
        for name in names:
            folders.update(map(str, PurePosixPath(name).parents))
        both = sorted(folders & names)
        if both:
            raise ValueError(f"it holds a file and a folder of the name {both[0][:200]!r}")
        if len(names) != len(members):
            raise ValueError("a file is there twice")
        manifest = self._read_manifest()
        for run_id in manifest.runs:
            self.zip.getinfo(f"runs/{run_id}/{METRICS}")
        damaged = self.zip.testzip()
        if damaged is not None:
            raise ValueError(f"checksum of {damaged}")
        return manifest

    def _read_manifest(self) -> ArchiveManifest:
        """Read and check the manifest: format and version are ours, and no run is there twice."""
        values = parse_json(self.zip.read(MANIFEST))
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError(f"its {MANIFEST} has another format")
        if values.get("version") != VERSION:
            raise ValueError(
                f"it is in version {values.get('version')} of the format; this biasbed reads version {VERSION}"
            )
        manifest = formats.check(ArchiveManifest, values)
        twice = [run_id for run_id, count in Counter(manifest.runs).items() if count > 1]
        if twice:
            raise ValueError(f"the run {twice[0]} is there twice")
        return manifest

    def _read_run(self, run_id: str) -> ArchivedRun:
        """Read and check the `run.json` of a run."""
        name = f"runs/{run_id}/{RUN}"
        try:
            values = parse_json(self.zip.read(name))
            if not _is_storable(values):
                raise ValueError("it has characters that no database keeps")
            run = formats.check(ArchivedRun, values)
            if run.run_id != run_id or (run.name and run.tags.get(notes.NAME, run.name) != run.name):
                raise ValueError("it has the id or the name of another run")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return run


def _is_safe(name: str) -> bool:
    """Return True if a member's name, unchanged, is a path inside the folder that it is unpacked to."""
    path, content = PurePosixPath(name), name.encode(errors="replace")
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in name or str(path) != name:
        return False
    return len(content) <= LONGEST_PATH and max(len(part) for part in content.split(b"/")) <= LONGEST_PART


def _is_storable(value: object) -> bool:
    """Return True if no text in a JSON value has a NUL or half a surrogate pair."""
    if isinstance(value, dict):
        return all(map(_is_storable, (*value.keys(), *value.values())))
    if isinstance(value, list):
        return all(map(_is_storable, value))
    return not isinstance(value, str) or ("\0" not in value and is_text(value))
