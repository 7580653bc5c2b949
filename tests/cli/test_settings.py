"""Hints of the command line: the setting or the source that was probably meant, or what there is."""

from __future__ import annotations

import pytest

from biasbed import cli
from biasbed.settings import find_near_name, nearest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "--source", "mine"], "no file, folder or paper is called 'mine'; valid: biasbed, debiasing, "),
        (["import", "--source", "mine.yaml"], "No such file or directory: mine.yaml"),
        (
            ["train", "--optim.bogus", "1"],
            "unknown setting 'optim.bogus'; valid: optim.name, optim.lr, optim.lr_batch, ",
        ),
        (["train", "--temperature_of_labels", "0.1"], " more: biasbed train --help all lists them"),
    ],
)
def test_what_is_not_near_is_no_hint(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before: 'optim.lr', a list of every setting, and 'domainbed'."""
    assert cli.main(words) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert "did you mean" not in told
    assert len(told) < 400


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("optim.lrr", "optim.lr"),
        ("optim.bogus", None),  # alike by the group's name alone
        ("optm.lr", "optim.lr"),
        ("lr", "optim.lr"),  # without its group
        ("sedes", "seeds"),
        ("imagenet", "stylized_imagenet"),  # contained
        ("mine", None),  # of a name that is more than twice as long
    ],
)
def test_what_is_near(name: str, meant: str | None) -> None:
    names = ["optim.lr", "optim.warmup", "seeds", "stylized_imagenet", "domainbed"]
    assert find_near_name(name, names) == meant


def test_a_long_list_is_not_printed() -> None:
    assert nearest("zzz", ["alpha", "beta"]) == "; valid: alpha, beta"
    names = [f"name{number}" for number in range(99)]
    assert nearest("zzz", names) == f"; valid: {', '.join(names[:10])} and 89 more"
