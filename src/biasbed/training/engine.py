"""The training loop: step, log, evaluate when due, checkpoint when due, stop on a non-finite loss."""

from __future__ import annotations

import math
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from biasbed import measures, record
from biasbed.algorithms.base import Algorithm, Progress, Stage
from biasbed.batch import Batch
from biasbed.compute import checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.optim import begins_anew, rate_factor
from biasbed.compute.precision import Precision
from biasbed.config import Config, plain
from biasbed.data.streams import TrainLoader
from biasbed.errors import Failure, first_line
from biasbed.evaluation.decisions import write_predictions
from biasbed.evaluation.evaluator import Evaluator, measure, refuse_corrupt
from biasbed.networks.network import as_input
from biasbed.system.processes import Interrupted, Postponed
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Record

LONG = 60.0  # seconds of training that an evaluation must not put at risk: more are saved before it


@dataclass
class TrainingState:
    """Where training stands; with the live objects' own states, this is what a checkpoint holds."""

    stage: int = 0
    step: int = 0  # within the stage: the next one to take
    due: bool = False  # an evaluation comes before that step
    history: list[Record] = field(default_factory=list)
    best: dict[str, float] | None = None  # {"value", "number"} of the best evaluation by the monitor


class Tally:
    """Sums of what updates return, on the device: reading them costs one wait per evaluation, not one per step."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}  # images behind each sum: a method may leave a term out of some steps
        self.images = 0
        self.not_finite: Tensor | None = None

    def add(self, terms: Mapping[str, Tensor], images: int, correct: Tensor | None = None) -> None:
        values = {name: value.detach().double() for name, value in terms.items()}
        total = torch.stack(list(values.values())).sum()
        sums = {name: value * images for name, value in {**values, "loss": total}.items()}
        if correct is not None:
            sums["accuracy"] = correct.double()
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0) + images
        bad = ~total.isfinite()
        self.not_finite = bad if self.not_finite is None else self.not_finite | bad
        self.images += images

    def means(self, group: Group) -> dict[str, float]:
        """Each term's mean over the images of all processes that it was taken on."""
        names = sorted(self.sums)
        counts = torch.tensor([self.counts[name] for name in names], dtype=torch.float64, device=group.device)
        sums, counts = group.sum(torch.stack([torch.stack([self.sums[name] for name in names]), counts])).tolist()
        return {name: total / count for name, total, count in zip(names, sums, counts, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        sums = {name: value.cpu() for name, value in self.sums.items()}
        return {"sums": sums, "counts": self.counts, "images": self.images}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        self.sums = {name: value.to(device) for name, value in state["sums"].items()}
        self.counts, self.images = dict(state["counts"]), state["images"]


class Engine:
    """Trains one algorithm from wherever `state` stands to its end."""

    def __init__(
        self,
        config: Config,
        algorithm: Algorithm,
        loader: TrainLoader,
        evaluator: Evaluator,
        phases: Mapping[str, Sequence[str]],  # under which of val and test each set's numbers are recorded
        derive: Callable[[Mapping[str, float]], Mapping[str, float]],  # what follows from measured metrics
        monitor: str,
        higher_is_better: bool,  # of the monitor
        best: Mapping[str, str],  # short name -> metric, of what is recorded a second time when it is the best so far
        group: Group,
        precision: Precision,
        folder: RunFolder,
        describe: dict[str, Any],
    ) -> None:
        self.config, self.algorithm, self.loader, self.evaluator = config, algorithm, loader, evaluator
        self.phases, self.derive, self.best = phases, derive, best
        self.monitor, self.higher_is_better = monitor, higher_is_better
        self.group, self.precision = group, precision
        self.folder, self.describe = folder, describe
        self.on_record: Callable[[Record], None] = lambda entry: None  # rank 0's tracker
        self.state, self.tally = TrainingState(), Tally()
        self.skipped: set[str] = set()
        self.steps_per_epoch = loader.plan.steps_per_epoch
        self._seconds, self._since, self._waited = 0.0, time.perf_counter(), 0.0
        self._saved = time.perf_counter()  # when the last checkpoint was written, or training began
        self._postponed = Postponed()

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Every stage to its end; the last one is evaluated whenever that is due."""
        self._saved = time.perf_counter()
        stages = self.algorithm.stages()
        for number in range(self.state.stage, len(stages)):
            self.state.stage = number
            self._run_stage(stages[number], is_last=number == len(stages) - 1)
            if number < len(stages) - 1:
                self.state.stage, self.state.step = number + 1, 0

    def _run_stage(self, stage: Stage, is_last: bool) -> None:
        total = self.total_steps(stage)
        interval = self._interval() if is_last else self.steps_per_epoch
        self.algorithm.train()
        with ProgressBar(total, "step", self.state.step, silent=not self.group.is_main) as bar, self._postponed():
            self._since = time.perf_counter()
            if self.state.due:
                self._boundary(bar, is_last)
            while self.state.step < total:
                for step, following, batch, skipped in self._batches():
                    self._note_skipped(skipped, bar)
                    self._update(stage, step, total, batch)
                    if begins_anew(self.config.optim, step, following, total):
                        self.algorithm.reset_optimizers()
                    bar.tick(following - step)
                    self.state.step = following
                    # Crossing, not meeting, a multiple: an epoch's unusable last step is passed over.
                    self.state.due = following // interval > step // interval or following >= total
                    self._end_if_asked()
                    if self.state.due:
                        self._boundary(bar, is_last)
                    elif self._crosses_checkpoint(step, following):
                        self.save()
                    if following >= total:
                        break

    def _batches(self) -> Iterator[tuple[int, int, Batch, tuple[str, ...]]]:
        """The rest of the epoch, with the time that is spent waiting for it added up."""
        batches = self.loader.from_step(self.state.step)
        while True:
            began = time.perf_counter()
            found = next(batches, None)
            self._waited += time.perf_counter() - began
            if found is None:
                return
            yield found

    def _end_if_asked(self) -> None:
        """After a step that any rank was asked to end in: a checkpoint, then the end on all of them."""
        asked = self._postponed.noted
        if self.group.any(torch.tensor(asked is not None)):
            self.save()
            raise Interrupted(asked or signal.SIGTERM)

    def _update(self, stage: Stage, step: int, total: int, batch: Batch) -> None:
        epoch, within = divmod(step, self.steps_per_epoch)
        weight = self.loader.plan.weight(step)
        epochs = max(1, -(-total // self.steps_per_epoch))
        self.algorithm.progress = Progress(stage.name, epoch, epochs, within, self.steps_per_epoch, weight, total)
        self.algorithm.set_rate(rate_factor(self.config.optim, step, total, self.steps_per_epoch))
        batch = prepare(batch, self.algorithm.uses, self.group.device)
        self.tally.add(stage.update(batch), len(batch), self.algorithm.take_correct())
        if (step + 1) % self.config.log_every == 0:
            self._check_finite()

    def total_steps(self, stage: Stage) -> int:
        if stage.epochs is not None:
            return stage.epochs * self.steps_per_epoch
        return self.config.steps or (self.config.epochs or 0) * self.steps_per_epoch

    def _crosses_checkpoint(self, step: int, following: int) -> bool:
        every = self.config.checkpoint_every
        return every is not None and following // every > step // every

    def _interval(self) -> int:
        return self.config.cadence * (self.steps_per_epoch if self.config.unit == "epoch" else 1)

    # --- when an evaluation is due -----------------------------------------------------------------------------------

    def _boundary(self, bar: ProgressBar, is_last: bool) -> None:
        """Evaluate, then checkpoint with the new record in it, then journal, then server (DESIGN, "Exactly once")."""
        self._check_finite()
        self._seconds, self._since = self._elapsed(), time.perf_counter()
        if is_last:
            if self.group.any(torch.tensor(time.perf_counter() - self._saved > LONG)):
                self.save()
            metrics = self._training_metrics()
            began = time.perf_counter()
            with self._postponed.suspended():
                metrics |= self.evaluate()
            metrics["time/evaluation_seconds"] = time.perf_counter() - began
            number = self.state.step // (self.steps_per_epoch if self.config.unit == "epoch" else 1)
            entry = {"step": number, "timestamp": int(time.time() * 1000), "metrics": metrics}
            if self.group.is_main:
                self._keep(entry)
            self.state.history.append(entry)
        self.tally, self._seconds, self._waited, self._since = Tally(), 0.0, 0.0, time.perf_counter()
        self.state.due = False
        self.save(evaluated=is_last)
        if is_last and self.group.is_main:
            self.on_record(entry)
            bar.line(self._summary(entry))
        self._since = time.perf_counter()

    def _elapsed(self) -> float:
        """Seconds of training since the last evaluation, also over a cut."""
        return self._seconds + time.perf_counter() - self._since

    def evaluate(self) -> dict[str, float]:
        """Every measure of every set, on rank 0; model and randomness are left as they were."""
        self.group.share_buffers(self.algorithm)
        self.algorithm.eval()
        self.decisions = self.evaluator.decide(self.algorithm.predict)
        self.algorithm.train()
        metrics: dict[str, float] = {}
        if self.decisions is not None:
            for entry in self.evaluator.sets:
                for phase in self.phases[entry.name]:
                    metrics |= measure(entry, self.decisions[entry.name], phase)
        return {**metrics, **self.derive(metrics)}

    def _training_metrics(self) -> dict[str, float]:
        images = self.group.sum(torch.tensor(float(self.tally.images), device=self.group.device)).item()
        metrics = {f"train/{name}": value for name, value in self.tally.means(self.group).items()}
        metrics["train/lr"] = self.algorithm.optimizer("main").param_groups[0]["lr"]
        metrics["time/epoch_seconds"] = self._seconds
        metrics["time/waiting_seconds"] = self._waited
        metrics["time/images_per_second"] = images / max(self._seconds, 1e-9)
        metrics["memory/peak_mb"] = _peak_mb(self.group.device)
        return metrics

    def _keep(self, entry: Record) -> None:
        """Decisions of the last and, if it is the best so far, of the best evaluation, with its weights."""
        value, number = entry["metrics"].get(self.monitor, math.nan), entry["step"]
        kept = ["last"]
        known = self.state.best
        if known is None or measures.is_better(value, known["value"], self.higher_is_better):
            self.state.best = {"value": value, "number": number}
            metrics = entry["metrics"]
            entry["metrics"] |= {short: metrics[name] for short, name in self.best.items() if name in metrics}
            checkpoint.save_whole(self.folder.path / checkpoint.BEST, {**self._description(), "best": self.state.best})
            kept.append("best")
        for which in kept:
            self.write_decisions(which, number)

    def write_decisions(self, which: str, number: int) -> None:
        """Write the newest decisions on every set as those of the `best` or the `last` evaluation."""
        assert self.decisions is not None
        for entry in self.evaluator.sets:
            path = self.folder.path / record.predictions_file(entry.name, which)
            write_predictions(path, self.decisions[entry.name], number)

    def _check_finite(self) -> None:
        """All ranks stop together before anything is evaluated or saved with a spoilt model."""
        if not self.evaluator.skip_corrupt:
            refuse_corrupt(self.group, self.skipped)
        flag = self.tally.not_finite
        if flag is None:
            return
        weights = torch.stack([parameter.isfinite().all() for parameter in self.algorithm.parameters()])
        if self.group.any(flag | ~weights.all()):
            terms = [name for name, value in self.tally.sums.items() if not value.isfinite()]
            named = ", ".join(name for name in terms if name not in ("loss", "accuracy"))
            raise Failure(
                f"the loss is not finite ({named or 'on another process, or its gradient'}) before step "
                f"{self.state.step + 1}; the last good checkpoint is kept. "
                "Lower optim.lr, add optim.warmup, or use precision=fp32"
            )

    def _note_skipped(self, messages: Sequence[str], bar: ProgressBar) -> None:
        for message in messages:
            if message not in self.skipped:
                self.skipped.add(message)
                bar.line(f"warning: {message}; the next image stands in")
        if messages and not self.evaluator.skip_corrupt and self.group.world == 1:
            refuse_corrupt(self.group, self.skipped)

    def gather_skipped(self) -> dict[str, list[str]] | None:
        """Messages about the images that no process could read, by phase, also before a cut; on rank 0."""
        gathered = self.group.gather_objects({"train": self.skipped, "test": self.evaluator.skipped})
        if gathered is None:
            return None
        return {phase: sorted(set().union(*(own[phase] for own in gathered))) for phase in ("train", "test")}

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def save(self, evaluated: bool = False) -> None:
        """Write a checkpoint; every rank takes part. evaluated: it has the weights of the last evaluation."""
        self._check_finite()
        self.group.share_buffers(self.algorithm)
        ranks = self.group.gather_objects(self.tally.state_dict())
        random_states, skipped = self.group.random_states(), self.gather_skipped()
        if self.group.is_main:
            state = {
                **self._description(),
                "optimizers": self.algorithm.optimizer_states(),
                "precision": self.precision.state_dict(),
                "random": random_states,
                "tallies": ranks,
                "skipped": skipped,
                "seconds": self._elapsed(),
                "waited": self._waited,
                "position": {"stage": self.state.stage, "step": self.state.step, "due": self.state.due},
                "history": self.state.history,
                "evaluated": self.state.history[-1]["step"] if evaluated else None,
                "best": self.state.best,
            }
            checkpoint.save(self.folder.path, state)
        self._saved = time.perf_counter()

    def _description(self) -> dict[str, Any]:
        return {"config": plain(self.config), **self.describe, "algorithm": self.algorithm.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; on CPU the numbers are those of a training that was never cut."""
        try:
            self._restore(state)
        except Exception as error:  # whatever the objects make of states that are not theirs
            reason = first_line(error)
            raise Failure(f"the checkpoint was written by other code ({reason}): resume=never starts anew") from None

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.algorithm.load_state_dict(state["algorithm"])
        self.algorithm.load_optimizer_states(state["optimizers"])
        self.precision.load_state_dict(state["precision"])
        self.group.load_random_states([{n: t.cpu() for n, t in own.items()} for own in state["random"]])
        own = state["tallies"][self.group.rank]
        self.tally.load_state_dict(own, self.group.device)
        self.skipped |= set(state["skipped"]["train"])
        self.evaluator.skipped |= set(state["skipped"]["test"])
        self._seconds, self._waited = state["seconds"], state["waited"]
        self.state = TrainingState(**state["position"], history=list(state["history"]), best=state["best"])

    def _summary(self, entry: Record) -> str:
        """One line per evaluation."""
        metrics = entry["metrics"]
        first = {entry.task.measures[0] for entry in self.evaluator.sets}
        headlines = {name.rsplit("/", 1)[1]: value for name, value in metrics.items() if _is_headline(name, first)}
        shown = [f"{name} {100 * value:.1f}" for name, value in headlines.items()]
        return f"{self.config.unit} {entry['step']}: loss {metrics['train/loss']:.4g} | {' '.join(shown)}"


def prepare(batch: Batch, uses: frozenset[str], device: torch.device) -> Batch:
    """Images as floats in [0,1] on the device, and only those columns that the algorithm declares to use."""
    extra = batch.extra
    hidden: dict[str, Any] = {name: None for name in ("domain", "bias", "index") if name not in uses}
    batch = replace(batch, **hidden, extra={})
    batch = batch.map(lambda tensor: tensor.to(device, non_blocking=True))
    x = as_input(batch.x)
    return replace(batch, x=x, extra={name: prepare(other, uses, device) for name, other in extra.items()})


def _is_headline(name: str, measured: Collection[str]) -> bool:
    parsed = record.parse_metric(name)
    return parsed is not None and parsed.phase in ("val", "test") and parsed.measure in measured and not parsed.group


def _peak_mb(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
