"""The command line: one sub-command per entry point of MLproject, each imported only when it runs."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from biasbed import __version__, options
from biasbed.analysis.options import AnalyzeOptions
from biasbed.config import Config
from biasbed.errors import REFUSALS, Failure, UsageError, os_reason
from biasbed.settings import Spec, build, is_text, nearest, specs, word
from biasbed.system.processes import (
    Interrupted,
    end_with_input,
    end_with_parent,
    follow_launcher,
    ignore_signals,
    yield_while_waiting,
)

Flags = dict[str, str]


@dataclass(frozen=True)
class EntryPoint:
    """One sub-command: its help, the settings it takes, what it does with (flags, arguments as typed)."""

    help: str
    settings: Callable[[], Mapping[str, Spec]]
    run: Callable[[Flags, Sequence[str]], int | None]


# --- the commands -----------------------------------------------------------------------------------------------------


def _train(flags: Flags, arguments: Sequence[str]) -> int:
    from dataclasses import replace

    from biasbed.training.resolve import resolve

    config = resolve(flags)
    from biasbed.compute.device import run_torchrun, settle_device
    from biasbed.system import processes
    from biasbed.training import job
    from biasbed.training.train import train

    device, count = settle_device(config.device, config.nproc)
    try:
        config = replace(config, device=device, nproc=count)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if count > 1 and not processes.in_torchrun():
        planned = job.plan(config)  # a wrong command is refused here, once, rather than by every process
        folder = job.find_folder(planned)
        code = run_torchrun(count, ["train", *arguments])
        return 0 if job.is_settled(planned, folder) else code  # a signal may come when all is done
    train(config)
    return 0


def _evaluate_settings() -> Mapping[str, Spec]:
    return {**specs(options.EvaluateOptions), **{name: specs(Config)[name] for name in options.EVALUATE_SHARED}}


def _prepare_settings() -> Mapping[str, Spec]:
    return {**specs(options.PrepareOptions), **{name: specs(Config)[name] for name in options.PREPARE_SHARED}}


def _import(flags: Flags, arguments: Sequence[str]) -> None:
    source = build(options.ImportOptions, flags).source
    if source.endswith(".zip"):
        from biasbed.tracking.receiving import import_archive

        import_archive(source)
    else:
        from biasbed.published import import_runs
        from biasbed.tracking.server import resolve_uri

        import_runs(source, resolve_uri())


def _reproduce(flags: Flags, arguments: Sequence[str]) -> int:
    given = build(options.ReproduceOptions, flags)
    from biasbed.reproduce.run import reproduce

    return reproduce(given)


def _test(flags: Flags, arguments: Sequence[str]) -> None:
    given = build(options.TestOptions, flags)
    root = Path(__file__).resolve().parents[2]
    if not (root / "tests").is_dir():
        raise UsageError("the tests are in a checkout of biasbed, not in the installed package")
    for name in [name for name in os.environ if name.startswith("MLFLOW_") and name != "MLFLOW_TRACKING_URI"]:
        del os.environ[name]  # tests must not write into the run that `mlflow run` opened for them
    words = ["tests", "-m", "slow or not slow" if given.slow else "not slow", "-n", "auto", "--dist", "loadfile"]
    if given.algorithm != "all":
        from biasbed.algorithms import load

        place, _, name = given.algorithm.rpartition(":")
        method = f"{Path(place).absolute()}:{name}" if place.endswith(".py") else given.algorithm
        load(method)
        words = ["tests/test_conformance.py", "--algorithm", method]
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest starts a process per core
    os.chdir(root)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *words])


def _of_options(help: str, function: str, cls: Any) -> EntryPoint:
    """A command that is a function of its options. The function is text, so that only this command imports it."""

    def run(flags: Flags, arguments: Sequence[str]) -> None:
        given = build(cls, flags)  # refused before anything heavy is imported
        resolve_name(function)(given)

    return EntryPoint(help, lambda: specs(cls), run)


def _of_flags(help: str, function: str, settings: Callable[[], Mapping[str, Spec]]) -> EntryPoint:
    """A command of which some flags are a training's: its function tells them apart."""

    def run(flags: Flags, arguments: Sequence[str]) -> None:
        resolve_name(function)(flags)

    return EntryPoint(help, settings, run)


