"""Folders of this machine: for data, for what is prepared, and for the runs and caches of each server."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from biasbed.errors import MissingData
from biasbed.record import slug
from biasbed.redaction import public_uri


def own_home() -> Path:
    """Return the folder of everything that biasbed keeps on this machine: `$BIASBED_HOME`, else `~/.biasbed`."""
    folder = os.environ.get("BIASBED_HOME")
    return Path(folder).expanduser().absolute() if folder else Path.home() / ".biasbed"


def prepared_home(prepared_dir: str) -> Path:
    """Return the folder of all prepared data; `auto` means `prepared` in `$BIASBED_HOME`, or else in `~/.biasbed`."""
    if prepared_dir != "auto":
        return Path(prepared_dir).expanduser().resolve()
    return own_home() / "prepared"


def data_root(data_dir: str | os.PathLike[str] | None, owner: str) -> Path:
    """Return the folder of all data sets. Raises MissingData if it is not given or does not exist.

    owner: the suite or command that needs it, for the message.
    """
    if data_dir is None:
        raise MissingData(f"{owner} needs data_dir=<the folder that holds its data sets>")
    root = Path(data_dir).expanduser()
    if not root.is_dir():
        raise MissingData(f"data_dir={root}: there is no such folder")
    return root


def home(tracking_uri: str) -> Path:
    """Return the folder on this machine for the runs and caches of one tracking server.

    It is `$BIASBED_HOME`, else a folder in `~/.biasbed` for this server alone, so that two servers share no cache.
    """
    folder = own_home()
    if os.environ.get("BIASBED_HOME"):
        return folder
    uri = public_uri(tracking_uri)
    return folder / f"{slug(uri)[-40:]}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}"
