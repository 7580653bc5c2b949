"""No file that is damaged or hostile does anything."""

from __future__ import annotations

import io
import json
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed import cli
from biasbed.errors import UsageError
from biasbed.tracking import archive
from biasbed.tracking.archive import Archive
from helpers.archives import rich_run, zipped
from helpers.runs import all_runs
from helpers.toy_runs import Recorder


def rewritten(file: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an archive with other members."""
    with zipfile.ZipFile(file) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    change(members)
    target = file.with_name("changed.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return target


def in_manifest(members: dict[str, bytes], **values: Any) -> None:
    members["manifest.json"] = json.dumps(json.loads(members["manifest.json"]) | values).encode()


def replaced(members: dict[str, bytes], part: str, content: bytes) -> None:
    """Other content of the member with this in its name."""
    name = next(name for name in members if part in name)
    members[name] = content


CHANGES: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "lost": (lambda m: m.pop(next(name for name in m if name.endswith("metrics.csv"))), "There is no item named"),
    "no manifest": (lambda m: m.pop("manifest.json"), "no item named 'manifest.json'"),
    "other zip": (lambda m: replaced(m, "manifest", b"[]"), "its manifest.json has another format"),
    "version": (lambda m: in_manifest(m, version=2), "in version 2 of the format; this biasbed reads version 1"),
    "run id": (lambda m: in_manifest(m, runs=["../../x"]), "runs[0]=../../x: string"),
    "parent folder": (lambda m: m.update({"runs/../../evil": b""}), "unsafe name 'runs/../../evil'"),
    "absolute": (lambda m: m.update({"/etc/evil": b""}), "unsafe name '/etc/evil'"),
    "bomb": (lambda m: replaced(m, "metrics.csv", b"0" * 40_000_000), "far more than runs need"),
    "status": (lambda m: replaced(m, "run.json", b"{}"), "run.json: 'run_id' is missing"),
    "rows": (lambda m: replaced(m, "metrics.csv", b"a,b,c,d\nx,y,z,w\n"), "line 2: 'y' is no 64-bit"),
}


def in_run(members: dict[str, bytes], **values: Any) -> None:
    """Other values in the run's description."""
    content = json.loads(next(members[name] for name in members if name.endswith("run.json"))) | values
    replaced(members, "run.json", json.dumps(content).encode())


def with_rows(content: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda m: replaced(m, "metrics.csv", b"metric,step,timestamp,value\r\n" + content)


def with_artifacts(*names: str) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        run = next(name for name in members if name.endswith("run.json")).removesuffix("run.json")
        for name in names:
            members[f"{run}artifacts/{name}"] = b""

    return change


# Whole, and yet nothing that MLflow takes.
CONTENT = {
    "long parameter": (lambda m: in_run(m, params={"x" * 251: "1"}), "can't be a name"),
    "NUL": (lambda m: in_run(m, tags={"a": "x\0y"}), "characters that no database keeps"),
    "long name": (lambda m: in_run(m, name="x" * 251), "at most 250 characters"),
    "no experiment": (lambda m: in_run(m, experiment=""), "'experiment' is empty"),
    "digest": (lambda m: in_run(m, inputs=[{**INPUT, "digest": "x" * 37}]), "at most 36 characters"),
    "deep": (lambda m: replaced(m, "run.json", b"[" * 100_000), "levels deep"),
    "metric above": (with_rows(b"../../a,0,0,0.5\r\n"), "line 2: '../../a' can't be a name"),
    "metric with NUL": (with_rows(b"a\0b,0,0,0.5\r\n"), "line 2: it has a NUL character"),
    "endless step": (with_rows(b"a," + b"1" * 5000 + b",0,0.5\r\n"), "line 2"),
    "endless line": (with_rows(b"a," + b"1," * 2**22), "line 2: it is longer than 4,194,304"),
    "time of a metric": (with_rows(b"a,0,-1,0.5\r\n"), "is no 64-bit number"),
    "no UTF-8": (with_rows(b"a\xff,0,0,0.5\r\n"), "the metrics of run"),
    "long field": (with_rows(b"a" * 140_000 + b",0,0,0.5\r\n"), "field larger than field limit"),
    "file and folder": (with_artifacts("a", "a/b"), "a file and a folder of the name"),
    "long artifact": (with_artifacts("x" * 256), "unsafe name"),
    "twice": (lambda m: in_manifest(m, runs=json.loads(m["manifest.json"])["runs"] * 2), "is there twice"),
}
INPUT = {
    "name": "a",
    "digest": "b",
    "source_type": "local",
    "source": "{}",
    "schema": None,
    "profile": None,
    "tags": {},
}


def test_a_damaged_file_is_refused_by_the_command_and_nothing_made(
    recorder: Recorder, move: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = CHANGES["lost"]
    file = rewritten(zipped(recorder, recorder.train("erm")), change)
    there = move("other")
    assert cli.main(["import", "--source", str(file)]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not all_runs(there)


def test_a_file_that_was_cut_or_flipped_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    whole = zipped(recorder, rich_run(recorder)).read_bytes()
    damaged = tmp_path / "damaged.zip"
    for content in (b"", b"text", whole[: len(whole) // 2]):
        damaged.write_bytes(content)
        with pytest.raises(UsageError, match="no whole archive of runs"):
            Archive(damaged)
    with zipfile.ZipFile(io.BytesIO(whole)) as opened:
        starts = [member.header_offset + 100 + len(member.filename) for member in opened.infolist()]
    for start in starts:
        damaged.write_bytes(flipped(whole, start))
        with pytest.raises(UsageError, match="no whole archive of runs"):
            Archive(damaged)


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


@pytest.fixture(scope="module")
def small_archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("archive")
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "config.yaml").write_text("a: 1\n" * 30)
    run = archive.ArchivedRun("a" * 32, "s", "n", "e", "FINISHED", 1, 2, "", {"p": "1"}, {"t": "1"}, [])
    with archive.new_archive(folder / "a.zip") as made:
        made.add_run(run, [("m/x", 0, 1, 0.5)] * 40, folder / "artifacts")
    return (folder / "a.zip").read_bytes()


@pytest.mark.parametrize("kind", [*CHANGES, *CONTENT])
def test_what_is_damaged_hostile_or_nothing_that_mlflow_takes_is_refused_when_the_file_is_opened(
    kind: str, small_archive: bytes, tmp_path: Path
) -> None:
    change, message = (CHANGES | CONTENT)[kind]
    (tmp_path / "a.zip").write_bytes(small_archive)
    with pytest.raises(UsageError) as caught:
        Archive(rewritten(tmp_path / "a.zip", change))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_rows_without_end_are_looked_at_one_by_one(small_archive: bytes, tmp_path: Path) -> None:
    """A zip file of some kilobytes holds megabytes of them: 60,000 rows as tuples take ten."""
    rows = with_rows(b"test/loss/edge,1000,1700000000000,0.123456\r\n" * 60_000)
    (tmp_path / "a.zip").write_bytes(small_archive)
    path = rewritten(tmp_path / "a.zip", rows)
    tracemalloc.start()
    with Archive(path) as found:
        assert sum(1 for _ in found.metrics(found.runs[0].run_id)) == 60_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=3)), min_size=1, max_size=4))
def test_any_bytes_are_an_archive_or_refused(small_archive: bytes, changes: list[tuple[int, bytes]]) -> None:
    content = bytearray(small_archive)
    for at, noise in changes:
        start = at % len(content)
        content[start : start + len(noise)] = noise
    opened_or_refused(bytes(content))


@settings(max_examples=100)
@given(
    st.sampled_from(["run.json", "metrics.csv", "manifest.json"]),
    st.integers(0, 3000),
    st.binary(max_size=4) | st.sampled_from([b'"', b"null", b"[]", b"{}", b"1e400", b"NaN", b",", b"\r\n", b"\\ud800"]),
)
def test_any_content_is_read_or_refused(small_archive: bytes, part: str, at: int, noise: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(small_archive)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    content = next(members[name] for name in members if part in name)
    start = at % len(content)
    replaced(members, part, content[:start] + noise + content[start + len(noise) :])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for name, value in members.items():
            made.writestr(name, value)
    opened_or_refused(packed.getvalue())


def opened_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.zip"
        path.write_bytes(content)
        try:
            with Archive(path) as found:
                rows = [list(found.metrics(run.run_id)) for run in found.runs]
        except UsageError as error:
            rows = []
            message = str(error)
        else:
            message = ""
        assert "\n" not in message
        assert all(isinstance(step, int) for run in rows for _, step, _, _ in run)
