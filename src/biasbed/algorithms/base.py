"""The contract that every training method fulfils.

An algorithm is `losses(batch)` (the easy case) or `update(batch)` (the general case), and `predict(x)`. It never logs,
tests, saves or asks for its rank: the engine does all of that, and saves and restores every module, buffer and
optimizer an algorithm owns without knowing them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.needs import NEEDS
from biasbed.algorithms.requests import Phase, Stage, StreamRequest, View
from biasbed.algorithms.runtime import Notes, Runtime
from biasbed.algorithms.runtime import Optimizer as Optimizer
from biasbed.algorithms.runtime import Progress as Progress
from biasbed.batch import MAIN, at_least_fp32
from biasbed.compute.optim import parameters_of

if TYPE_CHECKING:
    from biasbed.batch import Batch
    from biasbed.compute.distributed import Group
    from biasbed.compute.precision import Precision
    from biasbed.networks import Network
    from biasbed.tasks import Task

Objective = tuple[Tensor, Iterable[Tensor]]  # a loss, and what it is differentiated by
Gradients = dict[str, list[Tensor]]
Terms = dict[str, Tensor]


def none_prepared(name: str) -> nn.Module:
    """For algorithms that only predict."""
    raise LookupError(f"no prepared network '{name}' was handed over")


@dataclass(frozen=True)
class Setup:
    """What the engine hands to an algorithm's constructor."""

    num_classes: int
    task: Task
    # network(backbone=None, outputs=None, *, head=True, width=1.0): a fresh network as configured, or another one;
    # [N,C,H,W] in [0,1] -> logits [N,outputs], or features where it has no head (`make.networks_for`, `Network`)
    network: Callable[..., Network]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]  # as configured, at the configured base rate
    group: Group
    precision: Precision
    accumulate: int = 1
    prepared: Callable[[str], nn.Module] = none_prepared  # a network that `requires` names, frozen, in eval mode


@dataclass(frozen=True)
class TrainData:
    """What `on_train_data` learns about the training data: for tables with one row per training example."""

    num_examples: int
    num_classes: int
    num_domains: int
    num_biases: int = 0  # values of the column `bias`; 0 for a method that does not use it


