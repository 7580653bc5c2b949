"""Whole training methods in loops of the user's own: an update per batch, as the command's training makes it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from biasbed import algorithms, networks
from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.make import make_algorithm, mean_std, networks_for, start_algorithm
from biasbed.algorithms.presets import load_presets
from biasbed.algorithms.requests import Stage, StreamRequest
from biasbed.api.arguments import public
from biasbed.api.model_state import find_device
from biasbed.batch import MAIN, Batch
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import Config, config_class, layered, preset_names
from biasbed.errors import UsageError, first_line, listed
from biasbed.settings import build, flat, nearest, specs
from biasbed.tasks import MULTI_CLASS
from biasbed.training.reading import prepare

# Settings of a training that have a meaning in a loop of the user's own.
GROUPS = ("optim.", "network.", "hparams.")
SETTINGS = ("preset", "init", "image_size", "mean", "std", "batch_size", "accumulate", "precision")
ARGUMENTS = ("network", "classes", "steps_per_epoch", "num_examples", "num_domains", "num_biases")  # of `make` alone
GivenNetworks = str | nn.Module | Callable[[], nn.Module]


class LoopTrainer(nn.Module):
    """Training method with its networks and optimizers. `make` returns one.

    Called as a module it predicts: images [N,C,H,W] -> logits [N,K].
    """

    def __init__(self, algorithm: Algorithm, config: Any, steps: int, steps_per_epoch: int, data: TrainData) -> None:
        super().__init__()
        self.algorithm, self.step = algorithm, 0
        self._config, self._steps, self._steps_per_epoch, self._data = config, steps, steps_per_epoch, data
        (stage,) = algorithm.stages()
        assert isinstance(stage, Stage)
        self._stage = stage
        self._columns = algorithm.columns(config.hparams)

    @property
    def requests(self) -> Mapping[str, StreamRequest]:
        """Requests that the method makes of its batches by stream: data sets, views, draws; `main` is the batch."""
        return self.algorithm.streams(self._config.hparams)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images, as the method predicts."""
        return self.algorithm.predict(x)

    def update(self, batch: Batch | Tensor, y: Tensor | None = None, **columns: Any) -> Mapping[str, Tensor]:
        """Take one training step, and return the detached losses by name; their sum is the loss.

        Args:
            batch: images [N,C,H,W] as floats in [0,1] or as uint8, [N,V,C,H,W] for a method with V views; or a whole
                `biasbed.methods.Batch`.
            y: class indices [N].
            columns: further columns of the batch: `index` [N], numbers of the images in the training data; `domain`,
                `bias` [N]; `extra`, a dict of Batches of further streams. A method sees those that it declares to use.

        Raises:
            UsageError: if the method needs a column or stream that is not there, or all steps are taken.
        """
        batch = batch if isinstance(batch, Batch) else Batch(batch, y, **columns)  # type: ignore[arg-type]
        self._check(batch)
        self.train()
        if self.step == 0:
            self._stage.begin()
        algorithm, optim = self.algorithm, self._config.optim
        algorithm.begin_step(self._stage, optim, self.step, self._steps, self._steps_per_epoch)
        terms = self._stage.update(prepare(batch, self._columns, algorithm.group.device))
        algorithm.take_correct()
        algorithm.take_notes()
        algorithm.end_step(self._stage, optim, self.step, self.step + 1, self._steps)
        self.step += 1
        if self.step == self._steps:
            self._stage.end()
        return terms

    def _check(self, batch: Batch) -> None:
        """Raise UsageError if the method can't learn from the batch."""
        algorithm, name = self.algorithm, self._config.algorithm
        if self.step >= self._steps:
            raise UsageError(f"all {self._steps} steps are taken: make the method with more (steps=)")
        requests = self.requests
        views = len(requests[MAIN].views)
        shape = "[N,C,H,W]" if views == 1 else f"[N,{views},C,H,W], {views} views of each image"
        is_fit = batch.x.ndim == 4 if views == 1 else batch.x.ndim == 5 and batch.x.shape[1] == views
        if not is_fit:
            raise UsageError(f"{name} takes images {shape}, not {list(batch.x.shape)}")
        if batch.y is None or len(batch.y) != len(batch.x):
            raise UsageError(f"{name} needs the class of each of the {len(batch.x)} images: update(x, y)")
        lacking = [column for column in sorted(self._columns) if getattr(batch, column) is None]
        if lacking:
            raise UsageError(f"{name} needs the column {lacking[0]}: update(x, y, {lacking[0]}=...)")
        absent = [stream for stream in requests if stream != MAIN and stream not in batch.extra]
        if absent:
            raise UsageError(f"{name} needs the stream {absent[0]}: update(x, y, extra={{'{absent[0]}': Batch(...)}})")
        if len(batch) < algorithm.at_least * self._config.accumulate:
            raise UsageError(f"{name} takes {algorithm.at_least} images or more in a step, not {len(batch)}")
        least, most = int(batch.y.min()), int(batch.y.max())
        if least < 0 or most >= self._data.num_classes:
            wrong = least if least < 0 else most
            raise UsageError(f"y: the class {wrong} is none of 0 to {self._data.num_classes - 1} (classes=)")
        if "index" in self._columns and int(batch.index.max()) >= self._data.num_examples:  # type: ignore[union-attr]
            raise UsageError(f"index: is to be below num_examples={self._data.num_examples}")

    def training_state(self) -> dict[str, Any]:
        """Return a copy of what a training continues with: weights, optimizers, loss scale, random states and step."""
        algorithm = self.algorithm
        state = {
            "marks": algorithm.marks(),
            "weights": algorithm.state_dict(),
            "optimizers": algorithm.optimizer_states(),
            "precision": algorithm.setup.precision.state_dict(),
            "random": algorithm.group.random_states(),
            "step": self.step,
        }
        return copy.deepcopy(state)

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `training_state` returned, in a method that was made with the same arguments."""
        algorithm = self.algorithm
        algorithm.load_marks(state["marks"])
        algorithm.load_state_dict(state["weights"])
        algorithm.load_optimizer_states(state["optimizers"])
        algorithm.setup.precision.load_state_dict(state["precision"])
        algorithm.group.load_random_states(state["random"])
        self.step = state["step"]


@public({name: spec for name, spec in specs(Config).items() if name.startswith(GROUPS) or name in SETTINGS})
def make(
    name: str,
    network: GivenNetworks,
    *,
    classes: int | Sequence[str],
    steps: int,
    steps_per_epoch: int | None = None,
    seed: int | None = None,
    device: str | torch.device = "auto",
    num_examples: int = 0,
    num_domains: int = 1,
    num_biases: int = 0,
    **settings: Any,
) -> LoopTrainer:
    """Return a training method for a loop of your own. Its updates are those of the command `train`.

    The method brings optimizers, schedules and losses. Batches are yours: what a method asks of them (balanced draws,
    an augmentation, several views) is in `requests` of the result, and is not done.

    Args:
        name: name of the method, or `<file>.py:<Class>`.
        network: name of a backbone, as "resnet18"; a module whose last layer is linear, which is trained itself; or a
            function that makes such a module, for methods with several networks.
        classes: number of classes, or their names.
        steps: updates of the whole training, by which schedules go.
        steps_per_epoch: updates per epoch, for what goes by epochs. Default: all.
        seed: seed of torch, of new weights and of all draws, as in the command. Default: drawn from torch's generator.
        device: where to train. Default: where the module's weights are, else on a GPU if there is one.
        num_examples: number of training images, for methods that use the column `index`.
        num_domains: number of values of `domain`, for methods that use it.
        num_biases: number of values of `bias`, for methods that use it.
        settings: the method's own settings by name, and `optim`, `network`, `preset`, `batch_size`, `accumulate`,
            `precision`, `mean`, `std`, `image_size` and `init` as in the command. `batch_size` scales `optim.lr`.

    Raises:
        UsageError: if there is no such method, a setting is wrong, the network does not fit, or the method trains in
            several stages, which only the command carries out.

    Examples:
        >>> trainer = biasbed.methods.make("infodrop", "resnet18", classes=10, steps=1000, batch_size=64)
        >>> for x, y in loader:
        ...     losses = trainer.update(x, y)
        >>> trainer.eval()(x)
    """
    method = algorithms.load(name)
    config = _resolve(name, method, settings, network, steps, seed)
    number = classes if isinstance(classes, int) else len(classes)
    if number < 2:
        raise UsageError(f"classes={classes}: give the number of classes, two or more")
    data = TrainData(num_examples, number, max(1, num_domains), num_biases)
    _refuse_unmet(name, method, config, data)
    group = Group(device=_choose_device(network, device))
    algorithm = _start(name, network, config, data, group)
    return LoopTrainer(algorithm, config, steps, steps_per_epoch or steps, data)


def _start(name: str, network: GivenNetworks, config: Any, data: TrainData, group: Group) -> Algorithm:
    """Return the method with its networks and optimizers. Raises UsageError if the network or the stages don't fit."""
    precision = Precision(config.precision, group.device)
    maker = None if isinstance(network, str) else _networks_of(name, network, config, data.num_classes, group)
    try:
        make_it = functools.partial(make_algorithm, config, MULTI_CLASS, group, precision, data, network=maker)
        algorithm = start_algorithm(config, group, make_it)
    except UsageError:
        raise
    except Exception as error:  # a module of the user's may be built in any way
        raise UsageError(f"{name} can't be trained with this network: {first_line(error)}") from error
    phases = algorithm.stages()
    if len(phases) > 1:
        names = listed((phase.name for phase in phases), 3)
        raise UsageError(f"{name} trains in the stages {names}, which biasbed.train carries out")
    return algorithm


