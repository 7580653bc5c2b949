"""`sweep`: a search per method and cell as one study. The same command continues it, on other machines too."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import yaml

from biasbed import record
from biasbed.errors import Failure, MissingData, UsageError
from biasbed.options import SweepOptions, of_trainings
from biasbed.studies import ledger, winners
from biasbed.studies import study as tracked
from biasbed.studies.cells import HELD_OUT
from biasbed.studies.display import Display
from biasbed.studies.launchers import Launcher, open_launcher, read_options
from biasbed.studies.outline import missing
from biasbed.studies.runner import Runner
from biasbed.studies.search import plots, results, runs
from biasbed.studies.search import storage as storages
from biasbed.studies.search.feed import TrialFeed
from biasbed.studies.search.results import SearchState
from biasbed.studies.search.search import Sweep, make_sweep
from biasbed.studies.search.stages import SearchStage
from biasbed.studies.search.table import table
from biasbed.system.files import write_whole
from biasbed.tracking.server import resolve_uri

if TYPE_CHECKING:
    from optuna.storages import RDBStorage


def sweep(flags: Mapping[str, str]) -> None:
    """Search the parameters of every method in every cell, as the flags say; `dry_run` says what that would mean.

    Raises UsageError before anything is started, Failure in the end where a method has no complete trial.
    """
    given = {name: value for name, value in flags.items() if not (name == "suite" and value == "auto")}
    options, others = read_options(SweepOptions, given)
    settings = of_trainings({**others, HELD_OUT: options.test_domains}, options.loader_workers)
    launcher = open_launcher(options)
    try:
        plan = make_sweep(options, settings, launcher)
    except MissingData as reason:
        if not options.dry_run:
            raise
        names = ", ".join(options.algorithms)
        print("\n".join([f"a search of {options.settled('trials')} trials for each of {names}", *missing(reason)]))
        return
    url = storages.storage_url(options.storage, plan.folder)
    if plan.config.tracking == "on":
        storages.refuse_tracking(url, resolve_uri())
        tracked.refuse_mixture(resolve_uri(), plan.study, plan.suite, {}, kind="trial")
    if (plan.folder / tracked.TABLE).exists():
        raise UsageError(f"the study '{plan.study}' is a study of trainings, no sweep: name another with study=")
    if options.dry_run:
        print("\n".join([*plan.messages, *_dry_run(plan, url, options)]))
    else:
        SweepRun(plan, url, options, launcher).run()


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
        space = "; then, with the best of these, ".join(map(_stage, one.search.stages))
        how = f"{one.search.pruner} pruner, seed {one.search.seed}"
        shown.append(f"{one.search.title}: {space}; {how}; {one.search.metric}")
    shown += table(plan.study, found, plan.workers).lines
    return [*shown, f"{plan.workers} at a time; storage {storages.shown(url)}"]


def _stage(stage: SearchStage) -> str:
    return f"{stage.title}: {stage.trials} trials"


class SweepRun:
    """One call of `sweep`: trains what its searches ask for, and concludes."""

    def __init__(self, plan: Sweep, url: str, options: SweepOptions, launcher: Launcher) -> None:
        self.plan, self.url, self.options, self.launcher = plan, url, options, launcher
        self.display = Display(plan.study, plan.workers)
        self.unsent: list[str] = []  # trials that the server lacks something of

    def run(self) -> None:
        """All of it. Raises Failure where a method has no complete trial."""
        for message in self.plan.messages:
            self.display.say(message)
        plan, options, storage = self.plan, self.options, self._storage()
        tags = {record.ORACLE: plan.oracle} if plan.oracle else {}
        with tracked.carried_out(plan.folder, plan.study, plan.suite, plan.config, tags) as study:
            feed = TrialFeed(plan, storage, options, self.launcher, self.display)
            self._describe()
            begun = table(plan.study, feed.found(), plan.workers)
            unknown = "; how long that takes is said after the first trial" if begun.seconds is None else ""
            self.display.say(begun.head + unknown)
            tracked.note_left_out(plan.folder, plan.lacking)
            arguments = (plan.workers, self.launcher, options.retries, feed, study.environment)
            runner = Runner([], *arguments, feed=feed)
            study.at_end.callback(self._end, runner, feed)
            self._train(runner, feed)
            results.refuse_nothing(feed.found())
            study.status = "FINISHED"
            runs.refuse_unsent(self.unsent)

    def _storage(self) -> RDBStorage:
        """The storage, if it can be used and has no other search of this name."""
        storages.exists(self.url)  # refuses the database of another program
        with storages.answering(self.url):
            storage = storages.open_storage(self.url, self.options.heartbeat, self.options.retries)
            storages.refuse_others(storage, self.plan.searches)
            for search in self.plan.searches:
                storages.find(storage, search)  # may refuse
        return storage

    def _describe(self) -> None:
        path = self.plan.folder / tracked.SWEPT
        said = {search.name: {"trials": search.trials, **search.description} for search in self.plan.searches}
        path.write_text(yaml.safe_dump({"storage": storages.shown(self.url), "searches": said}, sort_keys=False))

    def _train(self, runner: Runner, feed: TrialFeed) -> None:
        """Until every search has its trials."""
        found = feed.found()
        left = sum(one.search.trials - len(one.outcomes) + _open_trials(one) for one in found)
        going = f"{left} to train, {self.plan.workers} at a time" if left else "nothing is left to train"
        self.display.say(f"{self.plan.study}: {sum(s.trials for s in self.plan.searches)} trials; {going}")
        self.unsent = runs.send(found, self.display.say)
        if left:
            self.display.say(f"storage {storages.shown(self.url)}; starts and retries are told in {feed.log}")
            runner.run()
            self.unsent = runs.send(feed.tell_news(), self.display.say)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _end(self, runner: Runner, feed: TrialFeed) -> None:
        """Queue again what is not done, and conclude: on the terminal, in the sweep's folder and on the server."""
        runner.stop()
        self.display.close()
        try:
            feed.release()
            found = feed.found()
        except Failure as failure:
            print(f"warning: {failure}; the same command concludes the sweep", file=sys.stderr)
            return
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
            content = winners.table(
                self.plan.study, self.plan.config.suite, best, self.plan.seeds, self.plan.settings, origin
            )
            write_whole(folder / tracked.WINNERS, yaml.safe_dump(content, sort_keys=False))
        plots.write(folder / tracked.PLOTS, found)


def _open_trials(one: SearchState) -> int:
    return sum(trial.state.name in ("WAITING", "RUNNING") for trial in one.outcomes.values())
