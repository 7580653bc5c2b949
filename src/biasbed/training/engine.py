"""Training loop: step, log, evaluate when due, checkpoint when due, stop on a non-finite loss.

Answers: What is a step, and when is the model evaluated and saved?
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from biasbed import measures, record
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.requests import Pass, Stage
from biasbed.batch import Batch
from biasbed.compute import checkpoint
from biasbed.compute.average import Average
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import Config, plain
from biasbed.data.loading import LoadedStep, TrainLoader
from biasbed.data.streams import BatchPlan
from biasbed.errors import Failure, first_line
from biasbed.evaluation.decision_tables import DecidedSets, measure_sets
from biasbed.evaluation.decisions import Decisions, accuracy
from biasbed.evaluation.evaluator import Evaluator, measure, refuse_corrupt
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.system.processes import acting_at_once, end_by_signal, noted_signal, postponed
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.folder import RunFolder, evaluations
from biasbed.tracking.tracker import Record
from biasbed.training.clock import TrainingClock
from biasbed.training.per_example import run_pass, score_conflicting, write_examples
from biasbed.training.reading import Reader, prepare
from biasbed.training.state import TrainingState, describe_record, replaced_weights, with_phase
from biasbed.training.step_metrics import StepMetrics, warn_of_nan

LONG = 60.0  # seconds of training that an evaluation must not put at risk: more are saved before it
LOSS_CHECK = 50  # steps between checks that the loss is finite, for which the device is waited for


class Learner(NamedTuple):
    """Everything that learns, in one process."""

    algorithm: Algorithm
    average: Average  # of the weights, which is tested
    precision: Precision
    group: Group


@dataclass(frozen=True)
class Scoring:
    """Rules that turn decisions into recorded metrics, and metrics into the choice of the best evaluation."""

    validates: Sequence[str]  # names of the validation sets
    metric_phases: Mapping[str, Sequence[str]]  # set -> phases, `val` or `test`, that its metrics belong to
    derive: Callable[[Mapping[str, float]], Mapping[str, float]]  # measured metrics -> derived metrics
    monitor: str
    higher_is_better: bool  # of the monitor
    best: Mapping[str, str]  # short name -> metric that the best evaluation so far records under this name as well


class Output(NamedTuple):
    """Place and description of the files that a training writes."""

    folder: RunFolder
    description: dict[str, Any]  # of the weights, in every checkpoint


class StageCounts(NamedTuple):
    """Numbers of a training's last stage."""

    evaluations: int
    steps: int


