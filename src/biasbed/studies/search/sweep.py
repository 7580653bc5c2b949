"""`sweep`: a search per method as one study. The same command continues it, on this machine or on another one too."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.options import SweepOptions, of_trainings
from biasbed.studies import ledger, winners
from biasbed.studies import study as tracked
from biasbed.studies.display import Display
from biasbed.studies.launchers import open_launcher, read_options
from biasbed.studies.runner import GRACE
from biasbed.studies.search import plots, results, sending, trials
from biasbed.studies.search import storage as storages
from biasbed.studies.search.results import SearchState
from biasbed.studies.search.search import Sweep, make_sweep
from biasbed.studies.search.table import TrialNews, lines
from biasbed.studies.search.worker import WorkerTask, work
from biasbed.system.files import write_whole
from biasbed.system.processes import last_line
from biasbed.tracking.server import resolve_uri

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from optuna import Study
    from optuna.storages import RDBStorage

LOOK = 1.0  # seconds between looks at workers and trials
DEATHS = 3  # of workers in a row, without a trial that ended in between, after which something is wrong
PATIENCE = 600.0  # seconds that the storage may be away
CONTEXT: multiprocessing.context.BaseContext = multiprocessing.get_context("spawn")


def sweep(flags: Mapping[str, str]) -> None:
    """Search the parameters of every method, as the flags say, or with `dry_run` say what that would mean.

    Raises UsageError before anything is started, Failure in the end where a method has no complete trial.
    """
    given = {name: value for name, value in flags.items() if not (name == "suite" and value == "auto")}
    options, others = read_options(SweepOptions, given)
    settings = of_trainings(others, options.loader_workers)
    launcher = open_launcher(options)
    plan = make_sweep(options, settings, launcher)
    url = storages.storage_url(options.storage, plan.folder)
    if plan.config.tracking == "on":
        tracked.refuse_mixture(resolve_uri(), plan.study, plan.suite, {}, kind="trial")
    if (plan.folder / tracked.TABLE).exists():
        raise UsageError(f"the study '{plan.study}' is a study of trainings, no sweep: name another with study=")
    if options.dry_run:
        print("\n".join([*plan.messages, *_dry_run(plan, url, options)]))
    else:
        SweepRun(plan, url, options).run()


def _dry_run(plan: Sweep, url: str, options: SweepOptions) -> list[str]:
    """How each search stands. Nothing is written anywhere."""
    found: list[SearchState] = []
    if storages.exists(url):
        with storages.answering(url):
            storage = storages.open_storage(url, options.heartbeat, options.retries)
            storages.refuse_others(storage, plan.searches)
            for search in plan.searches:
                study = storages.find(storage, search)
                found.append(SearchState(search, () if study is None else study.get_trials(deepcopy=False)))
    else:
        found = [SearchState(search, ()) for search in plan.searches]
    shown = []
    for one in found:
        space = ", ".join(one.search.space.names)
        how = f"{one.search.sampler}, {one.search.pruner} pruner, seed {one.search.seed}"
        shown.append(f"{one.search.title}: {space}; {how}; {one.search.metric}")
    return [*shown, *lines(plan.study, found, plan.workers), f"{plan.workers} at a time; storage {storages.shown(url)}"]


class SweepRun:
    """One call of `sweep`: starts workers, replaces those that die, and concludes."""

    def __init__(self, plan: Sweep, url: str, options: SweepOptions) -> None:
        self.plan, self.url, self.options = plan, url, options
        self.display = Display(plan.study, plan.workers)
        self.processes: dict[int, BaseProcess] = {}
        self.deaths = 0
        self.away_since: float | None = None  # the storage
        self.environment: dict[str, str] = {}
        self.studies: list[Study] = []
        self.unsent: list[str] = []  # trials that the server lacks something of

    def run(self) -> None:
        """All of it. Raises Failure where workers can't work, and where a method has no complete trial."""
        for message in self.plan.messages:
            self.display.say(message)
        plan, storage = self.plan, self._storage()
        tags = {record.ORACLE: plan.oracle} if plan.oracle else {}
        with tracked.carried_out(plan.folder, plan.study, plan.suite, plan.config, tags) as study:
            self.environment = study.environment
            self._join(storage)
            study.at_end.callback(self._end)
            self._watch()
            results.refuse_nothing(self.found())
            study.status = "FINISHED"
            sending.refuse_unsent(self.unsent)

    def _end(self) -> None:
        self._stop()
        self.display.close()
        self._conclude()

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _storage(self) -> RDBStorage:
        """The storage, if it can be used and has no other search of this name."""
        limit = self.options.retries
        with storages.answering(self.url):
            storage = storages.open_storage(self.url, self.options.heartbeat, limit)
            storages.refuse_others(storage, self.plan.searches)
            for search in self.plan.searches:
                storages.find(storage, search)  # may refuse
        return storage

    def _join(self, storage: RDBStorage) -> None:
        """Make the searches that are not there, and queue again what was cut off."""
        limit = self.options.retries
        with storages.answering(self.url):
            self.studies = [storages.join(storage, search) for search in self.plan.searches]
            for study in self.studies:
                trials.release_dead(study, limit)
                trials.queue_failed(study, limit)
        self._describe()

    def _describe(self) -> None:
        path = self.plan.folder / tracked.SWEPT
        said = {search.name: {"trials": search.trials, **search.description} for search in self.plan.searches}
        path.write_text(yaml.safe_dump({"storage": storages.shown(self.url), "searches": said}, sort_keys=False))

    def found(self) -> list[SearchState]:
        with storages.answering(self.url):
            pairs = zip(self.plan.searches, self.studies, strict=True)
            return [SearchState(search, study.get_trials(deepcopy=False)) for search, study in pairs]

    # --- working -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Until every search has its trials."""
        found = self.found()
        left = sum(one.search.trials - len(one.outcomes) + _open_trials(one) for one in found)
        going = f"{left} to train, {self.plan.workers} at a time" if left else "nothing is left to train"
        self.display.say(f"{self.plan.study}: {sum(s.trials for s in self.plan.searches)} trials; {going}")
        self.unsent = sending.send(found, self.display.say)
        if not left:
            return
        self.display.say(f"storage {storages.shown(self.url)}; workers write to {self.plan.folder}/worker-<n>.log")
        news = TrialNews(found)
        for slot in range(self.plan.workers):
            self._start(slot)
        while self.processes:
            time.sleep(LOOK)
            looked = self._looked()
            if looked is None:
                continue
            found = looked
            for line in news.since(found):
                self.deaths = 0 if " complete: " in line or " pruned at " in line else self.deaths
                self.display.say(line)
            self.display.show(lambda now=found: lines(self.plan.study, now, self.plan.workers))  # type: ignore[misc]
            self._look_after_workers()
        found = self.found()
        for line in news.since(found):
            self.display.say(line)
        self.unsent = sending.send(found, self.display.say)

    def _looked(self) -> list[SearchState] | None:
        """How the searches stand; None while the storage is away, which may be for a while."""
        try:
            found = self.found()
        except Failure as failure:
            if self.away_since is None:
                self.away_since = time.monotonic()
                self.display.say(f"warning: {failure}; trainings go on")
            if time.monotonic() - self.away_since > PATIENCE:
                raise
            return None
        if self.away_since is not None:
            self.away_since = None
            self.display.say("the storage is back")
        return found

    def _start(self, slot: int) -> None:
        task = WorkerTask(
            searches=self.plan.searches,
            url=self.url,
            options=self.options,
            slot=slot,
            slots=self.plan.workers,
            environment=self.environment,
            log=self.plan.folder / f"worker-{slot}.log",
            parent=os.getpid(),
        )
        process = CONTEXT.Process(target=work, args=(task,), daemon=True)  # type: ignore[attr-defined]
        process.start()
        self.processes[slot] = process

    def _look_after_workers(self) -> None:
        """Let those go that are done; of one that died, queue its trial again and start another."""
        for slot, process in list(self.processes.items()):
            if process.exitcode is None:
                continue
            del self.processes[slot]
            if process.exitcode == 0:
                continue
            self.deaths += 1
            self.display.say(f"worker {slot} ended with {process.exitcode}: {self._last_line(slot)}")
            if self.deaths >= DEATHS + self.plan.workers:
                raise Failure(f"workers die one after the other; what they say is in {self._log(slot)}")
            with storages.answering(self.url):
                for study in self.studies:
                    trials.release_dead(study, self.options.retries)
            self._start(slot)

    def _log(self, slot: int) -> Path:
        return self.plan.folder / f"worker-{slot}.log"

    def _last_line(self, slot: int) -> str:
        log = self._log(slot)
        return last_line(log.read_text(errors="replace") if log.exists() else "")

    def _stop(self) -> None:
        """End the workers in good order: they queue again what they have."""
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + GRACE + 10
        for process in self.processes.values():
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
        self.processes = {}

    # --- ending ------------------------------------------------------------------------------------------------------

    def _conclude(self) -> None:
        """Tables, pictures and ledger: on the terminal, in the sweep's folder and on the server."""
        try:
            found = self.found()
        except Failure as failure:
            print(f"warning: {failure}; the same command concludes the sweep", file=sys.stderr)
            found = []
        if found:
            print("\n".join(results.summary(found)))
            self._keep(found)
            if results.winners(found):
                print(f"train the best with fresh seeds: biasbed benchmark --from_study {self.plan.study}")

    def _keep(self, found: Sequence[SearchState]) -> None:
        """Write all that the sweep has come to into its folder."""
        folder = self.plan.folder
        results.write_trials(folder / tracked.TRIALS, found)
        costs = results.ledger_lines(found)
        ledger.write(folder / tracked.LEDGER, costs)
        shown = ledger.summary(costs, str(self.plan.config.device))
        print("\n".join([*shown, f"each trial: {folder / tracked.TRIALS}"]))
        best = results.winners(found)
        if best:
            origin = {"objective": self.plan.searches[0].metric, "oracle": str(bool(self.plan.oracle)).lower()}
            content = winners.table(self.plan.study, self.plan.suite, best, self.plan.seeds, self.plan.settings, origin)
            write_whole(folder / tracked.WINNERS, yaml.safe_dump(content, sort_keys=False))
        plots.write(folder / tracked.PLOTS, found)


def _open_trials(one: SearchState) -> int:
    return sum(trial.state.name in ("WAITING", "RUNNING") for trial in one.outcomes.values())
