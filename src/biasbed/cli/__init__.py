"""The command line: one sub-command per entry point of MLproject, each imported only when it runs.

Answers: Why was a command refused, and which exit code has it?
"""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from biasbed import __version__, redaction
from biasbed.cli import usage
from biasbed.config import Config
from biasbed.errors import REFUSALS, WRONG_PATHS, Failure, UsageError, format_error, os_reason, to_one_line
from biasbed.options import EVALUATE_SHARED, PREPARE_SHARED, STUDY_SHARED, TestOptions
from biasbed.plugin_loader import Offered
from biasbed.settings import CUT, Spec, build, find_near_name, nearest, refuse_unknown, specs
from biasbed.system import commands
from biasbed.system.extra import EXTRA, lacks_extra, refuse_without_extra
from biasbed.system.garbage import without_collection
from biasbed.system.processes import (
    end_with_input,
    end_with_parent,
    follow_launcher,
    handle_signals,
    ignore_first_signal,
    interruptible,
    leave,
    shorten_warnings,
    signal_of,
    yield_while_waiting,
)

Flags = dict[str, str]


@dataclass(frozen=True)
class EntryPoint:
    """Sub-command. Its parts are named as `module:name`, and only imported when they are needed."""

    help: str  # one line
    # Function of the options, or of the flags if some settings are not the command's own. It may return an exit code.
    run: str
    options: str  # class of its own settings
    shared: Container[str] = ()  # settings of `train` that it also takes
    chooses: Mapping[str, str] = field(default_factory=dict)  # setting -> registry, whose choice adds more settings
    positional: tuple[str, ...] = ()  # settings whose values may be words without a name; the last one takes the rest
    is_light: bool = False  # True: it needs no package of the extra `train`
    filled_in_by: str = ""  # function that adds choices to the flags which they name indirectly, as by a table

    def settings(self, flags: Flags | None = None) -> Mapping[str, Spec]:
        """Return the command's settings by dotted name. With flags, add the settings of the choices in them."""
        shared = {name: spec for name, spec in specs(Config).items() if name in self.shared}
        always = {**shared, **specs(resolve_name(self.options))}
        if flags is None:
            return always
        if self.filled_in_by:
            flags = resolve_name(self.filled_in_by)(flags)
        brought: dict[str, Spec] = {}
        for name, registry in self.chooses.items():
            choice = flags.get(name, "auto")
            if choice == "auto":
                choice = always[name].default
            if choice != "none":
                brought |= resolve_name(registry).own_settings(choice)
        return {**brought, **always}

    def __call__(self, flags: Flags) -> int:
        """Run the command and return its exit code. Raises UsageError for wrong flags before heavy imports."""
        for choice, registry in self.chooses.items():
            if flags.get(choice, "auto") not in ("auto", "none"):
                resolve_name(registry).refuse_unknown(flags[choice])
        options: Any = flags
        if not self.is_light:
            refuse_without_extra()
        if not (self.shared or self.chooses):
            options = build(resolve_name(self.options), flags)  # refused before anything heavy is imported
        with without_collection():
            command = resolve_name(self.run)
        result = command(options)
        return result if isinstance(result, int) else 0


# --- the commands -----------------------------------------------------------------------------------------------------


def run_tests(options: TestOptions) -> None:
    """Replace this process by pytest on the tests of this checkout."""
    root = Path(__file__).resolve().parents[3]
    for name in [name for name in os.environ if name.startswith("MLFLOW_") and name != "MLFLOW_TRACKING_URI"]:
        del os.environ[name]  # tests must not write into the run that `mlflow run` opened for them
    # Two processes more than cores, as tests wait for servers, clocks and other processes a third of their time.
    processes = str((os.cpu_count() or 1) + 2)
    # By file (loadfile), xdist begins the files with fewest tests last: those of whole commands, which take longest.
    marks = "slow or not slow" if options.slow or options.slice != "none" else "not slow"
    selected = ["tests", "-m", marks, "-n", processes, "--dist", "worksteal"]
    if options.slice != "none":
        selected += ["--slice", options.slice]
    if options.algorithm != "all":
        from biasbed.algorithms import load

        file, _, name = options.algorithm.rpartition(":")
        method = f"{Path(file).absolute()}:{name}" if file.endswith(".py") else options.algorithm
        load(method)
        selected = ["tests/algorithms/test_conformance.py", "--algorithm", method]
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest starts enough processes
    os.chdir(root)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *selected])


