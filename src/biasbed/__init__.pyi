"""Public names as type checkers see them. `pytest --renew tests/api/test_arguments.py` writes this file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

import pandas as pd
import torch

from biasbed import datasets as datasets
from biasbed.api import corruptions as corruptions
from biasbed.api import methods as methods
from biasbed.api.card import Card as Card
from biasbed.api.comparison import ScoreComparison, Scores
from biasbed.api.given_model import TransformImage
from biasbed.api.model_state import Model
from biasbed.api.runs import TrainedRun
from biasbed.errors import Failure as Failure
from biasbed.errors import UsageError as UsageError
from biasbed.plugins.trust.user_scores import TrustCard

__version__: str
__all__: list[str]
_NAMES: dict[str, str]

class Evaluator:
    every: int
    def __init__(
        self,
        suite: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        sets: Sequence[str] | str | None = None,
        *,
        every: int = 1,
        transform: TransformImage | None = None,
        classes: Sequence[str] | None = None,
        label_map: str | Path | Mapping[str, Any] | None = None,
        device: str | torch.device = "auto",
        batch_size: int | None = None,
        quiet: bool = True,
        preset: Sequence[str] | None = ...,
        train: str = ...,
        limit: int | None = ...,
        corrupted: Mapping[str, Any] = ...,
        reliance: Mapping[str, Any] = ...,
        data: Mapping[str, Any] = ...,
        cache: Mapping[str, Any] = ...,
        scores: Mapping[str, Any] = ...,
        init_seen: Union[Sequence[str], Literal["auto"]] = ...,
        mean: Union[Sequence[float], Literal["auto"]] = ...,
        std: Union[Sequence[float], Literal["auto"]] = ...,
        precision: Literal["fp32", "bf16", "fp16"] = ...,
        corrupt: Literal["stop", "skip"] = ...,
        study: str = ...,
        row: str = ...,
        cell: str = ...,
        experiment: str = ...,
        prepared_dir: str | os.PathLike[str] = ...,
        workers: Union[int, Literal["auto"]] = ...,
        image_size: Union[int, Literal["auto"]] = ...,
        categories: Union[Literal["prob_mean", "logit_mean", "prob_sum", "prob_max"], Literal["auto"]] = ...,
        overlaps: Union[Literal["none"], Sequence[str]] = ...,
        **settings: Any,
    ) -> None: ...
    def __call__(self, model: Model) -> Card: ...
    def after_epoch(
        self,
        model: Model,
        epoch: int,
    ) -> Card | None: ...

def evaluate(
    model: Model,
    suite: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    sets: Sequence[str] | str | None = None,
    *,
    transform: TransformImage | None = None,
    classes: Sequence[str] | None = None,
    label_map: str | Path | Mapping[str, Any] | None = None,
    device: str | torch.device = "auto",
    batch_size: int | None = None,
    quiet: bool = False,
    preset: Sequence[str] | None = ...,
    train: str = ...,
    limit: int | None = ...,
    corrupted: Mapping[str, Any] = ...,
    reliance: Mapping[str, Any] = ...,
    data: Mapping[str, Any] = ...,
    cache: Mapping[str, Any] = ...,
    scores: Mapping[str, Any] = ...,
    init_seen: Union[Sequence[str], Literal["auto"]] = ...,
    mean: Union[Sequence[float], Literal["auto"]] = ...,
    std: Union[Sequence[float], Literal["auto"]] = ...,
    precision: Literal["fp32", "bf16", "fp16"] = ...,
    corrupt: Literal["stop", "skip"] = ...,
    study: str = ...,
    row: str = ...,
    cell: str = ...,
    experiment: str = ...,
    prepared_dir: str | os.PathLike[str] = ...,
    workers: Union[int, Literal["auto"]] = ...,
    image_size: Union[int, Literal["auto"]] = ...,
    categories: Union[Literal["prob_mean", "logit_mean", "prob_sum", "prob_max"], Literal["auto"]] = ...,
    overlaps: Union[Literal["none"], Sequence[str]] = ...,
    **settings: Any,
) -> Card: ...
def train(
    suite: str | None = None,
    algorithm: str | None = None,
    seed: int = 0,
    *,
    hparams: Mapping[str, Any] | None = None,
    preset: Sequence[str] | None = ...,
    data_dir: str | os.PathLike[str] | None = ...,
    train: str = ...,
    sets: Union[Sequence[str], Literal["auto", "all"]] = ...,
    limit: int | None = ...,
    corrupted: Mapping[str, Any] = ...,
    reliance: Mapping[str, Any] = ...,
    data: Mapping[str, Any] = ...,
    cache: Mapping[str, Any] = ...,
    scores: Mapping[str, Any] = ...,
    image_size: int = ...,
    augment: Mapping[str, Any] = ...,
    backbone: str = ...,
    network: Mapping[str, Any] = ...,
    init: str = ...,
    init_seen: Union[Sequence[str], Literal["auto"]] = ...,
    mean: Union[Sequence[float], Literal["auto"]] = ...,
    std: Union[Sequence[float], Literal["auto"]] = ...,
    epochs: int | None = ...,
    steps: int | None = ...,
    evaluate_every: Union[int, Literal["auto"]] = ...,
    test_every: Sequence[str] = ...,
    batch_size: int = ...,
    accumulate: int = ...,
    optim: Mapping[str, Any] = ...,
    label_smoothing: float = ...,
    average: Literal["none", "sma", "swad", "ema"] = ...,
    average_from: int = ...,
    swad: Mapping[str, Any] = ...,
    ema: Mapping[str, Any] = ...,
    precision: Literal["fp32", "bf16", "fp16"] = ...,
    compile: bool = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    nproc: Union[int, Literal["auto"]] = ...,
    corrupt: Literal["stop", "skip"] = ...,
    resume: Literal["auto", "never", "once"] = ...,
    study: str = ...,
    row: str = ...,
    cell: str = ...,
    experiment: str = ...,
    output_dir: str | os.PathLike[str] = ...,
    prepared_dir: str | os.PathLike[str] = ...,
    workers: Union[int, Literal["auto"]] = ...,
    eval_batch_size: int = ...,
    checkpoint_every: int | None = ...,
    log_model: bool = ...,
    keep: Literal["all", "best_last", "best", "none"] = ...,
    tracking: Literal["on", "offline"] = ...,
    **settings: Any,
) -> TrainedRun: ...
def runs(
    study: str | None = None,
    tracking_uri: str = "auto",
) -> pd.DataFrame: ...
def predictions(
    run_id: str,
    set_name: str,
    which: str = "last",
    tracking_uri: str = "auto",
) -> pd.DataFrame: ...
def compare(
    scores: Scores,
    *,
    method: str = "auto",
    dataset: str = "auto",
    seed: str = "auto",
    score: str = "auto",
    rows: Literal["auto", "methods", "datasets"] = "auto",
    table: int = 0,
    head: int = 0,
    blocks: Union[Literal["auto", "none"], Sequence[str]] = "auto",
    leave_out: Union[Literal["none"], Sequence[str]] = "none",
    keep: Union[Literal["none"], Sequence[str]] = "none",
    decimal: Literal["auto", "point", "comma"] = "auto",
    brackets: Literal["auto", "spread", "other"] = "auto",
    value_in_cell: int = 0,
    seeds: int = 0,
    spread: Literal["auto", "standard_deviation", "standard_error"] = "auto",
    check: bool = False,
    methods: Union[Literal["all"], Sequence[str]] = "all",
    sets: Union[Literal["all"], Sequence[str]] = "all",
    higher_is_better: Union[Literal["auto"], bool] = "auto",
    lower: Union[Literal["auto", "none", "all"], Sequence[str]] = "auto",
    unit: Literal["auto", "fraction", "percent", "plain"] = "auto",
    control: str = "none",
    alpha: float = 0.05,
    rope: float = 1.0,
    bootstrap: int = 2000,
    order: Union[Literal["name", "rank"], Sequence[str]] = "rank",
    names: str = "auto",
    figure_width: Union[Literal["column", "page"], float] = "page",
    plan: bool = False,
    difference: float = 2.0,
) -> ScoreComparison: ...
def trust(
    scores: Any,
    calibration: Any,
    ood: Mapping[str, Any] | None = None,
    alpha: float = 0.1,
    bootstrap: int = 1000,
) -> TrustCard: ...
