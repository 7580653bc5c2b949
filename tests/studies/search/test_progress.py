"""Progress of a running sweep, and its summary."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from biasbed.studies.search import trials
from biasbed.studies.search.progress import TrialNews, make_table
from biasbed.studies.search.results import SearchState, collect_winners, find_winner, format_summary
from biasbed.studies.search.space import Dimension, Space

SPACE = Space("erm", (Dimension("optim.lr", "loguniform", 0.01, 1.0),))


def trial(number: int, state: str, value: float | None = None, rate: float = 0.1, **attributes: Any) -> FrozenTrial:
    steps = {1: 0.5 if value is None else value} if state in ("RUNNING", "PRUNED", "COMPLETE") else {}
    frozen = create_trial(
        state=TrialState[state],
        value=value,
        params={"optim.lr": rate} if state != "WAITING" else {},
        distributions={"optim.lr": optuna.distributions.FloatDistribution(0.01, 1.0)} if state != "WAITING" else {},
        user_attrs=attributes,
        intermediate_values=steps,
    )
    frozen.number = number
    if frozen.state.is_finished():
        frozen.user_attrs[trials.SECONDS] = 60.0
    return frozen


def searched(*every: FrozenTrial, trials: int = 8, maximize: bool = True, repeat: int | None = None) -> SearchState:
    search: Any = SimpleNamespace(
        name=f"s/erm/{repeat}",
        algorithm="erm",
        subject="erm",
        title="erm",
        cell_name="",
        trials=trials,
        maximize=maximize,
        metric="val/accuracy/val" if maximize else "val/loss/val",
        unit="%" if maximize else "nats",
        is_oracle=False,
        space=SPACE,
        overrides={"algorithm": "erm"},
        settings=lambda trial: SPACE.to_settings(trial.params),
        run=SimpleNamespace(unit="epoch", total=4),
        trial_name=lambda position: str(position) if repeat is None else f"r{repeat}-{position}",
    )
    return SearchState(search, every)


def test_the_table_counts_trials_and_estimates_the_rest() -> None:
    state = searched(
        trial(0, "COMPLETE", 0.7, default=True),
        trial(1, "RUNNING"),
        trial(2, "PRUNED", 0.4),
        trial(3, "COMPLETE", 0.8, rate=0.2),
        trial(4, "RUNNING", error="the loss is not finite"),
    )
    head, line = make_table("s", [state], workers=2).lines
    # Left are the trials 5..7, and three of four epochs of the running one, at a minute per trial.
    assert head == "s: 8 trials: 2 complete, 1 pruned, 1 failed, 1 running; about 1:52 left"
    assert line == "  erm   4/8 trials, 1 pruned, 1 failed, best 80.00 (trial 3), trial 1: epoch 1/4, 50.00"
    assert make_table("s", [searched()], 2).head == "s: 8 trials: 0 complete"


def test_news_are_told_once() -> None:
    before = searched(trial(0, "RUNNING"), trial(1, "RUNNING", error="no memory"))
    news = TrialNews([before])
    after = searched(trial(0, "COMPLETE", 0.7), trial(1, "RUNNING", error="", attempts=2))
    assert news.since([after]) == [
        "erm trial 0 complete: 70.00, the best so far",
        "erm trial 1 started once more, in its folder",
    ]
    assert news.since([after]) == []
    last = searched(trial(0, "COMPLETE", 0.7), trial(1, "PRUNED", 0.2), trial(2, "RUNNING", error="no memory"))
    assert news.since([last]) == ["erm trial 1 pruned at epoch 1: 20.00", "erm trial 2 failed: no memory"]


def test_the_summary_compares_with_the_default_and_over_repeats() -> None:
    first = searched(trial(0, "COMPLETE", 0.7, default=True), trial(1, "COMPLETE", 0.8, rate=0.2), repeat=0)
    second = searched(trial(0, "COMPLETE", 0.72, default=True), trial(1, "COMPLETE", 0.9, rate=0.5), repeat=1)
    said = "\n".join(format_summary([first, second]))
    assert "erm: 4 trials: 4 complete; val/accuracy/val" in said
    assert "best     90.00 (trial r1-1): optim.lr=0.5" in said
    assert "default  72.00 (trial r1-0); the best is 18.00 better, on one seed" in said
    assert "over 2 repeats: 85.00, standard deviation 7.07" in said
    assert collect_winners([first, second]) == {"erm": {"": {"optim.lr": "0.5"}}}


def test_less_is_better_for_a_loss() -> None:
    state = searched(trial(0, "COMPLETE", 0.7, default=True), trial(1, "COMPLETE", 0.4, rate=0.2), maximize=False)
    won = find_winner([state])
    assert won is not None
    assert won[1].number == 1
    assert "the best is 0.3000 better" in "\n".join(format_summary([state]))
    assert trials.select_best([trial(0, "PRUNED", 0.9)], maximize=True) is None