class Algorithm(nn.Module):
    """A training method; subclasses implement `predict` and either `losses` or `update`."""

    @dataclass(frozen=True)
    class HParams:
        """The method's own settings: typed, with ranges and a source for each default."""

    uses: ClassVar[frozenset[str]] = frozenset()  # of "domain", "bias", "index": all other columns arrive as None
    views: ClassVar[int] = 1  # cropped copies of each image in a batch
    training_data: ClassVar[Mapping[str, float]] = {"train": 1.0}  # share of each batch by data set
    surgery: ClassVar[bool] = False  # inserts modules into a ResNet (`networks.surgery`): no other backbone will do
    needs_head: ClassVar[bool] = False  # uses what goes into the network's last linear layer
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class", "multi_label"})  # kinds of label that it can learn
    requires: ClassVar[tuple[str, ...]] = ()  # networks that must be prepared first (`networks.frozen.REGISTRY`)
    unused_parameters: ClassVar[bool] = False  # some steps leave a parameter out of `losses`
    # A loss depends on the whole batch, gathered from all processes: two give the gradient of one, and no step is
    # accumulated from parts.
    coupled: ClassVar[bool] = False
    at_least: ClassVar[int] = 2  # images that a process needs in each part of a step
    defaults: ClassVar[Mapping[str, Any]] = {}  # config keys this method sets otherwise than the suite
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # preset=<name>: config keys
    # Conditions of tests that training resembles, and the switch in `HParams` by which it does; empty: always.
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
        """Of `NEEDS`, what the method needs of its training data with these settings: what it uses, or draws by."""
        drawn_by = (request.needs for request in cls.streams(hparams).values())
        return (cls.columns(hparams) & set(NEEDS)).union(*drawn_by)

    @classmethod
    def columns(cls, hparams: Any) -> frozenset[str]:
        """The columns that it may see with these settings; what it `uses`, where that hangs on none of them."""
        return cls.uses

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        """What is read for each step with these settings: the main stream, and others that come along as `extra`."""
        return {MAIN: StreamRequest(views=(View(),) * cls.views)}

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        """Raise UsageError if the method can't be trained on this backbone with these settings.

        It is called before anything starts. backbone: without values.
        """
        from biasbed.networks import heads

        if cls.needs_head and heads.find(backbone) is None:
            raise heads.without_head(backbone)

    # --- what a method implements -----------------------------------------------------------------------------------

    def predict(self, x: Tensor) -> Tensor:
        """Logits [N,num_classes] of images [N,C,H,W] in [0,1]; must not depend on training-only randomness."""
        raise NotImplementedError

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named scalar losses, each a mean over the batch's examples; training minimises their sum."""
        raise NotImplementedError

    def draw(self, batch: Batch) -> Any:
        """Make what `losses` needs of this step but the batch: random draws, and numbers that change between steps.

        It runs before `losses`, which may be compiled: there, a generator breaks the graph, and a Python number that
        changes compiles it anew. Return tensors, in any containers. `losses` gets them from `draws`.
        """
        return None

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        """One training step; returns detached scalars to log, the sum of them being the loss.

        The default accumulates the gradient of `losses` and takes one step of the optimizer `main`. Override it and use
        `grads` and `apply_gradients` where a method has several optimizers, or alternates between networks.
        """
        self.optimizer("main").zero_grad(set_to_none=True)
        terms: dict[str, Tensor] = {}
        parts = batch.split(self.setup.accumulate)
        for number, part in enumerate(parts):
            share = len(part) / len(batch)
            with self._synchronize(last=number == len(parts) - 1):
                losses = (self._runtime.ddp or self)(part)
                total = torch.stack([at_least_fp32(loss) for loss in losses.values()]).sum()
                self.setup.precision.scale(total * (share * self.progress.weight)).backward()
            for name, loss in losses.items():
                terms[name] = terms.get(name, 0.0) + at_least_fp32(loss.detach()) * share
        parameters = parameters_of(self.optimizer("main"))
        unscaled = [None if p.grad is None else self.setup.precision.unscale(p.grad) for p in parameters]
        self.apply_gradients({"main": unscaled})
        return terms

    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizers by name, built once; `main` is the one whose rate is logged."""
        return {"main": self.setup.optimizer(self.parameters())}

    def stages(self) -> Sequence[Phase]:
        """Stages and passes in order; the last is a stage, is tested after every epoch, and lasts as configured."""
        return (Stage(MAIN, self.update),)

    def per_example(self) -> Mapping[str, Tensor]:
        """What it believes of each training image (a weight, a selection), [num_examples] by name, to be kept.

        The larger, the more the image is taken for one that conflicts with a bias: how well that finds them is logged.
        """
        return {}

    def predictors(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """Further ways to decide, like `predict`, by name: validated whenever it is, and recorded under that name."""
        return {}

    def on_train_data(self, data: TrainData) -> None:
        """Called once before training: size tables that hold state per training example (register them as buffers)."""

    # --- what a method may use ---------------------------------------------------------------------------------------

    def grads(self, batch: Batch, objectives: Callable[[Batch], Mapping[str, Objective]]) -> tuple[Gradients, Terms]:
        """The gradients of several mean losses, each for parameters of its own, all at the present weights.

        objectives: maps a batch to {name: (loss, parameters)}; it runs under autocast, once for each of the parts that
        a step is accumulated from. A loss is a mean over the examples it is given.
        Returns the gradients by name, in the order of the parameters, of the means over *all* processes' examples:
        unscaled, summed by one all-reduce for all of them; and the detached losses by name. Fires no DDP hook.
        """
        sums: dict[str, list[Tensor]] = {}
        terms: dict[str, Tensor] = {}
        for part in batch.split(self.setup.accumulate):
            share = len(part) / len(batch)
            with self.setup.precision.autocast():
                found = objectives(part)
            last = list(found)[-1]
            for name, (loss, wanted) in found.items():
                parameters = list(wanted)
                scaled = self.setup.precision.scale(at_least_fp32(loss) * (share * self.progress.weight))
                raw = torch.autograd.grad(scaled, parameters, retain_graph=name != last, allow_unused=True)
                dense = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, raw, strict=True)]
                sums[name] = [a + b for a, b in zip(sums[name], dense, strict=True)] if name in sums else dense
                terms[name] = terms.get(name, 0.0) + at_least_fp32(loss.detach()) * share
        averaged = iter(self.group.mean_all([g for values in sums.values() for g in values]))
        unscale = self.setup.precision.unscale
        return {name: [unscale(next(averaged)) for _ in values] for name, values in sums.items()}, terms

    def apply_gradients(
        self, gradients: Mapping[str, Sequence[Tensor | None]], clip: Mapping[str, float] | None = None
    ) -> None:
        """Step the named optimizers, in order, all or none.

        gradients: per optimizer one gradient per parameter, in the order in which `setup.optimizer` was given them
            (with groups of the method's own: in the groups' order).
        clip: largest total norm per optimizer, applied here, after averaging over processes.
        Under fp16 a non-finite gradient anywhere skips every one of these steps and lowers the loss scale; the vote
        needs no message, as averaged gradients are equal on all processes.
        """
        present = [g for values in gradients.values() for g in values if g is not None]
        if not self.setup.precision.approve(present):
            return
        for name, values in gradients.items():
            optimizer = self.optimizer(name)
            for parameter, gradient in zip(parameters_of(optimizer), values, strict=True):
                parameter.grad = gradient
            if clip and name in clip:
                torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), clip[name])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def draws(self, batch: Batch) -> Any:
        """Return what `draw` has made for this call of `losses`; make it where `losses` is called by itself."""
        return self.draw(batch) if self._runtime.draws is None else self._runtime.draws[0]

    def observe(self, logits: Tensor, y: Tensor) -> None:
        """Count the training decisions that are right, for `train/accuracy`; waits for nothing."""
        self._runtime.notes.add(Notes(correct=self.task.right(logits.detach(), y).sum()))

    def note(self, name: str, value: Tensor) -> None:
        """Have a number logged beside the terms, as `train/<name>`, that is no part of the loss; waits for nothing.

        Of what the parts of one step note it is the mean.
        """
        self._runtime.notes.add(Notes(values={name: [at_least_fp32(value.detach())]}))

    def mean_of_all(self, means: Tensor) -> Tensor:
        """Means [...] over this process's examples as means over *all* processes', to make a loss of.

        Any function of them is a loss of the whole batch: its value is the same on every process, and the gradients of
        `grads` and DDP are its gradient.
        """
        whole = self.group.mean(means * self._step_weight().to(means.dtype))
        return means + (whole - means.detach())

    def mean_over(self, values: Tensor, weights: Tensor) -> Tensor:
        """The mean of values [N] in proportion to weights [N], over *all* processes' examples, as a loss; 0 over none.

        A plain `(weights * values).sum() / weights.sum()` would be the mean over processes of each one's own mean.
        """
        total = self.group.sum(weights.sum())
        sums = (values * weights).sum()
        share = (self.group.world / self._step_weight()).to(sums.dtype)
        return sums * share / torch.where(total > 0, total, 1)

    def _step_weight(self) -> Tensor:
        """Return this process's weight in the step: a tensor, as it changes; on the CPU, as numbers are."""
        made = self._runtime.weight
        return torch.tensor(self.progress.weight, dtype=torch.float64) if made is None else made

    def freeze(self, *modules: nn.Module) -> None:
        """From now on these modules, which are the method's own, are in evaluation mode and have no gradients.

        Also after training was cut, and whatever `train()` is called on.
        """
        names = {module: name for name, module in self.named_modules()}
        for module in modules:
            module.eval().requires_grad_(False)
            self._runtime.frozen.append(names[module])

    def release(self, *names: str) -> None:
        """Let go of modules and optimizers that no later stage uses: they are in no checkpoint from now on."""
        for name in names:
            parent, _, attribute = name.rpartition(".")
            owner = self.get_submodule(parent)
            if name not in self._runtime.optimizers and attribute not in owner._modules:
                raise AttributeError(f"{type(self).__name__} has no module and no optimizer '{name}' to release")
            self._runtime.optimizers.pop(name, None)
            if attribute in owner._modules:
                setattr(owner, attribute, None)
            self._runtime.frozen = [own for own in self._runtime.frozen if not f"{own}.".startswith(f"{name}.")]
            self._runtime.released.append(name)

    def optimizer(self, name: str) -> Optimizer:
        """A live optimizer by its name."""
        return self._runtime.optimizers[name]

    def reset_optimizer(self, name: str) -> None:
        """Forget an optimizer's momenta and step counts; rates and parameters stay."""
        self.optimizer(name).state.clear()

    # --- what the engine uses ----------------------------------------------------------------------------------------

    def reset_optimizers(self) -> None:
        """Forget the momenta of all optimizers, where a schedule begins anew."""
        for name in self._runtime.optimizers:
            self.reset_optimizer(name)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return `losses` under autocast; DDP wraps the algorithm with this as its forward.

        `losses` finds its draws made and no earlier notes, so that it is the same function of tensors in every step.
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
        """Build optimizers, before the first stage begins or is continued."""
        self._runtime.optimizers = self.optimizers()
        for optimizer in self._runtime.optimizers.values():
            for parameters in optimizer.param_groups:
                parameters.setdefault("initial_lr", parameters["lr"])

    def share_gradients(self) -> None:
        """Where several processes share the default `update`, wrap it in DDP, anew in each stage: what is frozen in one
        is not averaged in the next.
        """
        if self.group.world == 1 or type(self).update is not Algorithm.update:
            return
        if self._runtime.ddp is not None:
            self._runtime.ddp = None
            gc.collect()  # its hooks are on the parameters until it is gone
        self._runtime.ddp = self.group.wrap(self, find_unused_parameters=self.unused_parameters)

    def train(self, mode: bool = True) -> Algorithm:
        """As ever, but what is frozen stays in evaluation mode."""
        super().train(mode)
        for name in self._runtime.frozen:
            self.get_submodule(name).eval()
        return self

    def marks(self) -> dict[str, list[str]]:
        """What was frozen and released so far, for checkpoints; empty where nothing was."""
        found = {"frozen": self._runtime.frozen, "released": self._runtime.released}
        return {name: list(names) for name, names in found.items() if names}

    def load_marks(self, marks: Mapping[str, Sequence[str]]) -> None:
        """Freeze and release what a checkpoint says, before its weights are loaded."""
        self.freeze(*map(self.get_submodule, marks.get("frozen", ())))
        self.release(*marks.get("released", ()))

    def take_correct(self) -> Tensor | None:
        """Right decisions observed since the last call; None for a method that observes none."""
        correct, self._runtime.notes.correct = self._runtime.notes.correct, None
        return correct

    def take_notes(self) -> dict[str, Tensor]:
        """What was noted since the last call."""
        notes, self._runtime.notes.values = self._runtime.notes.values, {}
        return {name: torch.stack(values).mean(0) for name, values in notes.items()}

    def set_rate(self, factor: float) -> None:
        """Set every optimizer's rate to `factor` times its initial one."""
        for optimizer in self._runtime.optimizers.values():
            for parameters in optimizer.param_groups:
                parameters["lr"] = parameters["initial_lr"] * factor

    def optimizer_states(self) -> dict[str, Any]:
        return {name: optimizer.state_dict() for name, optimizer in self._runtime.optimizers.items()}

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        for name, state in states.items():
            self.optimizer(name).load_state_dict(state)

    def _synchronize(self, last: bool) -> Any:
        """DDP sends gradients with the last of the accumulated parts only."""
        ddp = self._runtime.ddp
        return torch.enable_grad() if ddp is None or last else ddp.no_sync()
