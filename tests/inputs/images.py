"""Folders of images, and what else lies where they should."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

from inputs import Case
from inputs.materials import FOLDERS, TESTING, TRAINING, make_images

ROOT = Path("images")


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """Return a PNG that says it has this size, whatever it holds."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def encoded(form: str, mode: str = "RGB", size: tuple[int, int] = (12, 12)) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, form)
    return file.getvalue()


def cut(content: bytes, part: float) -> bytes:
    return content[: int(len(content) * part)]


# What lies in the place of one image: content, and what the line says; None: it is an image.
IMAGES: dict[str, tuple[bytes, str | None]] = {
    "empty": (b"", "0.png"),
    "text": (b"no image", "0.png"),
    "HTML": (b"<html>404</html>", "0.png"),
    "zeros": (b"\0" * 1000, "0.png"),
    "cut": (cut(encoded("PNG", size=(64, 64)), 0.5), "0.png"),
    "cut JPEG": (cut(encoded("JPEG", size=(64, 64)), 0.3), "0.png"),
    "JPEG of nothing": (b"\xff\xd8\xff\xe0", "0.png"),
    "bomb": (png(30_000, 30_000, b"\0" * 90_000_000), "0.png"),
    "size of 2 G": (png(2**31 - 1, 2**31 - 1), "0.png"),
    "size of nothing": (png(0, 0), "0.png"),
    "no rows": (png(12, 12), "0.png"),
    "one pixel": (encoded("PNG", size=(1, 1)), None),
    "grey": (encoded("PNG", "L"), None),
    "palette": (encoded("PNG", "P"), None),
    "16 bits": (encoded("PNG", "I;16"), "more than 8 bits"),
    "with alpha": (encoded("PNG", "RGBA"), None),
    "CMYK": (encoded("JPEG", "CMYK"), None),
    "one pixel high": (encoded("PNG", size=(3000, 1)), None),
    "GIF": (encoded("GIF", "P"), None),
    "TIFF of floats": (encoded("TIFF", "F"), "more than 8 bits"),
    "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "0.png"),
    "EPS": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) (touch canary) system\n", "0.png"),
    "zip": (b"PK\x05\x06" + b"\0" * 18, "0.png"),
}


def instead(content: bytes, folder: str) -> Callable[[Path], None]:
    def make(here: Path) -> None:
        make_images(here / ROOT)
        for path in (here / ROOT / folder / "cat").iterdir():  # all of the class, so that validation has one too
            path.write_bytes(content)

    return make


