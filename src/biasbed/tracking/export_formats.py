"""Formats of `export`: biasbed's own archive (`zip`), and those that plug-ins write.

Answers: How is a format of `export` added?
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from biasbed.options import ExportOptions
from biasbed.registry import Registry
from biasbed.settings import build


class ExportFormat:
    """Format that runs are exported in. Settings: a subclass of `ExportOptions` with this format's own settings."""

    Settings: ClassVar[type[ExportOptions]] = ExportOptions

    def __init__(self, options: Any) -> None:
        """options: an instance of `Settings`."""
        self.options = options

    def write(self) -> Path:
        """Write the runs; return the file or folder. Raises UsageError if a run can't be written so."""
        raise NotImplementedError


FORMATS = Registry(
    "format",
    {"zip": "biasbed.tracking.transfer:ZipFormat"},
    base="biasbed.tracking.export_formats:ExportFormat",
)


def export(flags: Mapping[str, str]) -> Path:
    """Write runs in the chosen format; return the file or folder. Raises UsageError if a run can't be written so."""
    kind: type[ExportFormat] = FORMATS.load(flags.get("format", ExportOptions.format))
    return kind(build(kind.Settings, flags)).write()
