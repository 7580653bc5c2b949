"""Faults of what is compared: derived values, held-out domains, what is tested alike, needs."""

from __future__ import annotations

from . import Mutant, of

PACKAGE = "src/biasbed"

MUTANTS: list[Mutant] = [
    *of(
        f"{PACKAGE}/measures.py",
        "suites/test_derived.py",
        (
            "derived: of what is left",
            "if not finite or len(finite) != len(inputs):",
            "if not finite:",
            "a mean of fewer conditions would stand for that of all",
            "::test_an_input_that_is_missing_makes_the_value_missing",
        ),
        (
            "harmonic mean: plain",
            "return 0.0 if min(values) <= 0 else len(values) / math.fsum(1 / value for value in values)",
            "return math.fsum(values) / len(values)",
            "a score of zero on one group would be made up for by the other",
            "::test_functions",
        ),
        (
            "error ratio: mean of ratios",
            "return math.fsum(1 - value for value in values) / math.fsum(references)",
            "return math.fsum((1 - v) / r for v, r in zip(values, references, strict=True)) / len(values)",
            "CE is a ratio of sums over severities",
            "::test_functions",
        ),
        (
            "best: NaN stays",
            "        return not math.isnan(value)\n",
            "        return False\n",
            "the first evaluation would stay the best one though its monitor told nothing",
            "::test_the_best_evaluation_is_the_first_that_the_monitor_tells[lost0]",
        ),
    ),
    *of(
        f"{PACKAGE}/record.py",
        "suites/test_protocol.py",
        (
            "derived: inputs of held-out domains",
            "return tuple(name for name, domain in pairs if domain not in test_domains)",
            "return tuple(name for name, domain in pairs if domain in test_domains)",
            "a monitor of training domains would be that of the held-out ones",
            "suites/test_derived.py::test_only_inputs_of_domains_that_train_count",
        ),
        (
            "tested alike: preprocessing counts",
            'asdict(replace(member, preprocessing=""))',
            "_plain(member)",
            "two backbones with images of two sizes could not stand in one table",
            "::test_however_a_model_came_about_it_is_tested_alike[preprocessing]",
        ),
        (
            "tested alike: validation counts",
            'derived = [asdict(member) for member in self.derived if member.phase == "test"]',
            "derived = [asdict(member) for member in self.derived]",
            "what is derived for validation says nothing of the test",
            "::test_however_a_model_came_about_it_is_tested_alike[what is derived of validation]",
        ),
        (
            "judged: without inputs",
            "if not sets or lost & set(sets) or hidden & set(sets.values()):",
            "if not sets or lost & set(sets):",
            "a column that no run can fill would be missing everywhere",
            "::test_what_is_derived_of_tests_that_are_not_made_is_not_judged",
        ),
    ),
    *of(
        f"{PACKAGE}/suites/suite.py",
        "suites/test_domains.py",
        (
            "domains: held-out ones validate",
            "return tuple(shown for shown in self.validation if shown.domain not in self.test_domains)",
            "return self.validation",
            "an epoch would be chosen by images of the domain that is tested",
            "::test_one_split_whatever_is_held_out",
        ),
        (
            "domains: all are tested",
            "return tuple(shown for shown in self.sets if not shown.domain or shown.domain in self.test_domains)",
            "return self.sets",
            "test scores of domains that trained",
            "::test_one_split_whatever_is_held_out",
        ),
        (
            "copies: of another cell",
            'names_data = name in ("data_dir", "train", "test_domains", "image_size", "prepared_dir")',
            'names_data = name in ("data_dir", "train", "image_size", "prepared_dir")',
            "the command that a message names would be refused, or make copies of held-out images",
            "::test_copies_are_of_training_images_alone",
        ),
    ),
    *of(
        f"{PACKAGE}/suites/domains.py",
        "suites/test_domains.py",
        (
            "domains: held-out ones train",
            "if name not in self.config.test_domains}",
            "}",
            "trained on what is tested",
            "::test_one_split_whatever_is_held_out",
        ),
        (
            "domains: a split of each seed",
            "folders.split(source, data.val_fraction, data.seed,",
            "folders.split(source, data.val_fraction, self.config.seed,",
            "seeds of one row would be validated on other images",
            "::test_one_split_whatever_is_held_out",
        ),
        (
            "domains: in the order given",
            'object.__setattr__(self, "test_domains", tuple(names))',
            'object.__setattr__(self, "test_domains", tuple(map(record.slug, self.test_domains)))',
            "one training would have two keys",
            "::test_held_out_domains_have_one_order",
        ),
    ),
    *of(
        f"{PACKAGE}/training/job.py",
        "suites/test_own_suites.py",
        (
            "needs: never lacking",
            "lacking = sorted(needs - provides)",
            "lacking = sorted(needs - needs)",
            "a method would train without the labels that it is about",
            "::test_a_method_that_needs_labels_is_refused_where_there_are_none",
        ),
    ),
]
