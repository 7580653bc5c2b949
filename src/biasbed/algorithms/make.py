"""Construction of a configured method with its networks, new or from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from biasbed import algorithms, networks
from biasbed.algorithms.base import Algorithm, Setup, TrainData, no_prepared_network
from biasbed.compute import checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.optim import ParameterRoles, make_optimizer
from biasbed.compute.precision import Precision
from biasbed.config import Config, Optim, config_class
from biasbed.errors import Failure, UsageError, shown
from biasbed.networks import layers
from biasbed.networks.features import compute_features
from biasbed.networks.network import head_parameters
from biasbed.settings import build, specs
from biasbed.tasks import MULTI_CLASS, TASKS, Task


def make_algorithm(
    config: Any,
    task: Task,
    group: Group,
    precision: Precision,
    data: TrainData,
    prepared: Callable[[str], nn.Module] = no_prepared_network,
    features: Callable[[networks.Network, Tensor], Tensor] = compute_features,
    classes: Sequence[str] = (),
) -> Algorithm:
    """Return the configured algorithm with new networks on the group's device. Only training needs `prepared`.

    features: computes the features of networks that are not trained. classes: names of the classes.
    """

    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return make_optimizer(config.optim, config.batch_size, parameters, find_roles(config.optim, algorithm))

    setup = Setup(
        num_classes=data.num_classes,
        task=task.smoothed(config.label_smoothing) if config.label_smoothing else task,
        network=make_network_factory(config, data.num_classes, group),
        optimizer=optimizer,
        group=group,
        precision=precision,
        accumulate=config.accumulate,
        prepared=prepared,
        features=features,
        clip=config.optim.clip,
        classes=tuple(classes),
        load=lambda make: group.send_module(make(config.backbone, config.init)),
    )
    algorithm: Algorithm = algorithms.load(config.algorithm)(config.hparams, setup)
    if config.optim.head_factor != 1 and not any(True for _ in head_parameters(algorithm)):
        raise UsageError(f"optim.head_factor: {config.algorithm} has no network with a linear classifier")
    algorithm.on_train_data(data)
    return group.send_module(algorithm)


def start_algorithm(config: Any, group: Group, make: Callable[[], Algorithm]) -> Algorithm:
    """Return the algorithm ready to train: equal on all ranks, with generators that then differ between them.

    make: calls `make_algorithm`, once the seed is set.
    """
    torch.manual_seed(config.seed)
    algorithm = make()
    if config.compile:
        from biasbed.networks import compilation

        compilation.compile_networks(algorithm)
    group.share_module(algorithm)
    group.seed(config.seed)
    algorithm.start()
    return algorithm


def find_roles(optim: Optim, algorithm: nn.Module) -> ParameterRoles:
    """Return the parameters of an algorithm's networks that have their own rate or decay with these settings."""
    return ParameterRoles(
        head={id(parameter) for parameter in head_parameters(algorithm)},
        # Without a decay or a rate of their own, embeddings and layers need not be told from other parameters.
        embeddings=() if optim.decay_embeddings else {id(p) for p in layers.embedding_parameters(algorithm)},
        depths={} if optim.layer_decay == 1 else layers.parameter_depths(algorithm),
    )


def make_network_factory(config: Any, num_classes: int, group: Group) -> Callable[..., networks.Network]:
    """Return the function that makes networks on the group's device (`Setup.network`).

    All have the settings `network.*`. The initial weights, statistics frozen with them, and stochastic depth belong to
    the configured architecture; weights only at its default width. Every other network starts from scratch.
    """

    def network(
        backbone: str | None = None, outputs: int | None = None, *, head: bool = True, width: float = 1.0
    ) -> networks.Network:
        name = config.backbone if backbone is None else backbone
        is_configured = networks.resolve(name) == networks.resolve(config.backbone)
        return group.send_module(
            networks.build(
                name,
                num_classes if outputs is None else outputs,
                config.init if width == 1 and is_configured else "scratch",
                config.network if is_configured else replace(config.network, drop_path=None),
                image_size=config.image_size,
                width=width,
                head=head,
                mean_std=mean_std(config) if is_configured else None,
            )
        )

    return network


def mean_std(config: Config) -> networks.MeanStd | None:
    """Return the mean and std that a config sets. None if they follow the weights."""
    if config.mean == "auto" or config.std == "auto":
        return None
    return networks.MeanStd(config.mean, config.std)


class Trained(NamedTuple):
    """Content of one of our checkpoints."""

    algorithm: Algorithm  # on the CPU
    config: Config  # without the suite's settings
    classes: tuple[str, ...]
    settings: Mapping[str, Any]  # all settings of the training by dotted name, as in the file
    task: Task
    normalisation: networks.Normalisation


def from_checkpoint(path: Path, method: str = "auto", where: str = "") -> Trained:
    """Return the trained algorithm of one of our checkpoints and the file's description of it.

    method: the user's own method, if it is one; a method named only by the file is never imported. where: name of the
    file in messages, instead of its path. Raises UsageError or Failure with one line, whatever the file holds.
    """
    state = checkpoint.load(path, where=f"the checkpoint of {where}" if where else "")
    where = where or str(path)
    if "config" not in state or "algorithm" not in state:
        raise UsageError(
            f"{where} is no checkpoint of biasbed; for other weights give model=torchvision:<name> weights="
        )
    try:
        checkpoint.check_parts(state, checkpoint.DESCRIPTION)
        values, classes = state["config"], tuple(map(str, state["classes"]))
        method_name = algorithms.REGISTRY.name_to_load(values.get("algorithm"), method, where)
        cls = config_class(Config, algorithms.load(method_name).HParams)
        general = {name: v for name, v in values.items() if name in specs(Config) or name.startswith("hparams.")}
        stored = networks.normalisation_from_json(state.get(checkpoint.NORMALISATION))
        if stored is not None:
            general |= {"mean": stored.mean, "std": stored.std}
        config = build(cls, {**general, "algorithm": method_name, "init": "scratch"})
        networks.require_cached(config.backbone)
        data = _train_data(state["train_data"], len(classes))
        task = TASKS[state.get(checkpoint.TASK, MULTI_CLASS.name)]
        algorithm = make_algorithm(config, task, Group(), Precision(), data, classes=classes)
        algorithm.load_marks(state.get(checkpoint.MARKS, {}))
        algorithm.load_state_dict(state["algorithm"])
    except (UsageError, Failure) as error:
        message = str(error)
        error.args = (shown(message if where in message else f"{where}: {message}", 1000),)
        raise error from None
    except Exception as error:  # the file may hold anything, and the user's own method may raise anything
        raise Failure(f"{where} was written by other code: {checkpoint.first_line_of(error)}") from None
    normalisation = stored or networks.find_normalisation(config.backbone, "scratch", config.network, mean_std(config))
    return Trained(algorithm.eval(), config, classes, values, task, normalisation)


def _train_data(values: Mapping[str, Any], classes: int) -> TrainData:
    """Return the facts about the training data. Raises ValueError if they don't fit the number of classes."""
    data = TrainData(**values)
    counts = (data.num_examples, data.num_classes, data.num_domains, data.num_biases)
    are_counts = all(isinstance(count, int) for count in counts)
    if not are_counts or data.num_classes != classes or min(counts[:3]) < 1 or data.num_biases < 0:
        raise ValueError(f"it has {classes} classes, but describes its training data as {data}")
    return data
