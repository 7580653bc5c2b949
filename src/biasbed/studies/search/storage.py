"""Where a sweep's trials are kept: a local sqlite file, or PostgreSQL for several machines."""

from __future__ import annotations

import contextlib
import os
import re
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
    from sqlalchemy import URL

VARIABLE = "BIASBED_STORAGE"
FILE = "sweep.db"
OF_OPTUNA = re.compile(r"studies|trials|study_\w+|trial_\w+|version_info|alembic_version")  # its tables
OF_MLFLOW = {"experiments", "experiment_tags"}
DESCRIPTION = "biasbed"  # user attribute of an Optuna study: what is searched, and how
PATIENCE = 10.0  # seconds that the maker of a study has to describe it


def storage_url(given: str, folder: Path) -> str:
    """The storage as SQLAlchemy writes it. folder: of the study, where the local file goes.

    Raises UsageError for a kind of storage that would lose the trials of a dead command.
    """
    from sqlalchemy.exc import ArgumentError

    given = os.environ.get(VARIABLE, "auto") if given == "auto" else given
    if given == "auto":
        return sqlite_uri(folder / FILE)
    try:
        url = _parsed(given)
    except (ArgumentError, ValueError):
        raise UsageError("storage: can't be read; give postgresql://<user>@<host>/<database>") from None
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        if "@" in f"{url.host}{url.database}":  # what follows the password's first @ was taken for the host
            raise UsageError("storage: can't be read; write an @ in its password as %40")
        return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    if kind != "sqlite":
        raise UsageError(f"storage={kind}: can't be used: it shows no dead command; give postgresql:// or sqlite:///")
    if not url.database or not Path(url.database).is_absolute():
        raise UsageError(f"storage={given}: give the file's whole path: sqlite:////<path>")
    return given


def _parsed(given: str) -> URL:
    from sqlalchemy import make_url

    return make_url(given)


def shown(url: str) -> str:
    """A storage as it may be printed: without user, password and options."""
    found = _parsed(url)
    if found.get_backend_name() == "sqlite":
        return sqlite_uri(Path(str(found.database)))
    port = f":{found.port}" if found.port else ""
    return f"postgresql://{found.host or ''}{port}/{found.database or ''}"


class Away(Failure):
    """The storage can't be used."""


class OutdatedSchema(Exception):
    """The tables are those of another version of Optuna."""


@contextlib.contextmanager
def answering(url: str) -> Iterator[None]:
    """Turns any error of the storage inside the block into a Failure of one line."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, ImportError, OutdatedSchema) as error:
        cause = error.__cause__ or error
        reason = first_line(cause)
        raise Away(f"the storage {shown(url)} can't be used: {places.public_text(reason)[:300]}") from None


def open_storage(url: str, heartbeat: int, limit: int) -> RDBStorage:
    """Connect, and make the tables where there are none, one process at a time.

    heartbeat: seconds between signs of life. limit: how often a trial is tried again whose command died.
    """
    import optuna
    from alembic.util import CommandError
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="Heartbeat of storage")  # our own signs of life need no `optimize`
    file = _file(url)
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if file else {"pool_pre_ping": True}

    def again(study: Study, trial: optuna.trial.FrozenTrial) -> None:
        trials.queue_again(study, trial, trial.user_attrs.get(trials.DEATHS, 0) + 1, limit)

    with _one_at_a_time(file):
        for wait in (0.5, 2.0, None):
            try:
                found = RDBStorage(
                    url, engine_kwargs=options, heartbeat_interval=heartbeat, heartbeat_stale_trial_callback=again
                )
                if file is not None:
                    _lock_from_the_start(found)
                return found
            except SQLAlchemyError as error:
                if wait is None or not _is_race(error):
                    raise
                time.sleep(wait)
            except (RuntimeError, AssertionError, CommandError) as error:  # how Optuna refuses a schema
                raise OutdatedSchema(first_line(error)) from None
    raise AssertionError


def _is_race(error: Exception) -> bool:
    """Whether somebody else made the tables at the same time: then they are there."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(error, IntegrityError) or "already exists" in str(error)


