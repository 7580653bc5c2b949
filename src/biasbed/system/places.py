"""Addresses, settings and messages without their secrets, and this machine's folder of each tracking server."""

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
SHORTEST = 6  # characters of a secret of the environment that is looked for in texts: shorter ones are usual words


def public_text(text: str) -> str:
    """Return a message of somebody else's with every URI in it as it may be printed."""
    return _without_own(_HEADER.sub(rf"\1{HIDDEN}", re.sub(r"\S+", lambda word: public_uri(word[0]), text)))


def public_value(value: str) -> str:
    """Return a setting's value as it may be printed and stored. Only what has a scheme is taken for an address."""
    return _without_own(public_setting(value))


def public_message(text: str) -> str:
    """Return words of our own as they may be printed: paths stay, addresses with a scheme lose their secrets."""
    hidden = re.sub(r"\S+", lambda word: public_uri(word[0]) if URI.search(word[0]) else word[0], text)
    return _without_own(_HEADER.sub(rf"\1{HIDDEN}", hidden))


def is_secret(name: str, value: str) -> bool:
    """Return True if a variable of the environment must not be written down."""
    return _is_named_secret(name, value) or has_secret(value)


def _is_named_secret(name: str, value: str) -> bool:
    return bool(_VARIABLE.fullmatch(name)) and not value.startswith(("/", "~"))  # a path names a secret and is none


def _without_own(text: str) -> str:
    """Remove what the environment keeps secret: values of variables named so, and passwords of addresses."""
    for name, value in os.environ.items():
        secret = value if _is_named_secret(name, value) else _password(value)
        if len(secret) >= SHORTEST and secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


def _password(address: str) -> str:
    """Return the password in an address; empty without one."""
    return address.partition("://")[2].rpartition("@")[0].partition(":")[2]


def own_home() -> Path:
    """Return the folder of what is kept here for all tracking servers: `$BIASBED_HOME`, else `~/.biasbed`."""
    folder = os.environ.get("BIASBED_HOME")
    return Path(folder).expanduser().absolute() if folder else Path.home() / ".biasbed"


def prepared_home(prepared_dir: str) -> Path:
    """Return the folder of all prepared data; `auto` means `prepared` in `$BIASBED_HOME`, or else in `~/.biasbed`."""
    if prepared_dir != "auto":
        return Path(prepared_dir).expanduser().resolve()
    return own_home() / "prepared"


def data_root(data_dir: str | os.PathLike[str] | None, owner: str) -> Path:
    """Return the folder of all data sets. Raises MissingData if it is not given or does not exist.

    owner: what needs it, in the message.
    """
    if data_dir is None:
        raise MissingData(f"{owner} needs data_dir=<the folder that holds its data sets>")
    root = Path(data_dir).expanduser()
    if not root.is_dir():
        raise MissingData(f"data_dir={root}: there is no such folder")
    return root


def home(tracking_uri: str) -> Path:
    """Return the folder of everything that is kept on this machine about one tracking server.

    `$BIASBED_HOME`, else a folder under `~/.biasbed` of the server's own, so that two servers never share a cache.
    """
    folder = own_home()
    if os.environ.get("BIASBED_HOME"):
        return folder
    uri = public_uri(tracking_uri)
    return folder / f"{slug(uri)[-40:]}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}"