SUITE = {"suite": "biasbed.suites:REGISTRY"}
LAUNCHER = {"launcher": "biasbed.studies.launchers:REGISTRY"}
FORMAT = {"format": "biasbed.tracking.export_formats:FORMATS"}
MAKER = {"what": "biasbed.data.prepared:MAKERS"}
CORE: Mapping[str, EntryPoint] = {
    "main": EntryPoint(
        "train three methods on the embedded suite, analyse, report",
        *("biasbed.studies.benchmark:main_study", "biasbed.options:MainOptions"),
        chooses=LAUNCHER,
    ),
    "train": EntryPoint(
        "train one method and test it after every epoch",
        *("biasbed.training.command:train", "biasbed.config:Config"),
        chooses=SUITE,
    ),
    "benchmark": EntryPoint(
        "train a study: every row in every cell with every seed",
        *("biasbed.studies.search.day:benchmark", "biasbed.options:BenchmarkOptions", STUDY_SHARED),
        chooses=LAUNCHER | SUITE,
        filled_in_by="biasbed.studies.benchmark:with_suite",
    ),
    "sweep": EntryPoint(
        "search for hyper-parameters, each trial a training",
        *("biasbed.studies.search.sweep:sweep", "biasbed.options:SweepOptions", STUDY_SHARED),
        chooses=LAUNCHER | SUITE,
    ),
    "evaluate": EntryPoint(
        "test a checkpoint, a tracked run or a library's model",
        *("biasbed.evaluation.command:evaluate", "biasbed.options:EvaluateOptions", EVALUATE_SHARED),
        chooses=SUITE,
    ),
    "prepare": EntryPoint(
        "make networks and images that some methods need, or check the data",
        *("biasbed.prepare.run:prepare", "biasbed.options:PrepareOptions", PREPARE_SHARED),
        chooses=MAKER | SUITE,
    ),
    "analyze": EntryPoint(
        "write tables, tests, figures and report from tracked runs",
        *("biasbed.analysis:analyze", "biasbed.analysis.options:AnalyzeOptions"),
    ),
    "compare": EntryPoint(
        "compare a table of scores, with tests, figure and report: biasbed compare scores.csv",
        *("biasbed.api.comparison:run", "biasbed.analysis.options:CompareOptions"),
        positional=("scores",),
        is_light=True,
    ),
    "export": EntryPoint(
        "write tracked runs as one file, or in formats of other tools",
        *("biasbed.tracking.export_formats:export", "biasbed.options:ExportOptions"),
        chooses=FORMAT,
    ),
    "import": EntryPoint(
        "track published or reported results, or a file of runs",
        *("biasbed.published.import_command:import_source", "biasbed.options:ImportOptions"),
    ),
    "reproduce": EntryPoint(
        "train or test a tracked run once more and compare",
        *("biasbed.reproduce.run:reproduce", "biasbed.options:ReproduceOptions"),
    ),
    "list": EntryPoint(
        "list methods, suites, sets, presets, rules, tables or formats of files",
        *("biasbed.cli.catalogue:show", "biasbed.options:ListOptions"),
        positional=("what", "words"),
        is_light=True,
    ),
    "sync": EntryPoint(
        "send journals that never reached the server", *("biasbed.studies.sync:sync", "biasbed.options:SyncOptions")
    ),
    "test": EntryPoint("the test suite", *("biasbed.cli:run_tests", "biasbed.options:TestOptions")),
}
COMMANDS: Offered[EntryPoint] = Offered("command", CORE)


WITH_HPARAMS = ("train", "benchmark", "sweep")  # commands that take the settings of a method (`hparams.`)


# --- reading the command line -----------------------------------------------------------------------------------------


