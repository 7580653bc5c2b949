"""Hiding secrets in addresses, settings and messages; folders of this machine for runs, data and each server."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from biasbed.errors import MissingData
from biasbed.record import slug
from biasbed.redaction import HIDDEN, URI, public_setting
from biasbed.redaction import has_secret as has_secret
from biasbed.redaction import public_uri as public_uri

_VARIABLE = re.compile(
    r"(\w*(PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_?KEY)|(\w*_)?(PASS|PWD|TOKEN|AUTH|CREDENTIALS?|SIGNATURE))(_(ID|KEY))*",
    re.I,
)
_HEADER = re.compile(r"(authorization['\"]?\s*[:=]\s*['\"]?\w+\s+|\bbearer\s+)[^\s'\"]+", re.I)
SHORTEST = 6  # characters of a secret that is searched for in texts; shorter ones may be ordinary words


def public_text(text: str) -> str:
    """Return a message of a library or server without secrets: every word is treated as an address."""
    hidden = re.sub(r"\S+", lambda word: public_uri(word[0]), text)
    return _hide_environment(_HEADER.sub(rf"\1{HIDDEN}", hidden))


def public_value(value: str) -> str:
    """Return a setting's value without secrets. Only a value with a scheme is treated as an address."""
    return _hide_environment(public_setting(value))


def public_message(text: str) -> str:
    """Return a message of biasbed without secrets: addresses with a scheme lose them, paths stay."""
    hidden = re.sub(r"\S+", lambda word: public_uri(word[0]) if URI.search(word[0]) else word[0], text)
    return _hide_environment(_HEADER.sub(rf"\1{HIDDEN}", hidden))


def is_secret(name: str, value: str) -> bool:
    """Return True if an environment variable has a secret, by its name or its value."""
    return _is_named_secret(name, value) or has_secret(value)


def _is_named_secret(name: str, value: str) -> bool:
    return bool(_VARIABLE.fullmatch(name)) and not value.startswith(("/", "~"))  # a path names a secret and is none


def _hide_environment(text: str) -> str:
    """Hide the secrets of environment variables in a text: whole values, or the passwords of addresses."""
    for name, value in os.environ.items():
        secret = value if _is_named_secret(name, value) else _password(value)
        if len(secret) >= SHORTEST and secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


def _password(address: str) -> str:
    """Return the password in an address; empty without one."""
    return address.partition("://")[2].rpartition("@")[0].partition(":")[2]


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
