"""Contract of a training method: what it implements, what it may use, and what the engine uses.

A method is `losses(batch)` (the easy case) or `update(batch)` (the general case), and `predict(x)`. It never logs,
evaluates, saves or asks for its rank. The engine does all of that; it saves and restores every module, buffer and
optimizer that a method owns without knowing them.

Answers: What is a method, and what does it implement?
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from biasbed.algorithms.requests import NEEDS, Phase, Stage, StreamRequest, View
from biasbed.batch import MAIN, at_least_fp32
from biasbed.compute.optim import has_restart, list_parameters, rate_factor
from biasbed.networks.features import compute_features

if TYPE_CHECKING:
    from biasbed.batch import Batch
    from biasbed.compute.distributed import Group
    from biasbed.compute.precision import Precision
    from biasbed.config import Optim
    from biasbed.networks import Network
    from biasbed.tasks import Task

Optimizer = torch.optim.Optimizer
MakeModule = Callable[[str, str], nn.Module]  # from a backbone's name and its initial weights


@dataclass
class Progress:
    """Position in training, which the engine sets before every update. Integers count from 0."""

    stage: str = "main"
    epoch: int = 0  # within the stage
    epochs: int = 1
    step: int = 0  # within the epoch
    steps_per_epoch: int = 1
    weight: float = 1.0  # this process's share of the step's examples, times the number of processes
    total: int | None = None  # steps of the stage, if it does not consist of whole epochs

    @property
    def fraction(self) -> float:
        """Fraction of the stage that is done, in [0, 1)."""
        return self._steps_done / self._total_steps

    def is_past(self, fraction: float) -> bool:
        """Return True once this fraction of the stage is done, rounded to a step as `optim.restarts` are."""
        return self._steps_done >= round(fraction * self._total_steps)

    @property
    def _steps_done(self) -> int:
        return self.epoch * self.steps_per_epoch + self.step

    @property
    def _total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch if self.total is None else self.total


@dataclass
class Notes:
    """Numbers that `losses` reports beside the loss."""

    correct: Tensor | None = None  # number of correct training decisions; None if none were observed
    values: dict[str, list[Tensor]] = field(default_factory=dict)  # by name, one for each part of a step

    def add(self, notes: Notes) -> None:
        """Add what one part of a step reports."""
        if self.correct is None:
            self.correct = notes.correct
        elif notes.correct is not None:
            self.correct = self.correct + notes.correct
        for name, values in notes.values.items():
            self.values.setdefault(name, []).extend(values)


@dataclass
class Runtime:
    """Live objects of a training that are not part of the algorithm's state."""

    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    ddp: DistributedDataParallel | None = None
    notes: Notes = field(default_factory=Notes)  # reports since the engine last took them
    # During a call of `losses`: what `Algorithm.draw` returned (which may be None), and `Progress.weight`.
    draws: tuple[Any] | None = None
    weight: Tensor | None = None
    frozen: list[str] = field(default_factory=list)  # names of modules
    released: list[str] = field(default_factory=list)  # names of modules and optimizers


Objective = tuple[Tensor, Iterable[Tensor]]  # a loss, and the parameters that it is differentiated by
Gradients = dict[str, list[Tensor]]
Terms = dict[str, Tensor]


def no_prepared_network(name: str) -> nn.Module:
    """Raise LookupError: algorithms that only predict have no prepared networks."""
    raise LookupError(f"no prepared network '{name}' was provided")


def load_no_module(make: MakeModule) -> nn.Module:
    """Raise LookupError: algorithms that only predict load nothing beside the network."""
    raise LookupError("nothing to load was provided")


