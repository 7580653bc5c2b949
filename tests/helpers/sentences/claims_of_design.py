"""Sentences on what was compared; the rest of the table in `claims`."""

# ruff: noqa: E501  (a sentence stands in one line where it can, so that it can be found)

from __future__ import annotations

import re

from helpers.sentences.claims import Place, sentence, split
from helpers.sentences.facts import LABELS, Facts, listing

# --- what was compared ------------------------------------------------------------------------------------------------


@sentence(
    r"(\d+) algorithms? \((.+?)\) on (\d+) (evaluation set|data set)s? \((.+)\), (.+ of each algorithm.*?), (\d+) runs? in all(?:, (\d+) of them published)?\."
)
def _(m: re.Match[str], at: Place) -> None:
    facts = at.facts
    listed = facts.sets if m[4] == "evaluation set" else wide_blocks(facts)
    assert (split(m[2]), split(m[5])) == (facts.algorithms, listed)
    assert [int(m[1]), int(m[3]), int(m[7])] == [len(facts.algorithms), len(facts.blocks), len(facts.runs)]
    assert m[6] == facts.of_each(facts.algorithms)
    assert int(m[8] or 0) == sum(run.published for run in facts.runs)


def wide_blocks(facts: Facts) -> list[str]:
    return [f"{block}: {len(names)} columns" if len(names) > 1 else block for block, names in facts.blocks.items()]


@sentence(r"Each of (\d+) cells \((.+)\) has its own training runs\.")
def _(m: re.Match[str], at: Place) -> None:
    cells = sorted({run.cell for run in at.facts.runs})
    assert (int(m[1]), split(m[2])) == (len(cells), cells)


@sentence(r"A replicate is the runs of an algorithm with one seed on all cells\.")
def _(m: re.Match[str], at: Place) -> None:
    assert at.facts.cells


@sentence(r"(?:-: )?(\S+) is not applicable on (.+): it needs training images of several domains\.?")
def _(m: re.Match[str], at: Place) -> None:
    assert "domain" in at.facts.of(m[1])[0].needs
    assert m[2].split(", ") == [name for block in at.facts.lacks(m[1]) for name in at.facts.blocks[block]]


@sentence(r"Trained on ((?!train).+)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert split(m[1]) == list(at.facts.blocks)


@sentence(r"Trained on train(.*)\.")
def _(m: re.Match[str], at: Place) -> None:
    other = {
        name: {d for run in at.facts.of(name) for d in run.training_data} - {"train"} for name in at.facts.algorithms
    }
    assert m[1] == "".join(f"; {name} also or only on {listing(sorted(data))}" for name, data in other.items() if data)


@sentence(r"A run's score on a set is that of (.+)\. An algorithm's score is the mean over its (run|replicate)s\.")
def _(m: re.Match[str], at: Place) -> None:
    assert (m[1], m[2]) == (LABELS[at.facts.rule], at.facts.repeated)


@sentence(r"Names with @ are published results, shown beside yours\.")
def _(m: re.Match[str], at: Place) -> None:
    assert any(name.endswith("@paper") for name in at.facts.algorithms)


@sentence(r"Every algorithm is compared with the control (\S+), in place of all pairs\.")
def _(m: re.Match[str], at: Place) -> None:
    assert m[1] == at.facts.control


@sentence(r"unequal numbers of runs: (.+)")
def _(m: re.Match[str], at: Place) -> None:
    numbers = {name: len(at.facts.of(name)) for name in at.facts.algorithms}
    assert m[1] == ", ".join(f"{name} {number}" for name, number in numbers.items())
    assert len(set(numbers.values())) > 1


@sentence(r"(\S+): the runs with seeds (.+) have the same score on every set")
def _(m: re.Match[str], at: Place) -> None:
    runs = [run for run in at.facts.of(m[1]) if str(run.seed) in m[2].split(", ")]
    scores = [[at.facts.score(run, name, at.facts.rule) for name in at.facts.sets] for run in runs]
    assert len(runs) > 1
    assert all(row == scores[0] for row in scores)


@sentence(r"(?:Not independent: )?(.+) show the same images: the tests take sets for independent, and these are not\.?")
def _(m: re.Match[str], at: Place) -> None:
    assert m[1].split(", ") in at.facts.shared.values()


@sentence(r"(\S+) on (\S+): (\d+) run\(s\) have no value \(never tested\) and are left out of the mean")
def _(m: re.Match[str], at: Place) -> None:
    assert int(m[3]) == sum(m[2] not in run.curves for run in at.facts.of(m[1]))


@sentence(
    r"(?:What these tests could have missed is not known: )?the sets are measured in % and nats: differences can't be compared or averaged over sets\.?"
)
def _(m: re.Match[str], at: Place) -> None:
    assert not at.facts.one_unit


@sentence(r"published_paper: A paper|what others trained is marked @paper; its code and images are others'")
def _(m: re.Match[str], at: Place) -> None:
    assert any(run.published for run in at.facts.runs)