def _lock_from_the_start(storage: RDBStorage) -> None:
    """Let sqlite's transactions begin as writers: else two commands read the same waiting trial, and both take it."""
    from sqlalchemy import event

    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # Python's driver would begin when something is written, not before

    def begins(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    storage.engine.dispose()
    event.listen(storage.engine, "connect", connected)
    event.listen(storage.engine, "begin", begins)


def exists(url: str) -> bool:
    """Return True if Optuna's tables are there. Looking makes neither file nor tables.

    Raises UsageError for a database of another program: Optuna's tables would be left in it, and both keep the version
    of their schema in one table.
    """
    from sqlalchemy import create_engine, inspect

    file = _file(url)
    if file is not None and not file.exists():
        return False
    with answering(url):
        engine = create_engine(url)
        try:
            tables = inspect(engine).get_table_names()
        finally:
            engine.dispose()
    foreign = sorted(name for name in tables if not OF_OPTUNA.fullmatch(name))
    if foreign and ("studies" not in tables or OF_MLFLOW & set(foreign)):
        names = ", ".join(foreign[:3])
        raise UsageError(f"storage={shown(url)} is the database of another program (tables {names}): name another")
    return "studies" in tables


def refuse_tracking(url: str, tracking_uri: str) -> None:
    """Raise UsageError if the storage is the tracking database, which may not be there yet."""
    file, tracking = _file(url), database(tracking_uri)
    if file is not None and tracking is not None and file.resolve() == tracking.resolve():
        raise UsageError(f"storage={shown(url)} is the tracking database: name another file")


def _file(url: str) -> Path | None:
    found = _parsed(url)
    return Path(str(found.database)) if found.get_backend_name() == "sqlite" else None


@contextlib.contextmanager
def _one_at_a_time(file: Path | None) -> Iterator[None]:
    if file is None:
        yield
        return
    run_folder.make(file.parent)
    with files.locked(file.with_name(f"{file.name}.lock")):
        yield


# --- studies ----------------------------------------------------------------------------------------------------------


def find(storage: RDBStorage, search: Search) -> Study | None:
    """The Optuna study of a search, None where there is none. UsageError where it is another search."""
    from optuna import load_study

    try:
        study = load_study(study_name=search.name, storage=storage)
    except KeyError:
        return None
    _refuse_another(study, search)
    return study


def refuse_others(storage: RDBStorage, searches: Sequence[Search]) -> None:
    """UsageError where the sweep has searches besides these: what it concludes would leave them out."""
    from optuna import get_all_study_names, load_study

    def is_own(name: str) -> bool:  # `a/b/erm` may be one of the sweep `a/b`
        described = load_study(study_name=name, storage=storage).user_attrs.get(DESCRIPTION, {})
        return bool(described.get("sweep") == sweep)

    sweep, names = searches[0].sweep, {search.name for search in searches}
    near = [name for name in get_all_study_names(storage) if name.startswith(f"{sweep}/") and name not in names]
    if others := [name for name in near if is_own(name)]:
        listed = ", ".join(name.removeprefix(f"{sweep}/") for name in others)
        raise UsageError(
            f"the sweep '{sweep}' has searches of {listed}, too: name all of its algorithms, test_domains and "
            "repeats, or another with study="
        )


def join(storage: RDBStorage, search: Search) -> Study:
    """The Optuna study of a search, made where there is none, with the method's default as its first trial."""
    from optuna import create_study
    from optuna.exceptions import DuplicatedStudyError

    try:
        study = create_study(
            study_name=search.name, storage=storage, direction="maximize" if search.maximize else "minimize"
        )
    except DuplicatedStudyError:
        study = _described(storage, search)
    if DESCRIPTION not in study.user_attrs:
        # One that lies outside of the space has no parameters: Optuna takes none that it could not have drawn.
        default = search.default.parameters if search.default.is_inside else {}
        study.enqueue_trial(dict(default), user_attrs={trials.DEFAULT: True}, skip_if_exists=True)
        study.set_user_attr(DESCRIPTION, search.description)
    _refuse_another(study, search)
    return study


def _described(storage: RDBStorage, search: Search) -> Study:
    """A study that somebody else has made, once its first trial is there; or whose maker did not get that far."""
    from optuna import load_study

    deadline = time.monotonic() + PATIENCE
    while True:
        study = load_study(study_name=search.name, storage=storage)
        if DESCRIPTION in study.user_attrs or time.monotonic() > deadline:
            return study
        time.sleep(0.2)


def _refuse_another(study: Study, search: Search) -> None:
    # What an older version has not said is not compared.
    there: dict[str, Any] = study.user_attrs.get(DESCRIPTION, search.description)
    for name, value in search.description.items():
        if there.get(name, value) != value:
            raise UsageError(f"{search.sweep}: {_difference(name, there.get(name), value)}: name another with study=")


def _difference(name: str, there: Any, here: Any) -> str:
    """In words, which of a sweep's properties is another one; of several settings the first."""
    if isinstance(there, dict) and isinstance(here, dict):
        key = next(key for key in [*there, *here] if there.get(key) != here.get(key))
        if name == "space":
            return f"the sweep was made with another space ({key})"
        return f"the sweep was made with {key}={there.get(key)}, not {here.get(key)}"
    return f"the sweep was made with {name}={there}, not {here}"
