"""Secrets in addresses and settings: passwords, tokens and the like are told from what may be written down.

Answers: Which settings are refused because they hold a password?
"""

from __future__ import annotations

import re

# Names of secrets in a query and in `name=value` words.
_NAME = r"[\w.-]*(?:pass|pwd|token|secret|credential|auth(?!or)|api_?-?key|access_?-?key|signature)[\w.-]*"
_SECRET = re.compile(rf"((?:^|[?&;#\s])(?:{_NAME}|sig)=).*", re.I | re.S)  # from there on nothing is shown
URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
HIDDEN = "..."
UNRECORDED = "tracking_uri"  # setting that may hold a password, as it is recorded nowhere


def public_uri(tracking_uri: str) -> str:
    """Return a tracking URI as it may be printed and stored: without user name, password and secrets of its query.

    Also one that is written wrongly (a slash or a space in its password, no scheme), of which too much may go.
    """
    scheme, mark, rest = tracking_uri.partition("://") if "://" in tracking_uri else ("", "", tracking_uri)
    before, _, after = rest.rpartition("@")
    if (mark or ":" in before) and not tracking_uri.startswith("sqlite"):
        rest = after
    return _SECRET.sub(rf"\1{HIDDEN}", scheme + mark + rest)


def public_setting(value: str) -> str:
    """Return a value as it may be written down. Only what has a scheme is taken for an address."""
    return public_uri(value) if URI.match(value) else _SECRET.sub(rf"\1{HIDDEN}", value)


def has_secret(value: str) -> bool:
    """Return True if a value must not be written down: it has a password, a token or the like."""
    scheme, mark, rest = value.partition("://")
    user, at, _ = rest.rpartition("@")
    if at and ":" not in user and not scheme.startswith("sqlite"):
        value = f"{scheme}{mark}{rest.removeprefix(user + at)}"  # a user without a password is no secret
    return public_setting(value) != value
