"""Under which licences the pinned packages are: writes docs/licences.md, and fails for one that nobody has allowed.

    pip install pip-licenses && python docs/licences.py --python <python of the environment that conda.yaml describes>

pip-licenses (MIT) reads what the installed packages say of themselves. What is allowed, and why, stands here.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
PERMISSIVE = r"MIT(-0|-CMU)?|BSD(-[23]-Clause)?|0BSD|Apache-2\.0|ISC|Zlib|CC0-1\.0|PSF-2\.0|BSL-1\.0|LLVM-exception"
# What classifiers and older fields say, by the name that stands for it today.
SPELLINGS = {
    "MIT License": "MIT",
    "BSD License": "BSD",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "NVIDIA Proprietary Software": "LicenseRef-NVIDIA-Proprietary",
    "DFSG approved": "",
    "BSD-3-Clause, Apache-2.0, dependency licenses": "BSD-3-Clause AND Apache-2.0",  # pypdfium2, PDFium
}
# Packages that say nothing: what their licence file says.
UNSAID = {"huey": "MIT", "skops": "MIT", "cuda-toolkit": "LicenseRef-NVIDIA-Proprietary"}
ALLOWED = {
    "MPL-2.0": "used as published; changes to its files would have to be given out, and we make none",
    "LGPL-3.0-only": "used as published, as a library of its own that a user may replace (PostgreSQL's client)",
    "LicenseRef-NVIDIA-Proprietary": (
        "CUDA's libraries, which PyTorch's builds bring; an image with them may be given on under NVIDIA's terms for "
        "redistributables"
    ),
}

HEAD = (
    "# Licences of what biasbed needs",
    "",
    "biasbed is under the MIT licence. These are the licences of the packages that `conda.yaml` pins, as those say.",
    "`python docs/licences.py` writes this page, and fails where one is neither permissive nor allowed here.",
    "The figures' font, in biasbed itself, is cut out of DejaVu Sans; the file holds its licence (Bitstream Vera's).",
    "",
)


def pinned() -> list[str]:
    """Names of conda.yaml's packages."""
    content = yaml.safe_load((ROOT / "conda.yaml").read_text(encoding="utf-8"))
    (pins,) = (entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict))
    return [pin.split("==")[0] for pin in pins]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(package: str, said: str) -> str:
    """A licence as SPDX names it."""
    parts = [SPELLINGS.get(part.strip(), part.strip()) for part in said.split(";")]
    return (
        UNSAID.get(package, " AND ".join(filter(None, parts)))
        if said == "UNKNOWN"
        else " AND ".join(filter(None, parts))
    )


def unwelcome(licence: str) -> list[str]:
    """Return the licences that are not allowed. Of alternatives, one may be chosen; otherwise all must hold."""
    parts = [part.strip("() ") for part in re.split(r" AND | OR | WITH ", licence)]
    return [part for part in parts if not re.fullmatch(PERMISSIVE, part) and part not in ALLOWED]


def asked(python: str) -> Mapping[str, tuple[str, str]]:
    """Canonical name -> (version, licence) of what is installed there."""
    words = [
        sys.executable,
        "-m",
        "piplicenses",
        f"--python={python}",
        "--format=json",
        "--from=mixed",
        "--with-system",
    ]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return {(name := canonical(entry["Name"])): (entry["Version"], named(name, entry["License"])) for entry in found}


def page(of: Mapping[str, str]) -> str:
    """licence of each package -> the page."""
    by_licence: dict[str, list[str]] = {}
    for package, licence in sorted(of.items()):
        by_licence.setdefault(licence, []).append(package)
    rows = sorted(by_licence.items(), key=lambda row: (-len(row[1]), row[0]))
    lines = [f"| {licence} | {len(packages)} | {', '.join(packages)} |" for licence, packages in rows]
    reasons = [f"- **{name}**: {reason}." for name, reason in ALLOWED.items()]
    return "\n".join([*HEAD, *reasons, "", "| licence | packages | which |", "|---|---|---|", *lines, ""])


def refused(of: Mapping[str, str]) -> Iterable[str]:
    return (f"{package}: {licence}" for package, licence in sorted(of.items()) if unwelcome(licence))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="of the environment whose packages are looked at")
    there = asked(parser.parse_args().python)
    missing = [name for name in pinned() if canonical(name) not in there]
    if missing:
        print(f"not installed there: {', '.join(missing)}", file=sys.stderr)
        return 1
    of = {name: there[canonical(name)][1] for name in pinned()}
    PAGE.write_text(page(of), encoding="utf-8")
    for line in refused(of):
        print(f"not allowed: {line}", file=sys.stderr)
    return 1 if list(refused(of)) else 0


if __name__ == "__main__":
    sys.exit(main())
