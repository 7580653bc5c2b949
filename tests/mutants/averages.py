"""Mistakes that are easily made in averaging weights, and in groups of parameters."""

from __future__ import annotations

from . import of

MUTANTS = [
    *of(
        "src/biasbed/compute/average.py",
        "compute/test_average.py",
        (
            "sma: from the step after the first",
            "if step >= self.first:",
            "if step > self.first:",
            "the mean is over other steps than is said",
            "::test_sma_is_the_mean_from_a_step_on",
        ),
        (
            "swad: tolerance of the smallest loss",
            "self.settings.tolerance * fmean(",
            "self.settings.tolerance * min(",
            "the threshold is of the mean of the first losses",
            "::test_random_losses_as_the_algorithm_has_it",
        ),
        (
            "swad: ends an evaluation late",
            "if self.above >= self.settings.overfit_patience:",
            "if self.above > self.settings.overfit_patience:",
            "the end is known after that many evaluations, and not one more",
            "::test_random_losses_as_the_algorithm_has_it",
        ),
        (
            "swad: a loss at the threshold is above it",
            "if loss <= self.threshold:",
            "if loss < self.threshold:",
            "the algorithm ends the valley by losses above the threshold alone",
            "::test_a_loss_at_the_threshold_is_in_the_valley",
        ),
        (
            "swad: without the weights at its start",
            "            self.since.add(self.weights())\n        self.window",
            "        self.window",
            "the weights at the start are the first of the mean",
            "::test_swad_is_the_mean_over_the_valley",
        ),
        (
            "average: running statistics of the last step",
            "weights |= {f",
            "_ = {f",
            "they are those of other weights than the averaged ones",
            "::test_weights_and_running_statistics_are_averaged_and_nothing_else",
        ),
        (
            "average: training goes on from the mean",
            "            _copy(live, weights)",
            "            pass",
            "an evaluation must leave training as it is",
            "::test_the_live_weights_are_back_after_an_error",
        ),
    ),
    *of(
        "src/biasbed/compute/optim.py",
        "compute/test_optim.py",
        (
            "optim: gradients in the order of groups",
            "return [parameters[number] for number in np.argsort(positions)] if positions else parameters",
            "return parameters",
            "parameters would be moved by the gradients of others",
            "::test_gradients_keep_the_order_in_which_parameters_were_asked_for",
        ),
        (
            "optim: piecewise at the step's beginning",
            "np.interp((step + 1) / total",
            "np.interp(step / total",
            "the rate is that of the step's end, as with warm-up",
            "::test_linear_between_points_at_every_step",
        ),
    ),
]
