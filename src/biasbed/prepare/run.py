"""The command `prepare`: finds the images that are meant, and makes what is asked for where the suite looks for it."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import suites
from biasbed.compute.device import settle_device
from biasbed.config import Config
from biasbed.data import transforms
from biasbed.data.pictures import save_examples
from biasbed.data.prepared import IMAGES, ImagesManifest, PreparedStore
from biasbed.data.source import Source
from biasbed.errors import Failure, UsageError
from biasbed.networks import frozen
from biasbed.options import PrepareOptions
from biasbed.prepare.doctor import check
from biasbed.settings import build, nearest, specs
from biasbed.suites import Suite, open_suite
from biasbed.system.processes import interruptible
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.folder import exclusive

if TYPE_CHECKING:
    from biasbed.prepare.images import Work

NETWORKS = tuple(f"{kind}_network" for kind in frozen.REGISTRY)


@dataclass(frozen=True)
class Request:
    """What is asked for, and of which images."""

    options: PrepareOptions
    config: Config
    suite: Suite
    source: Source  # of the split
    store: PreparedStore


def prepare(flags: Mapping[str, Any]) -> Path | None:
    """Prepare what the flags ask for; returns the file or folder. What is there already is left alone.

    what=check prints what is there instead, and returns nothing. Raises UsageError for what can't be meant, Failure for
    images that can't be read.
    """
    if flags.get("what") == "check":
        with interruptible():
            check(*read_flags(flags))
        return None
    request = _request(flags)
    options = request.options
    folder = request.store.folder(request.source)
    with interruptible(), exclusive(folder, "prepared"), _failures(folder):
        if options.what in NETWORKS:
            return make_network(request, options.what.removesuffix("_network"))
        if options.split == "train":
            make_network(request, IMAGES[options.what])
        return make_copies(request)


@contextlib.contextmanager
def _failures(folder: Path) -> Iterator[None]:
    """What the machine lacks, in one line; what is made so far stays."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise Failure("out of GPU memory: device=cpu, or a smaller size= or batch_size=") from None
    except OSError as error:
        raise Failure(f"can't write to {folder}: {error.strerror or error}; the same command goes on") from None


def _request(flags: Mapping[str, Any]) -> Request:
    options, config = read_flags(flags)
    if options.what == "none":
        raise UsageError(f"say what to prepare: what=<{', '.join([*NETWORKS, *IMAGES, 'check'])}>")
    config = replace(config, device=settle_device(config.device, 1)[0])
    suite = open_suite(config)
    assert suite.store is not None
    return Request(options, config, suite, _source(suite, options.split), suite.store)


def _source(suite: Suite, split: str) -> Source:
    """The images of a split by name."""
    if split == "train":
        return suite.material()
    sets = {entry.name: entry.source for entry in suite.tested}
    if split not in sets:
        raise UsageError(f"split={split}: '{suite.name}' has no such images{nearest(split, ['train', *sets])}")
    return sets[split]


# --- networks ---------------------------------------------------------------------------------------------------------


def make_network(request: Request, kind: str) -> Path:
    """Train a network on the images, or take over the authors'; returns its file. One that is there is left alone.

    UsageError where it was made as another command than this one says.
    """
    from biasbed.prepare import networks

    path = request.store.network(request.source, kind)
    asked = networks.asked(kind, request.options)
    anew = request.options.overwrite and request.options.what == f"{kind}_network"
    if path.is_file() and not anew:
        made_as = frozen.origin(path).get("asked")
        if asked and asked != made_as:
            raise UsageError(
                f"{path} is there, made with other settings: what={kind}_network overwrite=true replaces it"
            )
        print(f"{path} is there already", file=sys.stderr)
        return path
    print(f"preparing the network '{kind}'", file=sys.stderr)
    partial = path.with_suffix(".partial")
    source = networks.readable(request.source) if request.config.corrupt == "skip" else request.source
    network, origin = networks.make(kind, request.options, request.config, source, partial)
    about = {"asked": asked, "source": request.source.name, "source_fingerprint": request.source.fingerprint()}
    frozen.save(path, kind, network, {**origin, **about})
    partial.unlink(missing_ok=True)
    print(f"done: {path}", file=sys.stderr)
    return path


# --- images -----------------------------------------------------------------------------------------------------------


