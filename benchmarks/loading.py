"""Cost of loading beside torchvision's reference pipeline, side by side in one process.

    PYTHONPATH=src python benchmarks/all.py loading

The reference reads with Pillow and applies RandomResizedCrop(224) and a flip, or Resize(256) and CenterCrop(224), then
ToTensor and Normalize. Ours ends with uint8 images; the device divides and normalises them in less than it takes to
copy floats. JPEG and PNG photographs, and PNG files of 32 pixels, which are moved and flipped as for CIFAR: how many
times as fast ours is, in processor time. Then how far pixel values are from the reference's; memory over the epochs of
a loader with workers; and the share of its time that the engine waits for data.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from photographs import photograph
from PIL import Image
from sides import Goal, Row, Work, interleaved, ratios
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

TITLE = "Loading"
HOW = (
    "`benchmarks/loading.py`: times as fast as torchvision's reference pipeline (Pillow, ToTensor, Normalize) on the "
    "same files, one thread, processor time."
)
NOTES = (
    "The goals of 2.2 and 2.6 are out of reach on a CPU: libjpeg-turbo's decoding took 69 % of a training image's time "
    "in November 2026, and no faster decoder of baseline JPEG was found."
)
ROOT = Path(__file__).resolve().parent.parent
FLAT = Goal(1.1)  # of memory after further epochs
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


def load_all(load: Load, paths: Sequence[Path]) -> Work:
    """Return a function that reads all images once, each with draws that are the same in every round.

    Only the generator that transforms draw from is seeded: `torch.manual_seed` looks for every kind of device, which
    takes 0.3 ms, a third of what a packed image takes.
    """

    def work() -> None:
        for number, path in enumerate(paths):
            torch.default_generator.manual_seed(number)
            load(path)

    return work


# --- beside the reference ---------------------------------------------------------------------------------------------


def compared(name: str, ours: Load, theirs: Load, paths: Sequence[Path], rounds: int, goal: Goal | None = None) -> Row:
    """Return how many times as fast ours is."""
    times = interleaved({"ours": load_all(ours, paths), "other": load_all(theirs, paths)}, rounds)
    rates = [len(paths) / statistics.median(times[side]) for side in ("ours", "other")]
    note = f"{rates[0]:,.0f} and {rates[1]:,.0f} images/s of a core"
    return Row.of(name, ratios(times, "other", "ours"), goal, note)


def photographs(paths: Sequence[Path], kind: str, rounds: int, goals: tuple[Goal | None, Goal | None]) -> list[Row]:
    """At 224 pixels, as one trains and tests on ImageNet."""
    crop, flip = reference.RandomResizedCrop(224), reference.RandomHorizontalFlip()
    plain = reference_side(reference.Resize(256), reference.CenterCrop(224))
    training, evaluation = (
        transforms.TrainingTransform(224, Augment()),
        transforms.make_photo_transform(224, Preprocess())[0],
    )
    return [
        compared(f"training, {kind}", our_side(training), reference_side(crop, flip), paths, rounds, goals[0]),
        compared(f"evaluation, {kind}", our_side(evaluation), plain, paths, rounds, goals[1]),
    ]


def small(paths: Sequence[Path], rounds: int) -> list[Row]:
    """Return images of 32 pixels, moved and flipped as for CIFAR, from files."""
    crop, flip = reference.RandomCrop(32, padding=4), reference.RandomHorizontalFlip()
    training = transforms.TrainingTransform(32, Augment(crop=False, padding=4))
    return [
        compared("training, PNG of 32 px", our_side(training), reference_side(crop, flip), paths, rounds),
        compared("evaluation, PNG of 32 px", our_side(transforms.SquareResize(32)), reference_side(), paths, rounds),
    ]


def converted(paths: Sequence[Path], folder: Path, size: int | None = None) -> list[Path]:
    """Return the images as PNG files, as large as they are or of `size` pixels."""
    folder.mkdir()
    made = []
    for number, path in enumerate(paths):
        image = pillow(path)
        made.append(folder / f"{number}.png")
        (image if size is None else image.resize((size, size))).save(made[-1])
    return made


# --- pixels, memory, waiting ------------------------------------------------------------------------------------------


def distances(paths: Sequence[Path]) -> list[Row]:
    """Return how far evaluation's pixels are from the reference's, in levels of 255."""
    ours = transforms.make_photo_transform(224, Preprocess())[0]
    theirs = reference.Compose([reference.Resize(256), reference.CenterCrop(224)])
    means, largest = [], []
    for path in paths:
        expected = torch.from_numpy(np.array(theirs(pillow(path)))).permute(2, 0, 1).int()
        difference = (ours(open_file(path)).int() - expected).abs()
        means.append(difference.double().mean().item())
        largest.append(int(difference.max()))
    return [
        Row.of("pixels: mean difference from the reference", [statistics.mean(means)], Goal(0.5), unit="levels"),
        Row.of("pixels: largest difference", [max(largest)], Goal(15), "where decoded at half the size", "levels"),
    ]


def memory(source: FolderSource, epochs: int, of: str = "memory") -> Row:
    """Return the private memory of a loader's workers after the last of several epochs, by that after the second."""
    stream = Stream((Part(source, 1.0, transforms.TrainingTransform(224, Augment())),), min(32, len(source)))
    loader = TrainLoader(BatchPlan({MAIN: stream}, 0), 2, False)
    sizes = []
    for epoch in range(epochs):
        for _ in loader.from_step(epoch * stream.steps_per_epoch, (epoch + 1) * stream.steps_per_epoch):
            pass
        workers = loader.loader._iterator._workers  # type: ignore[union-attr]
        sizes.append(sum(private_mb(worker.pid) for worker in workers))
    loader.close()
    note = f"private MiB of 2 workers over {epochs} epochs: {', '.join(f'{size:.0f}' for size in sizes)}"
    return Row.of(f"{of}: last epoch / second", [sizes[-1] / sizes[min(1, epochs - 1)]], FLAT, note)


