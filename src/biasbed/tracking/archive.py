"""The file that `export` writes and `import` reads.

A zip archive: `manifest.json` (format, version, the runs, size and SHA-256 of every other file), and per run in
`runs/<id>/` a `run.json` (what MLflow knows of it), a `metrics.csv` (metric,step,timestamp,value; every row) and its
`artifacts/`. All of an archive is checked when it is opened, before anything is made of it: it may come from anywhere.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import lzma
import posixpath
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from biasbed import __version__
from biasbed.errors import UsageError
from biasbed.settings import is_text
from biasbed.system.files import whole
from biasbed.system.strict import parse_float, parse_int, parse_json
from biasbed.tracking import notes

T = TypeVar("T")

FORMAT, VERSION = "biasbed-runs", 1
MANIFEST, RUN, METRICS, ARTIFACTS = "manifest.json", "run.json", "metrics.csv", "artifacts"
PACKED = (".parquet", ".png", ".ckpt", ".jpg", ".zip", ".npz", ".pt2")  # that deflating makes no smaller
# What unpacking may need, by the archive's own size: texts and tables are packed to a hundredth at most.
LARGEST_RATIO, ALWAYS_ALLOWED = 200, 16 * 2**20
BLOCK = 2**20

MetricRow = tuple[str, int, int, float]  # metric, step, timestamp in ms, value
RunId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]

# What MLflow's stores take (mlflow.utils.validation and the columns of its tables, 3.17): what they would refuse in the
# middle of an import is refused before it.
LONGEST_NAME, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 8000
LARGEST_INT = 2**63 - 1
MOST_METRICS = 5_000_000  # lines of a run's metrics
Time = Annotated[int, Field(ge=0, le=LARGEST_INT)]
_NAME = re.compile(r"[/\w.\- :]+")


def _checked_name(name: str) -> str:
    """A key of a parameter, tag or metric; ValueError for one that MLflow refuses."""
    is_path = posixpath.normpath(name) == name and not name.startswith(("/", "..")) and name != "."
    if not is_path or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ValueError(f"{name[:60]!r} can't be a name")
    return name


Name = Annotated[str, AfterValidator(_checked_name)]
LONGEST_PART, LONGEST_PATH = 255, 1000  # bytes of a file's name, and of an artifact's whole path
# What a zip file that is none, or no longer one, can make Python's reader raise.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError, ValueError),
    *(LookupError, NotImplementedError, OverflowError),
)


@dataclass(frozen=True)
class Input:
    """A data set that a run names."""

    name: Annotated[str, Field(max_length=500)]
    digest: Annotated[str, Field(max_length=36)]
    source_type: Annotated[str, Field(max_length=36)]
    source: Annotated[str, Field(max_length=65_535)]
    schema: Annotated[str, Field(max_length=1_048_575)] | None
    profile: Annotated[str, Field(max_length=16_777_215)] | None
    tags: dict[Annotated[str, Field(max_length=255)], Annotated[str, Field(max_length=500)]]


@dataclass(frozen=True)
class ArchivedRun:
    """A run, metrics and artifacts aside. Ids are those of the server where it was trained."""

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
class ArchivedFile:
    """A file of the archive."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class ArchiveManifest:
    """What an archive says of itself."""

    format: str
    version: int
    biasbed: str
    runs: list[RunId]
    files: dict[str, ArchivedFile]


# --- writing ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def new_archive(path: Path) -> Iterator[ArchiveWriter]:
    """An archive to add runs to, which is there at the end of the block; UsageError where it can't be written."""
    with whole(path) as temporary:
        try:
            packed = zipfile.ZipFile(temporary, "w")
        except OSError as error:
            raise UsageError(f"file={path} can't be written: {error.strerror}") from None
        with packed:
            archive = ArchiveWriter(packed)
            yield archive
            archive.describe()


class ArchiveWriter:
    """Puts runs into a zip file."""

    def __init__(self, packed: zipfile.ZipFile) -> None:
        self.zip = packed
        self.files: dict[str, ArchivedFile] = {}
        self.runs: list[str] = []

    def add_run(self, run: ArchivedRun, rows: Iterable[MetricRow], artifacts: Path) -> None:
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
            self.files[name] = ArchivedFile(digest, content.stat().st_size)
        else:
            self.zip.writestr(name, content, packing)
            self.files[name] = ArchivedFile(hashlib.sha256(content).hexdigest(), len(content))

    def describe(self) -> None:
        """The manifest, which is of all that was added."""
        manifest = ArchiveManifest(FORMAT, VERSION, __version__, self.runs, self.files)
        self.zip.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1), zipfile.ZIP_DEFLATED)


# --- reading ----------------------------------------------------------------------------------------------------------