def _resolve(
    name: str,
    method: type[Algorithm],
    settings: Mapping[str, Any],
    network: GivenNetworks,
    steps: int,
    seed: int | None,
) -> Any:
    """Return the settings: defaults, the method's, presets, the user's. Raises UsageError for a wrong one."""
    own_settings = specs(method.HParams)
    cls = config_class(Config, method.HParams)
    valid = [*own_settings, *(key for key in specs(cls) if key.startswith(GROUPS) or key in SETTINGS)]
    chosen: dict[str, Any] = {}
    for key, value in flat(settings).items():
        if key not in valid:
            raise UsageError(f"unknown setting '{key}' of {name}{nearest(key, [*ARGUMENTS, *valid])}")
        chosen[f"hparams.{key}" if key in own_settings else key] = value
    fixed = load_presets(preset_names(chosen), (method.presets,), specs(cls), name)
    arguments: dict[str, Any] = {"algorithm": name, "steps": steps, "epochs": None}
    arguments["seed"] = int(torch.randint(2**31, ())) if seed is None else seed
    if isinstance(network, str):
        arguments["backbone"] = network
    return build(cls, layered([method.defaults, *fixed, chosen, arguments]))


def _refuse_unmet(name: str, method: type[Algorithm], config: Any, data: TrainData) -> None:
    """Raise UsageError if the method needs facts or networks that it would not get."""
    columns = method.columns(config.hparams)
    facts = (("index", "num_examples", 1), ("domain", "num_domains", 2), ("bias", "num_biases", 2))
    for column, fact, least in facts:
        if column in columns and getattr(data, fact) < least:
            raise UsageError(f"{name} uses the column {column}: give {fact}=")
    if method.requires:
        raise UsageError(f"{name} needs a network that is prepared first ({method.requires[0]}): use biasbed.train")
    if method.coupled and config.accumulate > 1:
        raise UsageError(f"accumulate={config.accumulate}: a loss of {name} depends on the whole batch")


