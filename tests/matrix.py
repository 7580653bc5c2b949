"""Settings that differ between machines and must not decide a test: each setting once, and the tests under it.

`python tests/matrix.py`                  the golden traces and the vectors, settings together, as CI does (two minutes)
`python tests/matrix.py --whole`          the whole default suite, settings together (half an hour)
`python tests/matrix.py --whole --apart`  the same under each setting by itself (hours), to find which one it is
`python tests/matrix.py --whole offline`  the whole default suite under one, or several
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUICK = (
    *("tests/training/test_golden.py::test_numbers_are_what_they_were", "tests/algorithms/test_vectors.py"),
    *("-m", "not slow", "-n", "auto"),
)
WHOLE = ("tests", "-m", "not slow", "-n", "auto", "--dist", "worksteal")


@dataclass(frozen=True)
class Setting:
    """A machine other than this one. `folder` and `home` are inside a scratch folder, "" standing for none."""

    why: str
    env: Mapping[str, str] = field(default_factory=dict)
    arithmetic: bool = False  # it changes how numbers are rounded
    folder: str = ""  # where a copy of the checkout is tested
    home: str = ""
    offline: bool = False
    without: tuple[str, ...] = ()  # folders that the tested copy of the checkout lacks


SETTINGS: Mapping[str, Setting] = {
    "old_cpu": Setting(
        "no AVX: sums in another order, products and sums rounded one by one",
        {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
        arithmetic=True,
    ),
    "avx2_cpu": Setting(
        "most desktops and older servers; AVX-512 has other convolutions",
        {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"},
        arithmetic=True,
    ),
    "two_threads": Setting("sums in parts; tests have one thread else", {"OMP_NUM_THREADS": "2"}, arithmetic=True),
    "time_zone": Setting("neither UTC nor whole hours from it", {"TZ": "Asia/Kathmandu"}),
    "plain_locale": Setting("no UTF-8 by locale, as in a bare container", {"LC_ALL": "C"}),
    "comma_locale": Setting("1,5 for 1.5", {"LC_ALL": "de_DE.UTF-8"}),
    "empty_home": Setting("a new user: no caches, no settings", home="new"),
    "read_only_home": Setting("a service account", {"HOME": "/sys"}),  # where not even root can make a folder
    "no_home": Setting("a container's made-up user", {"HOME": "/nonexistent/home"}),
    "space": Setting("a path with a space in it", folder="a folder/with spaces"),
    "offline": Setting("a compute node: no network but this machine itself", offline=True),
    "core_alone": Setting("nobody has any plug-in", without=("src/biasbed/plugins", "tests/plugins")),
}


# --- settings together ------------------------------------------------------------------------------------------------


def together(settings: Iterable[Setting]) -> Setting:
    """Settings that `agree`, all of them at once."""
    parts = list(settings)
    return Setting(
        "; ".join(part.why for part in parts),
        {name: value for part in parts for name, value in part.env.items()},
        arithmetic=any(part.arithmetic for part in parts),
        folder="".join(part.folder for part in parts),
        home="".join(part.home for part in parts),
        offline=any(part.offline for part in parts),
        without=tuple(folder for part in parts for folder in part.without),
    )


def agree(one: Setting, other: Setting) -> bool:
    """Return True if both can be had at once: no variable, folder or home of two kinds, and rounding of one kind."""
    if (one.arithmetic and other.arithmetic) or (one.folder and other.folder):
        return False
    return not touched(one) & touched(other)


def touched(setting: Setting) -> set[str]:
    """The variables that a setting gives a value."""
    return {*setting.env, *(["HOME"] if setting.home else [])}


def grouped(settings: Mapping[str, Setting]) -> list[dict[str, Setting]]:
    """As few groups as settings fit in that agree, each setting in the first that takes it."""
    groups: list[dict[str, Setting]] = []
    for name, setting in settings.items():
        group = next((group for group in groups if all(agree(setting, other) for other in group.values())), None)
        if group is None:
            groups.append(group := {})
        group[name] = setting
    return groups


# --- one run ----------------------------------------------------------------------------------------------------------


def run(setting: Setting, words: Iterable[str]) -> bool:
    """Return True if pytest passes on these words under the setting."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **setting.env}
        if setting.home:
            environment["HOME"] = str(Path(scratch, setting.home))
            Path(environment["HOME"]).mkdir()
        root = ROOT
        if setting.folder or setting.without:
            root = Path(scratch, setting.folder or "checkout")
            left_out = shutil.ignore_patterns("__pycache__", ".venv", ".*_cache")
            shutil.copytree(ROOT, root, symlinks=True, ignore=left_out)
            for folder in setting.without:
                shutil.rmtree(root / folder)
        command = [sys.executable, "-m", "pytest", *words, "-q", "-p", "no:cacheprovider"]
        leave = leave_network if setting.offline else None
        return subprocess.run(command, cwd=root, env=environment, preexec_fn=leave).returncode == 0


def leave_network() -> None:
    """Move this process into a network of its own, which has the loopback device alone."""
    new_user, new_network, set_flags, up_and_running = 0x10000000, 0x40000000, 0x8914, 0x41
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(new_network if os.geteuid() == 0 else new_network | new_user):
        raise OSError(ctypes.get_errno(), "a network of its own needs root, or user namespaces")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, set_flags, struct.pack("16sh14x", b"lo", up_and_running))


def missing(setting: Setting) -> str:
    """Return what this machine lacks for a setting, "" if nothing. Programs are not checked for a locale."""
    if "LC_ALL" in setting.env:
        command = [sys.executable, "-c", "import locale; locale.setlocale(locale.LC_ALL, '')"]
        if subprocess.run(command, env={**os.environ, **setting.env}, capture_output=True).returncode:
            return f"this machine has no {setting.env['LC_ALL']}"
    if setting.offline:
        try:
            subprocess.run([sys.executable, "-c", ""], preexec_fn=leave_network, check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError):
            return "a network of its own needs root, or user namespaces"
    return ""


def main(words: list[str]) -> int:
    names = [word for word in words if word not in ("--whole", "--apart")] or list(SETTINGS)
    if unknown := set(names) - set(SETTINGS):
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}", file=sys.stderr)
        return 2
    lacks = {name: missing(SETTINGS[name]) for name in names}
    chosen = {name: SETTINGS[name] for name in names if not lacks[name]}
    for name in names:
        if lacks[name]:
            print(f"left out: {name}, as {lacks[name]}")
    whole = "--whole" in words
    groups = [{name: setting} for name, setting in chosen.items()] if "--apart" in words else grouped(chosen)
    green, red = [], []
    for number, group in enumerate(groups, start=1):
        label, setting = " + ".join(group), together(group.values())
        print(f"--- {number} of {len(groups)}: {label} ({setting.why})", flush=True)
        began = time.monotonic()
        passes = run(setting, WHOLE if whole else QUICK)
        (green if passes else red).append(label)
        print(f"--- {'green' if passes else 'RED'} after {time.monotonic() - began:.0f} s", flush=True)
    print("; ".join(f"{how} under {label}" for how, labels in (("green", green), ("RED", red)) for label in labels))
    return 1 if red or not green else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
