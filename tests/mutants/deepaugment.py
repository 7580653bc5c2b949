"""Faults of what makes DeepAugment's images."""

from __future__ import annotations

from . import Mutant, of

NETWORKS, PREPARE = "src/biasbed/networks", "src/biasbed/prepare"

MUTANTS: list[Mutant] = [
    *of(
        f"{NETWORKS}/cae.py",
        "algorithms/test_vectors.py::test_ours_is_as_the_authors_have_it[cae_forward_a]",
        (
            "cae: bits the wrong way round",
            "bits = (uniform <= probability)",
            "bits = (uniform > probability)",
            "the code is the image's negative",
        ),
    ),
    *of(
        f"{PREPARE}/deepaug_cae.py",
        "algorithms/test_vectors.py::test_ours_is_as_the_authors_have_it[cae_forward_a]",
        (
            "cae: option 1 by another law",
            "latent = dropped_positions(latent, draws.uniform(h, w))",
            "latent = dropped_positions(latent, draws.uniform(h, w) ** 2)",
            "45 % of the positions are dropped instead of 20 %",
        ),
        (
            "cae: option 2 per channel",
            "latent = negated_positions(latent, draws.uniform(h, w))",
            "latent = negated_positions(latent, draws.uniform(channels, h, w))",
            "the authors negate positions in all channels at once",
        ),
        (
            "cae: weight option 2 with 12 of 25 filters",
            "2: (zeroed, 25), 3:",
            "2: (zeroed, 12), 3:",
            "half as many filters are zeroed",
            "prepare/test_deepaugment.py::test_cae_numbers_of_filters_that_are_drawn",
        ),
        (
            "cae: options 4 and 5 swapped",
            "if option == 4 else range(channels)",
            "if option == 5 else range(channels)",
            "all channels are mirrored where five should be",
        ),
        (
            "cae: amplified before it is made of bits",
            "code = amplified(code, 3, 4, draws.fraction()",
            "code = amplified(code, 1, 4, draws.fraction()",
            "codes of 1 to 5 instead of 3 to 7",
        ),
        (
            "cae: the shift of option 8 stays",
            "if draws.fraction() < 0.2:",
            "if draws.fraction() < 0.02:",
            "channels move together",
            "prepare/test_deepaugment.py::test_cae_shifts_are_drawn_anew_for_one_channel_in_five",
        ),
        (
            "cae: layers of option 3 one too far",
            "_FLIPPED, _LATE, _OTHERS = range(11, 16), range(10, 14), range(8, 14)",
            "_FLIPPED, _LATE, _OTHERS = range(11, 16), range(10, 15), range(8, 14)",
            "a layer is distorted that the authors leave alone",
            "prepare/test_deepaugment.py::test_cae_layers",
        ),
    ),
    *of(
        f"{PREPARE}/deepaug_edsr.py",
        "algorithms/test_vectors.py::test_ours_is_as_the_authors_have_it[edsr_forward_a]",
        (
            "edsr: odds of relu and gelu swapped",
            "2: functional.relu if rare else functional.gelu",
            "2: functional.gelu if rare else functional.relu",
            "relu is the rarer one",
        ),
        (
            "edsr: even odds",
            "rare = draws.below(3) == 1",
            "rare = draws.below(2) == 1",
            "variants at 1 to 1 instead of 1 to 2",
        ),
        (
            "edsr: two of three weight options",
            "draws.several(len(WEIGHT_OPTIONS), 3)",
            "draws.several(len(WEIGHT_OPTIONS), 2)",
            "weaker distortions",
            "prepare/test_deepaugment.py::test_edsr_redraws_three_options_in_turn",
        ),
        (
            "edsr: Dirichlet of concentration 1",
            "rng.dirichlet([0.1] * 9",
            "rng.dirichlet([1.0] * 9",
            "kernels blur evenly instead of moving",
            "prepare/test_deepaugment.py::test_edsr_blurs_have_most_of_their_mass_on_few_taps",
        ),
        (
            "edsr: pairs are swapped",
            "result[:, to] = result[:, source]",
            "result[:, [to, source]] = result[:, [source, to]]",
            "what the authors mean but do not do",
        ),
        (
            "edsr: a tenth is dropped",
            "torch.round(uniform + 0.45)",
            "torch.round(uniform + 0.40)",
            "twice as many zeros",
        ),
        (
            "edsr: skipped modules counted from 1",
            "[2 + skipped for skipped in draws.several(15, 3)]",
            "[1 + skipped for skipped in draws.several(15, 3)]",
            "the last module can never be skipped",
        ),
        (
            "edsr: noise of option 9 is centred",
            "return (2 * fraction * uniform - 1) / 6",
            "return fraction * (2 * uniform - 1) / 6",
            "what the authors mean but do not do",
            "algorithms/test_vectors.py::test_ours_is_as_the_authors_have_it[edsr_weight_ops_a]",
        ),
        (
            "edsr: option 11 shakes half as much",
            "return weight + (uniform - 0.5)",
            "return weight + (uniform - 0.5) / 2",
            "weaker noise",
            "algorithms/test_vectors.py::test_ours_is_as_the_authors_have_it[edsr_weight_ops_a]",
        ),
    ),
    *of(
        f"{PREPARE}/distortion.py",
        "prepare/test_deepaugment.py",
        (
            "distortion: a filter listed twice is negated",
            "return tensor * (1 - 2 * (_counts(tensor, filters) % 2))",
            "return tensor * (1 - 2 * _counts(tensor, filters).clamp(max=1))",
            "twice is not at all",
            "::test_double_draws",
        ),
        (
            "distortion: kernels keep their largest magnitude",
            "largest = flat.topk(1)",
            "largest = flat.abs().topk(1)",
            "the authors keep the largest value, with its sign",
            "::test_cae_kernel_options",
        ),
    ),
]