@dataclass(frozen=True)
class Setup:
    """Arguments that the engine passes to an algorithm's constructor."""

    num_classes: int
    task: Task
    # network(backbone=None, outputs=None, *, head=True, width=1.0): a new network as configured, or another one;
    # [N,C,H,W] in [0,1] -> logits [N,outputs], or features without a head (`make.make_network_factory`, `Network`)
    network: Callable[..., Network]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]  # as configured, at the configured initial rate
    group: Group
    precision: Precision
    accumulate: int = 1
    prepared: Callable[[str], nn.Module] = no_prepared_network  # a network in `requires`, frozen, in eval mode
    # (network, images) -> features [N,D] of a network that is not trained, which the engine may keep in files
    features: Callable[[Network, Tensor], Tensor] = compute_features
    clip: float | None = None  # largest norm of each optimizer's gradient (`optim.clip`)
    classes: tuple[str, ...] = ()  # names of the classes that are learned
    # load(make): make(backbone, init) with the configured names, on the device
    load: Callable[[MakeModule], nn.Module] = load_no_module


@dataclass(frozen=True)
class TrainData:
    """Facts about the training data for `on_train_data`, to size tables with one row per training example."""

    num_examples: int
    num_classes: int
    num_domains: int
    num_biases: int = 0  # values of the column `bias`; 0 for a method that does not use it


