"""A claim is over if its process ran here and is gone, or if it is too old; nothing else can be known of others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from biasbed.system import signature as signatures
from biasbed.system.signature import ProcessClaim, is_gone, new_claim, parse_claim, signature

ELSEWHERE = "another-boot another-namespace 1 1"


def test_a_claim_of_a_process_that_was_killed_is_over_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    claim = parse_claim(new_claim(signature(process.pid)))
    assert claim is not None
    assert not claim.is_over(60.0)
    process.kill()
    process.wait()
    assert claim.is_over(60.0)


def test_a_claim_from_elsewhere_is_over_by_its_age_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = parse_claim(new_claim(ELSEWHERE))
    assert claim is not None
    assert not is_gone(claim.signature)
    assert not claim.is_over(60.0)
    monkeypatch.setattr(signatures.time, "time", lambda: claim.time / 1000 + 61.0)
    assert claim.is_over(60.0)


@pytest.mark.parametrize(
    "text", ["", "x", "5", "5 host", "-5 host a b c d", "٣ host a b c d", f"{'9' * 19} host a b c d"]
)
def test_any_other_text_is_no_claim(text: str) -> None:
    assert parse_claim(text) is None


def test_a_claim_says_which_process_has_it() -> None:
    assert str(ProcessClaim(0, "node3", "boot namespace 4711 5")) == "process 4711 on node3"
