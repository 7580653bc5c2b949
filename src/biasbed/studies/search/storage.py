"""Storage of a sweep's trials: a local sqlite file, or PostgreSQL for several machines."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.errors import Failure, UsageError, first_line
from biasbed.studies.search import trials
from biasbed.studies.search.search import Search
from biasbed.system import files, places
from biasbed.tracking import folder as run_folder
from biasbed.tracking.server import database, sqlite_uri

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial
    from sqlalchemy import URL

VARIABLE = "BIASBED_STORAGE"
FILE = "sweep.db"
OPTUNA_TABLES = re.compile(r"studies|trials|study_\w+|trial_\w+|version_info|alembic_version")
MLFLOW_TABLES = {"experiments", "experiment_tags"}
DESCRIPTION = "biasbed"  # user attribute of an Optuna study: `Search.description`
PATIENCE = 10.0  # seconds that the maker of a study has to describe it


def storage_url(storage: str, folder: Path) -> str:
    """Return the storage's URL for SQLAlchemy. folder: of the study, for the local file.

    Raises UsageError for a kind of storage that would lose the trials of a dead command.
    """
    from sqlalchemy.exc import ArgumentError

    storage = os.environ.get(VARIABLE, "auto") if storage == "auto" else storage
    if storage == "auto":
        return sqlite_uri(folder / FILE)
    try:
        url = _parse_url(storage)
    except (ArgumentError, ValueError):
        raise UsageError("storage: can't be read; give postgresql://<user>@<host>/<database>") from None
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        if "@" in f"{url.host}{url.database}":  # the URL was split at the password's first @
            raise UsageError("storage: can't be read; write an @ in its password as %40")
        return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    if kind != "sqlite":
        raise UsageError(f"storage={kind}: can't be used: it shows no dead command; give postgresql:// or sqlite:///")
    if not url.database or not Path(url.database).is_absolute():
        raise UsageError(f"storage={storage}: give the file's whole path: sqlite:////<path>")
    return storage


def _parse_url(url: str) -> URL:
    from sqlalchemy import make_url

    return make_url(url)


def public_url(url: str) -> str:
    """Return a storage's URL without user, password and options, for printing."""
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return sqlite_uri(Path(str(parsed.database)))
    port = f":{parsed.port}" if parsed.port else ""
    return f"postgresql://{parsed.host or ''}{port}/{parsed.database or ''}"


class Away(Failure):
    """Raised if the storage cannot be used."""


class OutdatedSchema(Exception):
    """Raised if the tables were made by another version of Optuna."""


@contextlib.contextmanager
def storage_failures(url: str) -> Iterator[None]:
    """Turn any error of the storage inside the block into a Failure of one line."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, ImportError, OutdatedSchema) as error:
        cause = error.__cause__ or error
        reason = first_line(cause)
        raise Away(f"the storage {public_url(url)} can't be used: {places.public_text(reason)[:300]}") from None


def open_storage(url: str, heartbeat: int | None = None, retries: int = 0) -> RDBStorage:
    """Connect, and make the tables if there are none, one process at a time.

    heartbeat: seconds between a command's heartbeats. A trial without any for twice as long is queued again, unless its
    commands have died more than `retries` times.
    """
    import optuna
    from alembic.util import CommandError
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", "Heartbeat of storage is supposed")  # for `Study.optimize`, which we do not use
    file = _sqlite_file(url)
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if file else {"pool_pre_ping": True}

    def on_stale(study: Study, trial: FrozenTrial) -> None:
        trials.retry(study, trial, trial.user_attrs.get(trials.DEATHS, 0) + 1, retries)

    with _one_at_a_time(file):
        for wait in (0.5, 2.0, None):
            try:
                storage = RDBStorage(
                    url, options, heartbeat_interval=heartbeat, heartbeat_stale_trial_callback=on_stale
                )
                if file is not None:
                    _begin_as_writer(storage)
                return storage
            except SQLAlchemyError as error:
                if wait is None or not _is_race(error):
                    raise
                time.sleep(wait)
            except (RuntimeError, AssertionError, CommandError) as error:  # Optuna refuses the schema
                raise OutdatedSchema(first_line(error)) from None
    raise AssertionError


def _is_race(error: Exception) -> bool:
    """Return True if another process made the tables at the same time: then they exist."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(error, IntegrityError) or "already exists" in str(error)


def _begin_as_writer(storage: RDBStorage) -> None:
    """Begin sqlite's transactions as writers: else two commands read the same waiting trial, and both take it."""
    from sqlalchemy import event

    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # Python's driver would begin at the first write only

    def on_begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    storage.engine.dispose()
    event.listen(storage.engine, "connect", on_connect)
    event.listen(storage.engine, "begin", on_begin)


def has_tables(url: str) -> bool:
    """Return True if Optuna's tables exist. Makes neither file nor tables.

    Raises UsageError for the database of another program: Optuna would leave its tables there, and both programs would
    keep their schema's version in the same table.
    """
    from sqlalchemy import create_engine, inspect

    file = _sqlite_file(url)
    if file is not None and not file.exists():
        return False
    with storage_failures(url):
        engine = create_engine(url)
        try:
            tables = inspect(engine).get_table_names()
        finally:
            engine.dispose()
    foreign = sorted(name for name in tables if not OPTUNA_TABLES.fullmatch(name))
    if foreign and ("studies" not in tables or MLFLOW_TABLES & set(foreign)):
        names = ", ".join(foreign[:3])
        raise UsageError(f"storage={public_url(url)} is the database of another program (tables {names}): name another")
    return "studies" in tables