def parse(name: str, arguments: Sequence[str]) -> Flags:
    """Return the flags of a sub-command by dotted name. Raises UsageError for one that the command does not have."""
    command = COMMANDS[name]
    others, is_asked, is_all = usage.split_help(arguments)
    settings = command.settings()
    flags, rest = _separate_flags(settings, others)
    if is_asked:
        print(_make_help(name, flags, rest, is_all))
        raise SystemExit(0)
    unknown = [word for word in rest if word.startswith("--") and not _is_hparam(name, word)]
    if unknown and not _is_typo(unknown[0], command, settings, flags):
        settings = command.settings(flags)
        flags, rest = _separate_flags(settings, others)
    while rest:
        word = rest.pop(0)
        flag, joined, value = word.removeprefix("--").partition("=")
        is_setting = joined and flag in settings  # as messages name it: `lower=none`
        if command.positional and not word.startswith("--") and not is_setting:
            _add_positional(flags, command.positional, word)
            continue
        if not word.startswith("--"):
            raise UsageError(
                f"unexpected word '{word}': settings are given as --name value, and several values with commas, as "
                "--algorithms erm,coral"
            )
        if not _is_hparam(name, word):
            hint = _name_owner(flag, command, settings) or nearest(flag, settings)
            listed = f": biasbed {name} --help all lists them" if hint.endswith(CUT) else ""
            raise UsageError(f"unknown setting '{flag}'{hint}{listed}")
        flags[flag] = value if joined else _take_value(flag, rest)
    return flags


def _add_positional(flags: dict[str, str], positional: Sequence[str], word: str) -> None:
    """Make a word without a name the value of the first of these settings without one, or add it to the last one's."""
    for name in positional:
        if name not in flags:
            flags[name] = word
            return
    flags[positional[-1]] += f",{word}"


class _SeparatedWords(NamedTuple):
    """Words after a command."""

    flags: Flags  # values of known settings; of a repeated setting the last
    rest: list[str]  # all other words


def _separate_flags(settings: Mapping[str, Spec], arguments: Sequence[str]) -> _SeparatedWords:
    """Separate the flags of known settings from all other words. Raises UsageError for a flag without a value."""
    flags: Flags = {}
    rest: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        flag, joined, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or flag not in settings:
            rest.append(word)
        else:
            flags[flag] = value if joined else _take_value(flag, left, settings[flag].type is bool)
    return _SeparatedWords(flags, rest)


def _take_value(flag: str, left: list[str], is_switch: bool = False) -> str:
    """Remove the word after a flag from `left` and return it; a switch without a value is `yes`.

    Raises UsageError if there is no word, or if it is another flag.
    """
    if left and not left[0].startswith("--"):
        return left.pop(0)
    if is_switch:
        return "yes"
    hint = f"; one that begins with -- as --{flag}=<value>" if left else ""
    raise UsageError(f"--{flag} needs a value{hint}")


def _is_typo(word: str, command: EntryPoint, settings: Mapping[str, Spec], flags: Flags) -> bool:
    """Return True if an unknown flag is similar to a setting: then no choice is imported, which takes seconds.

    A user's own suite or launcher may have a setting of any name, so that it is always imported.
    """
    if any(":" in flags.get(choice, "") for choice in command.chooses):
        return False
    name = word[2:].partition("=")[0]
    return bool(difflib.get_close_matches(name, settings, n=1, cutoff=0.8))


def _is_hparam(name: str, word: str) -> bool:
    return name in WITH_HPARAMS and word.startswith("--hparams.")


def _name_owner(flag: str, command: EntryPoint, settings: Mapping[str, Spec]) -> str:
    """Return `; it is one of suite=biasbed` if another choice has this setting; empty otherwise."""
    if find_near_name(flag, settings):
        return ""
    for choice, registry_name in command.chooses.items():
        registry = resolve_name(registry_name)
        owners = [owner for owner in registry if flag in registry.own_settings(owner)]
        if owners:
            return f"; it is one of {choice}={'|'.join(owners)}"
    return ""


