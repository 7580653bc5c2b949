"""One trial: a training that is started, watched at every evaluation, and ended early where the pruner says so."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.studies.launchers import Launcher, StartedTraining, TrainCommand
from biasbed.studies.plan import PlannedRun, standing
from biasbed.studies.runner import Item, Runner
from biasbed.studies.search import trials
from biasbed.studies.search.liveness import signature
from biasbed.studies.search.search import Search
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.server import find_run, guarded, resolve_uri, writer
from biasbed.tracking.tracker import NOTE

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

STATUS = {"pruned": "KILLED", "failed": "FAILED"}  # of a trial's run on the server; a complete one finishes itself


class Surplus(Failure):
    """Another worker took the last place of the search."""


class Pruned(Exception):
    """The pruner ends this training."""


class SlotLauncher(Launcher):
    """A launcher that starts everything in one worker's slot."""

    def __init__(self, launcher: Launcher, slot: int, slots: int) -> None:
        self.launcher, self.slot, self.slots = launcher, slot, slots
        self.detached = launcher.detached

    def settle(self, config: Config) -> Config:
        return self.launcher.settle(config)

    def capacity(self, config: Config) -> int:
        return self.launcher.capacity(config)

    def start(self, command: TrainCommand) -> StartedTraining:
        return self.launcher.start(dataclasses.replace(command, slot=self.slot, slots=self.slots))

    def ongoing(self, folder: Path) -> StartedTraining | None:
        return self.launcher.ongoing(folder)


class PrunerReporter:
    """Tells Optuna of every evaluation, in order; a reporter of the runner."""

    def __init__(self, trial: Trial, run: PlannedRun, metric: str) -> None:
        self.trial, self.run, self.metric = trial, run, metric
        self.seen = 0
        self.values: dict[int, float] = {}

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def update(self, items: list[Item]) -> None:
        """Raises Pruned at the evaluation after which the pruner ends the training.

        A storage that is away costs no training: what it missed is reported when it is back.
        """
        from optuna.exceptions import StorageInternalError

        if items[0].standing.reached > self.seen:
            try:
                note_run(self.trial, self.run.folder())
                self.report()
            except StorageInternalError as error:
                self.say(f"warning: the storage does not answer: {error}")

    def report(self, may_prune: bool = True) -> None:
        """Report evaluation by evaluation, so that a decision does not depend on when we look."""
        for entry in self.run.folder().read_journal():
            step, value = int(entry["step"]), entry["metrics"].get(self.metric)
            if step <= self.seen:
                continue
            if value is not None and record.is_finite(value):
                self.trial.report(value, step)
                self.values[step] = value
            self.seen = step
            if step in self.values and may_prune and step < self.run.total and self.trial.should_prune():
                raise Pruned


