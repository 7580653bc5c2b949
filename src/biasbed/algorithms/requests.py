"""What a method asks of its training: streams of images and how they are made, stages, passes over the training images.

Plain values, which a method returns and the engine fulfils; nothing here reads an image or takes a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from biasbed.batch import Batch


@dataclass(frozen=True)
class View:
    """How one of the copies of an image is made, once it has been cropped to its size.

    name: of `data.views.REGISTRY`, or `<file>.py:<Class>` of one's own; settings: what that is told, by name.
    """

    name: str = "plain"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamRequest:
    """Which images come together in a step, and how. What is None is as the suite usually has it.

    data: shares of data sets, by the suite's names or `train` (None: the method's `training_data`).
    size: images of a step over all processes, of *every* domain where `per_domain` (None: `batch_size`).
    image_size: pixels per side (None: the setting `image_size`).
    views: one for each copy of an image; x is then [N,V,C,H,W], with a single one [N,C,H,W].
    shared: crop and flip are drawn once for all copies of an image. clean: as in tests, with neither drawn.
    by: columns (`y`, `domain`, `bias`, `group`) of which each combination is drawn equally often.
    weights: name of the method's table [num_examples] by `index` that says how often an image is drawn: with
    `replacement` in proportion to it; else, of whole numbers, so often in each pass. It is read when the stage begins.
    per_domain: equal parts of all domains. A method that uses domains gets them one after the other. multiple: of which
    number each process's part of a domain is a multiple, where there are several processes.
    labelled: whether `y` comes along. drop_last: the last batch of a pass is left out where it is not full.
    """

    data: Mapping[str, float] | None = None
    size: int | None = None
    image_size: int | None = None
    views: tuple[View, ...] = (View(),)
    shared: bool = False
    clean: bool = False
    by: tuple[str, ...] | None = None
    weights: str = ""
    replacement: bool | None = None
    per_domain: bool | None = None
    multiple: int = 1
    labelled: bool = True
    drop_last: bool | None = None

    def over(self, usual: StreamRequest) -> StreamRequest:
        """This request, with what it leaves open as in `usual`."""
        open_ = ("by", "replacement", "per_domain", "drop_last")
        values = {name: getattr(usual if getattr(self, name) is None else self, name) for name in open_}
        return StreamRequest(**{**vars(self), **values})

    def shares(self, usual: Mapping[str, float]) -> Mapping[str, float]:
        """Of its data sets. usual: the method's `training_data`."""
        return usual if self.data is None else self.data

    @property
    def needs(self) -> frozenset[str]:
        """Of `needs.NEEDS`, what the images must have for it; groups tell what biases them."""
        columns = {"bias" if name == "group" else name for name in self.by or ()} - {"y"}
        return frozenset(columns | ({"domain"} if self.per_domain else set()))


def _nothing() -> None:
    """What happens where a stage begins or ends, unless it says so."""


@dataclass(frozen=True)
class Stage:
    """A phase of training with its own update. It lasts as long as one of `epochs`, `steps` and `share` says.

    epochs, steps: on top of the configured duration. share: part of the configured duration, which the last stage is
    shorter by. None of them: what is left of it, which is for the last stage; a last one of so many epochs or steps may
    follow others that take all of it.
    begin, end: called once, before its first step and after its last one, on every process alike.
    streams: what is read in it (None: the method's `streams`).
    rate: factor of the initial learning rate by the part of the stage that is done, in place of the configured course.
    course: where on the configured course of the rate it begins and ends, which several stages may follow together.
    validate: what it trains is validated after every epoch, by `predict` or, if given, by this function; recorded under
    the stage's name. Only the last stage is tested, and its validation decides what is best.
    best: name of a module that has, once the stage is over, the weights with which most validation images were decided
    rightly (empty: none); the stage validates then. It is asked at its end too, and a tie goes to the earlier ones.
    """

    name: str
    update: Callable[[Batch], Mapping[str, Tensor]]
    epochs: int | None = None
    steps: int | None = None
    share: float | None = None
    begin: Callable[[], None] = _nothing
    end: Callable[[], None] = _nothing
    streams: Mapping[str, StreamRequest] | None = None
    rate: Callable[[float], float] | None = None
    course: tuple[float, float] = (0.0, 1.0)
    validate: bool | Callable[[Tensor], Tensor] = False
    best: str = ""

    def along(self, total: int) -> tuple[float, float]:
        """(steps before the first of its `total`, all steps) of the configured course, at this stage's pace."""
        begin, end = self.course
        whole = total / (end - begin)
        return begin * whole, whole


@dataclass(frozen=True)
class Pass:
    """A look at every training image once, in order, as in tests, in evaluation mode and without gradients.

    look: from a batch (undeclared columns hidden, as ever) to named tensors [N,...]; keep: gets them for all these
    images [num_examples,...], rows by `index`, on every process alike. They are on the CPU: move to the device of the
    method's own tensors what meets those.
    data: names of the data sets that are looked at, one after the other (none: those of the main stream).
    """

    name: str
    look: Callable[[Batch], Mapping[str, Tensor]]
    keep: Callable[[Mapping[str, Tensor]], None]
    data: tuple[str, ...] = ()


Phase = Stage | Pass
