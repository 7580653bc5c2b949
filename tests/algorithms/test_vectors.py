"""Inputs and outputs of the authors' own modules, all of them; and that a change of one per cent would be noticed."""

from __future__ import annotations

import pytest

from replays import load, walk

FILES = walk.files()


def test_every_vector_has_a_replay() -> None:
    assert len(FILES) >= 30
    for name in FILES:
        walk.replay_of(name)


@pytest.mark.parametrize("name", FILES)
def test_ours_is_as_the_authors_have_it(name: str) -> None:
    replay, uncompared = walk.replay_of(name)
    case = load(FILES[name])
    replay(case)
    assert set(uncompared) <= set(case), "excused keys that are not there"
    assert list(walk.compared_keys(case, uncompared))


# Replays of whole networks, and of many steps, once for each of their keys.
LONG = (
    *("sagnet_step_r18", "padain_net_r18", "cae_forward_a", "edsr_forward_a", "style_transfer_net_a"),
    *(f"debiasing/{name}" for name in ("lff_steps", "disent_steps", "biasensemble_disent_steps")),
)


@pytest.mark.parametrize("name", [pytest.param(f, marks=pytest.mark.slow if f in LONG else ()) for f in FILES])
def test_one_per_cent_is_noticed(name: str) -> None:
    replay, uncompared = walk.replay_of(name)
    case = load(FILES[name])
    unnoticed = [key for key in walk.compared_keys(case, uncompared) if not walk.fails(replay, walk.changed(case, key))]
    assert not unnoticed


# --- what the authors' code could as well have given, expected values by other routes ---------------------------------
