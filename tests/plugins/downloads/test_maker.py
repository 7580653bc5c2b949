"""`prepare what=download` against a server of this machine that cuts, lies and stalls."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from biasbed.datasets.releases import read_releases
from biasbed.errors import Failure, UsageError
from biasbed.plugins.downloads import fetch, maker
from biasbed.plugins.downloads.sources import DownloadSource, RemoteFile, read_sources
from biasbed.prepare.doctor import examine
from biasbed.prepare.run import prepare
from biasbed.tracking.folder import exclusive
from helpers.cifar_files import make_batches
from helpers.domain_tree import data_set, make_domains
from helpers.mnist_files import make_mnist

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


class Request(NamedTuple):
    """Path and first byte that a client asked for."""

    path: str
    start: int


class Server:
    """Files by path, and what goes wrong with them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []  # bytes after which the next answers end
        self.stalls: list[int] = []  # bytes after which the next answers wait until the client gives up
        self.ignores_ranges = False
        self.requests: list[Request] = []
        self.over = threading.Event()
        self.address = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        start = int(handler.headers.get("Range", "bytes=0-")[len("bytes=") :].rstrip("-"))
        self.requests.append(Request(handler.path, start))
        content = self.files.get(handler.path)
        if content is None:
            handler.send_error(404)
            return
        start = 0 if self.ignores_ranges else start
        if start >= len(content):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        is_page = content.startswith(b"<html")
        handler.send_header("Content-Type", "text/html" if is_page else "application/octet-stream")
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        end = len(content)
        if self.cuts:
            end = start + self.cuts.pop(0)
        elif self.stalls:
            end = start + self.stalls.pop(0)
            handler.wfile.write(content[start:end])
            self.over.wait()
            return
        handler.wfile.write(content[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    local_server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            local_server.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as program:
        program.daemon_threads = True
        local_server.address = f"http://127.0.0.1:{program.server_port}/"
        thread = threading.Thread(target=program.serve_forever)
        thread.start()
        yield local_server
        local_server.over.set()
        program.shutdown()
        thread.join()


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fetch, "RETRY", 0)
    return tmp_path / "data"


def offer(monkeypatch: pytest.MonkeyPatch, **sources: DownloadSource | tuple[DownloadSource, ...]) -> None:
    """Make these the only data sets that can be downloaded."""
    rows = {name: source if isinstance(source, tuple) else (source,) for name, source in sources.items()}
    monkeypatch.setattr(maker, "read_sources", lambda: rows)


def download(names: str, data_dir: Path) -> None:
    prepare({"what": "download", "sets": tuple(names.split(",")), "data_dir": str(data_dir), "accept": True})


def zip_tree(folder: Path, top: str = "") -> bytes:
    """Return a zip file of a folder's files, below the folder `top`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(folder.rglob("*.*")):
            archive.write(path, Path(top, path.relative_to(folder)))
    return packed.getvalue()


def tar_tree(folder: Path) -> bytes:
    """Return a .tar.gz file of what a folder holds."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name)
    return packed.getvalue()


@functools.cache
def photos(folder: Path) -> bytes:
    """Return PACS.zip as DomainBed has it, with seven classes of one image."""
    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    return zip_tree(make_domains(folder, DOMAINS, classes, images=1), top="kfold")


@pytest.fixture
def pacs(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data_dir: Path) -> DownloadSource:
    """Source of PACS, with its published checksum; the server has the file."""
    content = photos(tmp_path / "made")
    server.files["/PACS.zip"] = content
    file = RemoteFile("PACS.zip", f"{server.address}PACS.zip", len(content), sha256=hashlib.sha256(content).hexdigest())
    source = DownloadSource((file,), into="PACS", strip="kfold", gives="PACS")
    offer(monkeypatch, pacs=source)
    return source


def assert_readable(data_dir: Path, name: str = "pacs", images: int = 28) -> None:
    finding = examine(data_set(name, data_dir), data_dir, full=True)
    assert finding.contents is not None, finding.problem
    assert finding.contents.images == images
    assert not finding.unreadable


# --- layouts, by the reader of the suites -----------------------------------------------------------------------------


def test_an_archive_is_unpacked_into_the_layout_that_the_suite_reads(pacs: DownloadSource, data_dir: Path) -> None:
    download("pacs", data_dir)
    assert_readable(data_dir)
    record = json.loads((data_dir / ".downloads/pacs/files.json").read_text())
    assert record == {pacs.files[0].address: f"sha256:{pacs.files[0].sha256}"}
    assert not list((data_dir / ".downloads").rglob("PACS.zip*"))


def test_files_that_are_no_archives_are_kept_as_they_are(
    server: Server, monkeypatch: pytest.MonkeyPatch, data_dir: Path, tmp_path: Path
) -> None:
    for path in make_mnist(tmp_path / "made", packed=True).iterdir():
        server.files[f"/{path.name}"] = path.read_bytes()
    names = [path[1:] for path in server.files]
    files = tuple(RemoteFile(name, server.address + name) for name in names)
    digits = DownloadSource(files, into="MNIST/raw", gives="MNIST/raw")
    offer(monkeypatch, colored_mnist=digits, rotated_mnist=digits)
    download("colored_mnist,rotated_mnist", data_dir)
    assert_readable(data_dir, "colored_mnist", 90)
    assert len(server.requests) == 4  # two names of the same files


def test_a_tar_file_below_data_dir_is_found_by_the_robustness_suite(
    server: Server, monkeypatch: pytest.MonkeyPatch, data_dir: Path, tmp_path: Path
) -> None:
    make_batches(tmp_path / "made", "cifar10")
    server.files["/cifar-10-python.tar.gz"] = tar_tree(tmp_path / "made")
    file = RemoteFile("cifar-10-python.tar.gz", f"{server.address}cifar-10-python.tar.gz")
    offer(monkeypatch, cifar10=DownloadSource((file,), gives=read_sources()["cifar10"][0].gives))
    download("cifar10", data_dir)
    from biasbed.datasets.cifar import CIFAR10

    assert CIFAR10().find(data_dir) == data_dir / "cifar-10-batches-py"


def test_camera_traps_are_sorted_by_place_and_animal(
    server: Server, monkeypatch: pytest.MonkeyPatch, data_dir: Path, tmp_path: Path
) -> None:
    sort = read_sources()["terra_incognita"][0].sort
    made = tmp_path / "made"
    pictures = sorted(make_domains(made / "trees", ("a",), ("b",), images=41).rglob("*.png"))
    (made / sort["images"]).mkdir()
    (made / sort["annotations"]).mkdir()
    names = [*sort["labels"], "car"]
    listing: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    listing["categories"] = [{"id": number, "name": name} for number, name in enumerate(names)]
    for number, picture in enumerate(pictures):
        location = int(sort["locations"][number % 4]) if number < 40 else 7  # the last one is of another place
        shutil.copy(picture, made / sort["images"] / f"{number}.png")
        listing["images"].append({"id": f"i{number}", "file_name": f"{number}.png", "location": location})
        listing["annotations"].append({"image_id": f"i{number}", "category_id": number // 4 % 10})
    listing["annotations"].append({"image_id": "i0", "category_id": 1})  # two animals
    listing["annotations"].append({"image_id": "i1", "category_id": names.index("car")})
    (made / sort["annotations"] / "train.json").write_text(json.dumps(listing))
    shutil.rmtree(made / "trees")
    server.files["/all.tar.gz"] = tar_tree(made)
    file = RemoteFile("all.tar.gz", f"{server.address}all.tar.gz")
    offer(monkeypatch, terra_incognita=DownloadSource((file,), into="terra", gives="terra", sort=sort))
    download("terra_incognita", data_dir)
    assert_readable(data_dir, "terra_incognita", 41)
    assert sorted(path.name for path in (data_dir / "terra").iterdir()) == [f"location_{n}" for n in (100, 38, 43, 46)]


# --- the server at its worst ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_a_connection_that_is_cut_goes_on_where_it_was(
    ignores_ranges: bool, server: Server, pacs: DownloadSource, data_dir: Path
) -> None:
    """ignores_ranges: the server sends the whole file again."""
    server.cuts, server.ignores_ranges = [1000, 2000], ignores_ranges
    download("pacs", data_dir)
    if not ignores_ranges:
        assert [request.start for request in server.requests] == [0, 1000, 3000]
    assert_readable(data_dir)


def test_the_same_command_goes_on_after_a_server_went_away(
    server: Server, pacs: DownloadSource, data_dir: Path
) -> None:
    server.cuts = [1000, 0]
    with pytest.raises(Failure, match=r"pacs can't be downloaded; the same command goes on\n.*PACS.zip"):
        download("pacs", data_dir)
    download("pacs", data_dir)
    assert [request.start for request in server.requests] == [0, 1000, 1000]
    assert_readable(data_dir)


def test_a_server_that_sends_nothing_more_is_asked_again(
    server: Server, pacs: DownloadSource, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 1)
    server.stalls = [1500]
    while server.stalls or not (data_dir / "PACS").exists():
        with contextlib.suppress(Failure):  # a busy machine may be too slow for the short wait
            download("pacs", data_dir)
    assert_readable(data_dir)


@pytest.mark.parametrize(
    ("spoil", "is_published", "message"),
    [
        (lambda right: right[:-1] + b"?", True, r"is not the published file: .* bytes, sha256 \w{64}; not"),
        (lambda right: b"<html>Quota exceeded", True, "is a page, not a file: open it in a browser"),
        (lambda right: right[:-30], False, r"can't unpack PACS.zip"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_and_fetched_anew(
    spoil: Callable[[bytes], bytes],
    is_published: bool,
    message: str,
    server: Server,
    pacs: DownloadSource,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """is_published: the file's checksum is known."""
    if not is_published:
        file = RemoteFile("PACS.zip", pacs.files[0].address)
        offer(monkeypatch, pacs=DownloadSource((file,), into="PACS", strip="kfold", gives="PACS"))
    right = server.files["/PACS.zip"]
    server.files["/PACS.zip"] = spoil(right)
    with pytest.raises(Failure, match=message):
        download("pacs", data_dir)
    assert not (data_dir / "PACS").exists()
    server.files["/PACS.zip"] = right
    download("pacs", data_dir)
    assert_readable(data_dir)


def test_a_part_that_is_longer_than_the_file_is_fetched_anew(
    server: Server, pacs: DownloadSource, data_dir: Path
) -> None:
    part = data_dir / ".downloads/pacs/0/PACS.zip.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * (len(server.files["/PACS.zip"]) + 5))
    download("pacs", data_dir)
    assert_readable(data_dir)


def test_the_next_source_is_tried(
    server: Server, pacs: DownloadSource, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = DownloadSource((RemoteFile("gone.zip", f"{server.address}gone.zip"),), gives="PACS")
    offer(monkeypatch, pacs=(gone, pacs))
    download("pacs", data_dir)
    assert_readable(data_dir)


def test_after_a_full_disk_the_same_command_goes_on(
    pacs: DownloadSource, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, content: Any) -> int:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, mode="r", **_: Full(self, mode.replace("b", "")))
        with pytest.raises(OSError, match="No space left on device"):
            maker.download("pacs", data_dir)
    download("pacs", data_dir)
    assert_readable(data_dir)


def test_a_download_larger_than_the_disk_does_not_begin(
    server: Server, pacs: DownloadSource, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RemoteFile("PACS.zip", pacs.files[0].address, size=10**18)
    offer(monkeypatch, pacs=DownloadSource((file,), gives="PACS"))
    with pytest.raises(Failure, match=r"GB free; this download needs 1000000000\.0 GB and more"):
        download("pacs", data_dir)
    assert not server.requests


def test_a_second_command_says_who_downloads(pacs: DownloadSource, data_dir: Path) -> None:
    with exclusive(data_dir / ".downloads/pacs", "downloaded"), pytest.raises(Failure, match="is being downloaded by"):
        download("pacs", data_dir)


@pytest.mark.parametrize("name", ["../outside.png", "/tmp/outside.png"])
def test_an_archive_with_paths_outside_of_its_folder_writes_nothing_there(
    name: str, server: Server, monkeypatch: pytest.MonkeyPatch, data_dir: Path
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    server.files["/bad.tar"] = packed.getvalue()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, b"")
    server.files["/bad.zip"] = packed.getvalue()
    for file in ("bad.tar", "bad.zip"):
        offer(monkeypatch, pacs=DownloadSource((RemoteFile(file, server.address + file),), gives="PACS"))
        with pytest.raises(Failure):
            download("pacs", data_dir)
        staging = data_dir / ".downloads/pacs/0"
        files = [path for path in data_dir.rglob("outside.png") if not path.is_relative_to(staging / "content")]
        assert not files
        assert not Path("/tmp/outside.png").exists()
        shutil.rmtree(staging)


def test_an_archive_without_the_data_set_says_what_it_has(
    pacs: DownloadSource, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, pacs=DownloadSource(pacs.files, into="PACS", strip="other", gives="PACS"))
    with pytest.raises(Failure, match="the files have no other, but kfold"):
        download("pacs", data_dir)


def test_nothing_that_is_there_is_overwritten(pacs: DownloadSource, data_dir: Path) -> None:
    (data_dir / "PACS/photo").mkdir(parents=True)
    (data_dir / ".downloads/pacs/0").mkdir(parents=True)  # begun, so what is there may be a part
    with pytest.raises(Failure, match=r"PACS/photo is there already: remove it"):
        download("pacs", data_dir)
    (data_dir / "PACS/photo").rmdir()
    download("pacs", data_dir)
    assert_readable(data_dir)


# --- what is asked first ----------------------------------------------------------------------------------------------


def test_licences_are_shown_and_must_be_accepted(
    server: Server, pacs: DownloadSource, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="add accept=yes"):
        prepare({"what": "download", "sets": ("pacs",), "data_dir": str(data_dir)})
    assert read_releases()["pacs"].licence in capsys.readouterr().out
    assert not server.requests


def test_what_is_there_is_not_fetched(server: Server, pacs: DownloadSource, data_dir: Path) -> None:
    (data_dir / "PACS").mkdir(parents=True)
    download("pacs", data_dir)
    assert not server.requests


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ("imagenet", r"get ILSVRC2012_img_val.tar from https://image-net.org/download.php.*; put it into imagenet/val"),
        ("pac", "there is no such data set.*pacs"),
    ],
)
def test_a_set_that_cannot_be_downloaded_says_where_to_get_it(sets: str, message: str, data_dir: Path) -> None:
    with pytest.raises(UsageError, match=message):
        download(sets, data_dir)


def test_each_source_gives_a_place_that_the_release_names() -> None:
    labels = {"imagenet_real", "imagenet_w"}  # what these lack is no folder of images
    for name, sources in read_sources().items():
        for source in sources:
            assert source.expected is not None, name  # `gives` is below `into`
            assert all(file.address.startswith("http") for file in source.files)
            if name in labels:
                continue
            if name not in read_releases():
                assert source.licence, name
                continue
            folders = [Path(folder) for folder in read_releases()[name].folders]
            gives = Path(source.gives)
            assert any(gives == folder or gives in folder.parents or folder in gives.parents for folder in folders)
