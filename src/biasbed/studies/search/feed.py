"""Feed of trials: takes each from Optuna, trains it as a run of the study, and reports every evaluation to Optuna.

The run and its folder record how a trial ended. A pruner may stop it
(`early_stopping.py`).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.studies import ledger
from biasbed.studies.display import Display
from biasbed.studies.launchers import Launcher
from biasbed.studies.plan import PlannedRun
from biasbed.studies.runner import Item
from biasbed.studies.search import storage as storages
from biasbed.studies.search import trials
from biasbed.studies.search.early_stopping import TrialItem, make_pruner
from biasbed.studies.search.progress import TrialNews, make_table
from biasbed.studies.search.results import SearchState, find_trainings
from biasbed.studies.search.search import Search, Sweep
from biasbed.studies.status import read_status
from biasbed.studies.study_table import Overrides
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.notes import NOTE
from biasbed.tracking.server import guarded, resolve_uri, writer
from biasbed.training.sync import send_unless_sent

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RDBStorage

LOOK = 1.0  # seconds between looks at the searches
SHARE = 10  # the time between two looks is at least this many times what a look takes: hundreds of searches are slow
LOG = "runner.log"  # messages of the runner, in the sweep's folder
STATUS = {"pruned": "KILLED", "failed": "FAILED"}  # of a trial's run on the server; a complete one finishes itself


class SearchStudy(NamedTuple):
    """Search and its Optuna study."""

    search: Search
    study: Study


class SearchTrial(NamedTuple):
    """Trial of a search."""

    search: Search
    trial: Trial


class TrialFeed:
    """Source of the runner's trials, and receiver of the runner's reports."""

    is_open = True

    def __init__(self, plan: Sweep, storage: RDBStorage, launcher: Launcher, display: Display) -> None:
        """Join the searches, and queue the trials of earlier commands that did not end or that failed."""
        from biasbed.studies.search.samplers import make_sampler

        self.plan, self.launcher, self.display = plan, launcher, display
        self.items: list[TrialItem] = []  # trials that are trained now
        self.studies: list[SearchStudy] = []
        self.left: deque[tuple[SearchStudy, int]] = deque()  # trials that earlier commands left, by Optuna's ids
        self.next_look = 0.0  # time
        for search in plan.searches:
            study = storages.join(storage, search)
            study.sampler = make_sampler(search)
            study.pruner = make_pruner(search.pruner, search.run.total, search.run.cadence)
            self.studies.append(SearchStudy(search, study))
            for trial in study.get_trials(deepcopy=False):
                if trial.state.name == "RUNNING":
                    self.left.append((self.studies[-1], trial._trial_id))
        self.news = TrialNews(self.states())

    def states(self) -> list[SearchState]:
        """Return the present state of every search."""
        return [SearchState(search, study.get_trials(deepcopy=False)) for search, study in self.studies]

    # --- a trial begins ----------------------------------------------------------------------------------------------

    def next(self) -> TrialItem | None:
        """Return the next trial: one that earlier commands left, else one of the search with the fewest trials.

        Returns None if every search has all of its trials.
        """
        self._look_at_items()  # the sampler learns from what has ended
        while self.is_open:
            next_trial = self._take_left() or self._ask_optuna()
            self.is_open = next_trial is not None
            item = None if next_trial is None else self._make_item(*next_trial)
            if item is not None:
                self.items.append(item)
                return item
        return None

    def _take_left(self) -> SearchTrial | None:
        """Return a trial that an earlier command left; None if there is none."""
        from optuna import Trial

        if not self.left:
            return None
        (search, study), trial_id = self.left.popleft()
        return SearchTrial(search, Trial(study, trial_id))

    def _ask_optuna(self) -> SearchTrial | None:
        """Ask Optuna for a trial of the search that has the fewest; None if every search has all of its trials."""
        fewest, smallest = 0, None
        for search_study in self.studies:
            states = [trial.state.name for trial in search_study.study.get_trials(deepcopy=False)]
            has_next = "WAITING" in states or len(states) < search_study.search.trials
            if has_next and (smallest is None or len(states) < fewest):
                fewest, smallest = len(states), search_study
        if smallest is None:
            return None
        return SearchTrial(smallest.search, smallest.study.ask())

    def _make_item(self, search: Search, trial: Trial) -> TrialItem | None:
        """Return a trial as an item to train; None if its settings do not fit together."""
        trial.set_user_attr(trials.HOST, os.uname().nodename)
        trial.set_user_attr(trials.ATTEMPTS, trial.user_attrs.get(trials.ATTEMPTS, 0) + 1)
        trial.set_user_attr(trials.ERROR, "")
        try:
            run = search.plan_trial(self._draw_settings(search, trial), trial.number, self.launcher)
        except (UsageError, Failure) as error:
            trial.set_user_attr(trials.ERROR, str(error)[:1000])
            return None
        trial.set_user_attr(trials.FOLDER, str(run.base))
        values = dict(trial._cached_frozen_trial.intermediate_values)
        # The last value is looked at again: its command may have died before it asked the pruner.
        seen = max(values, default=1) - 1
        return TrialItem(run=run, status=read_status(run, {}), search=search, trial=trial, values=values, seen=seen)

    def _draw_settings(self, search: Search, trial: Trial) -> Overrides:
        """Return a trial's values of the searched settings, drawn by Optuna unless they were drawn before."""
        if trials.DEFAULT in trial.user_attrs:
            if search.default.is_inside:  # else Optuna accepts no parameters of it
                search.space.draw_settings(trial)
            return search.default.overrides
        return search.space.draw_settings(trial)

    # --- a trial goes on, and ends -----------------------------------------------------------------------------------

    @property
    def log(self) -> Path:
        return self.plan.folder / LOG

    def say(self, text: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{text}\n")

    def update(self, items: list[Item]) -> None:
        """Report the results of the trials to Optuna, and show the progress of the searches."""
        self._look_at_items()
        began = time.monotonic()
        if began > self.next_look:
            states = self.tell_news()
            self.display.show(lambda: make_table(self.plan.study, states, self.plan.workers))
            self.next_look = time.monotonic() + max(LOOK, SHARE * (time.monotonic() - began))

    def tell_news(self) -> list[SearchState]:
        """Print the changes of trials since the last call, and return the state of every search."""
        states = self.states()
        for line in self.news.since(states):
            self.display.say(line)
        return states

    def close(self) -> None:
        """Report to Optuna the trials that have ended. Others are left to the next command."""
        self._look_at_items()
        for item in self.items:
            _note_run(item)

    def _look_at_items(self) -> None:
        """Report the evaluations and the ends of the trials."""
        for item in list(self.items):
            if item.has_ended:
                self._finish(item)
                self.items.remove(item)
            elif item.status.reached > item.seen and not item.stop:
                item.report_evaluations()

    def _finish(self, item: TrialItem) -> None:
        """Store how a trial ended, in Optuna's study and in its run. Its training has ended."""
        from optuna.trial import TrialState

        run, folder, search, trial = item.run, item.run.folder(), item.search, item.trial
        _note_run(item)
        trial.set_user_attr(trials.SECONDS, _count_seconds(item))
        if folder.is_done:  # even if it was asked to stop just before
            item.report_evaluations()
        elif item.state == "stopped":
            note_ending(run, folder, "pruned", f"pruned at {run.unit} {item.seen} by {search.pruner}", self.say)
            trial.study.tell(trial, state=TrialState.PRUNED)
            return
        if not item.values or not folder.is_done:
            reason = item.failure or f"it has no value of {search.metric}"
            note_ending(run, folder, "failed", reason, self.say)
            trial.set_user_attr(trials.ERROR, reason[:1000])
            return
        note_ending(run, folder, "complete", "", self.say)
        values = item.values.values()
        trial.study.tell(trial, max(values) if search.maximize else min(values))


def _note_run(item: TrialItem) -> None:
    """Store the id of the trial's run."""
    item.trial.set_user_attr(trials.RUN_ID, item.run.folder().read_state().get("run_id", ""))


def _count_seconds(item: TrialItem) -> float:
    """Return the seconds of a trial's training; 0 if an equal trial was trained before it."""
    if not item.starts and item.trial.user_attrs[trials.ATTEMPTS] == 1:
        return 0.0
    return sum(attempt["end"] - attempt["start"] for attempt in ledger.read_attempts(item.run.folder()))


# --- runs of trials on the server and in their folders ----------------------------------------------------------------


def note_ending(run: PlannedRun, folder: RunFolder, state: str, note: str, say: Callable[[str], None]) -> None:
    """Note in a trial's folder and run how it ended. If the server is away, only the folder has the note."""
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
    """Return the names of tags that an earlier attempt, which ended early, has left on a complete run."""
    errors = {record.ENDED_BY, record.ERROR} & set(tags)
    if errors or tags.get(record.TRIAL_STATE) in STATUS:
        return errors | ({NOTE} & set(tags))
    return errors


def send_unsent(states: Sequence[SearchState], say: Callable[[str], None]) -> list[str]:
    """Send the complete trials of this machine that the server lacks; return the names of the runs that failed.

    The server was away, or the training was interrupted while it sent its results.
    """
    unsent = []
    for run, trial in find_trainings(states):
        folder = run.folder()
        state = folder.read_state()
        is_owed = trial.state.name == "COMPLETE" and bool(state) and not state.get("sent")
        if run.tracked and is_owed and folder.holder() is None:  # else another command is just sending it
            try:
                send_unless_sent(folder, user_method=run.overrides["algorithm"])
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
