"""The training loop: step, log, evaluate when due, checkpoint when due, stop on a non-finite loss."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from biasbed import measures, record
from biasbed.algorithms.base import Algorithm, Progress
from biasbed.algorithms.requests import Pass, Stage
from biasbed.batch import Batch
from biasbed.compute import checkpoint
from biasbed.compute.average import Average
from biasbed.compute.distributed import Group
from biasbed.compute.optim import has_restart, rate_factor
from biasbed.compute.precision import Precision
from biasbed.config import Config, plain
from biasbed.errors import Failure, first_line
from biasbed.evaluation.decisions import accuracy, write_predictions
from biasbed.evaluation.evaluator import Evaluator, measure, refuse_corrupt
from biasbed.system.processes import Interrupted, Postponed
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.folder import RunFolder, evaluations
from biasbed.tracking.tracker import Record
from biasbed.training.examples import found_conflicting, write_examples
from biasbed.training.passes import look
from biasbed.training.reading import Reader, prepare
from biasbed.training.state import TrainingState, summary, under
from biasbed.training.step_metrics import StepMetrics

LONG = 60.0  # seconds of training that an evaluation must not put at risk: more are saved before it


class Engine:
    """Trains one algorithm from wherever `state` stands to its end."""

    def __init__(
        self,
        config: Config,
        algorithm: Algorithm,
        reader: Reader,
        evaluator: Evaluator,
        phases_of: Mapping[str, Sequence[str]],  # under which of val and test each set's numbers are recorded
        derive: Callable[[Mapping[str, float]], Mapping[str, float]],  # what follows from measured metrics
        monitor: str,
        higher_is_better: bool,  # of the monitor
        best: Mapping[str, str],  # short name -> metric, of what is recorded a second time when it is the best so far
        group: Group,
        precision: Precision,
        folder: RunFolder,
        describe: dict[str, Any],
        average: Average,  # of the weights, which is tested
    ) -> None:
        self.config, self.algorithm, self.reader, self.evaluator = config, algorithm, reader, evaluator
        self.phases_of, self.derive, self.best = phases_of, derive, best
        self.monitor, self.higher_is_better = monitor, higher_is_better
        self.group, self.precision = group, precision
        self.folder, self.describe, self.average = folder, describe, average
        self.on_record: Callable[[Record], None] = lambda entry: None  # rank 0's tracker
        self.measure_machine: Callable[[], dict[str, float]] = dict  # rank 0's, since the last call
        self.state, self.step_metrics = TrainingState(), StepMetrics()
        self.skipped: set[str] = set()
        self.phases = algorithm.stages()
        self.steps_per_epoch = 1  # of the stage
        self._seconds, self._since, self._waited = 0.0, time.perf_counter(), 0.0
        self._saved = time.perf_counter()  # when the last checkpoint was written, or training began
        self._postponed = Postponed()

    # --- the loop ----------------------------------------------------------------------------------------------------

    @property
    def is_last(self) -> bool:
        """Whether it stands in the last stage, the one that is tested."""
        return self.state.stage == len(self.phases) - 1

    def run(self) -> None:
        """Every stage to its end; the last one is evaluated whenever that is due."""
        self._saved = time.perf_counter()
        while True:
            phase = self.phases[self.state.stage]
            if isinstance(phase, Pass):
                self._look(phase)
            else:
                self._run_stage(phase)
            if self.group.is_main:
                write_examples(self.folder.path, self.algorithm.per_example(), self.reader.sources)
            if self.is_last:
                return
            self.state.enter(self.state.stage + 1)
            self.save()

    def _look(self, looking: Pass) -> None:
        """At every training image once; a pass that is cut begins anew."""
        began = time.perf_counter()
        self.group.share_buffers(self.algorithm)
        self.algorithm.eval()
        looking.keep(look(looking, self.reader, self.algorithm, self.precision, self._note_skipped))
        self.algorithm.train()
        self.state.earlier += time.perf_counter() - began

    def _run_stage(self, stage: Stage) -> None:
        if not self.state.begun:
            stage.begin()
            self.state.tables, self.state.begun = self.reader.tables(stage, self.algorithm), True
        self.algorithm.share_gradients()
        self.plan = self.reader.plan(stage, 0 if self.is_last else self.state.stage + 1, self.state.tables)
        self.loader = self.reader.open(self.plan)
        self.steps_per_epoch = self.plan.steps_per_epoch
        total = self.reader.steps(stage, self.plan, self.reader.left(self.phases))
        interval = self._interval() if self.is_last else self.steps_per_epoch
        every = self.config.checkpoint_every or total
        self.algorithm.train()
        with ProgressBar(total, "step", self.state.step, silent=not self.group.is_main) as bar, self._postponed():
            self._since = time.perf_counter()
            if self.state.due:
                self._boundary(bar)
            for step, following, batch, skipped in self._batches(total):
                self._note_skipped(skipped, bar)
                self._update(stage, step, total, batch)
                if self.is_last:
                    self.average.add(step + 1)
                first, whole = stage.schedule_steps(total)
                if stage.rate is None and has_restart(self.config.optim, first + step, first + following, whole):
                    self.algorithm.reset_optimizers()
                bar.tick(following - step)
                self.state.step = following
                if following >= total:
                    stage.end()
                    self.state.ended = True
                # Crossing, not meeting, a multiple: an epoch's unusable last step is passed over.
                self.state.due = following // interval > step // interval or self.state.ended
                self._end_if_asked()
                if self.state.due:
                    self._boundary(bar)
                elif following // every > step // every:
                    self.save()
        self.loader.close()
        if stage.best:
            self.algorithm.get_submodule(stage.best).load_state_dict(self.state.kept["weights"])

    def _batches(self, total: int) -> Iterator[tuple[int, int, Batch, tuple[str, ...]]]:
        """The rest of the stage, with the time that is spent waiting for it added up."""
        batches = self.loader.from_step(self.state.step, total)
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
        weight = self.plan.weight(step)
        epochs = max(1, -(-total // self.steps_per_epoch))
        self.algorithm.progress = Progress(stage.name, epoch, epochs, within, self.steps_per_epoch, weight, total)
        first, whole = stage.schedule_steps(total)
        usual = rate_factor(self.config.optim, first + step, whole, self.steps_per_epoch)
        self.algorithm.set_rate(usual if stage.rate is None else stage.rate(step / total))
        batch = prepare(batch, self.algorithm.columns(self.algorithm.hparams), self.group.device)
        self.step_metrics.add(
            stage.update(batch), len(batch), self.algorithm.take_correct(), self.algorithm.take_notes()
        )
        if (step + 1) % self.config.log_every == 0:
            self._check_finite()

    def _interval(self) -> int:
        return self.config.cadence * (self.steps_per_epoch if self.config.unit == "epoch" else 1)

    # --- when an evaluation is due -----------------------------------------------------------------------------------

    def _boundary(self, bar: ProgressBar) -> None:
        """Evaluate, then checkpoint with the new record in it, then journal, then server (DESIGN, "Exactly once")."""
        self._check_finite()
        self._seconds, self._since = self._elapsed(), time.perf_counter()
        if self.is_last:
            entry = self._tested()
        else:
            entry = self._of_stage()
            self.state.earlier += self._seconds + time.perf_counter() - self._since
        self.step_metrics, self._seconds, self._waited, self._since = StepMetrics(), 0.0, 0.0, time.perf_counter()
        self.state.due = False
        self.note(entry, bar.line)
        self._since = time.perf_counter()

    def note(self, entry: Record, tell: Callable[[str], None] | None = None) -> None:
        """Add a record: to a checkpoint, then to journal and server. tell: prints it."""
        self.state.history.append(entry)
        self.save(evaluated=self.is_last)
        if self.group.is_main:
            self.on_record(entry)
            if tell is not None:
                tell(summary(entry, self.config.unit, {one.task.measures[0] for one in self.evaluator.sets}))

    def _tested(self) -> Record:
        """The record of an evaluation on all sets; the best weights so far are kept."""
        if self.group.any(torch.tensor(time.perf_counter() - self._saved > LONG)):
            self.save()
        metrics = self._training_metrics() | found_conflicting(self.algorithm.per_example(), self.reader.sources)
        if not evaluations(self.state.history) and self.state.earlier:
            metrics["time/stages_seconds"] = self.state.earlier
        began = time.perf_counter()
        with self._postponed.suspended():
            self.average.judge()
        with self.average.in_place():
            with self._postponed.suspended():
                for name, predict in self.algorithm.predictors().items():
                    metrics |= under(name, self.evaluate(predict, only="val"))
                metrics |= self.evaluate()
            metrics["time/evaluation_seconds"] = time.perf_counter() - began
            number = -(-self.state.step // (self.steps_per_epoch if self.config.unit == "epoch" else 1))
            entry = {"step": number, "timestamp": int(time.time() * 1000), "metrics": metrics}
            if self.group.is_main:
                self._keep(entry)
                metrics |= self.measure_machine()
        return entry

    def _of_stage(self) -> Record:
        """The record of an epoch of a stage before the last, under its name: validated if asked for, never tested."""
        stage = self.phases[self.state.stage]
        assert isinstance(stage, Stage)
        found = self._training_metrics()
        if stage.validate or stage.best:
            with self._postponed.suspended():
                found |= self.evaluate(stage.validate if callable(stage.validate) else None, only="val")
        if stage.best:
            right = None if self.decisions is None else fmean(map(accuracy, self.decisions.values()))
            self.state.keep_better(self.group.share_object(right), self.algorithm.get_submodule(stage.best))
        number, metrics = -(-self.state.step // self.steps_per_epoch), under(stage.name, found)
        return {"step": number, "timestamp": int(time.time() * 1000), "metrics": metrics, "stage": stage.name}

    def _elapsed(self) -> float:
        """Seconds of training since the last evaluation, also over a cut."""
        return self._seconds + time.perf_counter() - self._since

    def due(self) -> set[str]:
        """The sets that the coming evaluation is on."""
        number = len(evaluations(self.state.history)) + 1
        return {entry.name for entry in self.evaluator.sets if entry.cadence != "end" and number % entry.cadence == 0}

    def evaluate(
        self,
        predict: Callable[[Tensor], Tensor] | None = None,
        only: str | None = None,
        names: Collection[str] | None = None,
    ) -> dict[str, float]:
        """Every measure of every set that is due, on rank 0; model and randomness are left as they were.

        predict: what decides, in place of the method's own. only: `val` or `test`, for the sets of one of them alone.
        names: of sets, in place of those that are due.
        """
        chosen = [entry for entry in self.evaluator.sets if only in (None, *self.phases_of[entry.name])]
        chosen = [entry for entry in chosen if entry.name in (self.due() if names is None else names)]
        self.group.share_buffers(self.algorithm)
        self.algorithm.eval()
        self.decisions = self.evaluator.decide(predict or self.algorithm.predict, sets=chosen)
        self.algorithm.train()
        metrics: dict[str, float] = {}
        if self.decisions is not None:
            for entry in chosen:
                for phase in self.phases_of[entry.name]:
                    if only in (None, phase):
                        metrics |= measure(entry, self.decisions[entry.name], phase)
        return {**metrics, **self.derive(metrics)}

    def _training_metrics(self) -> dict[str, float]:
        metrics = self.step_metrics.metrics(self.group, self._seconds)
        metrics["train/lr"] = self.algorithm.optimizer("main").param_groups[0]["lr"]
        metrics["time/waiting_seconds"] = self._waited
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
            if entry.name in self.decisions:
                write_predictions(path, self.decisions[entry.name], number)
            elif entry.cadence != "end":
                path.unlink(missing_ok=True)  # another evaluation's

    def _check_finite(self) -> None:
        """All ranks stop together before anything is evaluated or saved with a spoilt model."""
        if not self.evaluator.skip_corrupt:
            refuse_corrupt(self.group, self.skipped)
        flag = self.step_metrics.not_finite
        if flag is None:
            return
        weights = torch.stack([parameter.isfinite().all() for parameter in self.algorithm.parameters()])
        if self.group.any(flag | ~weights.all()):
            raise self.step_metrics.failure(self.state.step + 1)

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
        ranks = self.group.gather_objects(self.step_metrics.state_dict())
        random_states, skipped = self.group.random_states(), self.gather_skipped()
        with self.average.in_place() as live:
            if self.group.is_main:
                state = {
                    **self._description(),
                    **self.average.checkpoint(live),
                    "optimizers": self.algorithm.optimizer_states(),
                    "precision": self.precision.state_dict(),
                    "random": random_states,
                    "tallies": ranks,
                    "skipped": skipped,
                    "seconds": self._elapsed(),
                    "waited": self._waited,
                    "position": self.state.position(),
                    "tables": self.state.tables,
                    "kept": self.state.kept,
                    "history": self.state.history,
                    "evaluated": evaluations(self.state.history)[-1]["step"] if evaluated else None,
                    "best": self.state.best,
                }
                checkpoint.save(self.folder.path, state)
        self._saved = time.perf_counter()

    def _description(self) -> dict[str, Any]:
        marks = self.algorithm.marks()
        found = {"config": plain(self.config), **self.describe, "algorithm": self.algorithm.state_dict()}
        return {**found, **({checkpoint.MARKS: marks} if marks else {})}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; on CPU the numbers are those of a training that was never cut."""
        try:
            self._restore(state)
        except Exception as error:  # whatever the objects make of states that are not theirs
            reason = first_line(error)
            raise Failure(f"the checkpoint was written by other code ({reason}): resume=never starts anew") from None

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.algorithm.load_marks(state.get(checkpoint.MARKS, {}))
        self.algorithm.load_state_dict(state["algorithm"])
        self.average.restore(state)
        self.algorithm.load_optimizer_states(state["optimizers"])
        self.precision.load_state_dict(state["precision"])
        self.group.load_random_states([{n: t.cpu() for n, t in own.items()} for own in state["random"]])
        own = state["tallies"][self.group.rank]
        self.step_metrics.load_state_dict(own, self.group.device)
        self.skipped |= set(state["skipped"]["train"])
        self.evaluator.skipped |= set(state["skipped"]["test"])
        self._seconds, self._waited = state["seconds"], state["waited"]
        self.state = TrainingState(
            **{"begun": True, **state["position"]},  # of checkpoints from before stages began
            tables=state.get("tables", {}),
            kept=state.get("kept", {}),
            history=list(state["history"]),
            best=state["best"],
        )
