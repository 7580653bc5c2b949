"""Where things are kept: tracking servers by addresses that may be shown, and this machine's folder of each."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from biasbed.record import slug

# Of a query, or of `name=value` words, what is a secret: from there on nothing is shown.
_SECRET = re.compile(
    r"((?:^|[?&;#\s])[\w.-]*(?:pass|pwd|token|secret|credential|auth|api_?-?key)[\w.-]*=).*", re.I | re.S
)


def public_uri(tracking_uri: str) -> str:
    """A tracking URI as it may be printed and stored: without user name, password and secrets of its query.

    Also one that is written wrongly (a slash or a space in its password, no scheme), of which too much may go.
    """
    scheme, mark, rest = tracking_uri.partition("://") if "://" in tracking_uri else ("", "", tracking_uri)
    before, _, after = rest.rpartition("@")
    if (mark or ":" in before) and not tracking_uri.startswith("sqlite"):
        rest = after
    return _SECRET.sub(r"\1...", scheme + mark + rest)


def public_text(text: str) -> str:
    """A message of somebody else's, with every URI in it as it may be printed."""
    return re.sub(r"\S+", lambda word: public_uri(word[0]), text)


def own_home() -> Path:
    """The folder of what is kept on this machine whatever the tracking server: `$BIASBED_HOME`, else `~/.biasbed`."""
    given = os.environ.get("BIASBED_HOME")
    return Path(given).expanduser().absolute() if given else Path.home() / ".biasbed"


def home(tracking_uri: str) -> Path:
    """The folder of everything that is kept on this machine about one tracking server.

    `$BIASBED_HOME`, else a folder under `~/.biasbed` of the server's own, so that two servers never share a cache.
    """
    if os.environ.get("BIASBED_HOME"):
        return Path(os.environ["BIASBED_HOME"]).expanduser().absolute()
    uri = public_uri(tracking_uri)
    return Path.home() / ".biasbed" / f"{slug(uri)[-40:]}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}"
