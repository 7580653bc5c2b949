"""A tree that nothing happened to is not listed again; whatever can be seen to have happened is seen."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from biasbed import cli
from biasbed.data import listing, listing_cache
from biasbed.data.folders import FolderSource, open_folder
from biasbed.errors import UsageError

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
    scan_all = listing.scan_all

    def noting(folder: Path) -> listing.Scanned:
        if folder != tree:
            found.append(folder.name)
        return scan_all(folder)

    monkeypatch.setattr(listing, "scan_all", noting)
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
    whole = FolderSource._sizes_from
    monkeypatch.setattr(FolderSource, "_sizes_from", lambda self, start: asked.append(start) or whole(self, start))
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


def test_a_file_that_is_gone_after_its_folder_was_looked_at_is_named(tree: Path) -> None:
    opened(tree)
    source = open_folder(tree, "x")
    (tree / "class1" / "part1" / "é 3.png").unlink()
    with pytest.raises(UsageError, match=r"can't read .*é 3\.png"):
        source.fingerprint()


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


def test_a_small_tree_is_not_cached(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "LEAST", CLASSES * EACH + 1)
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


def test_a_home_that_can_t_be_written_to_costs_the_memory_alone(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for home in (tmp_path / "a file", tmp_path / "read-only"):
        if home.name == "a file":
            home.write_text("")
        else:
            home.mkdir()
            home.chmod(stat.S_IRUSR | stat.S_IXUSR)
        monkeypatch.setenv("BIASBED_HOME", str(home))
        assert opened(tree) == opened(tree)


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


def test_the_doctor_looks_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a file that was overwritten in place is not among those that an opening looks at."""
    first = opened(tree)
    monkeypatch.setattr(listing_cache, "SAMPLED", 0)
    _overwrite(tree)
    assert opened(tree) == first
    words = ["prepare", "--what", "check", "--suite", "folders", "--data_dir", str(tree.parent), "--sets", "data"]
    assert cli.main(words) == 1  # they are no images
    assert opened(tree) == afresh(tree, monkeypatch) != first


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """50 classes under each of 6 conditions, 200 files each, as old as trees that people test on."""
    root = tmp_path_factory.mktemp("large")
    for folder in (root / f"condition{c}" / f"class{k}" for c in range(6) for k in range(50)):
        folder.mkdir(parents=True)
        for number in range(200):
            os.close(os.open(f"{folder}/ILSVRC2012_val_{number:08d}.JPEG", os.O_CREAT | os.O_WRONLY))
    yield root
    shutil.rmtree(root)


@pytest.mark.slow
def test_sixty_thousand_images_open_in_a_fraction(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    monkeypatch.setattr(listing_cache, "SETTLED", 0.0)

    def seconds() -> float:
        """Return processor seconds: with others at work, the clock says little."""
        began = time.process_time()
        for condition in sorted(large.iterdir()):
            open_folder(condition, condition.name).fingerprint()
        return time.process_time() - began

    first = seconds()
    assert min(seconds() for _ in range(3)) < first / 8  # a tenth or less, if nothing else is in the way


def test_an_opening_looks_at_every_folder_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing of a moment ago is valid when sizes are read; a change since then shows at the next opening."""
    opened(tree)
    looks: list[int] = []
    look = listing_cache.CachedListing.is_current
    monkeypatch.setattr(
        listing_cache.CachedListing, "is_current", lambda self, root: looks.append(0) or look(self, root)
    )
    before = open_folder(tree, "x")
    _replace(tree)
    before.fingerprint()
    assert len(looks) == 1
    after = open_folder(tree, "x")
    assert len(looks) == 2
    assert after.fingerprint() == afresh(tree, monkeypatch)[2]


def test_stamps_of_any_file_system_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inodes of 64 bits, times before 1970."""
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    told = (2**64 - 1, -5, 2**63)
    (tmp_path / "data" / "a").mkdir(parents=True)
    monkeypatch.setattr(listing_cache, "LEAST", 1)
    monkeypatch.setattr(listing_cache, "stamp", lambda status: told)
    listing_cache.write_listing(tmp_path / "data", ["a"], [["a/1.png"]], {"a/": (told[0], -5, -5)}, {})
    assert listing_cache.read_listing(tmp_path / "data", ["a"]) is None
    listing_cache.write_listing(tmp_path / "data", ["a"], [["a/1.png"]], {"a/": (*told[:2], -5)}, {})
    monkeypatch.setattr(listing_cache, "stamp", lambda status: (*told[:2], -5))
    known = listing_cache.read_listing(tmp_path / "data", ["a"])
    assert known is not None
    assert known.images_by_name() == [["a/1.png"]]


# --- files that are not read ------------------------------------------------------------------------------------------


def test_files_that_are_not_read_are_told_once_and_cached(
    tree: Path, listed: list[str], caplog: pytest.LogCaptureFixture
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
    with listing.counting_unread() as unread:
        opened(tree)
    assert unread == {".heic": 2, "without a suffix": 1}
    assert listed == []  # it was cached
    assert len(caplog.records) == 1


def test_a_listing_by_a_version_that_read_other_files_is_not_believed(
    tree: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "class0" / "part1" / "more.jfif").write_bytes(b"x")
    with monkeypatch.context() as patch:
        for module in (listing, listing_cache):
            patch.setattr(module, "EXTENSIONS", listing.EXTENSIONS - {".jfif"})
        assert len(opened(tree)[0]) == CLASSES * EACH
        listed.clear()
        opened(tree)
        assert listed == []
    assert len(opened(tree)[0]) == CLASSES * EACH + 1
