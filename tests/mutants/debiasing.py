"""Faults of the methods for biased data and of what is measured of them."""

from __future__ import annotations

from . import Mutant, of

METHODS = "src/biasbed/algorithms"
VECTORS = "algorithms/test_vectors.py::test_ours_is_as_the_authors_have_it"

MUTANTS: list[Mutant] = [
    *of(
        f"{METHODS}/relative_difficulty.py",
        f"{VECTORS}[debiasing/lff_steps]",
        (
            "LfF: the biased network is not amplified",
            "return q * (-q * ce.detach()).exp() * ce",
            "return q * ce",
            "it would learn what conflicts with the bias as well",
            f"{VECTORS}[debiasing/gce_a]",
        ),
        (
            "LfF: averages forget",
            "averaged = self.alpha * self.losses[:, rows] + (1 - self.alpha) * means",
            "averaged = means",
            "weights would follow the noise of one step",
        ),
        (
            "LfF: easy images count",
            "return biased / (biased + unbiased + 1e-8)",
            "return unbiased / (biased + unbiased + 1e-8)",
            "the second network would learn the bias",
        ),
    ),
    *of(
        f"{METHODS}/disent.py",
        f"{VECTORS}[debiasing/disent_steps]",
        (
            "DisEnt: the biased loss moves the other encoder",
            "return logits, self.biased_head(torch.cat([codes.detach(), biased_codes], 1))",
            "return logits, self.biased_head(torch.cat([codes, biased_codes], 1))",
            "both codes would hold the bias",
        ),
    ),
    *of(
        f"{METHODS}/biasensemble.py",
        f"{VECTORS}[debiasing/biasensemble_lff_steps]",
        (
            "BiasEnsemble: the biased classifier is taught every image",
            "return self.mean_over(ce, self.selected[index].to(ce.dtype))",
            "return ce.mean()",
            "the selection would be for nothing",
            f"{VECTORS}[debiasing/biasensemble_lff_steps]",
        ),
    ),
    *of(
        f"{METHODS}/end.py",
        f"{VECTORS}[debiasing/end_a]",
        (
            "EnD: images are pairs with themselves",
            "inner = (self.sums.sum(0).square().sum(1) - self.squares.sum(0)) / 2",
            "inner = self.sums.sum(0).square().sum(1) / 2",
            "the term would never fall below that of the images alone",
        ),
        (
            "EnD: entangles images of one bias",
            "number = (self.counts.sum(1).square() - self.counts.square().sum(1)).sum() / 2",
            "number = self.counts.sum(1).square().sum() / 2",
            "pairs are of different biases",
        ),
    ),
    *of(
        f"{METHODS}/rebias.py",
        f"{VECTORS}[debiasing/hsic_b]",
        (
            "ReBias: the biased estimator of dependence",
            "return (_centred(x, width_x) * _centred(y, width_y)).sum() / (n * (n - 3))",
            "return (_centred(x, width_x) * _centred(y, width_y)).sum() / (n * n)",
            "it would hang on the batch's size",
        ),
        (
            "ReBias: a kernel of twice the width",
            "torch.expm1(-squared_distances(x) / (2 * width**2))",
            "torch.expm1(-squared_distances(x) / (4 * width**2))",
            "unlike features would seem alike",
        ),
    ),
    *of(
        f"{METHODS}/rebias.py",
        "algorithms/test_debiasing_coupled.py",
        (
            "ReBias: each network has the other one's width",
            "return hsic(x, y, *self.widths.unbind())",
            "return hsic(x, y, *self.widths.flip(0).unbind())",
            "features of one scale would be compared at the other one's",
            "::test_rebias_gives_each_network_the_width_of_its_own_features",
        ),
        (
            "ReBias: widths are kept in the wrong order",
            "self._set_widths(features, seen)",
            "self._set_widths(seen, features)",
            "features of one scale would be compared at the other one's",
            "::test_rebias_gives_each_network_the_width_of_its_own_features",
        ),
        (
            "ReBias: independence of the biased network before its step",
            "self.apply_gradients(gradients)\n        gradients, more = "
            "self.grads(batch, lambda part: self.network_loss(part, features))\n",
            "later, more = self.grads(batch, lambda part: self.network_loss(part, features))\n"
            "        self.apply_gradients(gradients)\n        gradients = later\n",
            "the network would flee from what the biased one no longer is",
            "::test_rebias_s_network_is_to_be_independent_of_the_biased_one_after_its_step",
        ),
    ),
    *of(
        f"{METHODS}/contrastive.py",
        f"{VECTORS}[debiasing/softcon_a]",
        (
            "contrast: a view is among those it is to be far from",
            "others = similarities.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)",
            "others = similarities.logsumexp(1, keepdim=True)",
            "its likeness to itself would hide all others",
        ),
        (
            "contrast: views without a positive are left out of the mean",
            "return each.mean()",
            "return each.sum() / (total > 0).sum().clamp(min=1)",
            "the published loss counts them",
            f"{VECTORS}[debiasing/biascon_extra]",
        ),
    ),
    *of(
        f"{METHODS}/hex.py",
        f"{VECTORS}[debiasing/hex]",
        (
            "HEX: the texture's logits lack the shift",
            "project_out(logits + texture_logits, texture_logits + self._bias)",
            "project_out(logits + texture_logits, texture_logits)",
            "it would project out something else",
        ),
        (
            "HEX: tests have norms of their own",
            "self.norms.lerp_(norms, MOMENTUM)",
            "self.norms",
            "features would be as large as they are in tests, and small in training",
            "algorithms/test_debiasing_coupled.py::test_hex_tests_with_the_norms_of_training",
        ),
        (
            "HEX: running norms of momentum 0.9",
            "MOMENTUM = 0.1",
            "MOMENTUM = 0.9",
            "tests would divide by the norms of the last batch or two",
            "algorithms/test_debiasing_coupled.py::test_hex_s_running_norms_move_by_a_tenth",
        ),
        (
            "HEX: small eigenvalues are inverted",
            "rtol=LEAST, hermitian=True",
            "rtol=1e-30, hermitian=True",
            "noise of rounding would be projected out, too",
            "algorithms/test_debiasing_coupled.py::test_hex_projects_where_textures_are_fewer_than_classes",
        ),
    ),
    *of(
        f"{METHODS}/hex.py",
        f"{VECTORS}[debiasing/hex]",
        (
            "HEX: beyond the border is the pixel itself",
            "padded = functional.pad(x, (max(columns, 0), max(-columns, 0), max(rows, 0), max(-rows, 0)))",
            "padded = functional.pad(x, (max(columns, 0), max(-columns, 0), max(rows, 0), max(-rows, 0)), 'replicate')",
            "the published border has 0",
        ),
        (
            "HEX: grey levels are rounded",
            ".trunc()",
            ".round()",
            "theirs are cut off",
        ),
    ),
    *of(
        f"{METHODS}/softcon.py",
        "algorithms/test_debiasing_coupled.py",
        (
            "SoftCon: an image is its own partner",
            " & (index[:, None] != index[None, :])",
            "",
            "two views of an image would have the weight of rounding",
            "::test_softcon_s_partners_are_of_one_class_and_seen_apart",
        ),
        (
            "SoftCon: images are drawn without a limit",
            "self.unlikeness.clamp_max(self.hparams.ratio * self.unlikeness.min())",
            "self.unlikeness",
            "few images would fill the batches",
            "::test_softcon_draws_what_is_unlike_its_class_most_often",
        ),
        (
            "SoftCon: pairs weigh by how alike they are",
            "apart = 1 - b @ b.T",
            "apart = 1 + b @ b.T",
            "the bias itself would be learnt",
            f"{VECTORS}[debiasing/softcon_a]",
        ),
    ),
    *of(
        f"{METHODS}/lnl.py",
        "algorithms/test_debiasing_coupled.py",
        (
            "LNL: the later half is stepped by the predictor",
            "main = [next(early) if is_early else None for is_early in self.is_early]",
            "main = [next(early) if is_early else torch.zeros(()) for is_early in self.is_early]",
            "momentum and decay would move it",
            "::test_lnl_s_second_phase_leaves_the_later_half_alone",
        ),
    ),
    *of(
        f"{METHODS}/jtt.py",
        "algorithms/test_debiasing_groups.py",
        (
            "JTT: the error set alone is read",
            "return 1 + (self.hparams.upweight - 1) * self.error",
            "return self.hparams.upweight * self.error",
            "the second network would never see what is easy",
            "::test_jtt_s_second_training_reads_the_error_set_so_many_times",
        ),
    ),
    *of(
        f"{METHODS}/last_layer.py",
        "algorithms/test_dfr.py",
        (
            "DFR: the last of equal strengths",
            "strength = strengths[int(np.argmax(accuracies))]",
            "strength = strengths[len(accuracies) - 1 - int(np.argmax(accuracies[::-1]))]",
            "of equal ones the first counts",
            "::test_the_strength_is_the_first_of_those_whose_worst_group_is_best",
        ),
        (
            "DFR: groups as they are",
            "least = np.unique(group, return_counts=True)[1].min()",
            "least = len(group)",
            "the last layer would be fitted to the bias",
            "::test_draws_have_as_many_of_each_group_and_halves_have_all",
        ),
    ),
    *of(
        "src/biasbed/datasets/biased.py",
        "suites/test_debiasing.py",
        (
            "severity: rounded down",
            "return math.ceil(round(severity * images / 100, 9))",
            "return math.floor(round(severity * images / 100, 9))",
            "other numbers than the published, none in small classes",
            "::test_conflicting_images_of_a_class",
        ),
    ),
    *of(
        "src/biasbed/datasets/corrupted_cifar10.py",
        "datasets/test_corrupted_cifar10.py",
        (
            "Corrupted CIFAR: conflicting images keep their class's corruption",
            "recipe.corrupt(source, rows[conflicting], bias[conflicting])",
            "recipe.corrupt(source, rows[conflicting], y[conflicting])",
            "no image would conflict with the bias, whatever its label says",
            "::test_an_image_is_its_original_under_the_corruption_that_its_bias_says",
        ),
        (
            "Corrupted CIFAR: every test image is aligned",
            "bias[members] = (label + np.arange(len(members))) % classes",
            "bias[members] = label",
            "the test would be more biased than training",
            "::test_images_of_each_class_at_the_published_shares",
        ),
    ),
    *of(
        "src/biasbed/data/corruptions/corruption.py",
        "data/test_corruptions.py",
        (
            "corruptions: 224's constants for small images",
            "self.at_32 if shape == (SMALL_SIDE, SMALL_SIDE) else self.parameters",
            "self.parameters",
            "images of 32 pixels would be destroyed",
            "::test_constants_of_32_pixels_are_for_images_of_32_x_32_alone",
        ),
    ),
]
