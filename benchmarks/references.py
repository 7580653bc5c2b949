"""A step of our methods beside a step of their authors' own programs, on the same images, in turn in one process.

    PYTHONPATH=src python benchmarks/all.py --reference <checkout> [--reference <checkout> ...] references

A checkout is known by a file that it has: DomainBed, and the authors' InfoDrop, SagNet and Noise2Net (ImageNet-R).
Their modules do all of the work; what is here lets them run on this machine: weights are drawn where they would fetch
them, a GPU that their code names is this machine's device, and our images stand for their loops over data. Sizes and
ERM are those of methods.py.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import methods
import torch
import torchvision
from methods import CUDA, DEVICE, SGD, SIZE, STEPS
from sides import Row, Work, interleaved, ratios
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.draws import HostDraws
from biasbed.algorithms.noise2net import draw_shapes
from biasbed.batch import Batch

TITLE = "Beside the authors' own programs"
HOW = (
    "`benchmarks/references.py`: a step of ours, of theirs and of our ERM in turn, on the same images; sizes as in "
    "the table of methods, one thread, processor time."
)
NOTES = (
    "What a step of ERM is worth goes by the machine, so a goal is better read beside the authors' own: SagNet's of "
    "1.7 was set where theirs took 2.13 steps of ERM and ours 1.72, which are 0.80 and 0.81 of theirs."
)


@dataclass(frozen=True)
class Program:
    """Program of others: its name, a file that a checkout of it has, and its methods by the names of ours."""

    name: str
    marker: str
    methods: Mapping[str, str]  # a side of methods.py -> what it is called there
    step: Callable[[Path, str, Batch], Work]  # (checkout, what it is called there, images) -> takes a training step
    erm: str = "erm"  # the side that has the same images


@contextlib.contextmanager
def drawn_weights() -> Iterator[None]:
    """Networks that are asked for with their weights, which would be fetched, have drawn ones."""
    network = torchvision.models.resnet18
    torchvision.models.resnet18 = lambda *args, **kwargs: network()
    try:
        yield
    finally:
        torchvision.models.resnet18 = network


def executed(file: Path, *words: str) -> dict[str, Any]:
    """Return the names that a program defines, with these words on its command line and for this machine's device."""
    code = compile(file.read_text(encoding="utf-8").replace("cuda:0", DEVICE.type), file, "exec")
    names: dict[str, Any] = {"__name__": file.stem, "__file__": str(file)}
    arguments, sys.argv = sys.argv, [str(file), *words]
    try:
        exec(code, names)
    finally:
        sys.argv = arguments
    return names


