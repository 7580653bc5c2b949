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
    unnoticed = [key for key in walk.compared_keys(case, uncompared) if not walk.fails(replay, walk.changed(case, key))]
    assert not unnoticed
    assert list(walk.compared_keys(case, uncompared))