def _choose_device(network: GivenNetworks, device: str | torch.device) -> torch.device:
    if device == "auto" and not isinstance(network, nn.Module):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return find_device(network if isinstance(network, nn.Module) else nn.Identity(), device)


def _networks_of(
    name: str, template: nn.Module | Callable[[], nn.Module], config: Any, classes: int, group: Group
) -> Callable[..., networks.Network]:
    """Return the function that makes a method's networks of the user's module or function.

    A network of another architecture, which the method names, is made as for the command.
    """
    if not callable(template):
        raise UsageError(f"network={template!r}: give a backbone's name, an nn.Module or a function that makes one")
    by_name = networks_for(config, classes, group)
    used: list[nn.Module] = []

    def network(
        backbone: str | None = None, outputs: int | None = None, *, head: bool = True, width: float = 1.0
    ) -> networks.Network:
        if backbone is not None:
            return by_name(backbone, outputs, head=head, width=width)
        if width != 1 or outputs not in (None, classes):
            raise UsageError(f"{name} makes networks of other sizes: give a backbone by its name")
        if isinstance(template, nn.Module) and used:
            raise UsageError(f"{name} trains several networks: give a function that makes one, as lambda: Net()")
        module = template if isinstance(template, nn.Module) else template()
        if not isinstance(module, nn.Module):
            raise UsageError(f"network= makes a {type(module).__name__}, and should make an nn.Module")
        used.append(module)
        how = mean_std(config) or networks.MeanStd(*((fixed,) * config.network.channels for fixed in (0.0, 1.0)))
        made = networks.Network(module, how.mean, how.std, config.network.dropout, head)
        if isinstance(made.head, nn.Linear) and made.head.out_features != classes:
            raise UsageError(f"classes={classes}: the network has {made.head.out_features} outputs, give as many")
        return group.send_module(made)

    return network