def make_copies(request: Request) -> Path:
    """Make a copy of every image that has none yet; returns their folder."""
    from biasbed.prepare.images import make_images

    options, source = request.options, request.source
    folder = request.store.images(source, options.what)
    network, styles = _network(request), _styles(request)
    manifest = _manifest(request, network, styles)
    work = _work(request, folder, network, styles)
    work.make("cpu")  # options that its network doesn't have are refused before anything is written
    existing = _same_settings(folder, manifest, options)
    if existing is not None and existing.complete and not work.missing(existing.skipped):
        print(f"{folder} is complete already: {existing.images} images", file=sys.stderr)
        return folder
    manifest.write(folder)
    with ProgressBar(len(source), "image") as bar:
        problems = make_images(work, _processes(request), bar)
    _report(problems, request.config)
    count = len(source) - len(problems)
    replace(manifest, complete=True, skipped=tuple(sorted(problems)), images=count).write(folder)
    made = request.store.open_images(source, options.what, source)
    save_examples(folder / "examples.png", made, transforms.centre_crop(request.config.image_size))
    print(f"done: {count} images in {folder}", file=sys.stderr)
    return folder


def _network(request: Request) -> Path:
    """The file of the network for these images: their own, else the one of the training images."""
    kind = IMAGES[request.options.what]
    own = request.store.network(request.source, kind)
    return own if own.is_file() else request.suite.network(kind)


def _styles(request: Request) -> Source:
    from biasbed.prepare.networks import style_images

    return style_images(request.options.styles) or request.source


def _manifest(request: Request, network: Path, styles: Source) -> ImagesManifest:
    """Of the copies that are to be made."""
    options, source = request.options, request.source
    settings: dict[str, Any] = {"seed": request.config.seed, "device": request.config.device}
    settings["network"] = frozen.fingerprint(network)
    if options.what == "stylized":
        settings |= {"size": options.size, "alpha": options.alpha}
        settings |= {"styles": styles.name, "styles_fingerprint": styles.fingerprint()}
    else:
        settings |= {name: getattr(options, name) for name in ("redraw", "weight_option", "signal_option")}
    return ImagesManifest(options.what, source.name, source.fingerprint(), len(source), options.format, settings)


def _same_settings(folder: Path, wanted: ImagesManifest, options: PrepareOptions) -> ImagesManifest | None:
    """The manifest of what is there. Made with other settings, it is removed if that is asked for, else UsageError."""
    found = ImagesManifest.read(folder)
    if found is None:
        _discard(folder)  # whatever is in it, nothing says how it was made
        return None
    ours, theirs = {**wanted.settings, "format": wanted.format}, {**found.settings, "format": found.format}
    different = [f"{name}={theirs.get(name)}" for name in ours if ours[name] != theirs.get(name)]
    if not different:
        return found
    if not options.overwrite:
        raise UsageError(
            f"{folder} was made with {', '.join(different)}: overwrite=true makes it anew, prepared_dir= elsewhere"
        )
    _discard(folder)
    return None


def _discard(folder: Path) -> None:
    """Remove the folder: out of the way first, so that an interruption can't leave half of it to be taken for new."""
    aside = folder.with_name(f".{folder.name}.discarded")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.replace(aside)
        shutil.rmtree(aside)


def _work(request: Request, folder: Path, network: Path, styles: Source) -> Work:
    from biasbed.prepare import networks
    from biasbed.prepare.images import Work

    options = request.options
    make = functools.partial(networks.open_distortion, options, network, styles)
    redraw = 0.0 if options.what == "stylized" else options.redraw
    seed, device = request.config.seed, request.config.device
    return Work(request.source, folder / "images", options.format, seed, redraw, make, device)


def _processes(request: Request) -> int:
    if request.options.processes != "auto":
        return int(request.options.processes)
    return 1 if request.config.device == "cuda" else os.cpu_count() or 1


def _report(problems: Mapping[str, str], config: Config) -> None:
    """Failure for images that can't be read, unless they are to be left out."""
    if problems and config.corrupt == "stop":
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Failure(f"{next(iter(problems.values()))}{more}; corrupt=skip goes on without such files")
    for message in problems.values():
        print(f"warning: {message}; left out", file=sys.stderr)


def read_flags(flags: Mapping[str, Any]) -> tuple[PrepareOptions, Config]:
    """What is asked for, and the settings of the suite that is meant; UsageError for an unknown or wrong flag."""
    own = specs(PrepareOptions)
    options = build(PrepareOptions, {name: value for name, value in flags.items() if name in own})
    given = {name: value for name, value in flags.items() if name not in own and value != "auto"}
    return options, build(Config, {**suites.defaults(str(given.get("suite", Config.suite))), **given})
