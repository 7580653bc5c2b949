"""Does a short search decide as DomainBed's whole one does? Bootstrap of recorded sweeps of DomainBed's own code.

    PYTHONPATH=src python benchmarks/day_protocol.py <folder of results.jsonl> [<folder> ...] [--searches 400]

Searches are put together from the recorded trainings of a method on a held-out domain: trial 0 is one with the
defaults, every other one is drawn with replacement. The truth about two methods is the sign of their mean difference
over many whole searches (20 trials, 3 repeats). Each protocol's verdict is Welch's test of its repeats at 5 %. All it
prints is in docs/domainbed.md.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biasbed.analysis.statistics.per_set import welch
from biasbed.published import sweeps
from biasbed.published.sweeps import SweepJob

ALPHA = 0.05
REDUCTION = 3  # of successive halving, as `search=day` has it
ENOUGH = 0.9  # share of the jobs of the data set's most complete method; methods with fewer are left out


class Course(NamedTuple):
    """Training by its evaluations, in percent: mean over out parts of training domains, in part of the held-out one."""

    validation: np.ndarray
    test: np.ndarray


class Domain(NamedTuple):
    """Recorded trainings of a method that hold out one domain."""

    defaults: list[Course]
    draws: list[Course]


class Protocol(NamedTuple):
    """Search that is repeated; `is_halved`: trials end early by successive halving."""

    name: str
    trials: int
    repeats: int
    is_halved: bool = False


class Simulated(NamedTuple):
    """Outcomes of a protocol for one method: mean over domains of each repeat, and evaluations that were trained."""

    means: np.ndarray  # [searches, repeats]
    evaluations: float  # per search


WHOLE = Protocol("20 trials x 3, DomainBed's search", 20, 3)
PROTOCOLS = (
    WHOLE,
    Protocol("defaults x 3", 1, 3),
    Protocol("defaults x 5", 1, 5),
    Protocol("4 trials x 3", 4, 3),
    Protocol("6 trials x 3", 6, 3),
    Protocol("6 trials x 3, halved (`day`)", 6, 3, is_halved=True),
)

# --- records ----------------------------------------------------------------------------------------------------------

Methods = Mapping[str, Sequence[Domain]]


def read(folder: Path) -> dict[str, Methods]:
    """Return the methods of each data set whose jobs are recorded, those with too few left out.

    Jobs that hold out two domains are for another selection rule, and are passed over.
    """
    domains: dict[str, dict[str, dict[tuple[int, ...], Domain]]] = {}
    for job in sweeps.read_sweep(folder):
        if len(job.test_envs) > 1:
            continue
        methods = domains.setdefault(job.dataset, {})
        domain = methods.setdefault(job.algorithm, {}).setdefault(job.test_envs, Domain([], []))
        courses = domain.draws if job.hparams_seed else domain.defaults
        courses.append(make_course(job))
    return {data: keep_complete(methods) for data, methods in domains.items()}


def make_course(job: SweepJob) -> Course:
    """Return a job's course; it holds out one domain."""
    (held_out,) = job.test_envs
    training = [env for env in job.envs if env != held_out]
    validation, test = [], []
    for _, accuracies in sorted(job.records.items()):
        validation.append(100 * np.mean([accuracies[env, "out"] for env in training]))
        test.append(100 * accuracies[held_out, "in"])
    return Course(np.array(validation), np.array(test))


def keep_complete(methods: Mapping[str, Mapping[tuple[int, ...], Domain]]) -> Methods:
    """Return the methods that have nearly as many jobs as the one with most."""
    counts = {}
    for name, domains in methods.items():
        counts[name] = sum(len(domain.defaults) + len(domain.draws) for domain in domains.values())
    most = max(counts.values())
    return {name: list(methods[name].values()) for name, count in counts.items() if count >= ENOUGH * most}


# --- searches ---------------------------------------------------------------------------------------------------------


