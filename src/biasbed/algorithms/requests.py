"""Requests that a method makes of its training: streams of images and their views, stages, and passes over all images.

Plain values that a method returns and the engine fulfils. Nothing here imports torch, reads an image or takes a step.

Answers: What may a method ask for?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from biasbed.batch import Batch

VALIDATION = "validation"  # in the data of a pass

# Needs of methods that not all training data meet, with their descriptions.
NEEDS: Mapping[str, str] = {
    "bias": "bias labels of the training images",
    "domain": "training images of several domains",
    "bias_type": "a bias of a known type",
    "validation_bias": "bias labels of the validation images",
}


@dataclass(frozen=True)
class View:
    """Recipe for one copy of an image, applied after the crop to its size.

    name: a name in `data.views.REGISTRY`, or your own `<file>.py:<Class>`. settings: its arguments by name.
    """

    name: str = "plain"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamRequest:
    """Images that a step reads together, and their form. None stands for the suite's default.

    data: shares of data sets, by the suite's names or `train` (None: the method's `training_data`).
    size: images of a step over all processes; of *each* domain with `per_domain` (None: `batch_size`).
    image_size: pixels per side (None: the setting `image_size`).
    views: one for each copy of an image; x is then [N,V,C,H,W], with a single view [N,C,H,W].
    shared: draw crop and flip once for all copies of an image. clean: draw neither, as in evaluation.
    by: columns (`y`, `domain`, `bias`, `group`) whose combinations are drawn equally often.
    weights: name of the method's table [num_examples] by `index` that says how often an image is drawn. With
    `replacement`, in proportion to it; else it holds integers, the number of times in each pass. Read when the stage
    begins.
    per_domain: equal parts of all domains. A method that uses domains gets them one after the other. multiple: each
    process's part of a domain is a multiple of this number if there are several processes.
    labelled: include `y`. drop_last: leave out the last batch of a pass if it is not full.
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

    def with_defaults(self, defaults: StreamRequest) -> StreamRequest:
        """Return this request with `by`, `replacement`, `per_domain` and `drop_last` filled in from `defaults`."""
        names = ("by", "replacement", "per_domain", "drop_last")
        values = {name: getattr(defaults if getattr(self, name) is None else self, name) for name in names}
        return StreamRequest(**{**vars(self), **values})

    def shares(self, training_data: Mapping[str, float]) -> Mapping[str, float]:
        """Return the shares of its data sets. training_data: the method's, used if the request has none."""
        return training_data if self.data is None else self.data

    @property
    def needs(self) -> frozenset[str]:
        """Names in `NEEDS` that the images must provide. Groups need bias labels."""
        columns = {"bias" if name == "group" else name for name in self.by or ()} - {"y"}
        return frozenset(columns | ({"domain"} if self.per_domain else set()))


def _do_nothing() -> None:
    """Do nothing when a stage begins or ends."""


@dataclass(frozen=True)
class Stage:
    """Phase of training with its own update, as long as the one of `epochs`, `steps` and `share` that is set.

    epochs, steps: in addition to the configured duration. share: part of the configured duration, taken from the last
    stage. None of them: the rest of the configured duration, for the last stage; a last stage with its own epochs or
    steps may follow stages that take all of it.
    begin, end: called once, before the first step and after the last one, on every process.
    streams: streams that are read in this stage (None: the method's `streams`).
    rate: factor of the initial learning rate by the finished part of the stage, instead of the configured schedule.
    course: part of the configured schedule that the stage follows, for stages that share one schedule.
    validate: evaluate on validation images after every epoch, with `predict` or the given function, recorded under the
    stage's name. Only the last stage is tested, and its validation selects the best epoch.
    best: name of a module that gets the weights with the best validation accuracy when the stage ends (empty: none);
    the stage then validates. It also validates at its end. Ties go to the earlier epoch.
    learns: False for a step that changes no weight. It takes a batch that is not full, whatever `drop_last` says.
    """

    name: str
    update: Callable[[Batch], Mapping[str, Tensor]]
    epochs: int | None = None
    steps: int | None = None
    share: float | None = None
    begin: Callable[[], None] = _do_nothing
    end: Callable[[], None] = _do_nothing
    streams: Mapping[str, StreamRequest] | None = None
    rate: Callable[[float], float] | None = None
    course: tuple[float, float] = (0.0, 1.0)
    validate: bool | Callable[[Tensor], Tensor] = False
    best: str = ""
    learns: bool = True

    def schedule_steps(self, total: int) -> ScheduleSteps:
        """Return the stage's place on the configured schedule, stretched so that the stage has `total` steps."""
        begin, end = self.course
        steps = total / (end - begin)
        return ScheduleSteps(begin * steps, steps)


class ScheduleSteps(NamedTuple):
    """Place of a stage on the configured schedule."""

    first: float  # steps of the schedule before the stage
    total: float  # steps of the whole schedule


@dataclass(frozen=True)
class Pass:
    """Pass over every training image once, in order, without augmentation and gradients, in evaluation mode.

    look: maps a batch (with the declared columns only) to named tensors [N,...]. keep: receives them for all images
    [num_examples,...], rows by `index`, on every process. They are on the CPU; move them to the device before combining
    them with the method's own tensors. data: names of the data sets to read, one after the other (none: those of the
    main stream). `VALIDATION` among them stands for the validation images behind the monitor, whose rows come last, in
    the order of the sets. begin: called before the first image, on every process.
    """

    name: str
    look: Callable[[Batch], Mapping[str, Tensor]]
    keep: Callable[[Mapping[str, Tensor]], None]
    data: tuple[str, ...] = ()
    begin: Callable[[], None] = _do_nothing


Phase = Stage | Pass
