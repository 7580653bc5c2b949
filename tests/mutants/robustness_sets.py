"""Faults of the robustness suite's sets and errors."""

from __future__ import annotations

from . import Mutant, of

SUITE = "suites/test_robustness.py"

MUTANTS: list[Mutant] = [
    *of(
        "src/biasbed/suites/corruption_errors.py",
        SUITE,
        (
            "corruption errors: mCE of any set",
            "    if not is_released:\n        return\n",
            "    if False:\n        return\n",
            "an mCE of other images would stand beside published ones",
            "::test_small_and_extra_sets_are_there_by_name_and_have_no_mce",
        ),
    ),
    *of(
        "src/biasbed/suites/derived.py",
        SUITE,
        (
            "corruption errors: mean errors by AlexNet's",
            "(1.0,) * len(inputs)",
            "(0.9,) * len(inputs)",
            "mean errors would be too large",
            "::test_alexnet_has_an_mce_and_a_relative_mce_of_one",
        ),
    ),
    *of(
        "src/biasbed/evaluation/possible_answers.py",
        "evaluation/test_written_answers.py",
        (
            "recorded answers: chance among the 16 for any set",
            "CATEGORIES_16 if is_among_16 else tuple(sorted(set(names))), False)",
            "CATEGORIES_16 if is_among_16 else tuple(sorted(set(names))), is_among_16)",
            "a chance level would be drawn for a question that nobody knows",
            "::test_answers_are_judged_among_all_that_were_possible",
        ),
    ),
    *of(
        "src/biasbed/measures.py",
        SUITE,
        (
            "relative mCE: not from AlexNet's clean error",
            "error - clean_reference for error in reference_errors",
            "error for error in reference_errors",
            "relative mCE would be too small",
            "::test_alexnet_has_an_mce_and_a_relative_mce_of_one",
        ),
    ),
    *of(
        "src/biasbed/datasets/imagenet_c.py",
        SUITE,
        (
            "corrupted: conditions may have other images",
            "            if condition_names != names:\n",
            "            if len(condition_names) != len(names):\n",
            "labels of one condition would be taken for those of another",
            "::test_what_is_not_whole_is_refused_in_a_line",
        ),
        (
            "corrupted: all images are small sets",
            "        if self.small:\n            names",
            "        if False:\n            names",
            "a test during training would take as long as that at the end",
            "::test_small_sets_have_the_first_ten_of_each_class",
        ),
    ),
    *of(
        "src/biasbed/evaluation/evaluator.py",
        SUITE,
        (
            "evaluator: images of another size are skipped",
            "isinstance(error, UnfitImage) or not self.skip_corrupt",
            "not self.skip_corrupt",
            "a set would be tested without the images that do not fit",
            "::test_images_of_another_size_are_refused_and_never_resized",
        ),
        (
            "evaluator: only the first of several labels is right",
            "y = torch.where(is_right, decided, y)",
            "y = torch.where(is_right & False, decided, y)",
            "ReaL accuracy would be too low",
            "evaluation/test_evaluator.py::test_any_of_several_right_labels_counts",
        ),
    ),
    *of(
        "src/biasbed/datasets/imagenet.py",
        "datasets/test_imagenet_sets.py",
        (
            "imagenet v2: folders in the order of words",
            "labelled(folder, [str(number) for number in range(len(self.classes))])",
            "labelled(folder, sorted(str(number) for number in range(len(self.classes))))",
            "10 would come before 2",
            "::test_v2_s_folders_are_numbers_and_no_words",
        ),
        (
            "imagenet real: numbers from zero",
            "return int(match[1]) - 1",
            "return int(match[1]) % count",
            "every image would have its neighbour's labels",
            "::test_real_labels_are_by_the_number_in_the_image_s_name",
        ),
    ),
    *of(
        "src/biasbed/datasets/cifar.py",
        "datasets/test_cifar.py",
        (
            "cifar: pickles run",
            'raise pickle.UnpicklingError(f"{module}.{name}")',
            "return super().find_class(module, name)",
            "a file from the web could run anything",
            "::test_a_batch_runs_nothing",
        ),
    ),
    *of(
        "src/biasbed/evaluation/calibration.py",
        "evaluation/test_calibration.py",
        (
            "rms: the last bin is left out",
            "squares[:-1] if skip_last else squares",
            "squares[:-1]",
            "the most confident images would not count",
            "::test_the_reference_leaves_out_the_most_confident",
        ),
    ),
    *of(
        "src/biasbed/datasets/on_the_fly.py",
        "datasets/test_on_the_fly.py",
        (
            "generated: drawn by the released file's name",
            "self.seed, self.originals.ids[original])",
            "self.seed, self.ids[row])",
            "images made on the fly would be others than those that were prepared",
            "::test_files_count_where_they_are_of_these_images_and_this_seed",
        ),
        (
            "generated: files of another seed",
            "manifest.settings != settings or ",
            "",
            "images would depend on what happens to lie on the disk",
            "::test_files_count_where_they_are_of_these_images_and_this_seed",
        ),
    ),
    *of(
        "src/biasbed/suites/corrupted_sets.py",
        "suites/test_corrupted_sets.py",
        (
            "generated: a set and its corrupted form are independent",
            "source_images=original.source_images or original.name",
            "source_images=original.source_images",
            "tests would take the same photographs for two data sets",
            "::test_own_photographs_are_tested_under_75_conditions_by_their_mean_error",
        ),
    ),
    *of(
        "analysis/selection/corruption_errors.py",
        "analysis/selection/test_corruption_errors.py",
        (
            "normalised: by the last run of the row",
            "math.fsum(errors[metric] for errors in of_runs) / len(of_runs)",
            "of_runs[-1][metric]",
            "the named row would not be at 100",
            "::test_the_named_row_is_at_100_and_others_at_the_mean_of_their_ratios",
        ),
    ),
]