def ready(network: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    network.to(DEVICE).train()
    return network, SGD(network.parameters())


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# --- the programs -----------------------------------------------------------------------------------------------------


def domainbed(checkout: Path, name: str, batch: Batch) -> Work:
    sys.path.insert(0, str(checkout))
    from domainbed import algorithms, hparams_registry  # type: ignore[import-not-found]

    settings = hparams_registry.default_hparams(name, "PACS") | {"resnet18": True}
    with drawn_weights():
        algorithm = algorithms.get_algorithm_class(name)((3, SIZE, SIZE), 1000, methods.DOMAINS, settings)
    algorithm.to(DEVICE).train()
    parts = [(part.x, part.y) for part in batch.by_domain().values()]

    return lambda: algorithm.update(parts)


def infodrop(checkout: Path, name: str, batch: Batch) -> Work:
    """Return a pooling for images of any size: theirs is made for 224 pixels."""
    vars(torchvision.models.resnet).setdefault("model_urls", {})  # torchvision has them no more
    with contextlib.redirect_stdout(io.StringIO()):
        network = executed(checkout / INFODROP.marker)[methods.BACKBONE](pretrained=False, classes=1000)
    network.avgpool = nn.AdaptiveAvgPool2d(1)
    network, optimizer = ready(network)

    return lambda: update(optimizer, functional.cross_entropy(network(batch.x)[1], batch.y))


def sagnet(checkout: Path, name: str, batch: Batch) -> Work:
    """Their three losses and optimizers. They step after the last loss, as torch now has it, not after each."""
    sys.path.insert(0, str(checkout))
    from modules.loss import AdvLoss  # type: ignore[import-not-found]
    from modules.sag_resnet import sag_resnet  # type: ignore[import-not-found]

    network, optimizer = ready(sag_resnet(int(methods.BACKBONE.removeprefix("resnet"))))
    adversarial = AdvLoss()
    groups = [network.style_params(), network.adv_params(), list(network.parameters())]
    optimizers = [SGD(groups[0]), SGD(groups[1]), optimizer]

    def step() -> None:
        content, style = network(batch.x)
        losses = [functional.cross_entropy(style, batch.y), 0.1 * adversarial(style)]
        losses.append(functional.cross_entropy(content, batch.y))
        gradients = []
        for number, (loss, parameters) in enumerate(zip(losses, groups, strict=True)):
            network.zero_grad()
            loss.backward(retain_graph=number < 2)
            if number == 1:
                torch.nn.utils.clip_grad_norm_(parameters, 0.1)
            gradients.append([parameter.grad for parameter in parameters])
        for one, parameters, of_loss in zip(optimizers, groups, gradients, strict=True):
            for parameter, gradient in zip(parameters, of_loss, strict=True):
                parameter.grad = gradient
            one.step()

    return step


def noise2net(checkout: Path, name: str, batch: Batch) -> Work:
    """Build its network with our kernel sizes and dilations: a large kernel takes nine times a small one's work."""
    names = executed(checkout / NOISE2NET.marker, "data", "--save", "nowhere", "--noise2net")
    ours = methods.make("noise2net", {}, SGD)
    shapes = itertools.chain(*draw_shapes(HostDraws(ours.group).epoch_generator(ours.progress)))
    drawn = iter([size for shape in shapes for size in (shape.kernel, shape.dilation)])
    names["random"] = SimpleNamespace(choice=lambda options: next(drawn))
    half = methods.BATCH // 2
    distortion = names[name](hidden_planes=16, batch_size=half).train().to(DEVICE)
    network, optimizer = ready(getattr(torchvision.models, methods.BACKBONE)())

    def step() -> None:
        x = batch.x.clone()
        with torch.no_grad():
            distortion.reload_parameters()
            distortion.set_epsilon(random.uniform(0.375, 0.75))
            x[:half] = distortion(x[:half].reshape(1, half * 3, SIZE, SIZE)).reshape(half, 3, SIZE, SIZE)
        update(optimizer, functional.cross_entropy(network(x), batch.y))

    return step


INFODROP = Program("InfoDrop", "domain_generalization/models/resnet.py", {"infodrop": "Info_Dropout"}, infodrop)
SAGNET = Program("SagNet", "modules/sag_resnet.py", {"sagnet": "sag_resnet"}, sagnet)
NOISE2NET = Program("Noise2Net", "DeepAugment/train_noise2net.py", {"noise2net": "Res2Net"}, noise2net)
DOMAINBED = Program(
    "DomainBed",
    "domainbed/algorithms.py",
    {
        **{"erm, domains": "ERM", "irm": "IRM", "vrex": "VREx", "group_dro": "GroupDRO", "mixup": "Mixup"},
        **{"coral": "CORAL", "mmd": "MMD", "mldg, ring": "MLDG"},  # its MLDG is the ring
    },
    domainbed,
    erm="erm, domains",
)
PROGRAMS = (DOMAINBED, INFODROP, SAGNET, NOISE2NET)


# --- beside ours ------------------------------------------------------------------------------------------------------


def program_of(checkout: Path) -> Program:
    """SystemExit where the folder has the file of none of them."""
    for program in PROGRAMS:
        if (checkout / program.marker).is_file():
            return program
    files = ", ".join(f"{program.name} ({program.marker})" for program in PROGRAMS)
    raise SystemExit(f"{checkout} is no checkout of any of {files}")


def theirs(checkout: Path, program: Program, side: str) -> Work:
    """As many steps as one of our sides takes, on its images."""
    torch.manual_seed(0)
    batch = methods.of_domains() if program.erm in methods.OF_DOMAINS else methods.images(methods.BATCH)
    step = program.step(checkout, program.methods[side], batch)

    def run() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=CUDA):
            for _ in range(STEPS):
                step()
        if CUDA:
            torch.cuda.synchronize()

    return run


def rows_of(checkout: Path, rounds: int) -> list[Row]:
    program = program_of(checkout)
    all_rows = []
    for side in program.methods:
        sides = {program.erm: methods.side(program.erm), side: methods.side(side)}
        sides["theirs"] = theirs(checkout, program, side)
        times = interleaved(sides, rounds, methods.CLOCK)
        all_rows.append(Row.of(f"{side} / {program.name}'s own", ratios(times, side, "theirs")))
        if side != program.erm:
            all_rows.append(Row.of(f"{side} / our erm", ratios(times, side, program.erm)))
        all_rows.append(Row.of(f"{program.name}'s own {side} / our erm", ratios(times, "theirs", program.erm)))
    return all_rows


def rows(quick: bool = False, *, checkouts: Sequence[Path], rounds: int = 9) -> list[Row]:
    torch.set_num_threads(1)
    return [row for checkout in checkouts for row in rows_of(checkout, 1 if quick else rounds)]