def changed(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return the usual images and then something else: `change` gets their root."""

    def make(here: Path) -> None:
        make_images(here / ROOT)
        change(here / ROOT)

    return make


def _removed(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()


def _one_class(root: Path) -> None:
    for folder in FOLDERS:
        _removed(root / folder / "dog")


def _emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _fifo_first(root: Path) -> None:
    (root / "photo" / "cat" / "0.png").unlink()
    os.mkfifo(root / "photo" / "cat" / "0.png")


def _link(name: str, target: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        path = root / name
        if path.is_file():
            path.unlink()
        path.symlink_to(target)

    return make


def _renamed(old: str, new: str) -> Callable[[Path], object]:
    return lambda root: (root / old).rename(root / new)


def _both_loops(root: Path) -> None:
    (root / "photo" / "x").symlink_to("y")
    (root / "photo" / "y").symlink_to("x")


# Folders: change of the usual ones, what the line says (None: rightly accepted), exit code.
FOLDER_CASES: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "no training folder": (lambda root: _removed(root / "photo"), "photo"),
    "no set": (lambda root: _removed(root / "paint"), "paint"),
    "all gone": (lambda root: _removed(root), "there is no such folder"),
    "a file for the root": (lambda root: (_removed(root), root.write_text("x")), "data_dir="),
    "a file for a folder": (lambda root: (_removed(root / "photo"), (root / "photo").write_text("x")), "photo"),
    "a file beside classes": (lambda root: (root / "photo" / "README.txt").write_text("x"), None),
    "hidden files": (lambda root: (root / "photo" / "cat" / "._0.png").write_bytes(b"x"), None),
    "a folder called as an image": (lambda root: (root / "photo" / "cat" / "x.png").mkdir(), None),
    "one class": (_one_class, "one class alone"),
    "a class without images": (lambda root: _emptied(root / "photo" / "cat"), "no images"),
    "a class more in the set": (lambda root: (root / "paint" / "bird").mkdir(), "paint"),
    "other classes": (_renamed("paint/cat", "paint/bird"), "it lacks cat"),
    "one image a class": (lambda root: [_emptied_but_one(root / "photo" / name) for name in ("cat", "dog")], ""),
    "FIFO": (_fifo_first, "0.png"),
    "FIFO for a class": (lambda root: os.mkfifo(root / "photo" / "bird"), None),
    "link to itself": (_link("photo/x", "x"), "Too many levels of symbolic links"),
    "links in a circle": (_both_loops, "Too many levels of symbolic links"),
    "link to its parent": (_link("photo/cat/up", ".."), ""),
    "image that links nowhere": (_link("photo/cat/0.png", "nowhere.png"), "photo/cat/0.png: No such file"),
    "image that is a device": (_link("photo/cat/0.png", "/dev/zero"), "0.png"),
    "image that never ends": (_link("photo/cat/0.png", "/dev/random"), "0.png"),
    "no UTF-8 in a class": (lambda root: os.mkdir(os.fsencode(root) + b"/photo/\xff"), "not valid UTF-8"),
    "no UTF-8 in an image": (_renamed("photo/cat/0.png", "photo/cat/caf\udce9.png"), "not valid UTF-8"),
    "no UTF-8 in a folder": (_renamed("paint", "caf\udce9"), "not valid UTF-8"),
    "newline in an image": (_renamed("photo/cat/0.png", "photo/cat/a\nb.png"), None),
    "escape in an image": (_renamed("photo/cat/0.png", "photo/cat/\x1b[2J.png"), None),
    "long name of an image": (_renamed("photo/cat/0.png", "photo/cat/" + "x" * 250 + ".png"), None),
    "emoji in a class": (lambda root: [(root / f / "cat").rename(root / f / "🐈") for f in FOLDERS], None),
    "RTL in a class": (lambda root: [(root / f / "cat").rename(root / f / "‮cat") for f in FOLDERS], None),
    "newline in a class": (lambda root: [(root / f / "cat").rename(root / f / "a\nb") for f in FOLDERS], None),
    "upper case twice": (lambda root: [(root / f / "dog").rename(root / f / "Cat") for f in FOLDERS], None),
}


def _emptied_but_one(folder: Path) -> None:
    for path in sorted(folder.iterdir())[1:]:
        path.unlink()


# Folders of names that become one after cleaning.
COLLIDING = (("Paint", "paint"), ("p int", "p_int"))


def _cases() -> Iterator[Case]:
    here = ("--data_dir", "images")
    for name, (content, says) in IMAGES.items():
        code = 0 if says is None else 1
        made = {folder: instead(content, folder) for folder in FOLDERS}
        yield Case(
            f"image: trained on: {name}",
            (*TRAINING, *here),
            "can't read the image" if says else "",
            code,
            make=made["photo"],
        )
        words = (*TESTING, *here, "--model", "{m}/run/best.ckpt")
        yield Case(f"image: tested on: {name}", words, says or "", code, make=made["paint"])
        if says is not None:
            skipping = (*words, "--corrupt", "skip")
            yield Case(f"image: passed over: {name}", skipping, "", 0, make=changed(_first(content)))
    for name, (change, says) in FOLDER_CASES.items():
        code = 0 if says is None else 1 if says == "0.png" else 2
        yield Case(f"folders: {name}", (*TRAINING, *here), says or "", code, make=changed(change))
        checking = ("prepare", "--what", "check", "--suite", "folders", *here)
        yield Case(f"folders: checked: {name}", checking, "", CHECKED.get(name, 0), make=changed(change))
    for left, right in COLLIDING:
        words = (*TRAINING, *here, "--sets", f"{left},{right}")
        yield Case(f"folders: {left!a} and {right!a}", words, "both become", make=changed(_both(left, right)))
    unreadable = changed(lambda root: (root / "photo").chmod(0))
    yield Case("folders: unreadable", (*TRAINING, *here), "photo", 1, make=unreadable, needs_user=True)
    image = changed(lambda root: (root / "photo" / "cat" / "0.png").chmod(0))
    yield Case("folders: an unreadable image", (*TRAINING, *here), "0.png", 1, make=image, needs_user=True)


# What the doctor ends with where it is no 0.
CHECKED = dict.fromkeys(("all gone", "a file for the root", "no UTF-8 in a folder"), 2)
CHECKED |= dict.fromkeys(("link to itself", "links in a circle", "no UTF-8 in a class"), 1)
CHECKED |= dict.fromkeys(("a class without images", "a class more in the set", "FIFO", "link to its parent"), 1)
CHECKED |= dict.fromkeys(("image that links nowhere", "image that is a device", "image that never ends"), 1)
CHECKED["no UTF-8 in an image"] = 1


def _first(content: bytes) -> Callable[[Path], object]:
    return lambda root: (root / "paint" / "cat" / "0.png").write_bytes(content)


def _both(left: str, right: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        pictures = root / "paint"
        for name in {left, right} - {"paint"}:
            for path in pictures.rglob("*.png"):
                target = root / name / path.relative_to(pictures)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())

    return make


CASES = tuple(_cases())
