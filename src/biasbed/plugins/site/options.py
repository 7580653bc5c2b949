"""Settings of the command `site`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from biasbed.settings import setting


@dataclass(frozen=True)
class SiteOptions:
    """Studies that the results site shows, and its folder."""

    studies: Literal["all", "none"] | tuple[str, ...] = setting(
        "all", "studies to show (all: every study with finished runs, searches left out; none: published results only)"
    )
    published: bool = setting(
        False, "first import the published results of all papers, and show them beside the studies"
    )
    alpha: float = setting(0.05, "significance level", gt=0, lt=1)
    names: str = setting("auto", "names in figures: a YAML file `name: what is shown`")
    output_dir: str = setting("auto", "folder of the pages (auto: site in biasbed's own folder)", identity=False)
    tracking_uri: str = setting(
        "auto", "tracking server (auto: MLFLOW_TRACKING_URI, else MLflow's own default)", identity=False
    )

    def __post_init__(self) -> None:
        if not self.studies:
            raise ValueError("studies=: name at least one, or all")
        if self.studies == "none" and not self.published:
            raise ValueError("studies=none: shows nothing; add published=true for the published results")
