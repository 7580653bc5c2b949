"""Card of a tested model as one HTML page: accuracy, reliance on cues, shape bias, corruptions, calibration, examples.

The page has style, figures and images inside and loads nothing. Its values are those that are printed and tracked; the
template `card.html` places them.

Answers: What is on the page that `evaluate report=` writes?
"""

from __future__ import annotations

import base64
import functools
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

from biasbed import __version__, measures, record
from biasbed.data.corruptions import BENCHMARK
from biasbed.data.corruptions.corruption import SIDE as MEANT_SIDE
from biasbed.data.corruptions.suppression import BILATERAL_FILTER, GAUSSIAN_SMOOTHING, GREY_BLEND, PATCH_SHUFFLE
from biasbed.data.transforms import keyed_randomness
from biasbed.datasets.suppressed import CLEAN
from biasbed.errors import UsageError
from biasbed.evaluation.cue_figure import has_published_categories
from biasbed.evaluation.decision_tables import DecisionTables
from biasbed.evaluation.decisions import CUES, MEASURES, OF_CONFLICTS, Decisions
from biasbed.evaluation.evaluation_job import EvaluationJob
from biasbed.evaluation.intervals import accuracy_interval
from biasbed.evaluation.report import cue_rows
from biasbed.published import observers, printed_tables
from biasbed.published.display_names import display_name
from biasbed.suites.reliance_sets import SUFFIX, WHOLE_SUFFIX, conditions, input_side
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite
from biasbed.system import code
from biasbed.system.files import write_whole

TEMPLATE = "card.html"
SUFFIXES = (".html", ".htm")
PROFILE = "looks_at.csv"  # the table of the plug-in that measures cues
RELIANCE = "reliance_"  # begins the measures of what is lost without a cue
# Column and meaning of each measure of calibration.
CALIBRATION = {
    "ece": ("ECE", "ECE: mean gap between confidence and accuracy, in 15 bins of confidence"),
    "loss": ("NLL", "NLL: mean negative log-probability of the image's class"),
    "brier": ("Brier score", "Brier score: mean squared error of the probabilities of the classes"),
}
EXAMPLES = 3  # images
SIDE = 160  # pixels of an example
HASH_DIGITS = 16
# What is lost, by the measure that says so.
WITHOUT = {
    "reliance_shape": "without global shape (cells shuffled)",
    "reliance_texture": "without texture (bilateral filter)",
    "loss_by_gaussian_smoothing": "without texture and local shape (blur)",
    "reliance_colour": "without colour (grey)",
}
# Heads of the examples' columns, by suppression.
SHOWN = {
    CLEAN: "as it is",
    PATCH_SHUFFLE.name: "cells shuffled",
    BILATERAL_FILTER.name: "bilateral filter",
    GAUSSIAN_SMOOTHING.name: "blur",
    GREY_BLEND.name: "grey",
}
KNOWN_NETWORK = "resnet50"  # of the published errors under corruptions


