"""Every preset against its source, line by line, written from the papers and programs and not from the product.

`RECIPES` has one line per setting: what the source fixes and where it says so, or that it leaves the setting open and
why. `SUITES` and `METHODS` say what an open setting then is. All of it is docs/presets.md, which `pytest --renew
tests/algorithms/test_presets.py` writes; the tests there compare it with what every preset comes to on every suite.
"""

from __future__ import annotations

import re
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


UNREAD = {  # reasons that follow from another setting of the recipe
    "Adam's; SGD doesn't read it",
    "SGD's; Adam doesn't read it",
    "SGD's; AdamW doesn't read it",
    "nothing is cropped",
    "of the schedule in steps; a constant rate doesn't read it",
    "of the schedule in steps; a cosine doesn't read it",
}

IMPLIED: dict[str, Any] = {  # what a source leaves out by saying nothing, as most do
    "steps": None,
    "optim.warmup": 0,
    "optim.restarts": (),
    "optim.nesterov": False,
    "optim.lr_batch": None,
    "augment.jitter": 0,
    "augment.grey": 0,
    "augment.padding": 0,
    "network.dropout": 0,
    "network.freeze_statistics": False,
}

# --- docs/presets.md --------------------------------------------------------------------------------------------------

HEAD = """---
search:
  exclude: true
---

# Presets and their sources

What each preset fixes, where its source says so, and which settings the source leaves open. The suite chooses those:
`biasbed train --suite demo --algorithm infodrop --preset paper --help` shows its values. [methods.md](methods.md) says
how presets combine. A row has the settings that one file or section of the source fixes, and what it says of them in
the same order. `pytest --renew tests/algorithms/test_presets.py` writes this page and compares every preset of every
method, on every suite, with these lines.

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
    """Return the section of a recipe, without the lines that it shares with the most similar recipe before it."""
    extended = [other for other in before if _extends(recipe, other)]
    like = max(extended, key=lambda other: _num_shared(recipe, other), default=None)
    same = set(like.lines) if like else set()
    rows = [f"## `{recipe.preset}`: {recipe.title}", ""]
    rows += [f'All of "{like.title}" except its `hparams` and what follows.', ""] if like else []
    lines = [line for line in recipe.lines if line not in same and not _is_implied(line, like)]
    rows += _fixed_rows([line for line in lines if not line.open])
    rows += _open_rows([line for line in lines if line.open])
    notes = [note for note in recipe.beyond if like is None or note not in like.beyond]
    rows += ["", "Beyond what a setting can say:", "", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(rows)


def _is_implied(line: Line, like: Recipe | None) -> bool:
    """Return True if a line fixes what most sources do not have, and the recipe that it extends does so too."""
    values = [line, *(other for other in (like.lines if like else ()) if other.setting == line.setting)]
    return line.setting in IMPLIED and all(not v.open and v.value == IMPLIED[line.setting] for v in values)


def _fixed_rows(lines: Sequence[Line]) -> list[str]:
    """Return a table with a row for each file or section that the source consists of."""
    rows = ["| settings | source |", "|---|---|"] if lines else []
    places = dict.fromkeys(line.source.partition(": ")[0] for line in lines)
    for place in places:
        cited = [line for line in lines if line.source.partition(": ")[0] == place]
        values = ", ".join(f"`{line.setting}={word(line.value)}`" for line in cited)
        details = dict.fromkeys(line.source.partition(": ")[2] for line in cited)
        detail = "; ".join(filter(None, details))
        rows.append(f"| {values} | {place}{': ' if detail else ''}{detail} |")
    return rows


def _open_rows(lines: Sequence[Line]) -> list[str]:
    """Return a line for each reason why the source leaves settings open, but not for settings that nothing reads."""
    rows = []
    for source in dict.fromkeys(line.source for line in lines if line.source not in UNREAD):
        settings = [line.setting for line in lines if line.source == source]
        rest = [setting for setting in settings if setting not in OPTIONAL]
        is_all = set(OPTIONAL) <= set(settings)
        names = ", ".join(f"`{setting}`" for setting in (rest if is_all else settings))
        rows += ["", f"Open, {source}: {names}{', and all that a preset may omit' if is_all else ''}."]
    return rows


def _num_shared(recipe: Recipe, other: Recipe) -> int:
    """Return how many lines two recipes share."""
    return len(set(recipe.lines) & set(other.lines))


def _extends(recipe: Recipe, other: Recipe) -> bool:
    """Return True if a recipe has all settings of another of its name but `hparams`, many with the same lines."""
    settings = {line.setting for line in recipe.lines}
    others = {line.setting for line in other.lines if not line.setting.startswith("hparams.")}
    return recipe.preset == other.preset and others <= settings and 4 * _num_shared(recipe, other) > len(others)


def document() -> str:
    tables = [table(recipe, RECIPES[:number]) for number, recipe in enumerate(RECIPES)]
    names = ", ".join(f"`{name}`" for name in OPTIONAL)
    optional = (
        f"A preset may omit {names}. Training then leaves these features off. Sections do not list settings "
        "that nothing reads: Adam's under SGD, SGD's under Adam, steps of the rate under a cosine or a constant rate, "
        "crops where nothing is cropped."
    )
    implied = ", ".join(f"`{name}={word(value)}`" for name, value in IMPLIED.items())
    optional += f" Unless a section says otherwise, a preset fixes {implied}."
    head = HEAD.format(optional=textwrap.fill(optional, 120))
    return re.sub(r"\n{3,}", "\n\n", "\n".join([head, *(f"{each}\n" for each in tables)]))
