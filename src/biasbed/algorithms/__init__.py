"""Training methods by name. Does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from biasbed.registry import Registry

if TYPE_CHECKING:
    from biasbed.algorithms.base import Algorithm

REGISTRY = Registry(
    "algorithm",
    {
        "erm": "biasbed.algorithms.erm:ERM",
        "stylized_erm": "biasbed.algorithms.other_data:StylizedERM",
        "infodrop": "biasbed.algorithms.infodrop:InfoDrop",
        "padain": "biasbed.algorithms.padain:PAdaIN",
        "sagnet": "biasbed.algorithms.sagnet:SagNet",
        "debiased": "biasbed.algorithms.debiased:Debiased",
        "deepaug_cae": "biasbed.algorithms.other_data:DeepAugCAE",
        "deepaug_edsr": "biasbed.algorithms.other_data:DeepAugEDSR",
        "noise2net": "biasbed.algorithms.noise2net:Noise2Net",
        "deepaug": "biasbed.algorithms.other_data:DeepAug",
        "deepaug_all": "biasbed.algorithms.other_data:DeepAugAll",
        "irm": "biasbed.algorithms.irm:IRM",
        "vrex": "biasbed.algorithms.vrex:VREx",
        "group_dro": "biasbed.algorithms.group_dro:GroupDRO",
        "mixup": "biasbed.algorithms.mixup:Mixup",
        "mldg": "biasbed.algorithms.mldg:MLDG",
        "coral": "biasbed.algorithms.coral:CORAL",
        "mmd": "biasbed.algorithms.mmd:MMD",
        "dann": "biasbed.algorithms.dann:DANN",
        "cdann": "biasbed.algorithms.cdann:CDANN",
        "end": "biasbed.algorithms.end:EnD",
        "biascon": "biasbed.algorithms.biascon:BiasCon",
        "softcon": "biasbed.algorithms.softcon:SoftCon",
        "hex": "biasbed.algorithms.hex:HEX",
        "rebias": "biasbed.algorithms.rebias:ReBias",
        "lnl": "biasbed.algorithms.lnl:LNL",
        "jtt": "biasbed.algorithms.jtt:JTT",
        "dfr": "biasbed.algorithms.dfr:DFR",
        "lff": "biasbed.algorithms.lff:LfF",
        "disent": "biasbed.algorithms.disent:DisEnt",
        "biasensemble": "biasbed.algorithms.biasensemble:BiasEnsemble",
        "augmix": "biasbed.algorithms.augmix:AugMix",
        "deepaug_augmix": "biasbed.algorithms.other_data:DeepAugAugMix",
        "trivialaugment": "biasbed.algorithms.trivialaugment:TrivialAugment",
        "random_erasing": "biasbed.algorithms.random_erasing:RandomErasing",
        "speckle": "biasbed.algorithms.speckle:Speckle",
        "fast_adversarial": "biasbed.algorithms.fast_adversarial:FastAdversarial",
        "style_transfer": "biasbed.algorithms.other_data:CleanAndStylized",
        "probe": "biasbed.algorithms.probe:Probe",
        "knn": "biasbed.algorithms.knn:KNN",
        "lp_ft": "biasbed.algorithms.lp_ft:LPFT",
        "wise_ft": "biasbed.algorithms.wise_ft:WiSEFT",
    },
    base="biasbed.algorithms.base:Algorithm",
)


def names() -> list[str]:
    """Return the names of the methods in the order of the registry."""
    return list(REGISTRY)


def load(name: str) -> type[Algorithm]:
    """Return the class of a method: a name in the registry, or your own as `<file>.py:<Class>` or `<module>:<Class>`.

    Raises UsageError with the nearest valid name if there is no such method.
    """
    method: type[Algorithm] = REGISTRY.load(name)
    return method


def identifier(name: str) -> str:
    """Return the name under which a method's runs are filed: its name in the registry, or the class's name."""
    return REGISTRY.identifier(name)
