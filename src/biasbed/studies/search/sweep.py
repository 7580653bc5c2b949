"""Command `sweep`: a search per method and cell as one study. Repeating the command continues it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from biasbed import record
from biasbed.options import SweepOptions, training_flags
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
from biasbed.tracking.folder import exclusive
from biasbed.tracking.server import resolve_uri


def sweep(flags: Mapping[str, str]) -> None:
    """Search the parameters of every method in every cell; with `dry_run`, only describe the searches.

    Raises UsageError before anything is started, and Failure at the end if a method has no complete trial.
    """
    flags = {name: value for name, value in flags.items() if not (name == "suite" and value == "auto")}
    options, others = read_options(SweepOptions, flags)
    print(f"planning a search for {', '.join(options.algorithms)}", flush=True)
    settings = training_flags({**others, HELD_OUT: options.test_domains}, options.loader_workers)
    launcher = open_launcher(options)
    plan = make_sweep(options, settings, launcher)
    if plan.config.tracking == "on":
        tracked.refuse_mixture(resolve_uri(), plan.study, plan.suite, {}, kind="trial")
    tracked.refuse_folder(plan.folder, plan.study, "trial")
    with storages.storage_failures(plan.folder / storages.FILE):
        if options.dry_run:
            print("\n".join([*plan.messages, *_dry_run(plan)]))
            return
        with exclusive(plan.folder, "searched"):
            SweepRun(plan, options, launcher).run()


def _dry_run(plan: Sweep) -> list[str]:
    """Return lines that describe each search and its progress. Writes nothing."""
    states = [SearchState(search, ()) for search in plan.searches]
    file = plan.folder / storages.FILE
    if file.exists():
        storage = storages.open_storage(file)
        storages.refuse_others(storage, plan.searches)
        for number, search in enumerate(plan.searches):
            study = storages.find_study(storage, search)
            if study is not None:
                states[number] = SearchState(search, study.get_trials(deepcopy=False))
    lines = []
    for search in plan.searches:
        space = f"{', '.join(search.space.names)} ({search.sampler}): {search.trials} trials"
        lines.append(f"{search.algorithm}: {space} a search; {search.pruner} pruner; {search.metric}")
    table = make_table(plan.study, states, plan.workers)
    progress = table.lines if any(state.trials for state in states) else [table.head]
    return [*dict.fromkeys(lines), *progress, f"{plan.workers} at a time; storage {file}", *_describe_power(plan)]


def _describe_power(plan: Sweep) -> list[str]:
    """Return the line on the difference that the repeats can show, as a list; empty without one."""
    if len(plan.seeds) < 2:
        return []
    line = planner.describe_power([search.run for search in plan.searches], plan.suite, len(plan.seeds))
    return [line] if line else []


class SweepRun:
    """One call of `sweep`: trains the trials of its searches, and writes the results."""

    def __init__(self, plan: Sweep, options: SweepOptions, launcher: Launcher) -> None:
        self.plan, self.options, self.launcher = plan, options, launcher
        self.display = Display(plan.study, plan.workers)
        self.unsent: list[str] = []  # trials that the server lacks

    def run(self) -> None:
        """Carry out the sweep. Raises Failure if a method has no complete trial."""
        for message in self.plan.messages:
            self.display.say(message)
        plan, options = self.plan, self.options
        storage = storages.open_storage(plan.folder / storages.FILE)
        storages.refuse_others(storage, plan.searches)
        for search in plan.searches:
            storages.find_study(storage, search)  # refuses a different search
        tags = {record.ORACLE: plan.oracle} if plan.oracle else {}
        with tracked.open_study(plan.folder, plan.study, plan.suite, plan.config, tags) as study:
            feed = TrialFeed(plan, storage, self.launcher, self.display)
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
        """Return the text after the head of the table: the estimated time, and the line on the repeats' power.

        seconds: time left by the trials so far, which the head already has; None before any has ended.
        """
        plan, runs = self.plan, [search.run for search in self.plan.searches]
        lines = [""]
        if seconds is None:
            units = sum(_count_left(state) * state.search.run.total for state in states)
            cost = planner.describe_cost(runs, units, self.launcher, plan.workers, plan.folder)
            most = "" if plan.searches[0].pruner == "none" else "at most, as trials may end early: "
            lines = [f"; {most}{cost}" if cost else "; an estimate follows after the first trial"]
        return "\n".join([*lines, *_describe_power(plan)])

    def _write_description(self) -> None:
        """Write `sweep.yaml` with the description of each search."""
        path = self.plan.folder / tracked.SWEPT
        searches = {search.name: {"trials": search.trials, **search.description} for search in self.plan.searches}
        path.write_text(yaml.safe_dump({"searches": searches}, sort_keys=False))

    def _train(self, runner: Runner, feed: TrialFeed) -> None:
        """Train until every search has its trials."""
        states = feed.states()
        left = sum(map(_count_left, states))
        summary = f"{left} to train, {self.plan.workers} at a time" if left else "nothing is left to train"
        total = sum(search.trials for search in self.plan.searches)
        self.display.say(f"{self.plan.study}: {total} trials; {summary}")
        self.unsent = send_unsent(states, self.display.say)
        if left:
            self.display.say(f"starts and retries are told in {feed.log}")
            runner.run()
            self.unsent = send_unsent(feed.tell_news(), self.display.say)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _end(self, runner: Runner, feed: TrialFeed) -> None:
        """End what is running, print the results, and write them into the sweep's folder."""
        runner.stop()
        self.display.close()
        feed.close()
        states = feed.states()
        print("\n".join(results.format_summary(states)))
        self._write_results(states)
        if results.collect_winners(states):
            again = commands.format_command("benchmark", {"from_study": self.plan.study})
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
    """Return the number of trials of a search that are still to be trained."""
    is_open = sum(trial.state.name in ("WAITING", "RUNNING") for trial in state.trials)
    return state.search.trials - len(state.trials) + is_open