class TrialObjective:
    """Trains one trial after the other; what Optuna calls."""

    def __init__(
        self, search: Search, launcher: Launcher, environment: Mapping[str, str], retries: int, pause: float = 0.2
    ) -> None:
        """launcher: in this worker's slot. retries: of a training that fails. pause: seconds between looks."""
        self.search, self.launcher = search, launcher
        self.environment, self.retries, self.pause = environment, retries, pause

    def __call__(self, trial: Trial) -> float:
        """The best value of the objective over the epochs; TrialPruned, or Failure where the training failed."""
        place = self._take_place(trial)
        words = self.search.space.suggest(trial)
        earlier = self._equal(trial)
        if earlier is not None:
            return self._as_before(trial, earlier)
        try:
            run = self.search.planned(words, place, self.launcher)
        except UsageError as error:
            self._fail(trial, str(error))
        trial.set_user_attr(trials.FOLDER, str(run.base))
        self._end_earlier(trial, run)
        return self._trained(trial, run, place)

    def _take_place(self, trial: Trial) -> int:
        trial.set_user_attr(trials.WORKER, signature())
        trial.set_user_attr(trials.HOST, socket.gethostname())
        every = trial.study.get_trials(deepcopy=False)
        place = trials.place(every[trial.number], every)
        if trials.AGAIN not in trial.user_attrs and place >= self.search.trials:
            trial.set_user_attr(trials.SURPLUS, True)
            raise Surplus("another worker took the last place")
        trial.set_user_attr(trials.PLACE, place)
        return place

    def _trained(self, trial: Trial, run: PlannedRun, place: int) -> float:
        from optuna import TrialPruned

        watch = PrunerReporter(trial, run, self.search.metric)
        runner = Runner(
            [(run, standing(run, {}))],
            1,
            self.launcher,
            self.retries,
            watch,
            {**self.environment, record.GIVEN_TAGS: json.dumps(self._tags(place))},
            pause=self.pause,
        )
        is_pruned = False
        try:
            runner.run()
        except Pruned:
            is_pruned = True
        finally:
            runner.stop(cancel=is_pruned)
        folder = run.folder()
        if folder.is_done:  # also where the end came before the order to stop
            watch.report(may_prune=False)
            is_pruned = False
        note_run(trial, folder)
        if is_pruned:
            self._settle(run, folder, "pruned", f"pruned at {run.unit} {watch.seen} by {self.search.pruner}")
            raise TrialPruned
        if not watch.values or not folder.is_done:
            reason = runner.items[0].failure or f"it has no value of {self.search.metric}"
            self._settle(run, folder, "failed", reason)
            self._fail(trial, reason)
        self._settle(run, folder, "complete", "")
        return (max if self.search.maximize else min)(watch.values.values())

    def _fail(self, trial: Trial, reason: str) -> None:
        trial.set_user_attr(trials.ERROR, reason[:1000])
        raise Failure(reason)

    def _equal(self, trial: Trial) -> FrozenTrial | None:
        """An earlier trial with these parameters that ended well."""
        states = ("COMPLETE", "PRUNED")
        every = trial.study.get_trials(deepcopy=False)
        return next((t for t in every if t.state.name in states and t.params == trial.params), None)

    def _as_before(self, trial: Trial, earlier: FrozenTrial) -> float:
        """What the earlier trial came to: nothing is trained twice."""
        from optuna import TrialPruned

        trial.set_user_attr(trials.EQUAL, earlier.number)
        for name in (trials.FOLDER, trials.RUN_ID):
            if name in earlier.user_attrs:
                trial.set_user_attr(name, earlier.user_attrs[name])
        for step, value in sorted(earlier.intermediate_values.items()):
            trial.report(value, step)
        if earlier.state.name == "PRUNED" or earlier.value is None:
            raise TrialPruned
        return earlier.value

    # --- the trial's run ---------------------------------------------------------------------------------------------

    def _tags(self, place: int) -> dict[str, str]:
        tags = {record.KIND: "trial", record.TRIAL: self.search.trial(place)}
        return tags | ({record.ORACLE: self.search.metric} if self.search.is_oracle else {})

    def _end_earlier(self, trial: Trial, run: PlannedRun) -> None:
        """End the run that a machine left open which is gone: without its folder the training begins another one."""
        if trials.AGAIN not in trial.user_attrs or not run.tracked:
            return
        before = trial.study.get_trials(deepcopy=False)[trial.user_attrs[trials.AGAIN]]
        run_id, uri = before.user_attrs.get(trials.RUN_ID), resolve_uri()
        if run_id is None or run_id == run.folder().read_state().get("run_id"):
            return
        try:
            found = find_run(uri, run_id)
            if found is not None and found.info.status == "RUNNING":
                with guarded(uri):
                    writer(uri).set_terminated(run_id, "KILLED")
        except Failure as failure:
            print(f"warning: {failure}; the run {run_id} of the attempt before stays open", file=sys.stderr)

    def _settle(self, run: PlannedRun, folder: RunFolder, state: str, note: str) -> None:
        """Say in folder and run how the trial ended. A server that is away costs only that."""
        told = folder.read_state()
        if not told:
            return
        tags = {record.TRIAL_STATE: state, **({NOTE: note} if note else {})}
        before = told.get("tags", {})
        outdated = _outdated(before) if state == "complete" else set()
        kept = {name: value for name, value in before.items() if name not in outdated}
        folder.write_state({**told, "tags": {**kept, **tags}})
        if not run.tracked or "run_id" not in told:
            return
        uri, run_id = resolve_uri(), told["run_id"]
        try:
            with guarded(uri):
                outdated = _outdated(writer(uri).get_run(run_id).data.tags) if state == "complete" else set()
                for name in outdated:
                    writer(uri).delete_tag(run_id, name)
                for name, value in tags.items():
                    writer(uri).set_tag(run_id, name, value)
                if state in STATUS:
                    writer(uri).set_terminated(run_id, STATUS[state])
        except Failure as failure:
            print(f"warning: {failure}; its run does not say that it is {state}", file=sys.stderr)


def note_run(trial: Trial, folder: RunFolder) -> None:
    """Store the run of a trial that is trained, so that whoever takes it over can end it."""
    run_id = folder.read_state().get("run_id")
    if run_id and trial.user_attrs.get(trials.RUN_ID) != run_id:
        trial.set_user_attr(trials.RUN_ID, run_id)


def _outdated(tags: Mapping[str, str]) -> set[str]:
    """Of the tags of a run that is complete, those that an attempt which ended early has left."""
    why = {record.ENDED_BY, record.ERROR} & set(tags)
    return why | ({NOTE} & set(tags) if why or tags.get(record.TRIAL_STATE) in STATUS else set())