class Archive:
    """An archive that was found whole and harmless."""

    def __init__(self, path: Path) -> None:
        """Check all of it. UsageError where it is damaged, unsafe, or of another version."""
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
        except _DAMAGED as error:
            raise UsageError(f"{path} is no archive of runs: {_one_line(error)}") from None
        try:
            self.manifest = self._checked()
            self.runs = [self._run(run_id) for run_id in self.manifest.runs]
            for run_id in self.manifest.runs:
                for _ in self.metrics(run_id):  # each is looked at, none is kept
                    pass
        except _DAMAGED as error:
            self.zip.close()
            raise UsageError(f"{path} is damaged ({_one_line(error)}): copy or export it again") from None
        except BaseException:
            self.zip.close()
            raise

    def metrics(self, run_id: str) -> Iterator[MetricRow]:
        """Yield every row of a run's metrics; UsageError names a line that is none, or that MLflow would refuse."""
        number = 1
        try:
            with self.zip.open(f"runs/{run_id}/{METRICS}") as file:
                rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""), strict=True)
                next(rows, None)
                for number, row in enumerate(rows, start=2):
                    yield _metric_row(row, number)
        except (ValueError, csv.Error) as error:
            where = f"the metrics of run {run_id} can't be read: line {number}"
            raise UsageError(f"{self.path}: {where}: {_one_line(error)}") from None

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

    def _checked(self) -> ArchiveManifest:
        members = self.zip.infolist()
        sizes = {member.filename: member.file_size for member in members}
        if sum(member.file_size for member in members) > LARGEST_RATIO * self.path.stat().st_size + ALWAYS_ALLOWED:
            raise UsageError(f"{self.path} would unpack to far more than runs need: it is not unpacked")
        unsafe = [name for name in sizes if not _is_safe(name)]
        if unsafe:
            raise UsageError(f"{self.path} holds the unsafe name {unsafe[0][:200]!r}: it is not unpacked")
        self._refuse_conflicts(sizes)
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

    def _refuse_conflicts(self, names: Iterable[str]) -> None:
        """UsageError where a name is a file's and a folder's."""
        folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        both = sorted(folders & set(names))
        if both:
            raise UsageError(f"{self.path} holds a file and a folder of the name {both[0][:200]!r}: it is not unpacked")

    def _manifest(self, sizes: Mapping[str, int]) -> ArchiveManifest:
        if MANIFEST not in sizes:
            raise UsageError(f"{self.path} is no archive of runs: it has no {MANIFEST}")
        try:
            values = parse_json(self.zip.read(MANIFEST))
        except ValueError as error:
            raise UsageError(
                f"{self.path} is damaged ({MANIFEST}: {_one_line(error)}): copy or export it again"
            ) from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise UsageError(f"{self.path} is no archive of runs: its {MANIFEST} has another format")
        if values.get("version") != VERSION:
            raise UsageError(
                f"{self.path} was written by biasbed {values.get('biasbed')} in version {values.get('version')} of the "
                f"format; this one reads version {VERSION}"
            )
        manifest = self._parsed(TypeAdapter(ArchiveManifest), values, MANIFEST)
        twice = [run_id for run_id, count in Counter(manifest.runs).items() if count > 1]
        if twice:
            raise UsageError(f"{self.path} is damaged (the run {twice[0]} is there twice): copy or export it again")
        return manifest

    def _run(self, run_id: str) -> ArchivedRun:
        name = f"runs/{run_id}/{RUN}"
        try:
            values = parse_json(self.zip.read(name))
        except ValueError as error:
            raise UsageError(f"{self.path}: {name} can't be read: {_one_line(error)}") from None
        if not _is_storable(values):
            raise UsageError(f"{self.path}: {name} can't be read: it has characters that no database keeps")
        run = self._parsed(TypeAdapter(ArchivedRun), values, name)
        if run.run_id != run_id:
            raise UsageError(f"{self.path}: {name} is about another run")
        if run.name and run.tags.get(notes.NAME, run.name) != run.name:
            raise UsageError(f"{self.path}: {name} can't be read: its run has two names")
        return run

    def _parsed(self, adapter: TypeAdapter[T], values: object, name: str) -> T:
        try:
            return adapter.validate_python(values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))[:80]
            raise UsageError(f"{self.path}: {name} can't be read: {place!r}: {first['msg']}") from None


def _metric_row(row: Sequence[str], number: int) -> MetricRow:
    """Return a line's values. Raises ValueError if it is none, or one too many."""
    if number > MOST_METRICS:
        raise ValueError(f"it has more than {MOST_METRICS:,} lines")
    metric, step, time, value = row
    return _checked_name(metric), parse_int(step), parse_int(time, 0), parse_float(value)


def _is_safe(name: str) -> bool:
    """Whether a member's name can be a file's, as it is, within the folder that it is unpacked to."""
    path, content = PurePosixPath(name), name.encode(errors="replace")
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in name or str(path) != name:
        return False
    return len(content) <= LONGEST_PATH and max(len(part) for part in content.split(b"/")) <= LONGEST_PART


def _is_storable(value: object) -> bool:
    """Whether no text in a JSON value has a NUL or half a character."""
    if isinstance(value, dict):
        return all(_is_storable(part) for entry in value.items() for part in entry)
    if isinstance(value, list):
        return all(map(_is_storable, value))
    return not isinstance(value, str) or ("\0" not in value and is_text(value))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