class ValueBar(NamedTuple):
    """Value with its interval, in percent. mark: another value on the same line, as chance; NaN for none."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    mark: float = math.nan
    is_ours: bool = True  # False: of people or of a published model

    @property
    def text(self) -> str:
        """Value and interval as they are printed."""
        interval = "" if math.isnan(self.low) else f" ({self.low:z.1f} to {self.high:z.1f})"  # z: no minus before zero
        return f"{self.value:z.1f} %{interval}"

    @property
    def places(self) -> dict[str, float]:
        """Positions on the line, in percent of its width; of values that there are."""
        numbers = {"value": self.value, "low": self.low, "high": self.high, "mark": self.mark}
        return {name: min(max(number, 0.0), 100.0) for name, number in numbers.items() if not math.isnan(number)}


class StrengthCurve(NamedTuple):
    """Accuracy under one suppression, in percent, from weak to strong."""

    name: str
    strengths: tuple[str, ...]
    values: tuple[float, ...]

    @property
    def points(self) -> str:
        """Points of a line in a box of 100 x 100."""
        step = 100 / max(1, len(self.values) - 1)
        return " ".join(f"{number * step:.1f},{100 - value:.1f}" for number, value in enumerate(self.values))

    @property
    def about(self) -> str:
        """Every value in words."""
        parts = [f"{strength}: {value:.1f} %" for strength, value in zip(self.strengths, self.values, strict=True)]
        return f"{self.name} {', '.join(parts)}"


class Example(NamedTuple):
    """Image as the network got it, with the decision on it."""

    picture: str  # as an address with the content inside
    decision: str
    is_right: bool


class ExampleRow(NamedTuple):
    """Image of a class under each condition."""

    label: str
    examples: tuple[Example, ...]


class Panel(NamedTuple):
    """Part of the page: bars, curves, a table or images, and below them what the numbers mean.

    meaning: sentences on the numbers. published: sentence on people's and published models' values, with the source.
    """

    title: str
    meaning: str
    published: str = ""
    bars: Sequence[ValueBar] = ()
    curves: Sequence[StrengthCurve] = ()
    head: Sequence[str] = ()  # of columns, of the table or of the images
    rows: Sequence[Sequence[str]] = ()
    images: Sequence[ExampleRow] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.bars or self.curves or self.rows or self.images)


def check_path(file: str | Path) -> Path:
    """Return the path of a page that can be written there. Raises UsageError for another ending, or without folder."""
    path = Path(file).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"report={file}: the card is a page; give a file that ends in .html")
    if not path.parent.is_dir():
        raise UsageError(f"report={file}: there is no folder {path.parent}")
    return path


@dataclass(frozen=True, eq=False)
class CardPage:
    """Page of one evaluation. decided: the decisions on each set. metrics: by name. tables: of plug-ins."""

    job: EvaluationJob
    suite: OpenSuite
    decided: Sequence[Decisions]
    metrics: Mapping[str, float]
    tables: DecisionTables

    def write(self, file: str | Path) -> Path:
        """Write the page and return its path. Raises UsageError if there is no folder for it."""
        path = check_path(file)
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
        )
        environment.trim_blocks = environment.lstrip_blocks = True
        write_whole(path, environment.get_template(TEMPLATE).render(self.content()))
        return path

    def content(self) -> dict[str, Any]:
        """Return what the template prints."""
        network = self.job.backbone or self.job.given_settings["model"]  # many rows are called erm
        tested = ", ".join(display_name(decisions.set) for decisions in self.plain_decisions)
        return {
            "title": self.job.row,
            "subtitle": f"{network}, tested on {tested}",
            "answer": list(self.answer()),
            "remarks": self.suite.remarks,
            "facts": self.facts(),
            "panels": [panel for panel in self.panels() if not panel.is_empty],
        }

    # --- what is there ------------------------------------------------------------------------------------------------

    @functools.cached_property
    def sets(self) -> Mapping[str, EvaluationSet]:
        return {member.name: member for member in self.suite.testing}

    @functools.cached_property
    def plain_decisions(self) -> list[Decisions]:
        """Decisions on the sets whose images are shown as they are."""
        return [decisions for decisions in self.decided if self.sets[decisions.set].source.condition is None]

    @functools.cached_property
    def reliance_decisions(self) -> list[Decisions]:
        """Decisions on the sets whose images are also shown without a cue."""
        names = {value.name for value in self.suite.derivations if value.measure.startswith(RELIANCE)}
        return [decisions for decisions in self.decided if decisions.set in names]

    @functools.cached_property
    def cue_profile(self) -> Sequence[Mapping[str, Any]]:
        """Rows of the cue profile; empty without the plug-in."""
        return self.tables[PROFILE].rows if PROFILE in self.tables else ()

    # --- head of the page ---------------------------------------------------------------------------------------------

    def answer(self) -> Iterator[str]:
        """Yield sentences with the headline numbers."""
        for decisions in self.plain_decisions[:1]:
            score = self._score(decisions)
            sentence = f"Its {self._score_name(decisions)} on {display_name(decisions.set)} is {100 * score:.1f} %"
            if self._exceeds_chance(decisions):
                yield f"{sentence}."
            else:
                yield f"{sentence}, which is not shown to exceed chance, {100 * self._chance(decisions):.1f} %."
        tested = {decisions.set: decisions for decisions in self.plain_decisions}
        for decisions in self.reliance_decisions:
            parts = []
            for measure in WITHOUT:
                value = self._find_metric(measure, decisions.set)
                if measure.startswith(RELIANCE) and not math.isnan(value):
                    parts.append(f"{100 * value:.1f} % without {measure.removeprefix(RELIANCE)}")
            if parts and self._exceeds_chance(tested[self._find_original(decisions)]):
                yield (
                    f"Of its {self._score_name(decisions)} above chance on {self._name_original(decisions)} it loses "
                    f"{', '.join(parts)}."
                )
            else:
                yield (
                    "Its reliance can't be told: it is not shown to be better than chance on "
                    f"{self._name_original(decisions)}."
                )

    def facts(self) -> list[tuple[str, str]]:
        """Return what the model and the images are, as names and values."""
        job = self.job
        commit, has_changes = code.git_state()
        source = f", commit {commit[:10]}{' with changes' if has_changes == 'true' else ''}" if commit else ""
        images = dict.fromkeys(decisions.preprocessing for decisions in self.plain_decisions)
        maps = dict.fromkeys(decisions.label_map for decisions in self.plain_decisions)
        facts = [
            ("model", str(job.given_settings["model"])),
            ("backbone", job.backbone),
            ("parameters", f"{job.parameters or 0:,}"),
            ("weights", f"hash {job.weights[:HASH_DIGITS]}"),
            ("data", f"suite {Path(job.suite_name).name}, fingerprint {job.fingerprint}, protocol {job.protocol.hash}"),
            ("images", "; ".join(images)),
            ("normalisation", "" if job.normalisation is None else job.normalisation.line),
            ("label map", ", ".join(maps)),
            ("tested by", f"biasbed {__version__}{source}"),
        ]
        return [(name, value) for name, value in facts if value]

    # --- panels -------------------------------------------------------------------------------------------------------

    def panels(self) -> Iterator[Panel]:
        """Yield the parts of the page, also empty ones."""
        yield self._accuracy()
        for decisions in self.reliance_decisions:
            yield self._reliance(decisions)
            yield self._strengths(decisions)
        for decisions in self.plain_decisions:
            yield self._shape_bias(decisions)
        yield self._further_cues()
        for decisions in self.decided:
            yield self._corruptions(decisions.set)
        yield self._calibration()
        for decisions in self.reliance_decisions:
            yield self._examples(decisions)

    def _accuracy(self) -> Panel:
        bars = []
        for decisions in self.plain_decisions:
            has_several = decisions.targets is not None
            interval = (math.nan, math.nan) if has_several else accuracy_interval(decisions)
            score = self._score(decisions)
            bars.append(_make_bar(display_name(decisions.set), score, *interval, self._chance(decisions)))
        if any(decisions.targets is not None for decisions in self.plain_decisions):
            meaning = "Mean average precision over the labels. The thin mark is chance, which a random order gets."
            return Panel("Mean average precision", meaning, bars=bars)
        return Panel(
            "Accuracy",
            "Share of the images whose decision is their class, with the 95 % interval over images. The thin mark is "
            "chance, which guessing among the set's classes gets.",
            bars=bars,
        )

    def _reliance(self, decisions: Decisions) -> Panel:
        intervals = {}
        for row in self.cue_profile:
            if row["set"] == decisions.set:
                intervals[row["measure"]] = (row["low"], row["high"])
        bars = []
        for measure, name in WITHOUT.items():
            value = self._find_metric(measure, decisions.set)
            if not math.isnan(value):
                bars.append(_make_bar(name, value, *intervals.get(measure, ())))
        side, size_remark = input_side(self.sets[self._find_original(decisions)]), ""
        if side < MEANT_SIDE:
            size_remark = f" Suppressions are meant for {MEANT_SIDE} pixels; these images have {side} and lose more."
        return Panel(
            f"Reliance on shape, texture and colour: {self._name_original(decisions)}",
            f"What is lost of the {self._score_name(decisions)} above chance when a cue is taken out of the same "
            f"images. 0 %: nothing; 100 %: only chance is left, {100 * self._chance(decisions):.1f} % here. A 95 % "
            f"interval draws an image with all its copies.{size_remark}",
            "Burgert et al. (NeurIPS 2025) conclude that CNNs of ImageNet rely most on local shape, not on texture, "
            "and that ConvNeXts and ViTs do less so. Their values hold for their images; none stands here.",
            bars=bars,
        )

    def _strengths(self, decisions: Decisions) -> Panel:
        """Return the headline under each suppression in several strengths."""
        accuracies: dict[str, dict[str, float]] = {}  # suppression -> strength -> accuracy
        for condition in self.sets[decisions.set].source.conditions:
            suppression, _, strength = condition.partition("-")
            if "-" not in strength:  # two constants have no order
                accuracies.setdefault(suppression, {})[strength] = self._score_under(decisions, condition)
        curves = []
        for suppression, by_strength in accuracies.items():
            if len(by_strength) > 1:
                curves.append(
                    StrengthCurve(suppression.replace("_", " "), tuple(by_strength), tuple(by_strength.values()))
                )
        name = self._score_name(decisions).capitalize()
        return Panel(
            f"{name} by strength of suppression",
            f"{name} from 0 to 100 %, from the weakest to the strongest suppression; without suppression it is "
            f"{self._score_under(decisions, CLEAN):.1f} %. A coarse grid of cells takes global shape; the finer it is, "
            "the more local shape goes, too.",
            curves=curves,
        )

    def _shape_bias(self, decisions: Decisions) -> Panel:
        rows = cue_rows(decisions) if decisions.cues == CUES else []
        if not rows:
            return Panel("Shape bias", "")
        total, published = rows[0], ""
        bars = [_make_bar(self.job.row, total["shape_bias"], total["shape_bias_low"], total["shape_bias_high"])]
        if has_published_categories(decisions):
            everybody = observers.pooled("people", observers.people())
            networks = [observer for observer in observers.observers() if observer.name in observers.KNOWN]
            for observer in (everybody, *networks):
                bars.append(_make_bar(observer.name, observer.shape_bias, *observer.interval, is_ours=False))
            published = f"People and the networks: decisions that {observers.CITATION} released, of their figure 4."
        decided = total["shape"] + total["texture"]
        return Panel(
            "Shape bias",
            f"Share of the shape among {decided:,} decisions for either cue, on {total['images']:,} images whose shape "
            "and texture conflict. It says which cue wins, and reliance which one is missed: the two can disagree.",
            published,
            bars=bars,
        )

    def _further_cues(self) -> Panel:
        bars = []
        for row in self.cue_profile:
            is_shown = row["measure"] in (*WITHOUT, *OF_CONFLICTS)
            if row["unit"] == measures.FRACTION and not is_shown:
                name = f"{row['cue']}: {row['meaning']}"
                bars.append(_make_bar(name, row["value"], row["low"], row["high"], row["people"]))
        return Panel(
            "Further cues",
            "What else the tested sets tell of, with 95 % intervals over images. The thin mark is people's value.",
            bars=bars,
        )

    def _corruptions(self, name: str) -> Panel:
        bars = []
        for corruption in BENCHMARK:
            error = self._find_metric(f"error_{corruption}", name)
            if not math.isnan(error):
                bars.append(_make_bar(corruption.replace("_", " "), 1 - error))
        mce = self._find_metric("mce", name)
        meaning = "Accuracy under each corruption, the mean over its five severities."
        if math.isnan(mce):
            return Panel(f"Corruptions of {display_name(name)}", meaning, bars=bars)
        errors = printed_tables.corruption_errors(KNOWN_NETWORK)
        return Panel(
            f"Corruptions of {display_name(name)}",
            f"{meaning} mCE, the mean of its errors by AlexNet's, is {100 * mce:.1f} %.",
            f"ResNet-50 has mCE {100 * sum(errors) / len(errors):.0f} % (Hendrycks et al. 2021, table 7).",
            bars=bars,
        )

    def _calibration(self) -> Panel:
        """Return the calibration of the plain sets, a row each, by the measures that there are."""
        available = []
        for measure in CALIBRATION:
            if any(not math.isnan(self._find_metric(measure, decisions.set)) for decisions in self.plain_decisions):
                available.append(measure)
        rows = []
        for decisions in self.plain_decisions:
            texts = [display_name(decisions.set)]
            for measure in available:
                value = self._find_metric(measure, decisions.set)
                texts.append("" if math.isnan(value) else _in_unit(value, measures.find_measure(measure).unit))
            rows.append(texts)
        head = ("set", *(CALIBRATION[measure][0] for measure in available))
        meaning = f"{'; '.join(CALIBRATION[measure][1] for measure in available)}. Less is better."
        return Panel("Calibration", meaning, head=head, rows=rows if available else ())

    def _examples(self, decisions: Decisions) -> Panel:
        """Return some images under suppressions, with the decisions on them."""
        member = self.sets[decisions.set]
        names = [condition.name for condition in conditions(is_whole=False)]
        shown = [number for number, condition in enumerate(member.source.conditions) if condition in names]
        trials = {image: trial for trial, image in enumerate(decisions.images)}
        originals = len(member.source) // len(member.source.conditions)
        images = []
        for original in np.unique(np.linspace(0, originals - 1, min(EXAMPLES, originals)).round().astype(int)):
            rows = [condition * originals + int(original) for condition in shown]  # of the set, condition by condition
            if not all(member.source.ids[row] in trials for row in rows):
                continue  # an image could not be read
            examples = [_make_example(member, decisions, row, trials[member.source.ids[row]]) for row in rows]
            label = decisions.label[trials[member.source.ids[rows[0]]]]
            images.append(ExampleRow(label, tuple(examples)))
        return Panel(
            f"What it saw and decided: {self._name_original(decisions)}",
            "Images as the network got them, with its decisions; wrong ones are in red, with the image's class.",
            head=[SHOWN[member.source.conditions[number].partition("-")[0]] for number in shown],
            images=images,
        )

    # --- names and values ---------------------------------------------------------------------------------------------

    @staticmethod
    def _find_original(decisions: Decisions) -> str:
        """Return the set whose images are suppressed."""
        return decisions.set.removesuffix(WHOLE_SUFFIX).removesuffix(SUFFIX)

    def _name_original(self, decisions: Decisions) -> str:
        """Return the display name of the set whose images are suppressed."""
        return display_name(self._find_original(decisions))

    @staticmethod
    def _headline(decisions: Decisions) -> str:
        """Return the measure whose loss is reliance: mean average precision if images have several labels."""
        return "accuracy" if decisions.targets is None else "map"

    def _score(self, decisions: Decisions) -> float:
        return MEASURES[self._headline(decisions)](decisions)

    def _score_name(self, decisions: Decisions) -> str:
        """Return the headline in words."""
        return "accuracy" if self._headline(decisions) == "accuracy" else "mean average precision"

    def _chance(self, decisions: Decisions) -> float:
        member = self.sets[decisions.set]
        return member.task.chance(self._headline(decisions), member.source.y, len(member.source.classes))

    def _exceeds_chance(self, decisions: Decisions) -> bool:
        """Return True if chance is below the interval of the accuracy; of several labels, below the headline."""
        if decisions.targets is None:
            return accuracy_interval(decisions)[0] > self._chance(decisions)
        return self._score(decisions) > self._chance(decisions)

    def _find_metric(self, measure: str, name: str) -> float:
        """Return a measure of a set; NaN if there is none."""
        return self.metrics.get(str(record.MetricName("test", measure, name)), math.nan)

    def _score_under(self, decisions: Decisions, condition: str) -> float:
        """Return the headline under a condition in percent."""
        measure = record.BY_CONDITION if decisions.targets is None else record.MAP_BY_CONDITION
        return 100 * self.metrics[str(record.MetricName("test", measure, decisions.set, condition))]


def _make_bar(
    name: str,
    value: float,
    low: float = math.nan,
    high: float = math.nan,
    mark: float = math.nan,
    is_ours: bool = True,
) -> ValueBar:
    """Return the bar of a fraction."""
    return ValueBar(name, 100 * value, 100 * low, 100 * high, 100 * mark, is_ours)


def _in_unit(value: float, unit: str) -> str:
    return f"{100 * value:.1f} %" if unit == measures.FRACTION else f"{value:.3f} {unit}"


def _make_example(member: EvaluationSet, decisions: Decisions, row: int, trial: int) -> Example:
    """Return an image of a set with the decision on it. row: of the set. trial: of the decisions."""
    with keyed_randomness(row):
        image = member.transform(member.source.open(row))
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    picture.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    address = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
    return Example(address, decisions.decision[trial], bool(decisions.right[trial]))
