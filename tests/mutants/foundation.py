"""Mistakes in probes and weights between two ends, in recipes, in crops, in packed images and in kept test images."""

from __future__ import annotations

from . import of

METHODS, FROZEN = "src/biasbed/algorithms", "algorithms/test_frozen_features.py"

MUTANTS = [
    *of(
        f"{METHODS}/probe.py",
        FROZEN,
        (
            "probe: fits validation images too",
            "training, validation = slice(self.num_examples), slice(self.num_examples, None)",
            "training, validation = slice(None), slice(self.num_examples, None)",
            "the images that choose C would be learned",
            "::test_a_probe_s_run_is_scikit_learn_s_fit_of_its_features",
        ),
    ),
    *of(
        f"{METHODS}/knn.py",
        FROZEN,
        (
            "knn: features of any length",
            "functional.normalize(self.setup.features(self.network, x), dim=1)",
            "self.setup.features(self.network, x)",
            "images with large features would be everybody's neighbours",
            "::test_knn_is_a_search_by_brute_force[65536]",
        ),
    ),
    *of(
        f"{METHODS}/wise_ft.py",
        FROZEN,
        (
            "WiSE-FT: the beginning is the end",
            "        self.initial.take(self.network)\n",
            "        pass\n",
            "the mean would be with weights before the probe",
            "::test_wise_ft_at_0_is_the_probe_bit_for_bit",
        ),
        (
            "WiSE-FT: the worst alpha",
            "self.accuracies.argmax()",
            "self.accuracies.argmin()",
            "validation would choose what it decides worst",
            "::test_wise_ft_takes_the_alpha_that_decides_validation_images_best",
        ),
        (
            "WiSE-FT: trials of one mixture",
            "(VALIDATION,), self.mix)",
            "(VALIDATION,))",
            "every alpha would have the accuracy of the tuned weights",
            "::test_weights_are_mixed_before_a_trial_and_stay_while_it_looks",
        ),
    ),
    *of(
        "src/biasbed/networks/interpolation.py",
        FROZEN,
        (
            "WiSE-FT: alpha of the other end",
            "(1 - alpha) * start[name] + alpha * end[name]",
            "alpha * start[name] + (1 - alpha) * end[name]",
            "alpha would be the share of the initial weights",
            "::test_weights_at_the_ends_are_the_ends_bit_for_bit",
        ),
    ),
    *of(
        "src/biasbed/compute/average.py",
        "compute/test_average.py",
        (
            "ema: warms up from the first step of training",
            "        passed = step - self.first\n",
            "        passed = step\n",
            "a late average would begin with far too much of its first weights",
            "::test_ema_is_timm_s_to_the_bit",
        ),
        (
            "ema: keeps what it should add",
            "weight=1.0 - self.decay_at(step)",
            "weight=self.decay_at(step)",
            "the average would be the live weights",
            "::test_ema_is_timm_s_to_the_bit",
        ),
    ),
    *of(
        "src/biasbed/compute/optim.py",
        "networks/test_layers.py",
        (
            "layer decay: from the head on",
            "optim.layer_decay**kind.depth",
            "optim.layer_decay ** (kind.depth + 1)",
            "every layer would have the rate of the one before it",
            "::test_groups_are_those_of_timm[test_vit]",
        ),
        (
            "weight decay: of position embeddings",
            "if not optim.decay_embeddings and id(parameter) in roles.embeddings:",
            "if False:",
            "position embeddings and class tokens would shrink",
            "::test_groups_are_those_of_timm[test_vit]",
        ),
    ),
    *of(
        f"{METHODS}/base.py",
        "training/test_recipe.py",
        (
            "clipping: at twice the norm",
            "list_parameters(optimizer), min(limits))",
            "list_parameters(optimizer), 2 * min(limits))",
            "gradients longer than configured would be taken",
            "::test_gradients_are_clipped_after_unscaling_and_adding_up",
        ),
    ),
    *of(
        "src/biasbed/data/packed.py",
        "prepare/test_packed_images.py",
        (
            "packed: images without a checksum",
            'if len(content) != index["length"][at] or zlib.crc32(content) != index["crc"][at]:',
            'if len(content) != index["length"][at]:',
            "a damaged pack would be trained on",
            "::test_a_flipped_byte_is_named_and_never_passed_over",
        ),
        (
            "packed: resized images count as whole ones",
            "return fingerprint if self.form == WHOLE else record.digest([fingerprint, self.form])",
            "return fingerprint",
            "runs on resized images would be compared with runs on the files",
            "::test_raw_images_are_the_resized_ones_and_have_another_fingerprint",
        ),
    ),
    *of(
        "src/biasbed/evaluation/test_cache.py",
        "evaluation/test_test_cache.py",
        (
            "test images: without a checksum",
            "if length != len(content) or zlib.crc32(content) != state & (PRESENT - 1):",
            "if length != len(content):",
            "damaged pixels would be tested",
            "::test_what_is_damaged_or_cut_off_is_decoded_again",
        ),
        (
            "test images: of an older version",
            "if not state & PRESENT or kept_version != version:",
            "if not state & PRESENT:",
            "a replaced image would never be tested",
            "::test_an_image_that_is_written_anew_at_its_old_size_is_decoded_again",
        ),
        (
            "test images: of any transform",
            "type(transform).__name__, vars(transform), versions",
            "type(transform).__name__, versions",
            "a test would see the crop or the size of another one",
            "::test_other_images_or_another_transform_have_a_file_of_their_own",
        ),
    ),
    *of(
        "src/biasbed/data/transforms.py",
        "networks/test_normalisation.py",
        (
            "crops: border as in a centre crop",
            "max((self.size - side) // 2, 0) for side in target",
            "max(-round((side - self.size) / 2), 0) for side in target",
            "images of some sizes would be a row below timm's",
            "::test_images_are_prepared_as_timm_s_own_transform_does[border-0.8-bilinear]",
        ),
    ),
    *of(
        f"{METHODS}/lnl.py",
        "algorithms/test_networks.py",
        (
            "LNL: features of any size",
            "self.is_stream = family_of(backbone) is not None",
            "self.is_stream = False",
            "on a ConvNeXt the predictor's loss would grow without bound",
            "::test_lnl_cannot_raise_its_predictor_s_loss_by_the_size_of_the_features",
        ),
    ),
]
