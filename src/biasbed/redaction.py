"""Secrets in addresses and settings: recognise passwords and tokens, and hide them in what is printed and stored.

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
    scheme, mark, rest = value.partition("://")
    user, at, _ = rest.rpartition("@")
    if at and ":" not in user and not scheme.startswith("sqlite"):
        value = f"{scheme}{mark}{rest.removeprefix(user + at)}"  # a user without a password is no secret
    return public_setting(value) != value