class Engine:
    """Trains one algorithm from the position of `state` to its end."""

    def __init__(
        self, config: Config, learner: Learner, reader: Reader, evaluator: Evaluator, scoring: Scoring, output: Output
    ) -> None:
        self.config, self.reader, self.evaluator, self.scoring = config, reader, evaluator, scoring
        self.algorithm, self.average, self.precision, self.group = learner
        self.folder, self.description = output
        # On rank 0 the caller sets both: what takes each record, and what measures the machine since the last call.
        self.on_record: Callable[[Record], None] = lambda result: None
        self.measure_machine: Callable[[], dict[str, float]] = dict
        self.state, self.step_metrics, self.clock = TrainingState(), StepMetrics(), TrainingClock()
        self.decisions: Mapping[str, Decisions] | None = None  # of the newest evaluation, by set; None on other ranks
        self.skipped: set[str] = set()  # messages about training images that could not be read
        self.phases = self.algorithm.stages()
        self.plan: BatchPlan  # of the open stage, like the two below
        self.loader: TrainLoader
        self.steps_per_epoch = 1
        self._not_logged: set[str] = set()  # metrics that a warning about NaN or infinity was printed of
        self._saved = time.perf_counter()  # when the last checkpoint was written, or training began

    # --- the loop ----------------------------------------------------------------------------------------------------

    @property
    def is_last_stage(self) -> bool:
        """True in the last stage, the one that is tested."""
        return self.state.stage == len(self.phases) - 1

    def run(self) -> None:
        """Run every stage to its end."""
        self._saved = time.perf_counter()
        while True:
            phase = self.phases[self.state.stage]
            if isinstance(phase, Pass):
                self._run_pass(phase)
            else:
                self._run_stage(phase)
            if self.group.is_main:
                write_examples(self.folder.path, self.algorithm.per_example(), self.reader.sources)
            if self.is_last_stage:
                return
            self.state.begin_stage(self.state.stage + 1)
            self.save()

    def _run_pass(self, request: Pass) -> None:
        """Look at every training image once. A pass that is cut off begins anew."""
        began = time.perf_counter()
        request.begin()
        self.group.share_buffers(self.algorithm)
        self.algorithm.eval()
        request.keep(run_pass(request, self.reader, self.algorithm, self.precision, self._note_skipped))
        self.algorithm.train()
        self.state.earlier += time.perf_counter() - began

    def _run_stage(self, stage: Stage) -> None:
        """Train to the end of a stage; evaluate and save whenever that is due."""
        total = self._open_stage(stage)
        interval = self._evaluation_interval(self.steps_per_epoch) if self.is_last_stage else self.steps_per_epoch
        checkpoint_interval = self.config.checkpoint_every or total
        self.algorithm.train()
        with ProgressBar(total, "step", self.state.step, silent=not self.group.is_main) as bar, postponed():
            self.clock.start()
            if self.state.due:
                self._evaluate_and_record(bar)
            for step, following, batch, skipped in self._batches(total):
                self._note_skipped(skipped, bar)
                self._update(stage, step, total, batch)
                self._after_update(stage, step, following, total)
                bar.tick(following - step)
                self.state.step = following
                self.state.ended = following >= total
                if self.state.ended:
                    stage.end()
                self.state.due = self.state.ended or _reaches_multiple(interval, step, following)
                self._end_if_asked()
                if self.state.due:
                    self._evaluate_and_record(bar)
                elif _reaches_multiple(checkpoint_interval, step, following):
                    self.save()
            self._end_if_asked()
        self.loader.close()
        if stage.best:
            self.algorithm.get_submodule(stage.best).load_state_dict(self.state.kept["weights"])

    def _open_stage(self, stage: Stage) -> int:
        """Begin a stage unless it has begun, and open its batches; return its number of steps."""
        if not self.state.begun:
            stage.begin()
            self.state.tables, self.state.begun = self.reader.copy_tables(stage, self.algorithm), True
        self.algorithm.share_gradients()
        self.plan = self.reader.plan_stage(stage, 0 if self.is_last_stage else self.state.stage + 1, self.state.tables)
        self.loader = self.reader.open_stage(self.plan)
        self.steps_per_epoch = self.plan.steps_per_epoch
        return self.reader.count_steps(stage, self.plan, self.reader.share_left(self.phases))

    def _batches(self, total: int) -> Iterator[LoadedStep]:
        """Yield the stage's remaining batches, and add up the time that is spent waiting for them."""
        batches = self.loader.from_step(self.state.step, total)
        while True:
            began = time.perf_counter()
            loaded = next(batches, None)
            self.clock.waited += time.perf_counter() - began
            if loaded is None:
                return
            yield loaded

    def _end_if_asked(self) -> None:
        """Save and end, on all ranks, if any rank was sent a signal during the step."""
        noted = noted_signal()
        if self.group.any(torch.tensor(noted is not None)):
            self.save()
            end_by_signal(noted or signal.SIGTERM)

    def _update(self, stage: Stage, step: int, total: int, batch: Batch) -> None:
        """Train on one batch, and add its losses to the step metrics."""
        algorithm = self.algorithm
        algorithm.begin_step(stage, self.config.optim, step, total, self.steps_per_epoch, self.plan.weight(step))
        batch = prepare(batch, algorithm.columns(algorithm.hparams), self.group.device)
        terms = stage.update(batch)
        self.step_metrics.add(terms, len(batch), algorithm.take_correct(), algorithm.take_notes())

    def _after_update(self, stage: Stage, step: int, following: int, total: int) -> None:
        """Add the weights to the average; now and then check the loss; let the method end its step."""
        if (step + 1) % LOSS_CHECK == 0:
            self._refuse_spoilt()  # waits for the device, as no update does
        if self.is_last_stage:
            self.average.add(step + 1)
        self.algorithm.end_step(stage, self.config.optim, step, following, total)

    def _evaluation_interval(self, steps_per_epoch: int) -> int:
        """Return the number of steps between evaluations of the last stage."""
        if self.config.unit == "epoch":
            return self.config.cadence * steps_per_epoch
        return self.config.cadence

    def count_evaluations(self) -> StageCounts:
        """Return the number of evaluations and steps of the whole last stage."""
        last = self.reader.plan_last_stage(self.phases)
        interval = self._evaluation_interval(last.plan.steps_per_epoch)
        return StageCounts(math.ceil(last.steps / interval), last.steps)

    # --- when an evaluation is due -----------------------------------------------------------------------------------

    def _evaluate_and_record(self, bar: ProgressBar) -> None:
        """Evaluate as the stage asks for it, and record the result."""
        self._refuse_spoilt()
        seconds = self.clock.stop()
        if self.is_last_stage:
            result = self._evaluate_last_stage(seconds)
        else:
            result = self._evaluate_early_stage(seconds)
            self.state.earlier += self.clock.seconds  # with those of the evaluation
        self.step_metrics = StepMetrics()
        self.clock.reset()
        self.state.due = False
        self.add_record(result, bar.line)
        self.clock.start()

    def add_record(self, result: Record, print_line: Callable[[str], None] | None = None) -> None:
        """Add a record to a checkpoint, then to journal and server, so that a resumed training adds it only once.

        Leaves out NaN and infinity: an undefined measure, or a note of a method.
        """
        metrics = result["metrics"]
        if self.group.is_main:
            warn_of_nan(metrics, self._not_logged)
        result = {**result, "metrics": {name: value for name, value in metrics.items() if record.is_finite(value)}}
        self.state.history.append(result)
        self.save()
        if self.group.is_main:
            self.on_record(result)
            if print_line is not None:
                headlines = {evaluation_set.task.measures[0] for evaluation_set in self.evaluator.sets}
                print_line(describe_record(result, self.config.unit, headlines))

    def _evaluate_last_stage(self, seconds: float) -> Record:
        """Evaluate on all sets that are due and keep the best weights so far; return the record.

        seconds: of training since the last evaluation.
        """
        if self.group.any(torch.tensor(time.perf_counter() - self._saved > LONG)):
            self.save()
        metrics = self._training_metrics(seconds)
        metrics |= score_conflicting(self.algorithm.per_example(), self.reader.sources)
        if not evaluations(self.state.history) and self.state.earlier:
            metrics["time/stages_seconds"] = self.state.earlier
        began = time.perf_counter()
        with acting_at_once():
            self.average.before_evaluation()
        with self.average.evaluated_weights():
            with acting_at_once():
                for name, predict in self.algorithm.predictors().items():
                    metrics |= with_phase(name, self.evaluate(predict, only="val"))
                metrics |= self.evaluate()
            metrics["time/evaluation_seconds"] = time.perf_counter() - began
            number = self.state.step
            if self.config.unit == "epoch":
                number = math.ceil(self.state.step / self.steps_per_epoch)
            result = {"step": number, "timestamp": int(time.time() * 1000), "metrics": metrics}
            if self.group.is_main:
                self._write_evaluation(result)
                metrics |= self.measure_machine()
        return result

    def _evaluate_early_stage(self, seconds: float) -> Record:
        """Return the record of an epoch of a stage before the last: validated if the stage says so, never tested.

        seconds: of training since the last evaluation.
        """
        stage = self.phases[self.state.stage]
        assert isinstance(stage, Stage)
        metrics = self._training_metrics(seconds)
        if stage.validate or stage.best:
            with acting_at_once():
                metrics |= self.evaluate(stage.validate if callable(stage.validate) else None, only="val")
        if stage.best:
            mean = None if self.decisions is None else fmean(map(accuracy, self.decisions.values()))
            self.state.keep_better(self.group.share_object(mean), self.algorithm.get_submodule(stage.best))
        return {
            "step": math.ceil(self.state.step / self.steps_per_epoch),
            "timestamp": int(time.time() * 1000),
            "metrics": with_phase(stage.name, metrics),
            "stage": stage.name,
        }

    def names_of_due_sets(self) -> set[str]:
        """Return the names of the sets to test at the coming evaluation."""
        number = len(evaluations(self.state.history)) + 1
        due = set()
        for evaluation_set in self.evaluator.sets:
            if evaluation_set.cadence != "end" and number % evaluation_set.cadence == 0:
                due.add(evaluation_set.name)
        return due

    def evaluate(self, predict: Callable[[Tensor], Tensor] | None = None, only: str | None = None) -> dict[str, float]:
        """Return every measure of every set that is due, on rank 0; leaves model and randomness as they were.

        predict: decides in place of the method's own. only: `val` or `test`, to evaluate the sets of one of them alone.
        """
        names = self.names_of_due_sets()
        metric_phases = self.scoring.metric_phases
        sets = [member for member in self.evaluator.sets if member.name in names]
        if only is not None:
            sets = [member for member in sets if only in metric_phases[member.name]]
        self.group.share_buffers(self.algorithm)
        self.algorithm.eval()
        self.decisions = self.evaluator.decide(predict or self.algorithm.predict, sets=sets)
        self.algorithm.train()
        metrics: dict[str, float] = {}
        for evaluation_set in sets:
            for phase in metric_phases[evaluation_set.name]:
                if self.decisions is not None and only in (None, phase):
                    metrics |= measure(evaluation_set, self.decisions[evaluation_set.name], phase)
        if self.decisions is not None and only is None and self.config.scores.is_kept:
            scores, decided = self.config.scores, list(self.decisions.values())
            calibrating = scores.calibrating(self.scoring.validates)
            metrics |= measure_sets(DecidedSets(decided, metric_phases, scores, calibrating))
        return {**metrics, **self.scoring.derive(metrics)}

    @contextlib.contextmanager
    def weights_of(self, which: str) -> Iterator[None]:
        """Give the algorithm the weights of the `best` or the `last` evaluation within the block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.average.evaluated_weights())
            if which == "best":
                weights = checkpoint.load(self.folder.path / checkpoint.BEST)["algorithm"]
                stack.enter_context(replaced_weights(self.algorithm, weights))
            yield

    def _training_metrics(self, seconds: float) -> dict[str, float]:
        """Return the metrics of the steps since the last evaluation, which took this time."""
        metrics = self.step_metrics.metrics(self.group, seconds)
        metrics["train/lr"] = self.algorithm.optimizer("main").param_groups[0]["lr"]
        metrics["time/waiting_seconds"] = self.clock.waited
        return metrics

    def _write_evaluation(self, result: Record) -> None:
        """Write the decisions of an evaluation and, if it is the best so far, its weights and its `best/*` metrics."""
        metrics, number, best = result["metrics"], result["step"], self.state.best
        value = metrics.get(self.scoring.monitor, math.nan)
        is_best = best is None or measures.is_better(value, best["value"], self.scoring.higher_is_better)
        if is_best:
            self.state.best = {"value": value, "number": number}
            present = {short: name for short, name in self.scoring.best.items() if name in metrics}
            metrics |= {short: measures.rounded(metrics[name]) for short, name in present.items()}
            state = {**self._describe_weights(), "best": self.state.best}
            checkpoint.save(self.folder.path / checkpoint.BEST, state)
        for which in ("last", "best") if is_best else ("last",):
            self.write_decisions(which, number)

    def write_decisions(self, which: str, number: int) -> None:
        """Write the newest decisions on every set as those of the `best` or the `last` evaluation."""
        assert self.decisions is not None
        for evaluation_set in self.evaluator.sets:
            path = self.folder.path / record.predictions_file(evaluation_set.name, which)
            if evaluation_set.name in self.decisions:
                write_predictions(path, self.decisions[evaluation_set.name], number)
            elif evaluation_set.cadence != "end":
                path.unlink(missing_ok=True)  # another evaluation's

    def _refuse_spoilt(self) -> None:
        """Raise Failure on all ranks together for numbers that are not finite, or images that can't be read."""
        if not self.evaluator.skip_corrupt:
            refuse_corrupt(self.group, self.skipped)
        flag = self.step_metrics.not_finite
        if flag is None:
            return
        weights = torch.stack([parameter.isfinite().all() for parameter in self.algorithm.parameters()])
        if self.group.any(flag | ~weights.all()):
            raise self.step_metrics.failure(self.state.step + 1)

    def _note_skipped(self, messages: Sequence[str], bar: ProgressBar) -> None:
        """Print each new message about a training image that can't be read. Raises CorruptImage if none may be."""
        for message in messages:
            if message not in self.skipped:
                self.skipped.add(message)
                bar.line(f"warning: {message}; the next image stands in")
        # Several processes stop together, at the next check (`_refuse_spoilt`).
        if messages and not self.evaluator.skip_corrupt and self.group.world == 1:
            refuse_corrupt(self.group, self.skipped)

    def gather_skipped(self) -> dict[str, list[str]] | None:
        """Return messages about unreadable images of all processes by phase, on rank 0; None on other ranks."""
        gathered = self.group.gather_objects({"train": self.skipped, "test": self.evaluator.skipped})
        if gathered is None:
            return None
        messages: dict[str, set[str]] = {"train": set(), "test": set()}
        for of_process in gathered:
            for phase, skipped in of_process.items():
                messages[phase] |= skipped
        return {phase: sorted(skipped) for phase, skipped in messages.items()}

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint; every rank takes part."""
        self._refuse_spoilt()
        self.group.share_buffers(self.algorithm)
        ranks = self.group.gather_objects(self.step_metrics.state_dict())
        random_states, skipped = self.group.random_states(), self.gather_skipped()
        with self.average.evaluated_weights() as live:
            if self.group.is_main:
                state = {
                    **self._describe_weights(),
                    **self.average.checkpoint(live),
                    "optimizers": self.algorithm.optimizer_states(),
                    "precision": self.precision.state_dict(),
                    "random": random_states,
                    "tallies": ranks,
                    "skipped": skipped,
                    "seconds": self.clock.seconds,
                    "waited": self.clock.waited,
                    "position": self.state.position(),
                    "tables": self.state.tables,
                    "kept": self.state.kept,
                    "history": self.state.history,
                    "best": self.state.best,
                }
                checkpoint.save(self.folder.path / checkpoint.LAST, state)
        self._saved = time.perf_counter()

    def _describe_weights(self) -> dict[str, Any]:
        """Return the weights with settings and description, the part that all checkpoints share."""
        marks = self.algorithm.marks()
        state = {"config": plain(self.config), **self.description, "algorithm": self.algorithm.state_dict()}
        if marks:
            state[checkpoint.MARKS] = marks
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; on CPU the numbers are those of a training that was never cut."""
        try:
            self._restore(state)
        except Exception as error:  # whatever the objects make of states that are not theirs
            reason = first_line(error)
            raise Failure(f"the checkpoint was written by other code ({reason}): resume=never starts anew") from None

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take up a checkpoint's state: networks, optimizers, random generators, position in the training."""
        self.algorithm.load_marks(state.get(checkpoint.MARKS, {}))
        self.algorithm.load_state_dict(state["algorithm"])
        self.average.restore(state)
        self.algorithm.load_optimizer_states(state["optimizers"])
        self.precision.load_state_dict(state["precision"])
        self.group.load_random_states(state["random"])
        self.step_metrics.load_state_dict(state["tallies"][self.group.rank], self.group.device)
        self.skipped |= set(state["skipped"]["train"])
        self.evaluator.skipped |= set(state["skipped"]["test"])
        self.clock.reset(state["seconds"], state["waited"])
        self.state = TrainingState(
            **state["position"],
            tables=state["tables"],
            kept=state["kept"],
            history=list(state["history"]),
            best=state["best"],
        )


def _reaches_multiple(interval: int, step: int, following: int) -> bool:
    """Return True if a multiple of the interval is in (step, following]: steps without a batch are passed over."""
    return following // interval > step // interval