def _make_help(name: str, flags: Flags, rest: Sequence[str], is_all: bool) -> str:
    """Return the help of a command. flags, rest: the command's other arguments, which may choose suite and method."""
    command = COMMANDS[name]
    settings = command.settings(flags if set(command.chooses) & set(flags) else None)
    more = dict(zip(rest[::2], rest[1::2], strict=False))
    values = {**flags, **{word[2:]: value for word, value in more.items() if word.startswith("--")}}
    names = {choice: resolve_name(registry) for choice, registry in command.chooses.items()}
    if "algorithm" in settings or "algorithms" in settings:
        names |= dict.fromkeys(("algorithm", "algorithms"), resolve_name("biasbed.algorithms:REGISTRY"))
    brought = [setting for setting in settings if setting not in command.settings()]
    return usage.text(name, command.help, settings, values, is_all, names, brought)


def _overview() -> str:
    """Return the list of all commands."""
    lines = [f"biasbed {__version__}: does a training method make an image classifier rely less on texture?", ""]
    lines += [f"  biasbed {name:10} {command.help}" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", "biasbed <command> --help says what a command takes, --help all every setting."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for a failure, 2 for a wrong command, 128 + n after signal n."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    commands.note_launcher()
    yield_while_waiting()
    try:
        if arguments is None:
            handle_signals()
            shorten_warnings()
        if not typed:
            print(_overview())
            raise UsageError("no command was given")
        if typed[0] in ("-h", "--help", "--version"):
            print(f"biasbed {__version__}" if typed[0] == "--version" else _overview())
            return 0
        refuse_unknown(typed[0], COMMANDS, f"unknown command '{typed[0]}'")
        with interruptible(), _in_launched_run(typed[0]) as name_run:
            flags = parse(typed[0], typed[1:])
            commands.refuse_logged_secrets(flags)
            end_with_parent()
            end_with_input()
            if commands.is_launched():
                follow_launcher()
            name_run(flags)
            return COMMANDS[typed[0]](flags)
    except (UsageError, Failure) as error:
        print(f"biasbed: {redaction.public_message(format_error(error))}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        print(f"biasbed: {lacks_extra(str(error.name))}", file=sys.stderr)
        return UsageError.exit_code
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in REFUSALS | WRONG_PATHS:  # a bug of biasbed's, not of the machine or the user
            _show_traceback(type(error), error, error.__traceback__)
        print(f"biasbed: {redaction.public_message(to_one_line(os_reason(error)))}", file=sys.stderr)
        return UsageError.exit_code if error.errno in WRONG_PATHS else Failure.exit_code
    except RuntimeError as error:
        if str(error) != NO_HOME:
            raise
        print("biasbed: there is no home folder for a path that begins with ~: write it whole", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt as error:
        ignore_first_signal()  # first of all, as it would be raised again
        ended_by = signal_of(error)
        if os.environ.get("RANK", "0") == "0":  # of several processes one says it
            reason = "interrupted" if ended_by == signal.SIGINT else f"ended by {ended_by.name}"
            print(f"biasbed: {reason}{_advise_to_continue(typed)}", file=sys.stderr)
        return 128 + int(ended_by)
    finally:
        ignore_first_signal()  # the work is done, and a signal does not change its exit code any more


def run() -> NoReturn:
    """Run `main` and end the process."""
    sys.excepthook = _show_traceback
    leave(main())


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without passwords: libraries quote the addresses that they were given."""
    text = "".join(traceback.format_exception(kind, error, trace))
    print(redaction.public_message(text), file=sys.stderr, end="")


NO_HOME = "Could not determine home directory."  # as pathlib says it, for ~ and for ~somebody
CONTINUED = ("main", "train", "benchmark", "sweep", "evaluate", "prepare", "reproduce")


def _advise_to_continue(arguments: Sequence[str]) -> str:
    """Return `; to go on: <the same command>` for a command that can be continued; empty for others."""
    if not arguments or arguments[0] not in CONTINUED:
        return ""
    return f"; to go on: {commands.format_continuation(arguments)}"


@contextlib.contextmanager
def _in_launched_run(command: str) -> Iterator[Callable[[Flags], None]]:
    """Yield a function that names the run of `mlflow run` after the command's flags; note a failure in that run.

    Without `mlflow run`, the function does nothing.
    """
    if not commands.is_launched():
        yield lambda flags: None
        return
    print(f"biasbed {command} begins, in the run that MLflow has opened", file=sys.stderr, flush=True)
    from biasbed.tracking.launched_run import launched

    with launched(command) as name_run:
        yield name_run