def refuse_tracking(url: str, tracking_uri: str) -> None:
    """Raise UsageError if the storage is the tracking database, which may not exist yet."""
    file, tracking = _sqlite_file(url), database(tracking_uri)
    if file is not None and tracking is not None and file.resolve() == tracking.resolve():
        raise UsageError(f"storage={public_url(url)} is the tracking database: name another file")


def _sqlite_file(url: str) -> Path | None:
    parsed = _parse_url(url)
    return Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None


@contextlib.contextmanager
def _one_at_a_time(file: Path | None) -> Iterator[None]:
    if file is None:
        yield
        return
    run_folder.make_folder(file.parent)
    with files.locked(file.with_name(f"{file.name}.lock")):
        yield


class Heartbeats(threading.Thread):
    """Thread that tells other machines, by Optuna's heartbeats, that a command still has its trials."""

    def __init__(self, storage: RDBStorage, seconds: float) -> None:
        """seconds: between two heartbeats."""
        super().__init__(daemon=True)
        self.storage, self.seconds = storage, seconds
        self.trials: set[int] = set()  # by Optuna's ids
        self.is_over = threading.Event()

    def add(self, trial: int) -> None:
        self.storage.record_heartbeat(trial)
        self.trials.add(trial)

    def record(self) -> None:
        for trial in tuple(self.trials):
            self.storage.record_heartbeat(trial)

    def run(self) -> None:
        while not self.is_over.wait(self.seconds):
            with contextlib.suppress(Exception):  # a storage that is away gets the next heartbeat
                self.record()

    def end(self) -> None:
        self.is_over.set()


# --- studies ----------------------------------------------------------------------------------------------------------


def find_study(storage: RDBStorage, search: Search) -> Study | None:
    """Return the Optuna study of a search, None if there is none. Raises UsageError if it searches otherwise."""
    from optuna import load_study

    try:
        study = load_study(study_name=search.name, storage=storage)
    except KeyError:
        return None
    _refuse_different(study, search)
    return study


def refuse_others(storage: RDBStorage, searches: Sequence[Search]) -> None:
    """Raise UsageError if the sweep has searches besides these: its results would leave them out."""
    from optuna import get_all_study_names, load_study

    sweep, names = searches[0].sweep, {search.name for search in searches}
    others = []
    for name in get_all_study_names(storage):
        if not name.startswith(f"{sweep}/") or name in names:
            continue
        description = load_study(study_name=name, storage=storage).user_attrs.get(DESCRIPTION, {})
        if description.get("sweep") == sweep:  # `a/b/erm` may belong to the sweep `a/b`
            others.append(name.removeprefix(f"{sweep}/"))
    if others:
        listed = ", ".join(others)
        raise UsageError(
            f"the sweep '{sweep}' has searches of {listed}, too: name all of its algorithms, test_domains and "
            "repeats, or another with study="
        )


def join(storage: RDBStorage, search: Search) -> Study:
    """Return the Optuna study of a search; makes it if there is none, with the method's default as first trial."""
    from optuna import create_study
    from optuna.exceptions import DuplicatedStudyError

    try:
        study = create_study(
            study_name=search.name, storage=storage, direction="maximize" if search.maximize else "minimize"
        )
    except DuplicatedStudyError:
        study = _await_description(storage, search)
    if DESCRIPTION not in study.user_attrs:
        # A default outside of the space has no parameters: Optuna accepts only parameters that it could have drawn.
        default = search.default.parameters if search.default.is_inside else {}
        study.enqueue_trial(dict(default), user_attrs={trials.DEFAULT: True}, skip_if_exists=True)
        study.set_user_attr(DESCRIPTION, search.description)
    _refuse_different(study, search)
    return study


def _await_description(storage: RDBStorage, search: Search) -> Study:
    """Return a study that another command makes, once it is described; undescribed if that takes too long."""
    from optuna import load_study

    deadline = time.monotonic() + PATIENCE
    while True:
        study = load_study(study_name=search.name, storage=storage)
        if DESCRIPTION in study.user_attrs or time.monotonic() > deadline:
            return study
        time.sleep(0.2)


def _refuse_different(study: Study, search: Search) -> None:
    """Raise UsageError if the study's description, if it has one yet, differs from the search's."""
    stored: dict[str, Any] = study.user_attrs.get(DESCRIPTION, search.description)
    for name, value in search.description.items():
        if stored.get(name) != value:
            difference = _describe_difference(name, stored.get(name), value)
            raise UsageError(f"{search.sweep}: {difference}: name another with study=")


def _describe_difference(name: str, stored: Any, current: Any) -> str:
    """Describe how an entry of a sweep's description differs; of several settings the first."""
    if isinstance(stored, dict) and isinstance(current, dict):
        key = next(key for key in [*stored, *current] if stored.get(key) != current.get(key))
        if name == "space":
            return f"the sweep was made with another space ({key})"
        return f"the sweep was made with {key}={stored.get(key)}, not {current.get(key)}"
    return f"the sweep was made with {name}={stored}, not {current}"
