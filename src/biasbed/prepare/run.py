"""The command `prepare`: finds the images that are meant, and makes what is asked for where the suite looks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from biasbed import processes
from biasbed.config import Config
from biasbed.data.pictures import save_examples
from biasbed.data.prepared import IMAGES, Manifest, Store
from biasbed.data.source import Source
from biasbed.errors import Failure, UsageError
from biasbed.networks import prepared
from biasbed.prepare.options import PrepareOptions
from biasbed.processes import interruptible
from biasbed.progress import Progress
from biasbed.run_folder import exclusive
from biasbed.settings import build, nearest, specs
from biasbed.suites import Suite, defaults, open_suite


def prepare(flags: Mapping[str, Any]) -> Path:
    """Prepare what the flags ask for; returns the file or folder. What is there already is left alone."""
    own = specs(PrepareOptions)
    options = build(PrepareOptions, {name: v for name, v in flags.items() if name in own})
    if options.what == "none":
        raise UsageError(f"say what to prepare: what=<{', '.join([*_NETWORKS, *IMAGES])}>")
    given = {name: v for name, v in flags.items() if name not in own and v != "auto"}
    values = {**defaults(str(given.get("suite", Config.suite))), **given}
    known = specs(Config)
    config = build(Config, {name: v for name, v in values.items() if name in known})
    config = replace(config, device=processes.settle_device(config.device, 1)[0])
    suite = open_suite(config)
    source, store = _source(suite, options.split), suite.store
    assert store is not None
    with interruptible(), exclusive(store.folder(source), "prepared"):
        if options.what in _NETWORKS:
            return _network(options.what.removesuffix("_network"), options, config, store, source)
        return _images(options, config, store, source)


_NETWORKS = tuple(f"{kind}_network" for kind in prepared.KINDS)


def _source(suite: Suite, split: str) -> Source:
    """The images of a split by name."""
    if split == "train":
        return suite.material()
    sets = {entry.name: entry.source for entry in (*suite.validation, *suite.sets)}
    if split not in sets:
        raise UsageError(
            f"split={split}: the suite '{suite.name}' has no such images{nearest(split, ['train', *sets])}"
        )
    return sets[split]


# --- networks ---------------------------------------------------------------------------------------------------------


def _network(kind: str, options: PrepareOptions, config: Config, store: Store, source: Source) -> Path:
    path = store.network(source, kind)
    if path.is_file() and not options.overwrite:
        print(f"{path} is there already; overwrite=true makes it anew", file=sys.stderr)
        return path
    from biasbed.prepare import networks

    network, origin = networks.make(kind, options, config, source, path.with_suffix(".partial"))
    prepared.save(path, kind, network, {**origin, "source": source.name, "source_fingerprint": source.fingerprint()})
    path.with_suffix(".partial").unlink(missing_ok=True)
    print(f"done: {path}", file=sys.stderr)
    return path


# --- images -----------------------------------------------------------------------------------------------------------


def _images(options: PrepareOptions, config: Config, store: Store, source: Source) -> Path:
    from biasbed.prepare.make import make_images

    kind = IMAGES[options.what]
    if not store.network(source, kind).is_file() and options.split == "train":
        print(f"first, the network that makes them ({kind})", file=sys.stderr)
        _network(kind, replace(options, overwrite=False), config, store, source)
    network = _network_for(store, source, kind, config)
    folder = store.images(source, options.what)
    manifest = _manifest(options, config, source, network)
    _check_same(folder, manifest, options)
    if (existing := Manifest.read(folder)) is not None and existing.complete:
        print(f"{folder} is complete already: {existing.images} images", file=sys.stderr)
        return folder
    manifest.write(folder)
    work = _work(options, config, source, network, folder)
    workers = _workers(options, config)
    with Progress(len(source), "image") as bar:
        problems = make_images(work, workers, bar)
    if problems and config.corrupt == "stop":
        message = next(iter(problems.values()))
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Failure(f"{message}{more}; corrupt=skip goes on without such files")
    for message in problems.values():
        print(f"warning: {message}; left out", file=sys.stderr)
    manifest = replace(manifest, complete=True, skipped=tuple(sorted(problems)), images=len(source) - len(problems))
    manifest.write(folder)
    save_examples(folder / "examples.png", store.open_images(source, options.what, source), lambda image: image)
    print(f"done: {manifest.images} images in {folder}", file=sys.stderr)
    return folder


def _network_for(store: Store, source: Source, kind: str, config: Config) -> Path:
    """The network of these images; for evaluation images, the one prepared on the training images."""
    path = store.network(source, kind)
    if path.is_file():
        return path
    suite = open_suite(config)
    return store.existing_network(suite.material(), kind)


def _manifest(options: PrepareOptions, config: Config, source: Source, network: Path) -> Manifest:
    settings: dict[str, Any] = {
        "seed": config.seed,
        "size": options.size,
        "network": prepared.fingerprint(network),
    }
    if options.what == "stylized":
        styles = _styles(options, source)
        settings |= {"alpha": options.alpha, "styles": styles.name, "styles_fingerprint": styles.fingerprint()}
    else:
        settings |= {"redraw": options.redraw}
        settings |= {"weight_option": options.weight_option, "signal_option": options.signal_option}
    return Manifest(options.what, source.name, source.fingerprint(), len(source), options.format, settings)


def _check_same(folder: Path, wanted: Manifest, options: PrepareOptions) -> None:
    """Remove images made with other settings if that is asked for; else UsageError saying what differs."""
    found = Manifest.read(folder)
    if found is None:
        return
    ours, theirs = {**wanted.settings, "format": wanted.format}, {**found.settings, "format": found.format}
    different = [f"{name}={theirs.get(name)}" for name in ours if ours[name] != theirs.get(name)]
    if different and not options.overwrite:
        raise UsageError(
            f"{folder} was made with {', '.join(different)}: overwrite=true makes it anew, prepared_dir= elsewhere"
        )
    if different:
        import shutil

        shutil.rmtree(folder)


def _styles(options: PrepareOptions, source: Source) -> Source:
    from biasbed.prepare.networks import style_images

    return style_images(options.styles) or source


def _work(options: PrepareOptions, config: Config, source: Source, network: Path, folder: Path) -> Any:
    import functools

    from biasbed.prepare import networks
    from biasbed.prepare.make import Work

    make = functools.partial(networks.open_distortion, options, network, _styles(options, source))
    redraw = 0.0 if options.what == "stylized" else options.redraw
    return Work(source, folder / "images", options.format, config.seed, redraw, make, config.device)


def _workers(options: PrepareOptions, config: Config) -> int:
    if options.processes != "auto":
        return int(options.processes)
    return 1 if config.device == "cuda" else os.cpu_count() or 1
