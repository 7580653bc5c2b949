"""Faults that golden traces alone noticed, each with a value that is derived."""

from __future__ import annotations

from . import Mutant, of

METHODS = "src/biasbed/algorithms"
BY_HAND = "algorithms/test_by_hand.py"
DRAWS = "algorithms/test_draws.py"

MUTANTS: list[Mutant] = [
    *of(
        f"{METHODS}/base.py",
        BY_HAND,
        (
            "steps in parts: terms are summed",
            "at_least_fp32(loss.detach()) * share\n        averaged",
            "at_least_fp32(loss.detach())\n        averaged",
            "losses would grow with the number of parts",
            "::test_terms_of_a_step_in_parts_are_those_of_the_whole",
        ),
        (
            "processes: a share of the step is forgotten in gradients",
            "scale(at_least_fp32(loss) * (share * self.progress.weight))",
            "scale(at_least_fp32(loss) * share)",
            "images of a process that has few would count more",
            "::test_terms_of_a_step_in_parts_are_those_of_the_whole",
        ),
        (
            "processes: a share of the step is forgotten",
            "scale(total * (share * self.progress.weight)).backward()",
            "scale(total * share).backward()",
            "images of a process that has few would count more",
            "::test_a_process_with_fewer_images_moves_the_weights_less",
        ),
        (
            "stages: a part is done a step late",
            "return self._done >= round(part * self._total)",
            "return self._done > round(part * self._total)",
            "warm-ups would not end where schedules begin anew",
            "::test_a_part_of_a_stage_is_done_at_the_step_that_it_rounds_to",
        ),
        (
            "rates: parts of the last one",
            'parameters["lr"] = parameters["initial_lr"] * factor',
            'parameters["lr"] = parameters["lr"] * factor',
            "the rate would fall step by step",
            "::test_rates_are_parts_of_the_initial_one",
        ),
        (
            "steps in parts: decisions of the last part are counted",
            "right if self._runtime.correct is None else self._runtime.correct + right",
            "right",
            "the training accuracy would be too low",
            "::test_decisions_of_all_parts_and_steps_are_counted",
        ),
        (
            "processes: a weighted mean of unequal ones",
            "share = self.group.world / self.progress.weight",
            "share = self.group.world",
            "images of a process that has few would count less",
            "::test_a_weighted_mean_over_processes_of_different_numbers_of_images",
        ),
    ),
    *of(
        f"{METHODS}/draws.py",
        DRAWS,
        (
            "draws: uniform beyond the end",
            "alpha=high - low)",
            "alpha=high)",
            "strengths would be outside of their range",
            "::test_uniform_draws_are_scaled_to_both_ends",
        ),
        (
            "draws: dropout keeps what it should drop",
            "generator.device) >= rate",
            "generator.device) > 1 - rate",
            "at a rate of a tenth nine tenths would be gone",
            "algorithms/test_domain_methods.py::test_what_is_dropped_is_made_up_for",
        ),
        (
            "draws: a normal law of half the variance",
            "(-2 * (1 - radius).log()).sqrt()",
            "(-(1 - radius).log()).sqrt()",
            "noise would be weaker than is said",
            "::test_normal_draws_have_the_moments_of_the_law",
        ),
    ),
    *of(
        f"{METHODS}/mldg.py",
        BY_HAND,
        (
            "MLDG: the risk after the step ahead counts as much",
            "alpha=self.hparams.beta / self.num_domains",
            "alpha=1 / self.num_domains",
            "beta would do nothing",
            "::test_mldg_weighs_the_risk_after_the_step_ahead",
        ),
    ),
    *of(
        f"{METHODS}/matching.py",
        BY_HAND,
        (
            "CORAL, MMD: without the weight",
            '"penalty": self.hparams.gamma * penalty',
            '"penalty": penalty',
            "gamma would do nothing",
            "::test_the_distance_of_domains_enters_by_its_weight",
        ),
        (
            "CORAL, MMD: counts by the labels of other images",
            "self.observe(logits, batch.y)",
            "self.observe(logits, batch.y.flip(0))",
            "the training accuracy would be of the wrong labels",
            "::test_decisions_are_counted_by_the_labels_of_their_images",
        ),
    ),
    *of(
        f"{METHODS}/dann.py",
        BY_HAND,
        (
            "DANN: notes the whole loss",
            'self.note("classification", loss)\n        total',
            'self.note("classification", loss - self.adversarial(features, batch))\n        total',
            "what is logged as classification would hold the discriminator",
            "::test_dann_notes_the_classification_beside_the_adversary",
        ),
    ),
    *of(
        f"{METHODS}/mixup.py",
        BY_HAND,
        (
            "Mixup: counts for the smaller part",
            "y[a if part >= 0.5 else b]",
            "y[b if part >= 0.5 else a]",
            "the training accuracy would be of the wrong label",
            "::test_a_mixture_counts_for_the_label_of_its_larger_part",
        ),
    ),
    *of(
        f"{METHODS}/disent.py",
        BY_HAND,
        (
            "DisEnt: the swapped biased loss has one weight",
            "weight * self.settings.biased_swap_weight * biased",
            "self.settings.biased_swap_weight * biased",
            "lambda_swap would weigh one of both losses",
            "::test_disent_s_weights_of_its_terms",
        ),
    ),
    *of(
        f"{METHODS}/lnl.py",
        BY_HAND,
        (
            "LNL: entropy at full weight",
            "loss + self.hparams.entropy_weight * entropy",
            "loss + entropy",
            "entropy_weight would do nothing",
            "::test_lnl_s_weight_of_the_entropy",
        ),
    ),
    *of(
        f"{METHODS}/biasensemble.py",
        BY_HAND,
        (
            "BiasEnsemble: the first networks learn the cross-entropy",
            "loss = amplified(cross_entropy(logits, part.y), self.hparams.q).mean()",
            "loss = cross_entropy(logits, part.y).mean()",
            "they would be less biased than published",
            "::test_the_ensemble_s_networks_learn_the_bias_amplified",
        ),
    ),
    *of(
        f"{METHODS}/fast_adversarial.py",
        BY_HAND,
        (
            "attack: images leave their range",
            "self.attack(batch)).clamp(0, 1)",
            "self.attack(batch))",
            "trained on would be what no image is",
            "::test_what_an_attack_makes_of_an_image_is_an_image",
        ),
    ),
    *of(
        f"{METHODS}/sagnet.py",
        BY_HAND,
        (
            "SagNet: counts the style network's decisions",
            "self.observe(logits, batch.y)",
            "self.observe(logits_of_style, batch.y)",
            "the training accuracy would be the other network's",
            "::test_sagnet_counts_the_decisions_of_the_network_and_not_of_style",
        ),
    ),
    *of(
        f"{METHODS}/augmix.py",
        BY_HAND,
        (
            "AugMix: the divergence at weight 1",
            "self.hparams.jsd_weight * divergence",
            "divergence",
            "jsd_weight would do nothing",
            "::test_augmix_s_loss_by_its_definition",
        ),
    ),
    *of(
        f"{METHODS}/softcon.py",
        "algorithms/test_debiasing_coupled.py",
        (
            "SoftCon: biased features of any length",
            "functional.normalize(at_least_fp32(self.biased.features(batch.x)), dim=1)",
            "at_least_fp32(self.biased.features(batch.x))",
            "weights would hang on lengths and fall below 0",
            "::test_softcon_keeps_the_directions_of_biased_features",
        ),
    ),
    *of(
        f"{METHODS}/hex.py",
        "algorithms/test_debiasing_coupled.py",
        (
            "HEX: texture by the sum over pixels",
            " / x[0, 0].numel()",
            "",
            "texture would hang on the images' size",
            "::test_hex_s_texture_is_of_the_mean_over_pixels",
        ),
        (
            "HEX: counts decisions by features of any length",
            "self.network.classify(at_least_fp32(features) / norms), batch.y",
            "self.network.classify(at_least_fp32(features)), batch.y",
            "the training accuracy would be of decisions that nobody makes",
            f"{BY_HAND}::test_hex_counts_decisions_by_features_of_normed_columns",
        ),
    ),
    *of(
        "src/biasbed/compute/precision.py",
        "compute/test_precision.py",
        (
            "fp16: the scale doubles a step late",
            "self._accepted == self.growth_interval",
            "self._accepted > self.growth_interval",
            "the scale would follow another law than is said",
            "::test_the_scale_doubles_after_so_many_accepted_steps_in_a_row",
        ),
        (
            "fp16: the next row begins with a step in it",
            "self._scale, self._accepted = self._scale * 2, 0",
            "self._scale, self._accepted = self._scale * 2, 1",
            "the scale would double too early",
            "::test_the_scale_doubles_after_so_many_accepted_steps_in_a_row",
        ),
        (
            "fp16: a refused step does not end the row",
            "self._scale, self._accepted = max(self._scale / 2, 1.0), 0",
            "self._scale = max(self._scale / 2, 1.0)",
            "the scale would rise again at once",
            "::test_a_refused_step_halves_it_and_counting_begins_anew",
        ),
    ),
    *of(
        f"{METHODS}/relative_difficulty.py",
        BY_HAND,
        (
            "LfF: notes the sum of weights",
            'self.note("weight", weights.mean())',
            'self.note("weight", weights.sum())',
            "what is logged would hang on the batch's size",
            "::test_decisions_of_a_pair_are_counted_of_the_debiased_one[lff]",
        ),
    ),
    *of(
        f"{METHODS}/infodrop.py",
        "algorithms/test_infodrop.py",
        (
            "InfoDrop: draws stray from the weights",
            "weights.flatten(1) + 1e-8",
            "weights.flatten(1) + 1e-3",
            "what holds most information would be dropped, too",
            "::test_draws_go_where_the_weights_are",
        ),
    ),
    *of(
        f"{METHODS}/dfr.py",
        "algorithms/test_dfr.py",
        (
            "DFR: holds out fewer than the part",
            "taken = round(part * images)",
            "taken = int(part * images)",
            "small groups would lose the image that the part comes nearest to",
            "::test_dfr_holds_out_the_nearest_whole_number_of_a_group",
        ),
    ),
    *of(
        "src/biasbed/compute/distributed.py",
        "compute/test_distributed.py",
        (
            "processes: dropout is drawn alike",
            "torch.manual_seed(_mix(seed, self.rank + 1) ^ 1)",
            "torch.manual_seed(_mix(seed, 1) ^ 1)",
            "two processes would drop the same of different images",
            "::test_processes_draw_apart_and_what_they_share_alike",
        ),
    ),
    *of(
        "src/biasbed/compute/optim.py",
        "compute/test_optim.py",
        (
            "optim: a head at the common rate",
            'group.get("lr", rate) * optim.head_factor',
            "rate * optim.head_factor",
            "a discriminator's own rate would be lost",
            "::test_a_head_in_a_group_of_its_own_rate_goes_by_that",
        ),
        (
            "optim: the cosine ends after the training",
            "max(1, total - warm)",
            "max(1, total)",
            "the rate would not come down to 0",
            "::test_rates_after_a_warm_up_of_two_epochs[cosine-expected0]",
        ),
        (
            "optim: warm-up from nothing",
            "return (step + 1) / warm",
            "return step / warm",
            "the first step would do nothing",
            "::test_rates_after_a_warm_up_of_two_epochs[constant-expected2]",
        ),
        (
            "optim: milestones a step late",
            "step >= round(milestone * total)",
            "step > round(milestone * total)",
            "the rate would fall a step after what is said",
            "::test_rates_after_a_warm_up_of_two_epochs[step-expected1]",
        ),
        (
            "optim: momenta are forgotten a step late",
            "step < start <= following",
            "step <= start < following",
            "the first step of a new schedule would have the old one's momentum",
            "::test_a_schedule_begins_anew_after_the_step_before_a_restart",
        ),
    ),
]
