"""What loading costs beside torchvision's reference pipeline, side by side in one process.

    PYTHONPATH=src python benchmarks/loading.py <folder of JPEG images> [--rounds 9] [--epochs 10]

The reference reads with Pillow and applies RandomResizedCrop(224) and a flip, or Resize(256) and CenterCrop(224), then
ToTensor and Normalize. Ours ends with uint8 images; the device divides and normalises them in less than it takes to
copy floats. Printed: images per second and core of both, the median of the rounds' ratios of CPU time and their range;
how far pixel values are from the reference's; memory over the epochs of a loader with workers; and the share of its
time that the engine waits for data.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as reference

from biasbed.batch import MAIN
from biasbed.config import Augment, Preprocess
from biasbed.data import transforms
from biasbed.data.decoding import EXTENSIONS, open_file
from biasbed.data.folders import FolderSource, open_folder
from biasbed.data.loading import TrainLoader
from biasbed.data.source import MemorySource
from biasbed.data.streams import BatchPlan, Part, Stream
from biasbed.networks import build
from biasbed.networks.network import IMAGENET_MEAN, IMAGENET_STD, as_input

Load = Callable[[Path], torch.Tensor]


def pillow(path: Path) -> Image.Image:
    with path.open("rb") as file:
        return Image.open(file).convert("RGB")


def reference_side(*steps: Callable[[Image.Image], Image.Image]) -> Load:
    finish = [reference.ToTensor(), reference.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    pipeline = reference.Compose([*steps, *finish])
    return lambda path: pipeline(pillow(path))


def our_side(transform: transforms.Transform) -> Load:
    return lambda path: transform(open_file(path))


def seconds(load: Load, paths: Iterable[Path]) -> float:
    start = time.process_time()
    for path in paths:
        load(path)
    return time.process_time() - start


def compare(name: str, ours: Load, other: Load, paths: list[Path], rounds: int) -> None:
    """Print rates, and the median and range of how many times as fast ours is; the first round warms up."""
    found = []
    for number in range(rounds + 1):
        sides = (ours, other) if number % 2 else (other, ours)
        times = {side: seconds(side, paths) for side in sides}
        found.append((times[other] / times[ours], len(paths) / times[ours], len(paths) / times[other]))
    ratios = sorted(ratio for ratio, _, _ in found[1:])
    rates = [statistics.median(column) for column in list(zip(*found[1:], strict=True))[1:]]
    print(
        f"{name:12} ours {rates[0]:6.0f}, reference {rates[1]:6.0f} images per second and core: "
        f"{statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f} in {rounds} rounds)"
    )


def distances(paths: list[Path]) -> None:
    """Print how far evaluation's pixels are from the reference's, in levels of 255."""
    ours = transforms.natural(224, Preprocess())[0]
    theirs = reference.Compose([reference.Resize(256), reference.CenterCrop(224)])
    means, largest = [], []
    for path in paths:
        expected = torch.from_numpy(np.array(theirs(pillow(path)))).permute(2, 0, 1).int()
        difference = (ours(open_file(path)).int() - expected).abs()
        means.append(difference.double().mean().item())
        largest.append(int(difference.max()))
    print(f"pixels       mean difference {statistics.mean(means):.3f} levels, largest {max(largest)} of 255")


def memory(source: FolderSource, epochs: int) -> None:
    """Print the private memory of a loader's workers after each of several epochs."""
    stream = Stream((Part(source, 1.0, transforms.training(224, Augment())),), 32)
    loader = TrainLoader(BatchPlan({MAIN: stream}, 0), 2, False)
    sizes = []
    for epoch in range(epochs):
        for _ in loader.from_step(epoch * stream.steps_per_epoch, (epoch + 1) * stream.steps_per_epoch):
            pass
        workers = loader.loader._iterator._workers  # type: ignore[union-attr]
        sizes.append(sum(private_mb(worker.pid) for worker in workers))
    loader.close()
    print(f"memory       private MiB of 2 workers over {epochs} epochs: {', '.join(f'{size:.0f}' for size in sizes)}")


def private_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def waiting(root: Path) -> None:
    """Print the share of its time that a training of ResNet-18 on one process with one loader worker waits for data."""
    from biasbed.algorithms.requests import Stage
    from biasbed.compute.distributed import Group
    from biasbed.tracking.folder import RunFolder
    from biasbed.training import job
    from biasbed.training.resolve import resolve
    from biasbed.training.train import _engine

    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in EXTENSIONS)
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(paths * 4):
            place = Path(folder, "data", ("train", "test")[number == 0 or number >= 3 * len(paths)], "images")
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number}{path.suffix}").symlink_to(path.resolve())
        values = {"suite": "folders", "data_dir": f"{folder}/data", "train": "train", "sets": "test", "image_size": 224}
        settings = {**values, "batch_size": 8, "workers": 1, "nproc": 1, "val_fraction": 0.01, "epochs": 1}
        planned = job.plan(resolve(settings))
        engine = _engine(planned, RunFolder(Path(folder) / "run"), Group())
        engine._boundary = lambda bar: None  # type: ignore[method-assign]
        began = time.perf_counter()
        with contextlib.redirect_stderr(io.StringIO()):
            engine._run_stage(Stage(MAIN, engine.algorithm.update))
        took = time.perf_counter() - began
    print(f"waiting      {100 * engine._waited / took:.1f} % of a training's {took:.0f} s (resnet18, 224 px, 1 worker)")


def in_memory(batch_size: int = 256, steps: int = 300) -> None:
    """Print the main process's time for a step of small images that are in memory, and its share of an MLP's step."""
    count = 60_000
    images = np.random.default_rng(0).integers(0, 255, (count, 3, 28, 28), dtype=np.uint8)
    about = dict(name="digits", classes=tuple("0123456789"), y=np.arange(count) % 10, ids=list(map(str, range(count))))
    source = MemorySource(**about, images=images)  # type: ignore[arg-type]
    stream = Stream((Part(source, 1.0, transforms.training(28, Augment(crop=False, flip=False))),), batch_size)
    read = TrainLoader(BatchPlan({MAIN: stream}, 0), 0, False).from_step(0, steps + 1)
    network = build("mlp", 10, image_size=28)
    optimizer = torch.optim.Adam(network.parameters())
    loading = stepping = 0.0
    began = time.process_time()
    for number, (_, _, batch, _) in enumerate(read):
        loaded = time.process_time()
        torch.nn.functional.cross_entropy(network(as_input(batch.x)), batch.y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number:
            loading, stepping = loading + loaded - began, stepping + time.process_time() - loaded
        began = time.process_time()
    each = f"{1000 * loading / steps:.2f} ms for {batch_size} images of 28 pixels"
    print(f"in memory    {each}, {loading / stepping:.2f} of an MLP's step without loading")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = sorted(path for path in options.folder.rglob("*") if path.suffix.lower() in EXTENSIONS)
    crop, flip = reference.RandomResizedCrop(224), reference.RandomHorizontalFlip()
    training = our_side(transforms.training(224, Augment()))
    compare("training", training, reference_side(crop, flip), paths, options.rounds)
    evaluation = our_side(transforms.natural(224, Preprocess())[0])
    plain = reference_side(reference.Resize(256), reference.CenterCrop(224))
    compare("evaluation", evaluation, plain, paths, options.rounds)
    distances(paths)
    in_memory()
    memory(open_folder(options.folder, "images"), options.epochs)
    waiting(options.folder)


if __name__ == "__main__":
    main()
