"""Training methods by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.errors import UsageError, shown
from biasbed.record import slug
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
    },
    takes_own=True,
)


def names() -> list[str]:
    """The methods, in the order of the registry."""
    return list(REGISTRY)


def load(name: str) -> type[Algorithm]:
    """The class of a method: of the registry, or your own: `<file>.py:<Class>`, or `<module>:<Class>`.

    Raises UsageError with the nearest valid name where there is none of that name.
    """
    found: type[Algorithm] = REGISTRY.load(name)
    if not (isinstance(found, type) and hasattr(found, "HParams")):
        raise UsageError(f"algorithm={name} is no training method: a subclass of biasbed.algorithms.base.Algorithm is")
    if name not in REGISTRY and identifier(name) in REGISTRY:
        raise UsageError(
            f"algorithm={name}: call the class otherwise, '{identifier(name)}' is one of biasbed's methods"
        )
    return found


def vouched(recorded: Any, named: str, where: str, remedy: str = "") -> str:
    """The method to load where a file or a server says `recorded`: one of biasbed's, else the one that the user named.

    What is read is only ever compared with names: no file and no server chooses which code is imported. named: the
    word that the user gave on the command line, or `auto`. Raises UsageError where one has to be given, as in `remedy`.
    """
    if not isinstance(recorded, str):
        raise UsageError(f"{where} names no training method")
    if named == "auto":
        if recorded not in REGISTRY and ":" in recorded:
            raise UsageError(
                f"the method of {where} is {shown(recorded)}, which is not one of biasbed's: name it yourself, "
                f"{remedy or f'algorithm={by_hand(recorded)}'}, if you trust that file"
            )
        return recorded
    if identifier(named) != identifier(recorded):
        raise UsageError(f"algorithm={named}: the method of {where} is {shown(recorded)}")
    return settled(named)


def by_hand(recorded: str) -> str:
    """How a user names the method that a file or a server names: where its own file lies, only the user knows."""
    attribute = recorded.rpartition(":")[2]
    own = f"<file>.py:{attribute if attribute.isidentifier() else '<Class>'}"
    return recorded if recorded in REGISTRY else shown(own)


def settled(name: str) -> str:
    """The name with a file's whole path, so that it means the same in any folder."""
    place, _, attribute = name.rpartition(":")
    return f"{Path(place).expanduser().resolve()}:{attribute}" if place.endswith(".py") else name


def identifier(name: str) -> str:
    """What runs are filed under: the name in the registry, or the class's name."""
    return name if name in REGISTRY else slug(name.rpartition(":")[2])
