"""Secrets in addresses and settings: recognise passwords and tokens, and hide them in what is printed and stored.

Answers: Which settings are refused because they hold a password?
"""

from __future__ import annotations

import os
import re

# Names of secrets in a query and in `name=value` words.
_SECRET_NAME = r"[\w.-]*(?:pass|pwd|token|secret|credential|auth(?!or)|api_?-?key|access_?-?key|signature)[\w.-]*"
_SECRET = re.compile(rf"((?:^|[?&;#\s])(?:{_SECRET_NAME}|sig)=).*", re.I | re.S)  # from there on nothing is shown
URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
HIDDEN = "..."
_SECRET_VARIABLE = re.compile(
    r"(\w*(PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_?KEY)|(\w*_)?(PASS|PWD|TOKEN|AUTH|CREDENTIALS?|SIGNATURE))(_(ID|KEY))*",
    re.I,
)
_SECRET_HEADER = re.compile(r"(authorization['\"]?\s*[:=]\s*['\"]?\w+\s+|\bbearer\s+)[^\s'\"]+", re.I)
SHORTEST_SECRET = 6  # characters of a secret that is searched for in texts; shorter ones may be ordinary words
UNRECORDED = "tracking_uri"  # setting that may hold a password, as it is recorded nowhere


def public_uri(tracking_uri: str) -> str:
    """Return a tracking URI without user name, password and secrets of its query, so that it may be printed and stored.

    A malformed one (a slash or a space in its password, no scheme) may lose more than its secrets.
    """
    scheme, mark, rest = tracking_uri.partition("://") if "://" in tracking_uri else ("", "", tracking_uri)
    before, _, after = rest.rpartition("@")
    if (mark or ":" in before) and not tracking_uri.startswith("sqlite"):
        rest = after
    return _SECRET.sub(rf"\1{HIDDEN}", scheme + mark + rest)


def public_setting(value: str) -> str:
    """Return a setting's value without its secrets. Only a value with a scheme is treated as an address."""
    return public_uri(value) if URI.match(value) else _SECRET.sub(rf"\1{HIDDEN}", value)


def has_secret(value: str) -> bool:
    """Return True if a value has a password, a token or the like, so that it must not be written down."""
    scheme, _, rest = value.partition("://")
    user, at, address = rest.rpartition("@")
    has_user_alone = at and ":" not in user and not scheme.startswith("sqlite")  # without a password: no secret
    recorded = f"{scheme}://{address}" if has_user_alone else value
    return public_setting(recorded) != recorded


def public_text(text: str) -> str:
    """Return a message of a library or server without secrets: every word is treated as an address."""
    hidden = re.sub(r"\S+", lambda word: public_uri(word[0]), text)
    return _hide_environment(_SECRET_HEADER.sub(rf"\1{HIDDEN}", hidden))


def public_value(value: str) -> str:
    """Return `public_setting`, also without the secrets of environment variables."""
    return _hide_environment(public_setting(value))


def public_message(text: str) -> str:
    """Return a message of biasbed without secrets: addresses with a scheme lose them, paths stay."""
    hidden = re.sub(r"\S+", lambda word: public_uri(word[0]) if URI.search(word[0]) else word[0], text)
    return _hide_environment(_SECRET_HEADER.sub(rf"\1{HIDDEN}", hidden))


def is_secret(name: str, value: str) -> bool:
    """Return True if an environment variable has a secret, by its name or its value."""
    return _is_named_secret(name, value) or has_secret(value)


def _is_named_secret(name: str, value: str) -> bool:
    """Return True if an environment variable is called like a secret. The path of a secret's file is none."""
    return bool(_SECRET_VARIABLE.fullmatch(name)) and not value.startswith(("/", "~"))


def _hide_environment(text: str) -> str:
    """Hide the secrets of environment variables in a text: whole values, or the passwords of addresses."""
    for name, value in os.environ.items():
        secret = value if _is_named_secret(name, value) else _password(value)
        if len(secret) >= SHORTEST_SECRET and secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


def _password(address: str) -> str:
    """Return the password in an address; empty without one."""
    return address.partition("://")[2].rpartition("@")[0].partition(":")[2]
