"""Cliques: maximal groups of algorithms of which a pairwise test tells no two apart.

Nemenyi's test compares rank differences with one critical difference, so its groups are sequences of neighbours
(`friedman.RankTests.groups`). Other tests may tell two neighbours apart and not their neighbours on either side. Then a
group may skip an algorithm that lies between its members, and a figure has to mark the members.

Sources: Demsar 2006, section 3.2.2 (groups in a critical-difference diagram); Benavoli, Corani and Mangili 2016
(Wilcoxon's test in place of Nemenyi's); Bron and Kerbosch 1973 (enumeration, with Tomita's pivot).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

Clique = tuple[str, ...]
Neighbours = Mapping[str, set[str]]

COLUMNS = ("correction", "clique", "algorithm", "average_rank", "alpha", "omnibus_significant")


def cliques(order: Sequence[str], apart: Collection[tuple[str, str]]) -> list[Clique]:
    """Return the maximal groups of two or more, members and groups in the given order.

    apart: the pairs that a test tells apart, in either order.
    """
    neighbours: dict[str, set[str]] = {}
    for name in order:
        told_apart = {b for a, b in apart if a == name} | {a for a, b in apart if b == name}
        neighbours[name] = set(order) - told_apart - {name}
    groups: list[Clique] = []
    _extend(set(), set(order), set(), neighbours, groups)
    position = {name: i for i, name in enumerate(order)}
    sorted_groups = [tuple(sorted(group, key=position.__getitem__)) for group in groups if len(group) > 1]
    return sorted(sorted_groups, key=lambda group: [position[name] for name in group])


def _extend(
    group: set[str], candidates: set[str], excluded: set[str], neighbours: Neighbours, groups: list[Clique]
) -> None:
    """Append every maximal clique that contains the group, some candidates, and none of the excluded."""
    if not candidates and not excluded:
        groups.append(tuple(group))
        return
    pivot = max(sorted(candidates | excluded), key=lambda name: len(neighbours[name] & candidates))
    for name in sorted(candidates - neighbours[pivot]):
        near = neighbours[name]
        _extend(group | {name}, candidates & near, excluded & near, neighbours, groups)
        candidates = candidates - {name}
        excluded = excluded | {name}


def clique_table(
    tests: pd.DataFrame, mean_ranks: Mapping[str, float], correction: str, alpha: float, omnibus_significant: bool
) -> pd.DataFrame:
    """Return `COLUMNS`, one row per clique and member; tests: columns a, b, p_adjusted of all pairs.

    Without a significant omnibus test no pair counts as told apart, as everywhere in the analysis.
    """
    apart = []
    for a, b, p in zip(tests["a"], tests["b"], tests["p_adjusted"], strict=True):
        if omnibus_significant and p < alpha:
            apart.append((a, b))
    rows = []
    for number, group in enumerate(cliques(list(mean_ranks), apart), start=1):
        for name in group:
            rows.append((correction, number, name, mean_ranks[name], alpha, omnibus_significant))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def groups_of(table: pd.DataFrame) -> list[Clique]:
    """Return the cliques of a `clique_table` in its order."""
    return [tuple(map(str, members)) for _, members in table.groupby("clique", sort=False)["algorithm"]]
