"""Trials as runs of a study: asked of Optuna when one can be trained, and told to it evaluation by evaluation."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.options import SweepOptions
from biasbed.studies.display import Display
from biasbed.studies.launchers import Launcher
from biasbed.studies.runner import Item
from biasbed.studies.search import runs, trials, turns
from biasbed.studies.search import storage as storages
from biasbed.studies.search.liveness import SignsOfLife
from biasbed.studies.search.results import SearchState
from biasbed.studies.search.search import Search, Sweep
from biasbed.studies.search.stages import NOTHING
from biasbed.studies.search.table import TrialNews, table
from biasbed.studies.standing import standing
from biasbed.studies.table import Words
from biasbed.system.signature import signature
from biasbed.tracking.folder import evaluations

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

LOOK = 1.0  # seconds between looks at the searches
SHARE = 10  # times as long as a look takes is the least until the next: hundreds of searches take their time
STALE = 5.0  # seconds between looks for trials whose command is gone
PATIENCE = 600.0  # seconds that the storage may be away
LOG = "runner.log"  # in the sweep's folder: what the runner says


@dataclass(kw_only=True)
class TrialItem(Item):
    """A trial that this command trains."""

    search: Search
    trial: Trial
    seen: int = 0  # epoch or step that Optuna has heard of
    values: dict[int, float] = field(default_factory=dict)  # of the objective
    ending: tuple[str, float | None] | None = None  # state and value, once they are known

    def report(self) -> None:
        """Report evaluation by evaluation, so that a decision does not depend on when we look."""
        for entry in evaluations(self.run.folder().read_journal()):
            step, value = int(entry["step"]), entry["metrics"].get(self.search.metric)
            if step <= self.seen:
                continue
            if value is not None and record.is_finite(value):
                self.trial.report(value, step)
                self.values[step] = value
            self.seen = step
            may_prune = step in self.values and step < self.run.total and not self.has_ended
            if may_prune and self.trial.should_prune():
                self.stop = True
                return

    def note_run(self) -> None:
        """Store its run, so that whoever takes the trial over can end it."""
        run_id = self.run.folder().read_state().get("run_id")
        if run_id and self.trial.user_attrs.get(trials.RUN_ID) != run_id:
            self.trial.set_user_attr(trials.RUN_ID, run_id)


class TrialFeed:
    """Feeds the runner with trials, and is what it reports to.

    A storage that is away costs no training: what it missed is told when it is back.
    """

    is_open = True

    def __init__(
        self, plan: Sweep, storage: RDBStorage, options: SweepOptions, launcher: Launcher, display: Display
    ) -> None:
        """Join the searches, and queue again what was cut off. UsageError where others of their names are there."""
        from biasbed.studies.search.samplers import make_pruner, make_sampler

        self.plan, self.url, self.options, self.launcher, self.display = plan, storage.url, options, launcher, display
        self.name, self.life = signature(), SignsOfLife(storage, options.heartbeat)
        self.items: list[TrialItem] = []  # that this command has
        self.studies: list[tuple[Search, Study]] = []
        self.look_again = self.search_again = self.ask_again = 0.0  # when: for news, for dead commands, for a trial
        self.away: dict[str, float] = {}  # since when the storage does not answer, by what was asked
        with storages.answering(self.url):
            for search in plan.searches:
                study = storages.join(storage, search)

                def place(trial: FrozenTrial, study: Study = study) -> int:
                    return trials.place(trial, study.get_trials(deepcopy=False))

                study.sampler = make_sampler(search, place)
                study.pruner = make_pruner(search.pruner, search.run.total, search.run.cadence)
                self.studies.append((search, study))
                trials.release_dead(study, options.retries)
                trials.queue_failed(study, options.retries)
        self.news = TrialNews(self.found())
        self.life.start()

    def found(self) -> list[SearchState]:
        """How the searches stand."""
        with storages.answering(self.url):
            return [SearchState(search, study.get_trials(deepcopy=False)) for search, study in self.studies]

    @contextlib.contextmanager
    def _patiently(self, work: str) -> Iterator[None]:
        """Bear a storage that is away, for a while. work: by which it is seen that it is back: reading may go on."""
        try:
            with storages.answering(self.url):
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
        """A trial of the search that has the fewest, if there is one to be had."""
        from optuna.exceptions import UpdateFinishedTrialError

        if time.monotonic() < self.ask_again:
            return None
        self.ask_again = time.monotonic() + LOOK
        with self._patiently("ask"):
            self._look_at_own()  # what has ended is what the sampler learns from
            while (entry := self._with_work()) is not None:
                with contextlib.suppress(UpdateFinishedTrialError):  # another command took it meanwhile
                    if (item := self._asked(*entry)) is not None:
                        self.items.append(item)
                        self.ask_again = 0.0
                        return item
        return None

    def _with_work(self) -> tuple[Search, Study] | None:
        """Of the searches that have a trial to be trained the one that has the fewest."""
        free, self.is_open = [], False
        for search, study in self.studies:
            every = study.get_trials(deepcopy=False)
            states, taken = {trial.state.name for trial in every}, trials.taken(every)
            if "WAITING" in states or taken < turns.opened(search, every):
                free.append((taken, search, study))
            self.is_open |= "RUNNING" in states  # whoever has it may die
        self.is_open |= bool(free)
        return min(free, key=lambda entry: entry[0])[1:] if free else None

    def _asked(self, search: Search, study: Study) -> TrialItem | None:
        """A trial to be trained; None where it is told at once what it comes to."""
        trial = study.ask()
        self.life.add(trial._trial_id)
        trial.set_user_attr(trials.COMMAND, self.name)
        trial.set_user_attr(trials.HOST, socket.gethostname())
        every = study.get_trials(deepcopy=False)
        place = trials.place(every[trial.number], every)
        if trials.AGAIN not in trial.user_attrs and place >= turns.opened(search, every):
            trial.set_user_attr(trials.SURPLUS, True)  # another command took the last place, of all or of a stage
            self._tell(trial, "FAIL")
            return None
        trial.set_user_attr(trials.PLACE, place)
        words = self._words(search, trial, place, every)
        earlier = next((t for t in trials.ended_well(every) if search.settings(t) == words), None)
        if earlier is not None:
            self._as_before(trial, earlier)
            return None
        try:
            run = search.planned(words, place, self.launcher)
        except (UsageError, Failure) as error:
            trial.set_user_attr(trials.ERROR, str(error)[:1000])
            self._tell(trial, "FAIL")
            return None
        trial.set_user_attr(trials.FOLDER, str(run.base))
        again = trial.user_attrs.get(trials.AGAIN)
        run_id = None if again is None else every[again].user_attrs.get(trials.RUN_ID)
        if run_id is not None:
            runs.end_open(run_id, run, self.say)
        return TrialItem(run=run, standing=standing(run, {}), search=search, trial=trial)

    def _words(self, search: Search, trial: Trial, place: int, every: list[FrozenTrial]) -> Words:
        """A trial's settings, of those that are searched over."""
        if trials.DEFAULT in trial.user_attrs:  # also where it lies outside of the space
            if search.default.is_inside:
                search.space.suggest(trial)
            return search.default.words
        stage = turns.stage_at(search, place)
        if trials.GIVEN not in trial.user_attrs and len(search.stages) > 1:
            given = turns.given(search, stage, every) or NOTHING
            trial.set_user_attr(trials.GIVEN, given.plain())
        own = stage.space.suggest(trial)
        return search.in_order({**trial.user_attrs.get(trials.GIVEN, {}).get("words", {}), **own})

    def _as_before(self, trial: Trial, earlier: FrozenTrial) -> None:
        """What an earlier trial with equal parameters came to: nothing is trained twice."""
        trial.set_user_attr(trials.EQUAL, earlier.number)
        for name in (trials.FOLDER, trials.RUN_ID):
            if name in earlier.user_attrs:
                trial.set_user_attr(name, earlier.user_attrs[name])
        for step, value in sorted(earlier.intermediate_values.items()):
            trial.report(value, step)
        self._tell(trial, earlier.state.name, earlier.value if earlier.state.name == "COMPLETE" else None)

    # --- a trial goes on, and ends -----------------------------------------------------------------------------------

    @property
    def log(self) -> Path:
        return self.plan.folder / LOG

    def say(self, text: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{text}\n")

    def update(self, items: list[Item]) -> None:
        """Tell Optuna what this command's trials have come to, and the terminal how the searches stand."""
        with self._patiently("update"):
            self._look_at_own()
            self._look_for_dead()
            if (began := time.monotonic()) > self.look_again:
                found = self.tell_news()
                self.display.show(lambda: table(self.plan.study, found, self.plan.workers))
                self.look_again = time.monotonic() + max(LOOK, SHARE * (time.monotonic() - began))

    def tell_news(self) -> list[SearchState]:
        """How the searches stand; what is new is said on the terminal."""
        found = self.found()
        for line in self.news.since(found):
            self.display.say(line)
        return found

    def release(self) -> None:
        """Queue again what this command still has: it was asked to end."""
        self.life.end()
        with storages.answering(self.url):
            self._look_at_own()
            for _, study in self.studies:
                trials.release_own(study, self.name, self.options.retries)

    def _look_at_own(self) -> None:
        """At the trials of this command: their evaluations, and their ends."""
        from optuna.exceptions import UpdateFinishedTrialError

        for item in list(self.items):
            try:
                if item.has_ended:
                    item.ending = item.ending or self._ending(item)
                    self._tell(item.trial, *item.ending)
                    self.items.remove(item)
                elif item.standing.reached > item.seen and not item.stop:
                    item.note_run()
                    item.report()
            except UpdateFinishedTrialError:
                self._leave(item)

    def _leave(self, item: TrialItem) -> None:
        """To another command: this one's training ends, and if it has ended, it is no trial any more."""
        reason = "was given to another command, as this one gave no sign of life"
        self.say(f"{item.run.name} {reason}")
        item.stop = True
        self.items.remove(item)
        every = next(study for search, study in self.studies if search is item.search).get_trials(deepcopy=False)
        heirs = [trial.user_attrs for trial in every if trial.user_attrs.get(trials.AGAIN) == item.trial.number]
        folders = {heir[trials.FOLDER] for heir in heirs if trials.FOLDER in heir}
        done = item.has_ended and item.run.folder().is_done
        if done and folders - {str(item.run.base)}:  # in the same one, the other goes on with this very training
            runs.settle(item.run, item.run.folder(), "superseded", reason, self.say)

    def _ending(self, item: TrialItem) -> tuple[str, float | None]:
        """The state and value of a trial whose training has ended, noted in its run."""
        run, folder, search = item.run, item.run.folder(), item.search
        item.note_run()
        if folder.is_done:  # also where the end came before the order to stop
            item.report()
        elif item.state == "stopped":
            runs.settle(run, folder, "pruned", f"pruned at {run.unit} {item.seen} by {search.pruner}", self.say)
            return "PRUNED", None
        if not item.values or not folder.is_done:
            reason = item.failure or f"it has no value of {search.metric}"
            item.trial.set_user_attr(trials.ERROR, reason[:1000])
            runs.settle(run, folder, "failed", reason, self.say)
            return "FAIL", None
        runs.settle(run, folder, "complete", "", self.say)
        return "COMPLETE", (max if search.maximize else min)(item.values.values())

    def _tell(self, trial: Trial, state: str, value: float | None = None) -> None:
        """Store how a trial has ended. UpdateFinishedTrialError where another command has given it up."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        told = trial.study.tell(trial, value, TrialState[state], skip_if_finished=True)
        self.life.trials.discard(trial._trial_id)
        if told.state.name != state:
            raise UpdateFinishedTrialError

    def _look_for_dead(self) -> None:
        """For trials whose command is gone; and for own ones that were lost as the storage went away."""
        from optuna.storages import fail_stale_trials

        if time.monotonic() < self.search_again:
            return
        self.search_again, limit = time.monotonic() + STALE, self.options.retries
        self.life.give()  # before others are looked for: the storage may just be back
        for search, study in self.studies:
            if not trials.running(study):
                continue
            fail_stale_trials(study)
            trials.release_dead(study, limit)
            trials.release_unstamped(study, 2.0 * self.options.heartbeat, limit)
            own = [item.trial.number for item in self.items if item.search is search]
            trials.release_own(study, self.name, limit, known=own)
