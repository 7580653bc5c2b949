"""Errors of MLflow calls in one line: the part that failed, and the reason. mlflow is imported on demand."""

from __future__ import annotations

import re
from types import TracebackType

from biasbed.errors import Failure, UsageError, first_line
from biasbed.system import places

# SQLite's messages when MLflow makes tables of which an interrupted start has made some.
HALF_MADE = re.compile(r"_alembic_tmp_|duplicate column|table \w+ already exists")
STATUS = re.compile(r"too many (?P<code>\d+) error responses")  # urllib3, after its last attempt


def is_foreign(error: Exception) -> bool:
    """Return True if an error comes from MLflow, from a library below it or from the system, and not from our code."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if isinstance(error, UsageError | Failure):
        return False
    return isinstance(error, MlflowException | SQLAlchemyError | OSError | ImportError) or _passes_through_mlflow(error)


def _passes_through_mlflow(error: Exception) -> bool:
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "mlflow":
            return True
        trace = trace.tb_next
    return False


def is_refusal(error: BaseException | None) -> bool:
    """Return True if a server has answered a request with a refusal, as it does for a run that was deleted."""
    from mlflow.exceptions import MlflowException

    codes = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST")
    return isinstance(error, MlflowException) and error.error_code in codes


def reason(error: Exception, tracking_uri: str) -> str:
    """Return the cause of an error in one line, without addresses that hold passwords."""
    text = first_line(error)
    part = "its artifact store" if "mlflow-artifacts" in text else "it"
    if status := STATUS.search(text):
        text = f"{part} answers with HTTP error {status['code']}"
    elif "Max retries exceeded" in text:
        text = f"{part} does not answer"
    elif HALF_MADE.search(text):
        text = "its database was left half made when MLflow was interrupted: remove the file, if it is a new one"
    elif isinstance(error, ImportError):
        text = f"a package that it needs is not installed here ({text})"
    elif "Can't locate revision" in text:
        text = f"its database belongs to another program, or to a newer MLflow ({text})"
    elif not isinstance(error, OSError) and type(error).__module__.partition(".")[0] in ("builtins", "json"):
        text = f"{type(error).__name__}: {text}"  # a KeyError says no more than a key
    return places.public_text(text.replace(tracking_uri, places.public_uri(tracking_uri)))[:300]
