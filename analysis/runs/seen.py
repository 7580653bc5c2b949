"""Data that the weights of a run have seen before its training, read from the published name of the weights.

The setting `init_seen`, by which users describe their own weights, wins. The sections `weaknesses` and `study_design`
of the report say what was seen.

Answers: What have the weights of a row seen?
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from biasbed.analysis.runs.run import TESTED, Run
from biasbed.record import slug

NOTHING, UNKNOWN = "nothing", "unknown"
SAY_SEEN = (
    "Where it is unknown what weights have seen, say it with the setting init_seen of train or evaluate, as in "
    "--init_seen 'labels of ImageNet-1k'."
)


class Pretraining(NamedTuple):
    """Data of a pretraining."""

    parts: str  # pattern of the parts in names of weights that stand for it
    kind: str  # what was learned from: labels, images or texts
    name: str  # of the data set
    is_web: bool = False  # images of the web at large, which are likely to include images of test sets


# Published names are made of parts between the characters . _ - and : (`fb_in22k_ft_in1k`, `IMAGENET1K_V2`).
WEB = (
    Pretraining(r"laion\w*", "texts", "LAION", True),
    Pretraining(r"openai", "texts", "OpenAI's WIT", True),
    Pretraining(
        r"(datacomp|dfn|metaclip|webli|siglip|merged2b|commonpool|cc3m|cc12m|yfcc15m)\w*", "texts", "web images", True
    ),
    Pretraining(r"lvd\d+m|dinov[23]\w*", "images", "LVD", True),
    Pretraining(r"seer|sat493m", "images", "web images", True),
    Pretraining(r"swsl|wsl|ssl|swag|ig1b|yfcc100m", "labels", "web hashtags", True),
    Pretraining(r"jft\w*", "labels", "JFT", True),
    Pretraining(r"(in21k|in22k|in12k)\w*", "labels", "ImageNet-21k", True),
)
WEB_NAMES = frozenset(member.name for member in WEB)
WITHOUT_LABELS = Pretraining(r"dino|mae|fcmae|mim|ijepa|simclr|moco\w*|byol|swav", "images", "ImageNet-1k")
WITH_LABELS = Pretraining(r"in1k|imagenet1k", "labels", "ImageNet-1k")
FINE_TUNED = "ft"


class Seen(NamedTuple):
    """Data that weights have seen, as far as it is known."""

    data: tuple[Pretraining, ...]  # empty for nothing, and if nothing is known
    text: str  # `labels of ImageNet-21k, labels of ImageNet-1k`, nothing or unknown

    @property
    def is_web(self) -> bool:
        """True if images of test sets are likely among them."""
        return any(pretraining.is_web for pretraining in self.data)

    def find_sets(self, sets: Iterable[str]) -> list[str]:
        """Return those of the sets that were seen, by their names: `pacs_sketch` if PACS was seen."""
        names = [slug(member.name) for member in self.data if not member.is_web]
        return [name for name in sets if any(name == seen or name.startswith(f"{seen}_") for seen in names)]


def read_seen(run: Run) -> Seen:
    """Return what the weights of a run have seen before its training; of a tested model, in its own training."""
    said = run.config.get("init_seen", "auto")
    if said != "auto":
        return _read_setting(said)
    start = str(run.init.get("start", ""))
    if start == "scratch":
        return Seen((), NOTHING)
    return _read_name(_published_name(run, start))


@functools.cache  # thousands of runs have the same weights
def _read_name(name: str) -> Seen:
    """Return what weights of this published name have seen."""
    data = tuple(_find_pretrainings(re.split(r"[._:/-]", name.lower())))
    return Seen(data, ", ".join(f"{member.kind} of {member.name}" for member in data) or UNKNOWN)


def _read_setting(said: str) -> Seen:
    """Return what the setting `init_seen` says: `labels of PACS, texts of web images`."""
    data = []
    for part in said.split(","):
        kind, _, name = part.strip().partition(" of ")
        if name:
            name_parts = re.split(r"[ ._:/-]", name.lower())
            is_known_as_web = name in WEB_NAMES or any(member.is_web for member in _find_pretrainings(name_parts))
            data.append(Pretraining("", kind, name, is_known_as_web or "web" in name_parts))
    return Seen(tuple(data), said.strip())


def _published_name(run: Run, start: str) -> str:
    """Return the published name of a run's weights; empty if they have none, as weights from a file.

    start: where training started, such as `timm:resnet50:a1_in1k`; empty for a tested model.
    """
    if start.startswith("file:"):
        return ""
    if start:
        model, _, weights = start.rpartition(":")
        if weights == "default":  # of a hub, whose model gives them their name
            return model.rpartition(":")[2]
        return weights
    if run.kind not in TESTED:
        return ""
    weights = run.config.get("weights", "none")
    if weights == "none":
        # In `timm:resnet50.a1_in1k` the name of the weights stands behind the first point.
        timm_name = run.config.get("model", "").partition(":")[2]
        return timm_name.partition(".")[2] or run.method
    is_file = "/" in weights or "." in weights
    return "" if is_file else weights


def _find_pretrainings(parts: Iterable[str]) -> list[Pretraining]:
    """Return the data that weights have seen, by the parts of their name (`in12k`, `ft`).

    Labels of ImageNet-1k count for self-supervised weights only if they were fine-tuned.
    """
    parts = list(parts)
    data = [member for member in (*WEB, WITHOUT_LABELS) if any(re.fullmatch(member.parts, part) for part in parts)]
    has_labels = any(re.fullmatch(WITH_LABELS.parts, part) for part in parts)
    if has_labels and (WITHOUT_LABELS not in data or FINE_TUNED in parts):
        data.append(WITH_LABELS)
    return data
