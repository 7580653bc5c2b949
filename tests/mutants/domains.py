"""Faults of data sets of several domains, and of the digits that are made into some."""

from __future__ import annotations

from . import Mutant, of

PACKAGE = "src/biasbed"

MUTANTS: list[Mutant] = [
    *of(
        f"{PACKAGE}/datasets/mnist.py",
        "algorithms/test_vectors.py",
        (
            "coloured: colour of the digit",
            "colour = y ^ (colours < disagreement)",
            "colour = (digits < 5) ^ (colours < disagreement)",
            "the colour would be one of the digit, not of the noisy label, and told less of it",
            "::test_ours_is_as_the_authors_have_it[domainbed/colored_mnist]",
        ),
        (
            "digits: dealt in blocks",
            "return [order[first::count] for first in range(count)]",
            "return np.array_split(order, count)",
            "domains would be others than the original makes of an order",
            "::test_ours_is_as_the_authors_have_it[domainbed/rotated_mnist]",
        ),
        (
            "rotated: clockwise",
            "image.rotate(angle, RESAMPLING[interpolation])",
            "image.rotate(-angle, RESAMPLING[interpolation])",
            "angles would be others than those that a domain is called after",
            "::test_ours_is_as_the_authors_have_it[domainbed/rotated_mnist]",
        ),
    ),
    *of(
        f"{PACKAGE}/datasets/mnist.py",
        "datasets/test_mnist.py",
        (
            "coloured: agreement for disagreement",
            "colored(digits.images[rows], digits.labels[rows], flips, colours, DISAGREEMENT[domain])",
            "colored(digits.images[rows], digits.labels[rows], flips, colours, 1 - DISAGREEMENT[domain])",
            "the domains would change their names",
            "::test_shares_are_those_that_the_domains_are_called_after",
        ),
        (
            "digits: the seed in the fingerprint",
            "pixels, origin = pooled(images, size), data_set.origin(digits)",
            'pixels, origin = pooled(images, size), f"{data_set.origin(digits)}{seed}"',
            "repeats would be of different data, in no table together",
            "::test_a_seed_settles_everything[colored_mnist]",
        ),
        (
            "digits: one order for both sets",
            "np.random.default_rng([seed, *data_set.name.encode()])",
            "np.random.default_rng([seed])",
            "results on the two sets would not be independent",
            "::test_the_two_sets_are_shuffled_apart",
        ),
    ),
    *of(
        f"{PACKAGE}/datasets/domains.py",
        "datasets/test_domains.py",
        (
            "domains: a class that one lacks",
            "            if lacking:\n",
            "            if not having:\n",
            "a domain without a class would be reported as if it had it",
            "::test_a_class_that_a_domain_lacks",
        ),
        (
            "domains: numbers by size",
            "np.repeat(np.arange(len(sources)), [len(source) for source in sources])",
            "np.arange(sum(map(len, sources))) % len(sources)",
            "images would count for other domains than their own",
            "::test_domains_that_train_are_one_source",
        ),
    ),
    *of(
        f"{PACKAGE}/suites/suite.py",
        "suites/test_domainbed.py",
        (
            "tested alike: the seed's part",
            "evaluation_set.source.origin or evaluation_set.source.fingerprint()",
            "evaluation_set.source.fingerprint()",
            "repeats, whose parts a seed draws, would be tested on different data",
            "::test_repeats_and_held_out_domains_are_of_one_protocol",
        ),
    ),
]
