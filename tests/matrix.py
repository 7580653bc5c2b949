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
    folder: str = ""  # where a copy of the checkout is tested
    home: str = ""
    offline: bool = False
    without: tuple[str, ...] = ()  # folders that the tested copy of the checkout lacks


SETTINGS: Mapping[str, Setting] = {
    "old_cpu": Setting(
        "no AVX: sums in another order, products and sums rounded one by one",
        {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
    ),
    "avx2_cpu": Setting(
        "most desktops and older servers; AVX-512 has other convolutions",
        {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"},
    ),
    "two_threads": Setting("sums in parts; tests have one thread else", {"OMP_NUM_THREADS": "2"}),
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


# Settings that can be had at once: no variable or folder of two kinds, and one kind of rounding.
TOGETHER = (
    ("old_cpu", "time_zone", "plain_locale", "empty_home", "space", "offline", "core_alone"),
    ("avx2_cpu", "comma_locale", "read_only_home"),
    ("two_threads", "no_home"),
)


# --- settings together ------------------------------------------------------------------------------------------------


def together(settings: Iterable[Setting]) -> Setting:
    """Return one setting that is all of these at once."""
    parts = list(settings)
    return Setting(
        "; ".join(part.why for part in parts),
        {name: value for part in parts for name, value in part.env.items()},
        folder="".join(part.folder for part in parts),
        home="".join(part.home for part in parts),
        offline=any(part.offline for part in parts),
        without=tuple(folder for part in parts for folder in part.without),
    )


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
    candidates = [(name,) for name in names] if "--apart" in words else TOGETHER
    groups = [[name for name in group if name in chosen] for group in candidates]
    groups = [group for group in groups if group]
    tests = WHOLE if "--whole" in words else QUICK
    green, red = [], []
    for number, group in enumerate(groups, start=1):
        label, setting = " + ".join(group), together(chosen[name] for name in group)
        print(f"--- {number} of {len(groups)}: {label} ({setting.why})", flush=True)
        began = time.monotonic()
        passes = run(setting, tests)
        (green if passes else red).append(label)
        print(f"--- {'green' if passes else 'RED'} after {time.monotonic() - began:.0f} s", flush=True)
    print("; ".join(f"{how} under {label}" for how, labels in (("green", green), ("RED", red)) for label in labels))
    return 1 if red or not green else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
