"""A tree that nothing happened to is not listed again; whatever can be seen to have happened is seen."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from pathlib import Path

import pytest

from biasbed.data import listing, listing_cache
from biasbed.data.folders import FolderSource, open_folder

CLASSES, EACH = 5, 12


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Class folders with folders in them, of an age; small trees are cached, too, and every size is compared."""
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(listing_cache, "LEAST", 10)
    monkeypatch.setattr(listing_cache, "SETTLED", -60.0)
    for label in range(CLASSES):
        for number in range(EACH):
            path = tmp_path / "data" / f"class{label}" / f"part{number % 2}" / f"é {number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * (10 * label + number))
    return tmp_path / "data"


@pytest.fixture
def listed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are listed from now on, but for the top one."""
    found: list[str] = []
    scan = listing.scan

    def noting(folder: Path) -> listing.FolderContent:
        if folder != tree:
            found.append(folder.name)
        return scan(folder)

    monkeypatch.setattr(listing, "scan", noting)
    return found


def opened(tree: Path) -> tuple[list[str], list[int], str]:
    source = open_folder(tree, "x")
    return list(source.ids), source.y.tolist(), source.fingerprint()


def kept(tree: Path) -> list[Path]:
    return [path for path in (tree.parent / "home").rglob("*") if path.is_file()]


def afresh(tree: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[int], str]:
    """As without anything cached."""
    with monkeypatch.context() as patch:
        patch.setenv("BIASBED_HOME", os.devnull)
        return opened(tree)


def test_an_unchanged_tree_is_neither_listed_nor_asked(
    tree: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tree)
    assert len(listed) == CLASSES * 3
    listed.clear()
    asked: list[int] = []
    whole = FolderSource._read_sizes
    monkeypatch.setattr(FolderSource, "_read_sizes", lambda self, start: asked.append(start) or whole(self, start))
    assert opened(tree) == first
    assert not listed
    assert not asked
    assert afresh(tree, monkeypatch) == first


def _add(tree: Path) -> None:
    (tree / "class1" / "part0" / "new.png").write_bytes(b"x")


def _remove(tree: Path) -> None:
    (tree / "class1" / "part1" / "é 3.png").unlink()


def _rename(tree: Path) -> None:
    (tree / "class1" / "part1" / "é 3.png").rename(tree / "class1" / "part1" / "other.png")


def _replace(tree: Path) -> None:
    (tree / "new").write_bytes(b"x" * 1000)
    (tree / "new").rename(tree / "class1" / "part1" / "é 3.png")


def _overwrite(tree: Path) -> None:
    (tree / "class1" / "part1" / "é 3.png").write_bytes(b"x" * 1000)


def _move_folder(tree: Path) -> None:
    (tree / "class1" / "part1").rename(tree / "class2" / "part7")


def _add_class(tree: Path) -> None:
    shutil.copytree(tree / "class1", tree / "class9")


def _swap_with_times_kept(tree: Path) -> None:
    """As `rsync -a` and `tar -x` leave folders: other content, the times from before."""
    folder = tree / "class1" / "part1"
    before = folder.stat()
    _add(tree)
    (folder / "é 3.png").unlink()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = (_add, _remove, _rename, _replace, _overwrite, _move_folder, _add_class, _swap_with_times_kept)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__[1:])
def test_a_changed_tree_is_as_if_opened_for_the_first_time(
    change: object, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tree)
    time.sleep(0.02)  # a tick of the file system's clock
    change(tree)  # type: ignore[operator]
    second = opened(tree)
    assert second != first
    assert second == afresh(tree, monkeypatch)
    assert opened(tree) == second


def test_a_link_that_leads_elsewhere_is_noticed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tree.parent / "link"
    link.symlink_to(tree)
    first = opened(link)
    shutil.copytree(tree, tree.parent / "other")
    _add(tree.parent / "other")
    link.unlink()
    link.symlink_to(tree.parent / "other")
    assert opened(link) != first
    assert opened(link) == afresh(link, monkeypatch)


def test_a_folder_that_changed_just_now_is_not_cached(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "SETTLED", 2.0)
    opened(tree)
    assert not kept(tree)


@pytest.mark.parametrize("where", [0.0, 0.02, 0.1, 0.5, 0.9, "empty", "half", "other"])
def test_what_is_damaged_is_passed_over_and_written_anew(where: object, tree: Path, listed: list[str]) -> None:
    first = opened(tree)
    (file,) = kept(tree)
    content = bytearray(file.read_bytes())
    if isinstance(where, float):
        content[int(where * len(content))] ^= 0xFF
    file.write_bytes({"empty": b"", "half": content[: len(content) // 2], "other": b"x" * 99}.get(str(where), content))
    assert opened(tree) == first
    listed.clear()
    assert opened(tree) == first
    assert not listed


def _open_often(tree: Path, number: int) -> None:
    for _ in range(number):
        listing_cache.forget(tree)
        opened(tree)


def test_two_processes_at_once_leave_a_whole_one(tree: Path, listed: list[str]) -> None:
    first = opened(tree)
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_open_often, args=(tree, 15)) for _ in range(2)]
    for other in others:
        other.start()
    while any(other.is_alive() for other in others):
        assert opened(tree) == first
    assert [other.exitcode for other in others] == [0, 0]
    assert len(kept(tree)) == 1
    opened(tree)
    listed.clear()
    assert opened(tree) == first
    assert not listed


# --- files that are not read ------------------------------------------------------------------------------------------


def test_files_that_are_not_read_are_told_once_and_cached(
    tree: Path, listed: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, they were passed over without a word. A cached tree reports them too."""
    for name in ("a.heic", "b.HEIC", "no_suffix", ".hidden", "Thumbs.db"):
        (tree / "class0" / "part1" / name).write_bytes(b"x")
    told = f"{tree}: 3 files are not read as images (2 .heic, 1 without a suffix); convert images among them, or remove"
    opened(tree)
    assert [record.getMessage().startswith(told) for record in caplog.records] == [True]
    opened(tree)
    assert len(caplog.records) == 1
    listed.clear()
    monkeypatch.setattr(listing, "_warned", set())  # as in another process
    opened(tree)
    assert caplog.records[1].getMessage() == caplog.records[0].getMessage()
    assert listed == []  # it was cached
