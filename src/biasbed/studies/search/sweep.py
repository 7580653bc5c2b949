"""`sweep`: a search per method and cell as one study. The same command continues it, on other machines too."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import yaml

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.options import SweepOptions, of_trainings
from biasbed.studies import ledger, planner, winners
from biasbed.studies import study as tracked
from biasbed.studies.cells import HELD_OUT
from biasbed.studies.display import Display
from biasbed.studies.launchers import Launcher, open_launcher, read_options
from biasbed.studies.runner import Runner
from biasbed.studies.search import results
from biasbed.studies.search import storage as storages
from biasbed.studies.search.feed import TrialFeed, refuse_unsent, send_unsent
from biasbed.studies.search.progress import make_table
from biasbed.studies.search.results import SearchState
from biasbed.studies.search.search import Sweep, make_sweep
from biasbed.system import commands
from biasbed.system.files import write_whole
from biasbed.tracking.server import resolve_uri

if TYPE_CHECKING:
    from optuna.storages import RDBStorage


def sweep(flags: Mapping[str, str]) -> None:
    """Search the parameters of every method in every cell; with `dry_run`, print what that means.

    Raises UsageError before anything is started, and Failure at the end if a method has no complete trial.
    """
    flags = {name: value for name, value in flags.items() if not (name == "suite" and value == "auto")}
    options, others = read_options(SweepOptions, flags)
    print(f"planning a search for {', '.join(options.algorithms)}", flush=True)
    settings = of_trainings({**others, HELD_OUT: options.test_domains}, options.loader_workers)
    launcher = open_launcher(options)
    plan = make_sweep(options, settings, launcher)
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
    """Return the present state of each search. Writes nothing."""
    states: list[SearchState] = []
    if storages.has_tables(url):
        with storages.storage_failures(url):
            storage = storages.open_storage(url)
            storages.refuse_others(storage, plan.searches)
            for search in plan.searches:
                study = storages.find_study(storage, search)
                states.append(SearchState(search, () if study is None else study.get_trials(deepcopy=False)))
    else:
        states = [SearchState(search, ()) for search in plan.searches]
    lines = []
    for search in plan.searches:
        space = f"{', '.join(search.space.names)} ({search.sampler}): {search.trials} trials"
        lines.append(f"{search.title}: {space}; {search.pruner} pruner, seed {search.seed}; {search.metric}")
    lines += make_table(plan.study, states, plan.workers).lines
    return [*lines, f"{plan.workers} at a time; storage {storages.public_url(url)}", *_describe_power(plan)]


def _describe_power(plan: Sweep) -> list[str]:
    """Return the line on what the repeats can show, if there is one."""
    if len(plan.seeds) < 2:
        return []
    line = planner.describe_power([search.run for search in plan.searches], plan.suite, len(plan.seeds))
    return [line] if line else []


class SweepRun:
    """One call of `sweep`: trains the trials of its searches, and writes the results."""

    def __init__(self, plan: Sweep, url: str, options: SweepOptions, launcher: Launcher) -> None:
        self.plan, self.url, self.options, self.launcher = plan, url, options, launcher
        self.display = Display(plan.study, plan.workers)
        self.unsent: list[str] = []  # trials that the server lacks

    def run(self) -> None:
        """Carry out the sweep. Raises Failure if a method has no complete trial."""
        for message in self.plan.messages:
            self.display.say(message)
        plan, options, storage = self.plan, self.options, self._open_storage()
        tags = {record.ORACLE: plan.oracle} if plan.oracle else {}
        with tracked.open_study(plan.folder, plan.study, plan.suite, plan.config, tags) as study:
            feed = TrialFeed(plan, storage, options, self.launcher, self.display)
            self._write_description()
            table = make_table(plan.study, feed.states(), plan.workers)
            self.display.say(table.head + self._forecast(feed.states(), table.seconds))
            tracked.write_lacking(plan.folder, plan.lacking)
            runner = Runner([], plan.workers, self.launcher, options.retries, feed, study.environment, feed=feed)
            study.at_end.callback(self._end, runner, feed)
            self._train(runner, feed)
            results.refuse_incomplete(feed.states())
            study.status = "FINISHED"
            refuse_unsent(self.unsent)

    def _forecast(self, states: Sequence[SearchState], seconds: float | None) -> str:
        """Return what the head of the table lacks: the time by measured steps, and what the repeats can show.

        seconds: that are left by the trials so far; None before any.
        """
        plan, runs = self.plan, [search.run for search in self.plan.searches]
        lines = [""]
        if seconds is None:
            units = sum(_count_left(state) * state.search.run.total for state in states)
            cost = planner.describe_cost(runs, units, self.launcher, plan.workers, plan.folder)
            most = "" if plan.searches[0].pruner == "none" else "at most, as trials may end early: "
            lines = [f"; {most}{cost}" if cost else "; an estimate follows after the first trial"]
        return "\n".join([*lines, *_describe_power(plan)])

    def _open_storage(self) -> RDBStorage:
        """Open the storage. Raises UsageError if it has a different search with one of our names."""
        storages.has_tables(self.url)  # refuses the database of another program
        with storages.storage_failures(self.url):
            storage = storages.open_storage(self.url, self.options.heartbeat, self.options.retries)
            storages.refuse_others(storage, self.plan.searches)
            for search in self.plan.searches:
                storages.find_study(storage, search)  # refuses a different search
        return storage

    def _write_description(self) -> None:
        path = self.plan.folder / tracked.SWEPT
        searches = {search.name: {"trials": search.trials, **search.description} for search in self.plan.searches}
        content = {"storage": storages.public_url(self.url), "searches": searches}
        path.write_text(yaml.safe_dump(content, sort_keys=False))

    def _train(self, runner: Runner, feed: TrialFeed) -> None:
        """Train until every search has its trials."""
        states = feed.states()
        left = sum(map(_count_left, states))
        summary = f"{left} to train, {self.plan.workers} at a time" if left else "nothing is left to train"
        total = sum(search.trials for search in self.plan.searches)
        self.display.say(f"{self.plan.study}: {total} trials; {summary}")
        self.unsent = send_unsent(states, self.display.say)
        if left:
            self.display.say(f"storage {storages.public_url(self.url)}; starts and retries are told in {feed.log}")
            runner.run()
            self.unsent = send_unsent(feed.tell_news(), self.display.say)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _end(self, runner: Runner, feed: TrialFeed) -> None:
        """Queue unfinished trials again, print the results, and write them into the sweep's folder."""
        runner.stop()
        self.display.close()
        try:
            feed.release()
            states = feed.states()
        except Failure as failure:
            print(f"warning: {failure}; the same command concludes the sweep", file=sys.stderr)
            return
        print("\n".join(results.format_summary(states)))
        self._write_results(states)
        if results.collect_winners(states):
            again = commands.typed("benchmark", {"from_study": self.plan.study})
            print(f"train the best with fresh seeds: {again}")

    def _write_results(self, states: Sequence[SearchState]) -> None:
        """Write trials, ledger and table of winners."""
        plan, folder = self.plan, self.plan.folder
        results.write_trials(folder / tracked.TRIALS, states)
        lines = results.make_ledger_lines(states)
        ledger.write_ledger(folder / tracked.LEDGER, lines)
        summary = ledger.format_summary(lines, str(plan.config.device))
        print("\n".join([*summary, f"each trial: {folder / tracked.TRIALS}"]))
        best = results.collect_winners(states)
        if best:
            origin = {"objective": plan.searches[0].metric, "oracle": str(bool(plan.oracle)).lower()}
            content = winners.make_table(plan.study, plan.config.suite, best, plan.seeds, plan.settings, origin)
            write_whole(folder / tracked.WINNERS, yaml.safe_dump(content, sort_keys=False))


def _count_left(state: SearchState) -> int:
    """Return the number of positions of a search that are still to be trained."""
    outcomes = state.outcomes
    is_open = sum(trial.state.name in ("WAITING", "RUNNING") for trial in outcomes.values())
    return state.search.trials - len(outcomes) + is_open