class Algorithm(nn.Module):
    """Training method. Subclasses implement `predict` and either `losses` or `update`."""

    @dataclass(frozen=True)
    class HParams:
        """Settings of the method: typed, with ranges and a source for each default."""

    uses: ClassVar[frozenset[str]] = frozenset()  # of "domain", "bias", "index"; all other columns are None
    views: ClassVar[int] = 1  # cropped copies of each image in a batch
    training_data: ClassVar[Mapping[str, float]] = {"train": 1.0}  # share of each batch by data set
    maps: ClassVar[bool] = False  # acts on maps between layers, as few kinds of network have them (`networks.stages`)
    usual_backbones: ClassVar[str] = "resnet18, timm:resnet50, ..."  # for the message that refuses one
    needs_head: ClassVar[bool] = False  # uses the input of the network's last linear layer
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class", "multi_label"})  # kinds of labels that it can learn
    requires: ClassVar[tuple[str, ...]] = ()  # networks that must be prepared first (`networks.frozen.REGISTRY`)
    unused_parameters: ClassVar[bool] = False  # some steps leave a parameter out of `losses`
    # A loss depends on the whole batch, gathered from all processes: two processes give the gradient of one, and no
    # step is accumulated from parts.
    coupled: ClassVar[bool] = False
    smooths_labels: ClassVar[bool] = True  # its classification losses are the task's, which `label_smoothing` changes
    at_least: ClassVar[int] = 2  # images that a process needs in each part of a step
    defaults: ClassVar[Mapping[str, Any]] = {}  # config keys this method sets otherwise than the suite
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # preset=<name>: config keys
    # Test conditions that the training resembles, and the setting in `HParams` that turns this on; empty: always.
    overlaps: ClassVar[Mapping[str, str]] = {}

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__()
        self.hparams = hparams
        self.setup = setup
        self.group = setup.group
        self.task = setup.task
        self.progress = Progress()
        self._runtime = Runtime()

    @classmethod
    def needs(cls, hparams: Any) -> frozenset[str]:
        """Return the names in `requests.NEEDS` that the method needs of its training data with these settings."""
        needs = cls.columns(hparams) & set(NEEDS)
        for request in cls.streams(hparams).values():
            needs |= request.needs
        return needs

    @classmethod
    def columns(cls, hparams: Any) -> frozenset[str]:
        """Return the columns that the method reads with these settings; defaults to `uses`."""
        return frozenset(cls.uses)  # also of a user's tuple

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        """Return the streams of each step with these settings: the main one, and others that arrive in `extra`."""
        return {MAIN: StreamRequest(views=(View(),) * cls.views)}

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        """Raise UsageError if the method can't be trained on this backbone with these settings.

        Called before anything starts. backbone: on the meta device, without values.
        """
        from biasbed.networks import heads, stages

        if cls.maps:
            stages.find(backbone)
        if cls.needs_head and heads.find(backbone) is None:
            raise heads.no_head_error(backbone)

    @classmethod
    def check_classes(cls, hparams: Any, classes: Sequence[str]) -> None:
        """Raise UsageError if the method can't learn classes of these names. Called before anything starts."""

    @classmethod
    def files(cls, hparams: Any, classes: Sequence[str]) -> Mapping[str, str]:
        """Return text files to keep with a run (`record.DATA_FOLDER`), by name: inputs that settings only point to."""
        return {}

    # --- to implement -------------------------------------------------------------------------------------------------

    def predict(self, x: Tensor) -> Tensor:
        """Return logits [N,num_classes] of images [N,C,H,W] in [0,1], without training-only randomness."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return named scalar losses, each a mean over the batch's examples. Training minimises their sum."""
        raise NotImplementedError

    def draw(self, batch: Batch) -> Any:
        """Return what `losses` needs in this step besides the batch: random draws, and numbers that change.

        Runs before `losses`, which may be compiled: a generator would break the graph, and a changing Python number
        would compile it anew. Return tensors, in any containers; `losses` reads them from `draws`.
        """
        return None

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """Take one training step. Returns detached scalars to log, whose sum is the loss.

        The default accumulates the gradient of `losses` and takes one step of the optimizer `main`. Override it with
        `grads` and `apply_gradients` if a method has several optimizers or alternates between networks.
        """
        self.optimizer("main").zero_grad(set_to_none=True)
        terms: dict[str, Tensor] = {}
        parts = batch.split(self.setup.accumulate)
        for number, part in enumerate(parts):
            share = len(part) / len(batch)
            with self._exchange_gradients(is_last=number == len(parts) - 1):
                losses = (self._runtime.ddp or self)(part)
                total = torch.stack([at_least_fp32(loss) for loss in losses.values()]).sum()
                self.setup.precision.scale(total * (share * self.progress.weight)).backward()
            for name, loss in losses.items():
                terms[name] = terms.get(name, 0.0) + at_least_fp32(loss.detach()) * share
        parameters = list_parameters(self.optimizer("main"))
        unscaled = [None if p.grad is None else self.setup.precision.unscale(p.grad) for p in parameters]
        self.apply_gradients({"main": unscaled})
        return terms

    def optimizers(self) -> dict[str, Optimizer]:
        """Return the optimizers by name; called once. The rate of `main` is logged."""
        return {"main": self.setup.optimizer(self.parameters())}

    def stages(self) -> Sequence[Phase]:
        """Return stages and passes in order. The last stage is tested after every epoch and lasts as configured."""
        return (Stage(MAIN, self.update),)

    def per_example(self) -> Mapping[str, Tensor]:
        """Return the method's values for each training image (a weight, a selection), [num_examples] by name, to keep.

        A larger value marks an image as more likely to conflict with a bias; how well it finds such images is logged.
        """
        return {}

    def facts(self) -> Mapping[str, Any]:
        """Return further facts about the trained method as JSON values, for the run's tag `biasbed.method_facts`."""
        return {}

    def predictors(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """Return further predictors like `predict`, by name. They are validated with it and recorded by name."""
        return {}

    def on_train_data(self, data: TrainData) -> None:
        """Register tables with a row per training example, as buffers. Called once before training."""

    # --- for methods to use -------------------------------------------------------------------------------------------

    def grads(self, batch: Batch, objectives: Callable[[Batch], dict[str, Objective]]) -> tuple[Gradients, Terms]:
        """Return the gradients of several mean losses by name, and the detached losses by name.

        objectives: maps a batch to {name: (loss, parameters)}. Runs under autocast, once for each part that a step is
        accumulated from; each loss is a mean over the examples of the part. Every loss has its own parameters, and all
        are differentiated at the current weights.
        Gradients are in the order of the parameters, of the means over *all* processes' examples, unscaled, averaged
        with one all-reduce for all of them. Fires no DDP hook.
        """
        return next(self.grads_in_turn(batch, lambda part: iter((objectives(part),))))

    def grads_in_turn(
        self, batch: Batch, objectives: Callable[[Batch], Iterator[dict[str, Objective]]]
    ) -> Iterator[tuple[Gradients, Terms]]:
        """Yield what `grads` returns for each group of losses as soon as its gradients are complete.

        objectives: maps a batch to an iterator of groups of losses. A group is computed once the group before it is
        differentiated. The last loss of a group frees the graph between itself and its parameters, so no later group
        may need that graph. Between groups the caller may step parameters that no later group uses.
        """
        sums: dict[str, list[Tensor]] = {}
        terms: dict[str, Tensor] = {}
        parts = batch.split(self.setup.accumulate)
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            for losses in self._groups_of_losses(part, objectives):
                names = list(losses)
                self._differentiate(losses, len(part) / len(batch), sums, terms)
                if is_last:
                    gradients = self._average_gradients({name: sums.pop(name) for name in names})
                    yield gradients, {name: terms[name] for name in names}

    def _groups_of_losses(
        self, batch: Batch, objectives: Callable[[Batch], Iterator[dict[str, Objective]]]
    ) -> Iterator[dict[str, Objective]]:
        """Yield the groups of losses of a part of the batch, each computed under autocast."""
        with self.setup.precision.autocast():
            groups = objectives(batch)
        while True:
            with self.setup.precision.autocast():
                losses = next(groups, None)
            if losses is None:
                return
            yield losses

    def _differentiate(
        self, losses: dict[str, Objective], share: float, sums: dict[str, list[Tensor]], terms: Terms
    ) -> None:
        """Add the gradients of a part of the batch to `sums` and its losses to `terms`. Empties `losses`.

        A loss is deleted once it is differentiated, and its graph with it. share: the part's share of the batch.
        """
        for name in list(losses):
            loss, iterable = losses.pop(name)
            parameters = list(iterable)
            scaled = self.setup.precision.scale(at_least_fp32(loss) * (share * self.progress.weight))
            raw = torch.autograd.grad(scaled, parameters, retain_graph=bool(losses), allow_unused=True)
            dense = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, raw, strict=True)]
            sums[name] = [a + b for a, b in zip(sums[name], dense, strict=True)] if name in sums else dense
            terms[name] = terms.get(name, 0.0) + at_least_fp32(loss.detach()) * share

    def _average_gradients(self, sums: dict[str, list[Tensor]]) -> Gradients:
        """Return the gradients' means over processes, unscaled."""
        averaged = iter(self.group.mean_all(list(itertools.chain(*sums.values()))))
        unscale = self.setup.precision.unscale
        return {name: [unscale(next(averaged)) for _ in values] for name, values in sums.items()}

    def apply_gradients(
        self, gradients: Mapping[str, Sequence[Tensor | None]], clip: Mapping[str, float] | None = None
    ) -> None:
        """Step the named optimizers in order, all of them or none.

        gradients: for each optimizer one gradient per parameter, in the order in which `setup.optimizer` was given them
            (if the method made its own groups: in the groups' order).
        clip: largest total norm by optimizer, applied after averaging over processes. The setting `optim.clip` is one
            for every optimizer, and the smaller of both counts.
        Under fp16 a non-finite gradient anywhere skips all of these steps and lowers the loss scale. Processes need not
        communicate for that, because averaged gradients are equal on all of them.
        """
        present = [g for g in itertools.chain(*gradients.values()) if g is not None]
        if not self.setup.precision.approve(present):
            return
        for name, values in gradients.items():
            optimizer = self.optimizer(name)
            for parameter, gradient in zip(list_parameters(optimizer), values, strict=True):
                parameter.grad = gradient
            limits = [limit for limit in ((clip or {}).get(name), self.setup.clip) if limit is not None]
            if limits:
                torch.nn.utils.clip_grad_norm_(list_parameters(optimizer), min(limits))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def draws(self, batch: Batch) -> Any:
        """Return the result of `draw` for this call of `losses`; call `draw` if `losses` is called by itself."""
        return self.draw(batch) if self._runtime.draws is None else self._runtime.draws[0]

    def observe(self, logits: Tensor, y: Tensor) -> None:
        """Count correct training decisions, for `train/accuracy`. Does not wait for the device."""
        self._runtime.notes.add(Notes(correct=self.task.right(logits.detach(), y).sum()))

    def note(self, name: str, value: Tensor) -> None:
        """Log a number as `train/<name>` that is not part of the loss. Does not wait for the device.

        Numbers from the parts of one step are averaged.
        """
        self._runtime.notes.add(Notes(values={name: [at_least_fp32(value.detach())]}))

    def mean_of_all(self, means: Tensor) -> Tensor:
        """Return means [...] over *all* processes' examples, for use in a loss. means: those of this process.

        Any function of them is a loss of the whole batch: its value is the same on every process, and `grads` and DDP
        compute its gradient.
        """
        average = self.group.mean(means * self._step_weight().to(means.dtype))
        return means + (average - means.detach())

    def mean_over(self, values: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted mean of values [N] over *all* processes' examples, for use in a loss; 0 if none count.

        A plain `(weights * values).sum() / weights.sum()` would be averaged over processes instead.
        """
        total = self.group.sum(weights.sum())
        sums = (values * weights).sum()
        share = (self.group.world / self._step_weight()).to(sums.dtype)
        return sums * share / torch.where(total > 0, total, 1)

    def _step_weight(self) -> Tensor:
        """Return this process's weight in the step as a CPU tensor: a Python number that changes recompiles."""
        weight = self._runtime.weight
        return torch.tensor(self.progress.weight, dtype=torch.float64) if weight is None else weight

    def freeze(self, *modules: nn.Module) -> None:
        """Keep modules of the method in evaluation mode and without gradients from now on.

        They stay frozen after an interrupted training resumes and after any call of `train()`.
        """
        names = {module: name for name, module in self.named_modules()}
        for module in modules:
            module.eval().requires_grad_(False)
            self._runtime.frozen.append(names[module])

    def release(self, *names: str) -> None:
        """Delete modules and optimizers that no later stage uses. They are no longer in checkpoints."""
        for name in names:
            parent, _, attribute = name.rpartition(".")
            owner = self.get_submodule(parent)
            if name not in self._runtime.optimizers and attribute not in owner._modules:
                raise AttributeError(f"{type(self).__name__} has no module and no optimizer '{name}' to release")
            self._runtime.optimizers.pop(name, None)
            if attribute in owner._modules:
                setattr(owner, attribute, None)
            self._runtime.frozen = [path for path in self._runtime.frozen if not f"{path}.".startswith(f"{name}.")]
            self._runtime.released.append(name)

    def optimizer(self, name: str) -> Optimizer:
        """Return an optimizer by name."""
        return self._runtime.optimizers[name]

    def reset_optimizer(self, name: str) -> None:
        """Reset an optimizer's momenta and step counts. Rates and parameters stay."""
        self.optimizer(name).state.clear()

    # --- for the engine -----------------------------------------------------------------------------------------------

    def reset_optimizers(self) -> None:
        """Reset the momenta of all optimizers, when a schedule restarts."""
        for name in self._runtime.optimizers:
            self.reset_optimizer(name)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return `losses` under autocast. DDP wraps the algorithm with this as its forward.

        Draws are made before, and earlier notes set aside, so that `losses` is the same function of tensors every step.
        """
        earlier = self._runtime.notes
        self._runtime.weight = self._step_weight()
        self._runtime.draws, self._runtime.notes = (self.draw(batch),), Notes()
        try:
            with self.setup.precision.autocast():
                return self.losses(batch)
        finally:
            earlier.add(self._runtime.notes)
            self._runtime.draws, self._runtime.weight, self._runtime.notes = None, None, earlier

    def start(self) -> None:
        """Build the optimizers before the first stage begins or resumes."""
        self._runtime.optimizers = self.optimizers()
        for optimizer in self._runtime.optimizers.values():
            for parameters in optimizer.param_groups:
                parameters.setdefault("initial_lr", parameters["lr"])

    def share_gradients(self) -> None:
        """Wrap the default `update` in DDP if there are several processes.

        Every stage wraps it anew: parameters that one stage freezes are not averaged in the next.
        """
        if self.group.world == 1 or type(self).update is not Algorithm.update:
            return
        if self._runtime.ddp is not None:
            self._runtime.ddp = None
            gc.collect()  # the old wrapper's hooks stay on the parameters until it is deleted
        self._runtime.ddp = self.group.wrap(self, find_unused_parameters=self.unused_parameters)

    def train(self, mode: bool = True) -> Algorithm:
        """Set the training mode as usual, but keep frozen modules in evaluation mode."""
        super().train(mode)
        for name in self._runtime.frozen:
            self.get_submodule(name).eval()
        return self

    def marks(self) -> dict[str, list[str]]:
        """Return the names of frozen and released modules and optimizers, for checkpoints; empty if there are none."""
        marks = {"frozen": self._runtime.frozen, "released": self._runtime.released}
        return {name: list(names) for name, names in marks.items() if names}

    def load_marks(self, marks: Mapping[str, Sequence[str]]) -> None:
        """Freeze and release what a checkpoint names, before its weights are loaded."""
        self.freeze(*map(self.get_submodule, marks.get("frozen", ())))
        self.release(*marks.get("released", ()))

    def take_correct(self) -> Tensor | None:
        """Return the number of correct decisions since the last call; None if the method observes none."""
        correct, self._runtime.notes.correct = self._runtime.notes.correct, None
        return correct

    def take_notes(self) -> dict[str, Tensor]:
        """Return the noted numbers since the last call."""
        notes, self._runtime.notes.values = self._runtime.notes.values, {}
        return {name: torch.stack(values).mean(0) for name, values in notes.items()}

    def begin_step(
        self, stage: Stage, optim: Optim, step: int, total: int, steps_per_epoch: int, weight: float = 1.0
    ) -> None:
        """Set progress and learning rate before an update. total: steps of the stage. weight: as of `Progress`."""
        epoch, step_of_epoch = divmod(step, steps_per_epoch)
        epochs = max(1, math.ceil(total / steps_per_epoch))
        self.progress = Progress(stage.name, epoch, epochs, step_of_epoch, steps_per_epoch, weight, total)
        if stage.rate is None:
            schedule = stage.schedule_steps(total)
            self.set_rate(rate_factor(optim, schedule.first + step, schedule.total, steps_per_epoch))
        else:
            self.set_rate(stage.rate(step / total))

    def end_step(self, stage: Stage, optim: Optim, step: int, following: int, total: int) -> None:
        """Reset the optimizers if the schedule restarts after this step and before or at the following one."""
        schedule = stage.schedule_steps(total)
        if stage.rate is None and has_restart(optim, schedule.first + step, schedule.first + following, schedule.total):
            self.reset_optimizers()

    def set_rate(self, factor: float) -> None:
        """Set every optimizer's rate to `factor` times its initial one."""
        for optimizer in self._runtime.optimizers.values():
            for parameters in optimizer.param_groups:
                parameters["lr"] = parameters["initial_lr"] * factor

    def optimizer_states(self) -> dict[str, Any]:
        """Return the optimizers' states by name."""
        return {name: optimizer.state_dict() for name, optimizer in self._runtime.optimizers.items()}

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """Load what `optimizer_states` returned."""
        for name, state in states.items():
            self.optimizer(name).load_state_dict(state)

    def _exchange_gradients(self, is_last: bool) -> Any:
        """Return a context for the backward pass of an accumulated part: DDP exchanges gradients with the last only."""
        ddp = self._runtime.ddp
        return contextlib.nullcontext() if ddp is None or is_last else ddp.no_sync()
