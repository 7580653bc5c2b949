"""Text tower of a backbone, new or with initial weights."""

from __future__ import annotations

from biasbed.errors import UsageError, first_line
from biasbed.networks import weight_files
from biasbed.networks.backbones import Architecture, resolve
from biasbed.networks.fitting import fit
from biasbed.networks.model_libraries import select_tensors
from biasbed.networks.weights import fetch_weights, find_weights_file, name_some, resolve_weights
from biasbed.plugins.text_towers.small_towers import SmallTextTower
from biasbed.plugins.text_towers.towers import TextTower, TowerLibrary, no_text_tower_error
from biasbed.system import files


def load_text_tower(name: str, init: str) -> TextTower:
    """Return the text tower of a backbone with initial weights, on the CPU.

    init: as for the backbone; a file must hold the text tower too. Raises UsageError if the backbone has no text tower
    or the file lacks one, Failure if named weights can't be fetched.
    """
    architecture = resolve(name)
    if init == "scratch":
        return create_text_tower(architecture)
    if init.startswith("named:"):
        named = resolve_weights(architecture, init)
        tower, tensors = create_text_tower(named), fetch_weights(named, init)
        source = init
    else:
        tower, path = create_text_tower(architecture), find_weights_file(init)
        state = tower.model.state_dict()
        source = f"init={path}"
        fitted = fit(weight_files.read(path, "init"), state, (), files.split_setting(init).part, source)
        tensors = fitted.tensors
    missing = sorted(tower.model.state_dict().keys() - tensors.keys())
    if missing:
        raise UsageError(
            f"{source}: holds no text tower of {name}: {name_some(missing)} missing; give weights of both towers, or a "
            "method that uses images alone, such as algorithm=probe"
        )
    try:
        tower.model.load_state_dict(select_tensors(tensors, tower.model))
    except RuntimeError as error:
        raise UsageError(f"{source}: not the text tower of {name}: {first_line(error)}") from None
    return tower


def create_text_tower(architecture: Architecture) -> TextTower:
    """Return a fresh text tower. Raises UsageError if the backbone has none."""
    if architecture.name == "small_clip":
        return SmallTextTower()
    library = architecture.optional_library if architecture.is_optional else None
    if not isinstance(library, TowerLibrary):
        raise no_text_tower_error(architecture.name)
    return library.create_text(architecture.name, architecture.tag)
