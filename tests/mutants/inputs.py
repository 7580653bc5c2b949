"""Faults of what is read and refused: images, tables, answers, outputs; and of the value that a rule chose by."""

from __future__ import annotations

from . import Mutant, of

DATA = "src/biasbed/data"
SELECTION = "analysis/selection"
CHOSEN = "analysis/selection/test_rules.py::test_a_choice_tells_the_value_that_it_was_made_by"

MUTANTS: list[Mutant] = [
    *of(
        f"{DATA}/corruptions/blur.py",
        "data/test_corruptions_opencv.py::test_kernels_are_frozen",
        (
            "defocus blur: the centre comes first along rows too",
            "rows = _sum_fused([pairs[0], centre, *pairs[1:]])",
            "rows = _sum_fused([centre, *pairs])",
            "the kernel's last bits decide whether a flat area loses a grey level",
        ),
        (
            "defocus blur: the last columns are fused too",
            "smooth[:, fused_columns:] = _sum_rounded(terms)[:, fused_columns:]",
            "smooth[:, fused_columns:] = smooth[:, fused_columns:]",
            "severity 5 would differ from OpenCV",
        ),
    ),
    *of(
        "src/biasbed/evaluation/evaluator.py",
        "evaluation/test_evaluator.py::test_outputs_that_are_not_finite_decide_nothing",
        (
            "outputs: infinities count",
            "is_finite = logits.isfinite()",
            "is_finite = ~logits.isnan()",
            "an image would be decided for the class that overflowed",
        ),
    ),
    *of(
        "src/biasbed/datasets/metadata_csv.py",
        "datasets/test_biased.py::test_an_image_under_two_spellings_is_one_image",
        (
            "tables: paths are compared as they are spelt",
            "row._replace(image=posixpath.normpath(row.image))",
            "row._replace(image=row.image)",
            "an image could train and test",
        ),
    ),
    *of(
        f"{SELECTION}/rules.py",
        CHOSEN,
        (
            "best epoch per run: the sum is told for the mean",
            "mean = math.fsum(values) / len(self.blocks)",
            "mean = math.fsum(values)",
            "runs.csv would show more than 100 percent",
        ),
    ),
    *of(
        f"{SELECTION}/select.py",
        CHOSEN,
        (
            "selection values: every one in percent",
            "return measures.scale(measures.described(protocol, metric).unit) if metric else column.scale",
            "return column.scale",
            "a loss would be shown a hundred times too high",
        ),
    ),
]
