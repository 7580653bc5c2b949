"""Faults of the methods by relative difficulty: weights, what is permuted, what is selected, and what is kept."""

from __future__ import annotations

from . import Mutant, of

VECTOR = "algorithms/test_vectors.py::test_ours_is_as_the_authors_have_it[debiasing/{}]"
LFF_STEPS, DISENT_STEPS, ENSEMBLE_STEPS = map(VECTOR.format, ("lff_steps", "disent_steps", "biasensemble_disent_steps"))
AT_THRESHOLD = VECTOR.format("biasensemble_selection_at_threshold")
TESTS = "algorithms/test_debiasing_difficulty.py::test_"

MUTANTS: list[Mutant] = [
    *of(
        "src/biasbed/algorithms/relative_difficulty.py",
        LFF_STEPS,
        (
            "difficulty: a first loss is averaged with nothing",
            "torch.where(self.seen[rows], averaged, means)",
            "averaged",
            "weights would rise from 0.3 of the losses",
        ),
        (
            "difficulty: difficulty relative to all classes",
            "largest[:, labels].clamp",
            "largest.amax(1, keepdim=True).clamp",
            "hard classes would count more than others",
        ),
        (
            "difficulty: an image's repeats are summed",
            "torch.where(same, values[:, None], 0).sum(2) / same.sum(1)",
            "torch.where(same, values[:, None], 0).sum(2)",
            "images drawn twice would look twice as hard",
            f"{TESTS}an_image_that_a_step_has_twice_enters_once",
        ),
    ),
    *of(
        "src/biasbed/algorithms/disent.py",
        DISENT_STEPS,
        (
            "difficulty: the swapped biased code keeps its label",
            "cross_entropy(biased_logits, swapped_y)",
            "cross_entropy(biased_logits, batch.y)",
            "the biased classifier would be taught labels that its code does not show",
        ),
        (
            "difficulty: weights come along with permuted codes",
            "loss = (weights * cross_entropy(logits, batch.y)).mean()",
            "loss = (weights[rows] * cross_entropy(logits, batch.y)).mean()",
            "images would be weighted by another image's difficulty",
        ),
        (
            "difficulty: the selection stays where it was",
            "cross_entropy(biased_logits, swapped_y), swapped_index)",
            "cross_entropy(biased_logits, swapped_y), batch.index)",
            "codes of images that conflict would teach the biased classifier",
            ENSEMBLE_STEPS,
        ),
    ),
    *of(
        "src/biasbed/algorithms/biasensemble.py",
        AT_THRESHOLD,
        (
            "difficulty: as sure as the threshold is enough",
            "(probabilities > threshold)",
            "(probabilities >= threshold)",
            "images at the threshold would be selected",
        ),
        (
            "difficulty: one more has to agree",
            ".sum(0) >= agreement",
            ".sum(0) > agreement",
            "fewer images would be selected than the authors select",
        ),
    ),
    *of(
        "src/biasbed/training/state.py",
        f"{TESTS}what_decided_best_in_a_stage_is_kept_and_the_earlier_of_two_alike",
        (
            "difficulty: the last weights of a stage are kept",
            'if not self.kept or measures.is_better(value, self.kept["value"], higher_is_better=True):',
            "if True:",
            "biased networks would be those of the end, whatever validation says",
        ),
    ),
]
