"""Feed of trials: each is asked of Optuna, trained as a run of the study, and told to Optuna evaluation by evaluation.

A trial's run on the server and its folder say how the trial ended. Its pruner (`samplers.make_pruner`) may stop it.

Answers: When does a sweep stop a trial early?
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.options import SweepOptions
from biasbed.studies.display import Display
from biasbed.studies.launchers import Launcher
from biasbed.studies.plan import PlannedRun
from biasbed.studies.runner import Item
from biasbed.studies.search import storage as storages
from biasbed.studies.search import trials
from biasbed.studies.search.progress import TrialNews, make_table
from biasbed.studies.search.results import SearchState, find_trainings
from biasbed.studies.search.search import Search, Sweep
from biasbed.studies.status import read_status
from biasbed.studies.study_table import Overrides
from biasbed.tracking.folder import RunFolder, evaluations
from biasbed.tracking.notes import NOTE
from biasbed.tracking.server import find_run, guarded, resolve_uri, writer
from biasbed.training.sync import send_unless_sent

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

LOOK = 1.0  # seconds between looks at the searches
SHARE = 10  # the time between two looks is at least this many times what a look takes: hundreds of searches are slow
STALE = 5.0  # seconds between looks for trials whose command is gone
PATIENCE = 600.0  # seconds that the storage may be away
LOG = "runner.log"  # messages of the runner, in the sweep's folder
# Status of a trial's run on the server, by how the trial ended; a complete one finishes itself.
STATUS = {"pruned": "KILLED", "superseded": "KILLED", "failed": "FAILED"}


class Ending(NamedTuple):
    """Ending of a trial: Optuna's state and value."""

    state: str
    value: float | None = None


class SearchStudy(NamedTuple):
    """A search and its Optuna study."""

    search: Search
    study: Study


@dataclass(kw_only=True)
class TrialItem(Item):
    """A trial that this command trains."""

    search: Search
    trial: Trial
    seen: int = 0  # last epoch or step reported to Optuna
    values: dict[int, float] = field(default_factory=dict)  # of the objective, by epoch or step
    ending: Ending | None = None

    def report(self) -> None:
        """Report each new evaluation to Optuna, and stop the trial if its pruner says so.

        One by one, so that pruning does not depend on when we look. The defaults are trained to the end: alone they are
        the first that a pruner sees, and with several workers others may come before them.
        """
        for evaluation in evaluations(self.run.folder().read_journal()):
            step, value = int(evaluation["step"]), evaluation["metrics"].get(self.search.metric)
            if step <= self.seen:
                continue
            if value is not None and record.is_finite(value):
                self.trial.report(value, step)
                self.values[step] = value
            self.seen = step
            may_prune = step in self.values and step < self.run.total and not self.has_ended
            if may_prune and trials.DEFAULT not in self.trial.user_attrs and self.trial.should_prune():
                self.stop = True
                return

    def note_run(self) -> None:
        """Store its run id, so that another command that takes the trial over can end the run."""
        run_id = self.run.folder().read_state().get("run_id")
        if run_id and self.trial.user_attrs.get(trials.RUN_ID) != run_id:
            self.trial.set_user_attr(trials.RUN_ID, run_id)


