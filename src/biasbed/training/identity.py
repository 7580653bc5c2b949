"""Identity of a training: `config_hash` of what is computed, and `run_key` with the seed as well.

Answers: How is a run's key made, and which settings are in it?
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from biasbed import record
from biasbed.config import Config, as_json
from biasbed.system import files

if TYPE_CHECKING:
    from biasbed.networks import Normalisation


def config_hash(
    config: Config, protocol: record.Protocol, data_fingerprint: str, normalisation: Normalisation | None = None
) -> str:
    """Return the hash of what is computed, seed aside: settings, protocol, data and the normalisation of images.

    normalisation: counts if the weights have brought it, since it does not follow from the settings then.
    """
    from biasbed import algorithms, networks, suites

    computed = as_json(config.identity_settings())
    computed["suite"] = suites.identifier(config.suite)  # independent of the path of a user's file
    computed["algorithm"] = algorithms.identifier(config.algorithm)
    computed["init"] = protocol.start  # the weights' content counts, not their path
    for name, value in computed.items():
        if name.startswith("hparams.") and isinstance(value, str) and files.CHECKSUM in value:
            computed[name] = value.partition(files.CHECKSUM)[2]  # a file's content counts, not its path
    usual = networks.usual_mean_std(config.backbone)
    if normalisation is not None and normalisation.kind in ("tag", "checkpoint") and normalisation.values != usual:
        computed["normalisation"] = [list(values) for values in normalisation.values]
    return record.digest({"config": computed, "protocol": protocol.hash, "data": data_fingerprint})


def run_key(config: Config, config_hash: str) -> str:
    """Return the hash of what is computed, seed included, and of whatever else tells runs of one config apart."""
    return record.digest({"config": config_hash, "cell": as_json(config.variant())})
