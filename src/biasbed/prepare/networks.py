"""Which network is trained or taken over for what, and the distortion that is made with it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from biasbed.config import Config
from biasbed.data.folders import FolderSource, open_flat
from biasbed.data.source import Source
from biasbed.errors import CorruptImage, UsageError
from biasbed.networks import frozen
from biasbed.networks.frozen import PreparedNetwork
from biasbed.networks.weights import read_file
from biasbed.options import PrepareOptions
from biasbed.prepare.maker import Distortion
from biasbed.settings import build
from biasbed.system.terminal import ProgressBar

# With the authors' encoder, the decoder is trained as they did (Huang and Belongie 2017, section 6).
AUTHORS_STYLE = {"width": 64, "encoder_steps": 0, "lr": 4e-4, "style_weight": 10.0, "reconstruction_weight": 0.0}

Trainer = Callable[..., PreparedNetwork]


def make(
    kind: str, options: PrepareOptions, config: Config, source: Source, partial: Path
) -> tuple[PreparedNetwork, dict[str, Any]]:
    """(network, where it comes from): the authors' from the files given, else trained on the images of `source`.

    partial: a file for the state of the training, from which the same command goes on.
    """
    files = _files(kind, options)
    wanted = frozen.network_class(kind).published
    if set(files) == set(wanted):
        network, checksums = frozen.take_over(kind, files)
        for option, checksum in checksums.items():
            print(f"{option}={files[option]}: SHA-256 {checksum}")
        return network, {"files": checksums}
    if files and not (kind == "style" and set(files) == {"encoder"}):
        raise UsageError(f"{kind}_network takes {' and '.join(f'{option}=<file>' for option in wanted)}")
    if len(source) < 2:
        raise UsageError(f"{len(source)} images are too few to train a network on")
    return _trained(kind, options, config, source, files, partial)


def asked(kind: str, options: PrepareOptions) -> dict[str, Any]:
    """What the options say of the network, files by their checksums; empty where they say nothing."""
    names = ["width", "steps", "batch_size"]
    if options.what == f"{kind}_network":  # of images, size and styles say something else
        names += ["size", "styles"] if kind == "style" else ["size"]
    said = {name: getattr(options, name) for name in names if getattr(options, name) != "auto"}
    return said | {name: frozen.sha256(path) for name, path in _files(kind, options).items()}


def readable(source: Source) -> Source:
    """The images that can be decoded."""

    def loads(row: int) -> bool:
        try:
            source.load(row)
        except CorruptImage:
            return False
        return True

    if not isinstance(source, FolderSource):
        return source
    with ThreadPoolExecutor(8) as pool:
        rows = [row for row, good in enumerate(pool.map(loads, range(len(source)))) if good]
    return source if len(rows) == len(source) else source.subset(rows, source.name)


def _files(kind: str, options: PrepareOptions) -> dict[str, Path]:
    names = frozen.network_class(kind).published
    for name in {"encoder", "decoder", "weights"} - set(names):
        if getattr(options, name) != "none":
            raise UsageError(f"the network '{kind}' takes {' and '.join(f'{n}=<file>' for n in names)}, not {name}=")
    given = {name: getattr(options, name) for name in names}
    files = {name: Path(word).expanduser() for name, word in given.items() if word != "none"}
    for name, path in files.items():
        if not path.is_file():
            raise UsageError(f"{name}={path}: there is no such file")
    return files


def _trained(
    kind: str, options: PrepareOptions, config: Config, source: Source, files: Mapping[str, Path], partial: Path
) -> tuple[PreparedNetwork, dict[str, Any]]:
    settings, train = _training(kind)
    given = {name: getattr(options, name) for name in ("width", "steps", "batch_size")}
    values = {name: value for name, value in given.items() if value != "auto"}
    size = _size(source, config) if options.size == "auto" else int(options.size)
    origin: dict[str, Any] = {}
    if kind == "style":
        styles = style_images(options.styles)
        train = functools.partial(train, source, styles)
        origin = {"styles": (styles or source).fingerprint()}
        if files:
            encoder = read_file(files["encoder"], "encoder")
            train, values = functools.partial(train, encoder=encoder), {**AUTHORS_STYLE, **values}
        elif "steps" in values:
            values["encoder_steps"] = values["steps"]
    else:
        train = functools.partial(train, source)
    training = build(settings, {**values, "size": size, "seed": config.seed})
    total = training.steps + getattr(training, "encoder_steps", 0)
    with ProgressBar(total, "step") as bar:
        network = train(training, config.device, bar.tick, resume=partial)
    return network.cpu(), {**origin, "training": repr(training)}


def _training(kind: str) -> tuple[Any, Trainer]:
    """The settings class and the function that trains, by kind of network."""
    if kind == "style":
        from biasbed.prepare.style import StyleTraining, train_style

        return StyleTraining, train_style
    if kind == "cae":
        from biasbed.prepare.autoencoder import CAETraining, train_cae

        return CAETraining, train_cae
    from biasbed.prepare.superresolution import EDSRTraining, train_edsr

    return EDSRTraining, train_edsr


def _size(source: Source, config: Config) -> int:
    """The short side of the images, at most what training crops from."""
    try:
        short = min(source.load(0).shape[1:])
    except CorruptImage:
        short = config.image_size
    return int(min(short, -(-config.image_size * 8 // 7)))


def style_images(folder: str) -> Source | None:
    """All images under the folder that `styles` names; None for `auto`."""
    return None if folder == "auto" else open_flat(Path(folder).expanduser(), "styles")


def open_distortion(options: PrepareOptions, path: Path, styles: Source, device: str) -> Distortion:
    """What makes one image of another, on a device, with the network in a file."""
    choices = {
        name: None if value == "auto" else int(value)
        for name, value in (("weight_option", options.weight_option), ("signal_option", options.signal_option))
    }
    target = torch.device(device)
    if options.what == "stylized":
        from biasbed.prepare.stylize import Stylization

        network: Any = frozen.load(path, "style").to(target)
        return Stylization(network, styles, options.alpha, _made_size(options, network), device)
    if options.what == "deepaug_cae":
        from biasbed.prepare.deepaug_cae import CAEDistortion

        network = frozen.load(path, "cae").to(target)
        return CAEDistortion(network, **choices)
    from biasbed.prepare.deepaug_edsr import EDSRDistortion

    network = frozen.load(path, "edsr").to(target)
    return EDSRDistortion(network, **choices)


def _made_size(options: PrepareOptions, network: PreparedNetwork) -> int:
    return network.size if options.size == "auto" else int(options.size)