def simulate(domains: Sequence[Domain], protocol: Protocol, searches: int, rng: np.random.Generator) -> Simulated:
    """Draw a method's searches by a protocol."""
    means = np.zeros((searches, protocol.repeats))
    evaluations = 0
    for domain in domains:
        for position in np.ndindex(means.shape):
            picks = rng.integers(len(domain.draws), size=protocol.trials - 1)
            first = domain.defaults[rng.integers(len(domain.defaults))]
            score, trained = search([first, *map(domain.draws.__getitem__, picks)], protocol.is_halved)
            means[position] += score / len(domains)
            evaluations += trained
    return Simulated(means, evaluations / searches)


def search(trials: Sequence[Course], is_halved: bool) -> tuple[float, int]:
    """Return the test score of the whole training with the best validation, and the evaluations of all trainings."""
    best, score, evaluations = -np.inf, np.nan, 0
    rungs: dict[int, list[float]] = {}
    for course in trials:
        end = find_end(course.validation, rungs) if is_halved else len(course.validation)
        evaluations += end
        step = int(course.validation.argmax())
        if end == len(course.validation) and course.validation[step] > best:
            best, score = course.validation[step], course.test[step]
    return float(score), evaluations


def find_end(validation: np.ndarray, rungs: dict[int, list[float]]) -> int:
    """Return after how many evaluations Optuna's successive halving ends a training. Adds its values to the rungs.

    Rungs are after 1, 3, 9 ... evaluations; the first record is that before training. At each, a training goes on if
    it is among the best third so far, or the best.
    """
    index = 1
    while index < len(validation):
        values = rungs.setdefault(index, [])
        values.append(float(validation[index]))
        values.sort(reverse=True)
        if validation[index] < values[max(len(values) // REDUCTION, 1) - 1]:
            return index + 1
        index *= REDUCTION
    return len(validation)


# --- verdicts ---------------------------------------------------------------------------------------------------------


class Verdicts(NamedTuple):
    """Shares of a protocol's simulations of two methods."""

    same_winner: float  # as an independent whole search
    wrong: float  # a significant difference with the wrong sign
    significant: float


def judge(a: np.ndarray, b: np.ndarray, truth: float, whole: np.ndarray) -> Verdicts:
    """Judge simulated searches of two methods. whole: differences by whole searches."""
    signs = np.sign(a.mean(axis=1) - b.mean(axis=1))
    p = np.array([welch(*pair, 1 - ALPHA)[2] for pair in zip(a, b, strict=True)])
    is_significant = p < ALPHA
    wrong = is_significant & (signs != np.sign(truth))
    return Verdicts(float((signs == np.sign(whole)).mean()), float(wrong.mean()), float(is_significant.mean()))


def main() -> None:
    """Print a row for each protocol, and its verdicts on each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--searches", type=int, default=400)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    verdicts: dict[Protocol, list[Verdicts]] = {protocol: [] for protocol in PROTOCOLS}
    costs: dict[Protocol, list[float]] = {protocol: [] for protocol in PROTOCOLS}
    for folder in options.folders:
        for data, methods in read(folder).items():
            whole = {name: simulate(domains, WHOLE, options.searches, rng) for name, domains in methods.items()}
            for protocol in PROTOCOLS:
                simulated = {}
                for name, domains in methods.items():
                    simulated[name] = simulate(domains, protocol, options.searches, rng)
                    costs[protocol].append(simulated[name].evaluations / whole[name].evaluations)
                for a, b in itertools.combinations(methods, 2):
                    differences = (whole[a].means - whole[b].means).mean(axis=1)
                    pair = judge(simulated[a].means, simulated[b].means, differences.mean(), differences)
                    verdicts[protocol].append(pair)
                    print(f"{folder.name} {data} {a}-{b} {differences.mean():+.2f}: {protocol.name}: {pair}")
    print("\n| protocol | cost | same winner | wrong verdicts, mean | worst pair | differences found |")
    print("|---|---|---|---|---|---|")
    for protocol, pairs in verdicts.items():
        same, wrong, significant = np.array(pairs).T
        cells = [np.mean(costs[protocol]), same.mean(), wrong.mean(), wrong.max(), significant.mean()]
        shares = " | ".join(f"{100 * cell:.1f} %" for cell in cells)
        print(f"| {protocol.name} | {shares} |")


if __name__ == "__main__":
    main()
