"""Mean and standard deviation by which a network normalises its images, and where they come from.

Answers: Which mean and standard deviation does a network's input have?
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from biasbed.errors import UsageError, listed, shown
from biasbed.networks.backbones import Architecture, tag_mean_std, timm_tags
from biasbed.networks.form import MeanStd

if TYPE_CHECKING:
    from biasbed.networks.fitting import Fitted

# Mean and std for backbones that take images as they are, or divided by 255 once more, as some authors' programs do.
SCALES = {"unit": MeanStd((0.0,), (1.0,)), "unit_255": MeanStd((0.0,), (255.0,))}
Kind = Literal["given", "scale", "checkpoint", "tag", "architecture"]


class Normalisation(NamedTuple):
    """Mean and standard deviation by channel, with their source."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    kind: Kind
    why: str  # the source as a clause, for messages

    @property
    def values(self) -> MeanStd:
        return MeanStd(self.mean, self.std)

    @property
    def line(self) -> str:
        """Sentence about the values and their source, for the terminal and for reports."""
        mean, std = (", ".join(f"{number:.6g}" for number in numbers) for numbers in self.values)
        return f"images are normalised by mean {mean} and std {std}: {self.why}"

    def as_json(self) -> dict[str, Any]:
        return {"mean": list(self.mean), "std": list(self.std), "kind": self.kind, "why": self.why}


def choose_normalisation(
    architecture: Architecture,
    usual: MeanStd,
    *,
    fitted: Fitted | None = None,
    mean_std: MeanStd | None = None,
    scale: str = "auto",
    source: str = "",
) -> Normalisation:
    """Return the normalisation of a network: `mean_std`, else what its weights say, else the architecture's own.

    architecture: with the tag of the weights, if there is one. usual: mean and std that belong to it, by channel.
    fitted: weights of a file; None if they come from the library, or if there are none. scale: `network.scale`.
    source: name of the file in messages. Raises UsageError if the file has tensors that the network does not take,
    which may normalise images, and neither `mean_std` nor `scale` is given.
    """
    channels = len(usual.mean)
    if mean_std is not None:
        return Normalisation(*one_per_channel(mean_std, channels), "given", "given")
    if scale != "auto":
        return Normalisation(*SCALES[scale].repeat(channels), "scale", f"network.scale={scale}")
    if fitted is not None and fitted.mean_std is not None:
        mean_std = one_per_channel(fitted.mean_std, channels)
        return Normalisation(*mean_std, "checkpoint", "those of the checkpoint's training")
    if fitted is not None and fitted.beside:
        raise UsageError(
            f"{source}: has tensors that {architecture.name} does not take and that may normalise its images: "
            f"{listed(map(shown, fitted.beside), 4)}; give mean= and std= of images in [0,1], and they are left out"
        )
    if architecture.is_optional:
        preprocessing = architecture.optional_library.preprocessing(architecture.name, architecture.tag)
        return Normalisation(*usual, "tag", f"of the model's own configuration, which expects {preprocessing.text}")
    if architecture.has_own_config:
        return Normalisation(*usual, "tag", "of the model's own configuration")
    if architecture.tag:
        source_of_tag = "of the weights' tag" if fitted is None else "of the tag in the network's name"
        return Normalisation(*usual, "tag", f"{source_of_tag}, {architecture.tag}")
    doubt = "" if fitted is None else _doubt(architecture)
    return Normalisation(*usual, "architecture", f"default of the architecture{doubt}")


def one_per_channel(values: MeanStd, channels: int) -> MeanStd:
    """Return mean and std with a value for each channel, from one for all channels or one for each.

    Raises UsageError for any other number of values.
    """
    mean, std = (numbers * channels if len(numbers) == 1 else numbers for numbers in values)
    if len(mean) != channels or len(std) != channels:
        raise UsageError(f"mean= and std= should have 1 number, or {channels} (one per channel), not {len(mean)}")
    return MeanStd(mean, std)


def _doubt(architecture: Architecture) -> str:
    """Return a clause if a file's weights, whose tag is unknown, may need other values. Empty if not."""
    if architecture.library != "timm":
        return ""
    tags = timm_tags(architecture.name)
    values = {tag_mean_std(Architecture("timm", architecture.name, tag)) for tag in tags}
    if len(values) < 2:
        return ""
    return (
        f", which is assumed, as the file does not say and timm's weights differ ({', '.join(tags[:4])}"
        f"{', ...' * (len(tags) > 4)}): give mean= and std=, or the weights' tag, as timm:{architecture.name}.{tags[0]}"
    )


def from_json(values: Mapping[str, Any] | None) -> Normalisation | None:
    """Return the normalisation that `as_json` wrote. None stays None."""
    if values is None:
        return None
    return Normalisation(tuple(values["mean"]), tuple(values["std"]), values["kind"], str(values["why"]))
