"""Storage of a sweep's trials: Optuna's database, a sqlite file in the sweep's folder.

One command at a time has it (`sweep` holds the folder's lock).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.errors import Failure, UsageError, first_line
from biasbed.studies.search import trials
from biasbed.studies.search.search import Search
from biasbed.tracking.server import sqlite_uri

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage

FILE = "sweep.db"
DESCRIPTION = "biasbed"  # user attribute of an Optuna study: `Search.description`


@contextlib.contextmanager
def storage_failures(file: Path) -> Iterator[None]:
    """Convert errors of the storage inside the block to a Failure of one line."""
    from alembic.util import CommandError
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, CommandError) as error:
        raise Failure(f"{file} can't be used: {first_line(error.__cause__ or error)[:300]}") from None


def open_storage(file: Path) -> RDBStorage:
    """Open the storage, whose tables are made if there are none. Raises Failure for tables of another Optuna."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    try:
        # A dry run may read it meanwhile, and a busy disk may take its time.
        return optuna.storages.RDBStorage(sqlite_uri(file), {"connect_args": {"timeout": 60}})
    except (RuntimeError, AssertionError) as error:  # Optuna refuses the schema
        raise Failure(f"{file} can't be used: {first_line(error)}") from None


def find_study(storage: RDBStorage, search: Search) -> Study | None:
    """Return the Optuna study of a search, None if there is none. Raises UsageError if its description differs."""
    from optuna import load_study

    try:
        study = load_study(study_name=search.name, storage=storage)
    except KeyError:
        return None
    stored: dict[str, Any] = study.user_attrs.get(DESCRIPTION, search.description)
    for name, value in search.description.items():
        if stored.get(name) != value:
            difference = _describe_difference(name, stored.get(name), value)
            raise UsageError(f"{search.sweep}: {difference}: name another with study=")
    return study


def refuse_others(storage: RDBStorage, searches: Sequence[Search]) -> None:
    """Raise UsageError if the sweep has searches besides these: its results would leave them out."""
    from optuna import get_all_study_names

    sweep, names = searches[0].sweep, {search.name for search in searches}
    others = [name.removeprefix(f"{sweep}/") for name in get_all_study_names(storage) if name not in names]
    if others:
        raise UsageError(
            f"the sweep '{sweep}' has searches of {', '.join(others)}, too: name all of its algorithms, test_domains "
            "and repeats, or another with study="
        )


def join(storage: RDBStorage, search: Search) -> Study:
    """Return the Optuna study of a search; makes it if there is none, with the method's default as first trial."""
    from optuna import create_study

    study = find_study(storage, search)
    if study is None:
        study = create_study(
            study_name=search.name, storage=storage, direction="maximize" if search.maximize else "minimize"
        )
    if DESCRIPTION not in study.user_attrs:
        # A default outside of the space has no parameters: Optuna accepts only parameters that it could have drawn.
        default = search.default.parameters if search.default.is_inside else {}
        study.enqueue_trial(dict(default), user_attrs={trials.DEFAULT: True}, skip_if_exists=True)
        study.set_user_attr(DESCRIPTION, search.description)
    return study


def _describe_difference(name: str, stored: Any, current: Any) -> str:
    """Return a sentence on how an entry of a sweep's description differs; for several settings, on the first."""
    if isinstance(stored, dict) and isinstance(current, dict):
        key = next(key for key in [*stored, *current] if stored.get(key) != current.get(key))
        if name == "space":
            return f"the sweep was made with another space ({key})"
        return f"the sweep was made with {key}={stored.get(key)}, not {current.get(key)}"
    return f"the sweep was made with {name}={stored}, not {current}"