COMMANDS: Mapping[str, EntryPoint] = {
    "main": _of_options(
        "the whole story on the embedded suite: train three methods, analyse, report",
        "biasbed.studies.benchmark:main_study",
        options.MainOptions,
    ),
    "train": EntryPoint("one training, tested on every evaluation set as it goes", lambda: specs(Config), _train),
    "benchmark": _of_flags(
        "a study: every method with every seed, done ones skipped",
        "biasbed.studies.benchmark:benchmark",
        options.benchmark_settings,
    ),
    "sweep": _of_flags(
        "a search for hyper-parameters, each trial a training of its own",
        "biasbed.studies.search.sweep:sweep",
        options.sweep_settings,
    ),
    "evaluate": _of_flags(
        "test a checkpoint, a tracked run or a library's model",
        "biasbed.evaluation.command:evaluate",
        _evaluate_settings,
    ),
    "prepare": _of_flags(
        "networks and images that some methods need", "biasbed.prepare.run:prepare", _prepare_settings
    ),
    "analyze": _of_options(
        "selection, tables, tests, figures and report from tracked runs", "biasbed.analysis:analyze", AnalyzeOptions
    ),
    "export": _of_options("tracked runs as one file", "biasbed.tracking.sending:export", options.ExportOptions),
    "import": EntryPoint(
        "published results, or a file of runs, as tracked runs", lambda: specs(options.ImportOptions), _import
    ),
    "reproduce": EntryPoint(
        "train a tracked run once more and compare", lambda: specs(options.ReproduceOptions), _reproduce
    ),
    "sync": _of_options(
        "send journals that never reached the server", "biasbed.studies.sync:sync", options.SyncOptions
    ),
    "test": EntryPoint("the test suite", lambda: specs(options.TestOptions), _test),
}


WITH_HPARAMS = ("train", "benchmark", "sweep")  # commands that take a method's own settings, which depend on the method


# --- reading the command line -----------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(name: str, arguments: Sequence[str]) -> Flags:
    """Dotted names and words of a sub-command's flags; UsageError for one that the command does not have."""
    command = COMMANDS[name]
    known = command.settings()
    parser = _Parser(f"biasbed {name}", description=command.help, allow_abbrev=False)
    for spec in known.values():
        parser.add_argument(f"--{spec.name}", dest=spec.name, metavar=_metavar(spec), help=_help(spec), default=None)
    if name in WITH_HPARAMS:
        parser.epilog = "A method's own settings are --hparams.<name> (docs/methods.md), e.g. --hparams.drop_rate 1.0."
    found, rest = parser.parse_known_args(list(arguments))
    flags = {key: value for key, value in vars(found).items() if value is not None}
    while rest:
        word = rest.pop(0)
        flag, joined, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise UsageError(f"unexpected word '{word}': settings are given as --name value")
        if not (name in WITH_HPARAMS and flag.startswith("hparams.")):
            raise UsageError(f"unknown setting '{flag}'{nearest(flag, known)}")
        if not joined and not rest:
            raise UsageError(f"--{flag} needs a value")
        flags[flag] = value if joined else rest.pop(0)
    return flags


def _help(spec: Spec) -> str:
    return f"{spec.help} [{word(spec.default)}]".replace("%", "%%")


def _metavar(spec: Spec) -> str:
    return spec.name.rsplit(".", 1)[-1].upper()


def _overview() -> str:
    lines = [f"biasbed {__version__}: does a training method make an image classifier rely less on texture?", ""]
    lines += [f"  biasbed {name:10} {command.help}" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", "biasbed <command> --help lists a command's settings."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for a failure, 2 for a wrong command, 128 + n after signal n."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    yield_while_waiting()
    try:
        _refuse_no_text(words)
        if not words:
            print(_overview())
            raise UsageError("no command was given")
        if words[0] in ("-h", "--help", "--version"):
            return _show(*words)
        if words[0] not in COMMANDS:
            raise UsageError(f"unknown command '{words[0]}'{nearest(words[0], COMMANDS)}")
        flags = parse(words[0], words[1:])
        end_with_parent()
        end_with_input()
        if "MLFLOW_RUN_ID" in os.environ:
            follow_launcher()
        code = COMMANDS[words[0]].run(flags, words[1:]) or 0
        if arguments is None and not code:
            ignore_signals()  # all is done: what ends this process now has not ended its work
        return code
    except (UsageError, Failure) as error:
        print(f"biasbed: {error}", file=sys.stderr)
        _report(error)
        return error.exit_code
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in (*REFUSALS, errno.ENAMETOOLONG):  # not a user's to mend: we opened a wrong file
            traceback.print_exception(error)
        print(f"biasbed: {os_reason(error)}", file=sys.stderr)
        return UsageError.exit_code if error.errno == errno.ENAMETOOLONG else Failure.exit_code
    except KeyboardInterrupt:
        print("biasbed: interrupted", file=sys.stderr)
        return 130
    except Interrupted as error:
        print(f"biasbed: ended by {error.signal.name}; the same command continues", file=sys.stderr)
        return 128 + int(error.signal)


def _refuse_no_text(words: Sequence[str]) -> None:
    """UsageError for a word that could be neither recorded nor shown, as a path with bytes that are no UTF-8."""
    wrong = next((word for word in words if not is_text(word)), None)
    if wrong is not None:
        raise UsageError(f"{wrong!a} is no UTF-8: rename what it names")


def _show(flag: str, *more: str) -> int:
    """Answer a question about the program itself; UsageError where there is more to it."""
    if more:
        raise UsageError(f"unexpected word '{more[0]}' after {flag}; of a command: biasbed <command> --help")
    print(f"biasbed {__version__}" if flag == "--version" else _overview())
    return 0


def _report(error: Exception) -> None:
    if isinstance(error, UsageError) and "MLFLOW_RUN_ID" in os.environ:
        from biasbed.tracking.tracker import report_usage_error

        report_usage_error(str(error))