def private_mb(pid: int) -> float:
    """Return the MiB that a process has written and shares with none. Pages of files can be dropped at any time."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024


def waiting(root: Path) -> Row:
    """The share of its time that a training of ResNet-18 on one process with one loader worker waits for data."""
    from biasbed.algorithms.requests import Stage
    from biasbed.compute.distributed import Group
    from biasbed.tracking.folder import RunFolder
    from biasbed.training import job
    from biasbed.training.resolve import resolve
    from biasbed.training.train import _make_engine

    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in EXTENSIONS)
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(paths * 4):
            part, label = ("train", "test")[number >= 3 * len(paths)], ("one", "other")[number % 2]
            folder_of_class = Path(folder, "data", part, label)
            folder_of_class.mkdir(parents=True, exist_ok=True)
            (folder_of_class / f"{number}{path.suffix}").symlink_to(path.resolve())
        values = {"suite": "folders", "data_dir": f"{folder}/data", "train": "train", "sets": "test", "image_size": 224}
        settings = {**values, "batch_size": 8, "workers": 1, "nproc": 1, "val_fraction": 0.01, "epochs": 1}
        planned = job.plan(resolve(settings))
        engine = _make_engine(planned, RunFolder(Path(folder) / "run"), Group())
        engine._evaluate_and_record = lambda bar: None  # type: ignore[method-assign]
        began = time.perf_counter()
        with contextlib.redirect_stderr(io.StringIO()):
            engine._run_stage(Stage(MAIN, engine.algorithm.update))
        took = time.perf_counter() - began
    return Row.of(
        "a training's share of waiting for data", [engine.clock.waited / took], Goal(0.01), "resnet18, 1 worker"
    )


def in_memory(batch_size: int = 256, steps: int = 300) -> Row:
    """Return the main process's time for a step of small images that are in memory, by that of an MLP's step."""
    count = 60_000
    images = np.random.default_rng(0).integers(0, 255, (count, 3, 28, 28), dtype=np.uint8)
    about = dict(name="digits", classes=tuple("0123456789"), y=np.arange(count) % 10, ids=list(map(str, range(count))))
    source = MemorySource(**about, images=images)  # type: ignore[arg-type]
    stream = Stream((Part(source, 1.0, transforms.TrainingTransform(28, Augment(crop=False, flip=False))),), batch_size)
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
    note = f"{1000 * loading / steps:.2f} ms for {batch_size} images of 28 pixels"
    return Row.of("images in memory: loading / an MLP's step", [loading / stepping], None, note)


# --- all of it --------------------------------------------------------------------------------------------------------


def found_images(folder: Path | None, scratch: Path) -> Path:
    """Return the folder of JPEG files: given, the sample beside the checkout, else made ones of a photograph's size."""
    sample = folder or ROOT / "shared" / "data" / "imagenet-sample"
    for candidate in (sample, ROOT.parent / "shared" / "data" / "imagenet-sample"):
        if candidate.is_dir():
            return candidate
    (scratch / "made" / "images").mkdir(parents=True)
    for number in range(60):
        image = Image.fromarray(photograph(number)).resize((500, 375), Image.Resampling.BICUBIC)
        image.save(scratch / "made" / "images" / f"{number}.jpg", quality=90)
    return scratch / "made"


def rows(quick: bool = False, *, folder: Path | None = None, rounds: int = 5, epochs: int = 4) -> list[Row]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        root = found_images(folder, Path(name))
        paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        paths = paths[:4] if quick else paths
        rounds = 1 if quick else rounds
        few = paths[:40]  # PNG files take long to decode
        all_rows = photographs(paths, "JPEG", rounds, (Goal(2.2, at_least=True), Goal(2.6, at_least=True)))
        all_rows += photographs(converted(few, Path(name) / "png"), "PNG", rounds, (None, None))
        all_rows += small(converted(paths, Path(name) / "small", 32) * 4, rounds)
        (Path(name) / "chosen" / "images").mkdir(parents=True)
        for number, path in enumerate(paths):
            (Path(name) / "chosen" / "images" / f"{number}{path.suffix}").symlink_to(path.resolve())
        chosen = Path(name) / "chosen"
        all_rows += [*distances(paths), in_memory(steps=5 if quick else 100)]
        if not quick:
            all_rows += [memory(open_folder(chosen, "images"), epochs), waiting(chosen)]
    return all_rows