class TrialFeed:
    """Feeds the runner with trials, and receives the runner's reports.

    While the storage is away trainings go on; what it missed is told when it is back.
    """

    is_open = True

    def __init__(
        self, plan: Sweep, storage: RDBStorage, options: SweepOptions, launcher: Launcher, display: Display
    ) -> None:
        """Join the searches, and queue interrupted trials again. UsageError if a name is of a different search."""
        from biasbed.studies.search.samplers import make_pruner, make_sampler

        self.plan, self.url, self.options, self.launcher, self.display = plan, storage.url, options, launcher, display
        self.heartbeats = storages.Heartbeats(storage, options.heartbeat)
        self.items: list[TrialItem] = []  # trials that this command has
        self.studies: list[SearchStudy] = []
        self.next_look = self.next_dead_look = self.next_ask = 0.0  # times
        self.away: dict[str, float] = {}  # work -> when the storage stopped answering it
        with storages.storage_failures(self.url):
            for search in plan.searches:
                study = storages.join(storage, search)

                def position(trial: FrozenTrial, study: Study = study) -> int:
                    return trials.get_position(trial, study.get_trials(deepcopy=False))

                study.sampler = make_sampler(search, position)
                study.pruner = make_pruner(search.pruner, search.run.total, search.run.cadence)
                self.studies.append(SearchStudy(search, study))
                self._release_stale(study)
                trials.retry_failed(study, options.retries)
        self.news = TrialNews(self.states())
        self.heartbeats.start()

    def states(self) -> list[SearchState]:
        """Return the present state of every search."""
        with storages.storage_failures(self.url):
            return [SearchState(search, study.get_trials(deepcopy=False)) for search, study in self.studies]

    @contextlib.contextmanager
    def _patiently(self, work: str) -> Iterator[None]:
        """Tolerate a storage that is away, for a while.

        work: name of the block. The storage is back when the same work succeeds: reading may go on without writing.
        """
        try:
            with storages.storage_failures(self.url):
                yield
        except storages.Away as away:
            if not self.away:
                self.display.say(f"warning: {away}; trainings go on")
            if time.monotonic() - self.away.setdefault(work, time.monotonic()) > PATIENCE:
                raise
        else:
            if self.away.pop(work, None) is not None and not self.away:
                self.display.say("the storage is back")

    # --- a trial begins ----------------------------------------------------------------------------------------------

    def next(self) -> TrialItem | None:
        """Return a trial of the search that has the fewest, if one can be had now."""
        from optuna.exceptions import UpdateFinishedTrialError

        if time.monotonic() < self.next_ask:
            return None
        self.next_ask = time.monotonic() + LOOK
        with self._patiently("ask"):
            self._look_at_items()  # the sampler learns from what has ended
            while True:
                smallest = self._find_smallest()
                if smallest is None:
                    break
                item = None
                with contextlib.suppress(UpdateFinishedTrialError):  # another command took it meanwhile
                    item = self._ask(*smallest)
                if item is not None:
                    self.items.append(item)
                    self.next_ask = 0.0
                    return item
        return None

    def _find_smallest(self) -> SearchStudy | None:
        """Return the search with the fewest trials among those that have a trial to train; updates `is_open`."""
        fewest, smallest, self.is_open = 0, None, False
        for search, study in self.studies:
            all_trials = study.get_trials(deepcopy=False)
            states, count = {trial.state.name for trial in all_trials}, trials.count_positions(all_trials)
            if "WAITING" in states or count < search.trials:
                self.is_open = True
                if smallest is None or count < fewest:
                    fewest, smallest = count, SearchStudy(search, study)
            self.is_open |= "RUNNING" in states  # the command that has it may die
        return smallest

    def _ask(self, search: Search, study: Study) -> TrialItem | None:
        """Ask Optuna for a trial to train; None if it is told at once how it ends."""
        trial = study.ask()
        self.heartbeats.add(trial._trial_id)
        trial.set_user_attr(trials.HOST, os.uname().nodename)
        all_trials = study.get_trials(deepcopy=False)
        position = trials.get_position(all_trials[trial.number], all_trials)
        if trials.AGAIN not in trial.user_attrs and position >= search.trials:
            trial.set_user_attr(trials.SURPLUS, True)  # another command took the last position
            self._tell(trial, Ending("FAIL"))
            return None
        trial.set_user_attr(trials.POSITION, position)
        settings = self._draw_settings(search, trial)
        try:
            run = search.plan_trial(settings, position, self.launcher)
        except (UsageError, Failure) as error:
            trial.set_user_attr(trials.ERROR, str(error)[:1000])
            self._tell(trial, Ending("FAIL"))
            return None
        trial.set_user_attr(trials.FOLDER, str(run.base))
        retried = trial.user_attrs.get(trials.AGAIN)
        run_id = None if retried is None else all_trials[retried].user_attrs.get(trials.RUN_ID)
        if run_id is not None:
            end_open_run(run_id, run, self.say)
        return TrialItem(run=run, status=read_status(run, {}), search=search, trial=trial)

    def _draw_settings(self, search: Search, trial: Trial) -> Overrides:
        """Return a trial's settings, of those that are searched; Optuna draws them."""
        if trials.DEFAULT in trial.user_attrs:
            if search.default.is_inside:  # else Optuna accepts no parameters of it
                search.space.suggest(trial)
            return search.default.overrides
        return search.space.suggest(trial)

    # --- a trial goes on, and ends -----------------------------------------------------------------------------------

    @property
    def log(self) -> Path:
        return self.plan.folder / LOG

    def say(self, text: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{text}\n")

    def update(self, items: list[Item]) -> None:
        """Tell Optuna the results of this command's trials, and show the progress of the searches."""
        with self._patiently("update"):
            self._look_at_items()
            self._look_for_dead()
            began = time.monotonic()
            if began > self.next_look:
                states = self.tell_news()
                self.display.show(lambda: make_table(self.plan.study, states, self.plan.workers))
                self.next_look = time.monotonic() + max(LOOK, SHARE * (time.monotonic() - began))

    def tell_news(self) -> list[SearchState]:
        """Print what is new, and return the state of every search."""
        states = self.states()
        for line in self.news.since(states):
            self.display.say(line)
        return states

    def release(self) -> None:
        """Queue this command's trials again: it was asked to end."""
        self.heartbeats.end()
        with storages.storage_failures(self.url):
            self._look_at_items()
            for _, study in self.studies:
                self._release_own(study, [])

    def _look_at_items(self) -> None:
        """Report the evaluations and the ends of this command's trials."""
        from optuna.exceptions import UpdateFinishedTrialError

        for item in list(self.items):
            try:
                if item.has_ended:
                    item.ending = item.ending or self._finish(item)
                    self._tell(item.trial, item.ending)
                    self.items.remove(item)
                elif item.status.reached > item.seen and not item.stop:
                    item.note_run()
                    item.report()
            except UpdateFinishedTrialError:
                self._leave(item)

    def _leave(self, item: TrialItem) -> None:
        """Leave a trial to another command: stop its training here, or mark the training as superseded."""
        reason = "was given to another command, as this one gave no sign of life"
        self.say(f"{item.run.name} {reason}")
        item.stop = True
        self.items.remove(item)
        study = next(study for search, study in self.studies if search is item.search)
        folders = set()
        for trial in study.get_trials(deepcopy=False):
            if trial.user_attrs.get(trials.AGAIN) == item.trial.number and trials.FOLDER in trial.user_attrs:
                folders.add(trial.user_attrs[trials.FOLDER])
        is_done = item.has_ended and item.run.folder().is_done
        if is_done and folders - {str(item.run.base)}:  # in the same folder the other command continues this training
            note_ending(item.run, item.run.folder(), "superseded", reason, self.say)

    def _finish(self, item: TrialItem) -> Ending:
        """Return the ending of a trial whose training has ended, and note it in its run."""
        run, folder, search = item.run, item.run.folder(), item.search
        item.note_run()
        if folder.is_done:  # even if it was asked to stop just before
            item.report()
        elif item.state == "stopped":
            note_ending(run, folder, "pruned", f"pruned at {run.unit} {item.seen} by {search.pruner}", self.say)
            return Ending("PRUNED")
        if not item.values or not folder.is_done:
            reason = item.failure or f"it has no value of {search.metric}"
            item.trial.set_user_attr(trials.ERROR, reason[:1000])
            note_ending(run, folder, "failed", reason, self.say)
            return Ending("FAIL")
        note_ending(run, folder, "complete", "", self.say)
        values = item.values.values()
        return Ending("COMPLETE", max(values) if search.maximize else min(values))

    def _tell(self, trial: Trial, ending: Ending) -> None:
        """Store a trial's ending. Raises UpdateFinishedTrialError if another command has given it up."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        stored = trial.study.tell(trial, ending.value, TrialState[ending.state], skip_if_finished=True)
        self.heartbeats.trials.discard(trial._trial_id)
        if stored.state.name != ending.state:
            raise UpdateFinishedTrialError

    def _look_for_dead(self) -> None:
        """Queue the trials again whose command is gone, and own ones that were lost when the storage went away."""
        if time.monotonic() < self.next_dead_look:
            return
        self.next_dead_look = time.monotonic() + STALE
        self.heartbeats.record()  # first: the storage may just be back, and our own heartbeats be old
        for search, study in self.studies:
            self._release_own(study, [item.trial.number for item in self.items if item.search is search])
            self._release_stale(study)

    def _release_own(self, study: Study, keep: Sequence[int]) -> None:
        """Queue this command's trials again, except `keep`: no training of theirs goes on."""
        for trial in trials.list_running(study):
            if trial._trial_id in self.heartbeats.trials and trial.number not in keep:
                self.heartbeats.trials.discard(trial._trial_id)
                trials.give_up(study, trial, self.options.retries, has_died=False)

    def _release_stale(self, study: Study) -> None:
        trials.release_stale(study, 2.0 * self.options.heartbeat, self.options.retries)


# --- runs of trials on the server and in their folders ----------------------------------------------------------------


def end_open_run(run_id: str, run: PlannedRun, say: Callable[[str], None]) -> None:
    """End a run that a lost machine left open: without its folder the training opens a new run."""
    if not run.tracked or run_id == run.folder().read_state().get("run_id"):
        return
    uri = resolve_uri()
    try:
        open_run = find_run(uri, run_id)
        if open_run is not None and open_run.info.status == "RUNNING":
            with guarded(uri):
                writer(uri).set_terminated(run_id, "KILLED")
    except Failure as failure:
        say(f"warning: {failure}; the run {run_id} of the attempt before stays open")


def note_ending(run: PlannedRun, folder: RunFolder, state: str, note: str, say: Callable[[str], None]) -> None:
    """Note in folder and run how the trial ended. If the server is away, its run lacks the note."""
    stored = folder.read_state()
    if not stored:
        return
    tags = {record.TRIAL_STATE: state}
    if note:
        tags[NOTE] = note
    kept = dict(stored.get("tags", {}))
    if state == "complete":
        for name in _outdated_tags(kept):
            del kept[name]
    folder.write_state({**stored, "tags": {**kept, **tags}})
    if not run.tracked or "run_id" not in stored:
        return
    uri, run_id = resolve_uri(), stored["run_id"]
    try:
        with guarded(uri):
            if state == "complete":
                for name in _outdated_tags(writer(uri).get_run(run_id).data.tags):
                    writer(uri).delete_tag(run_id, name)
            for name, value in tags.items():
                writer(uri).set_tag(run_id, name, value)
            if state in STATUS:
                writer(uri).set_terminated(run_id, STATUS[state])
    except Failure as failure:
        say(f"warning: {failure}; its run does not say that it is {state}")


def _outdated_tags(tags: Mapping[str, str]) -> set[str]:
    """Return the tags of a complete run that an attempt which ended early has left."""
    errors = {record.ENDED_BY, record.ERROR} & set(tags)
    if errors or tags.get(record.TRIAL_STATE) in STATUS:
        return errors | ({NOTE} & set(tags))
    return errors


def send_unsent(states: Sequence[SearchState], say: Callable[[str], None]) -> list[str]:
    """Send complete trials of this machine that the server lacks: it was away, or the training ended while it sent.

    Returns the names of the runs that could not be sent.
    """
    unsent = []
    for run, trial in find_trainings(states):
        folder = run.folder()
        state = folder.read_state()
        is_owed = trial.state.name == "COMPLETE" and bool(state) and not state.get("sent")
        if run.tracked and is_owed and folder.holder() is None:  # else another command is just sending it
            try:
                register = run.overrides.get("register", "none")
                send_unless_sent(folder, named=run.overrides["algorithm"], register=register)
            except Failure as failure:
                unsent.append(run.name)
                say(f"{run.name} is done, but not sent: {failure}")
    return unsent


def refuse_unsent(names: Sequence[str]) -> None:
    """Raise Failure that names the runs that the server lacks."""
    if names:
        raise Failure(
            f"trained, but not sent to the server: {', '.join(names)}. The same command sends them and trains nothing "
            "again, and `biasbed sync` does it, too"
        )
