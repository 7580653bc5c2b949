"""Every preset against its source, line by line, written from the papers and programs and not from the product.

`RECIPES` has one line per setting: what the source fixes and where it says so, or that it leaves the setting open and
why. `SUITES` and `METHODS` say what an open setting then is. All of it is docs/presets.md, which `pytest --renew
tests/algorithms/test_presets.py` writes; the tests there compare it with what every preset comes to on every suite.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from typing import Any

from preset_sources.authors import (
    DEBIASED_AUTHORS,
    DEEPAUGMENT,
    FEW_SHOT,
    GEIRHOS_A,
    GEIRHOS_B,
    INFODROP_AUTHORS,
    PADAIN_AUTHORS,
    SAGNET_AUTHORS,
)
from preset_sources.biasbed import CODE, paper
from preset_sources.debiasing_coupled import DEBIASING_COUPLED
from preset_sources.debiasing_difficulty import DEBIASING_DIFFICULTY
from preset_sources.debiasing_groups import DEBIASING_GROUPS
from preset_sources.domainbed import PAPER_2020
from preset_sources.lines import CHOSEN, EVERY_METHOD, METHODS, OPTIONAL, SUITES, Line, Recipe, optional_own
from preset_sources.networks import NETWORKS
from preset_sources.robustness import ROBUSTNESS

RECIPES: tuple[Recipe, ...] = (
    paper(("erm", "stylized_erm", "deepaug_cae", "deepaug_edsr", "deepaug")),
    *(paper((name,)) for name in ("infodrop", "padain", "sagnet", "debiased")),
    paper(("noise2net", "deepaug_all")),
    *CODE,
    INFODROP_AUTHORS,
    FEW_SHOT,
    PADAIN_AUTHORS,
    SAGNET_AUTHORS,
    DEBIASED_AUTHORS,
    *DEEPAUGMENT,
    GEIRHOS_A,
    GEIRHOS_B,
    *PAPER_2020,
    *DEBIASING_COUPLED,
    *DEBIASING_GROUPS,
    *DEBIASING_DIFFICULTY,
    *ROBUSTNESS,
    *NETWORKS,
)


def recipes(suite: str, method: str, preset: str) -> list[Recipe]:
    """Return the recipes of a preset's name: the network's, the suite's, then the method's on top."""
    return [
        r
        for owner in (EVERY_METHOD, f"suite {suite}", method)
        for r in RECIPES
        if owner in r.owners and r.preset == preset
    ]


def expected(suite: str, method: str, presets: Sequence[str]) -> dict[str, Any]:
    """Every setting of a training that counts, by its source or by what lies below."""
    values = {
        **OPTIONAL,
        **optional_own(method),
        **SUITES[suite],
        **{f"hparams.{name}": value for name, value in METHODS[method].items()},
    }
    values |= {"suite": suite, "algorithm": method, **CHOSEN.get(method, {}), **CHOSEN.get(f"{method} on {suite}", {})}
    for preset in presets:
        for recipe in recipes(suite, method, preset):
            values |= {**recipe.omitted, **recipe.fixed}
    return values


# --- docs/presets.md --------------------------------------------------------------------------------------------------

HEAD = """---
search:
  exclude: true
---

# Presets and their sources

What each preset fixes, where its source says so, and which settings the source leaves open: the suite chooses those, as
`biasbed train --suite demo --algorithm infodrop --preset paper --help` shows. Written by
`pytest --renew tests/algorithms/test_presets.py`, which resolves every preset of every method on every suite and
compares all of its settings with these lines. [methods.md](methods.md) says how presets combine. A setting that no line
names came after these recipes were read: one that fixes the network or the optimizer leaves it at its default.

Programs are cited by file and option or name, as read in the repositories D1noFuzi/BiasBed (499b912; its paths begin
with `biasedbed/`), bfshi/InfoDrop (0dc1b24), onuriel/PermutedAdaIN (819cdb9), hyseob/SagNet (f87161c),
LiYingwei/ShapeTextureDebiasedTraining (afdb8b7), hendrycks/imagenet-r (3131cac), rgeirhos/texture-vs-shape (ccd0c01)
and facebookresearch/DomainBed (as of 30 September 2020, the state that its own tables are stamped with: 7df6f06); the
debiasing methods' as described in docs/methods/, of EnD (b095648), BiasCon (35562b6), ReBias (79d1d1d), LNL (fad2ec8),
LfF (e66796e), DisEnt (7626f36), BiasEnsemble (13c01f4), group_DRO (cbbc1c5), JTT (0af2430) and DFR (46666e6);
google-research/augmix (9b9824c), facebookresearch/deit (0282d2a), facebookresearch/mae (2f170f2) and
facebookresearch/ConvNeXt (231af90).

{optional}
"""


def word(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, tuple):
        return ",".join(word(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def table(recipe: Recipe, before: Sequence[Recipe]) -> str:
    """The lines of a recipe, but for those that one before it, of the same name and much the same, has as well."""
    like = next((other for other in before if _extends(recipe, other)), None)
    same = set(like.lines) if like else set()
    rows = [f"## `{recipe.preset}`: {recipe.title}", ""]
    rows += [f'All of "{like.title}" but for what follows.', ""] if like else []
    lines = [line for line in recipe.lines if line not in same]
    rows += _fixed_rows([line for line in lines if not line.open])
    rows += _open_rows([line for line in lines if line.open])
    notes = [note for note in recipe.beyond if like is None or note not in like.beyond]
    rows += ["", "Beyond what a setting can say:", "", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(rows)


def _fixed_rows(lines: Sequence[Line]) -> list[str]:
    """Return a table with a row for each statement of the source."""
    rows = ["| settings | source |", "|---|---|"] if lines else []
    for source, of_source in itertools.groupby(lines, key=lambda line: line.source):
        values = ", ".join(f"`{line.setting}={word(line.value)}`" for line in of_source)
        rows.append(f"| {values} | {source} |")
    return rows


def _open_rows(lines: Sequence[Line]) -> list[str]:
    """Return a line for each reason why the source leaves settings open."""
    rows = []
    for source in dict.fromkeys(line.source for line in lines):
        names = ", ".join(f"`{line.setting}`" for line in lines if line.source == source)
        rows += ["", f"Open, {source}: {names}."]
    return rows


def _extends(recipe: Recipe, other: Recipe) -> bool:
    """Return True if a recipe has all settings of another of its name, many of them with the same lines."""
    settings, others = ({line.setting for line in r.lines} for r in (recipe, other))
    shared = len(set(recipe.lines) & set(other.lines))
    return recipe.preset == other.preset and others <= settings and 3 * shared > len(others)


def document() -> str:
    tables = [table(recipe, RECIPES[:number]) for number, recipe in enumerate(RECIPES)]
    names = ", ".join(f"`{name}`" for name in OPTIONAL)
    optional = f"A preset may omit {names}. Training then does without what they are about."
    head = HEAD.format(optional=textwrap.fill(optional, 120))
    return "\n".join([head, *(f"{each}\n" for each in tables)])
