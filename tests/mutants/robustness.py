"""Faults of the methods that change images: mixtures, the divergence, rectangles and noise."""

from __future__ import annotations

from . import Mutant, of

TESTS = "algorithms/test_augmented.py"

MUTANTS: list[Mutant] = [
    *of(
        "src/biasbed/data/augmix.py",
        TESTS,
        (
            "augmix: mixtures are rounded to bytes",
            "    return mixed\n",
            "    return np.round(mixed * np.float32(255)) / np.float32(255)\n",
            "mixtures of small shares would be the image",
            "::test_a_mixture_is_of_floats_that_no_byte_has",
        ),
        (
            "augmix: the share is the clean image's",
            "np.float32((1 - mixture.share) / 255)",
            "np.float32(mixture.share / 255)",
            "the weights of image and mixture would not add up to 1",
            "::test_a_mixture_without_operations_is_the_image",
        ),
        (
            "augmix: operations of ImageNet-C by default",
            "names = list(ALL if self.settings.all_ops else OPERATIONS)",
            "names = list(OPERATIONS if self.settings.all_ops else ALL)",
            "results on ImageNet-C would be of images that were trained on",
            "::test_what_is_drawn_is_what_the_settings_say",
        ),
        (
            "augmix: translations by the width alone",
            "_moved(image, 0, int(level * (image.height / 3) / TOP))",
            "_moved(image, 0, int(level * (image.width / 3) / TOP))",
            "images that are not square would move too far",
            "::test_images_that_are_not_square_move_by_their_own_sides",
        ),
        (
            "augmix: every level is positive",
            "random.random() < 0.5",
            "random.random() < 0.0",
            "images would lean and turn to one side",
            "::test_what_is_drawn_is_what_the_settings_say",
        ),
    ),
    *of(
        "src/biasbed/algorithms/augmix.py",
        TESTS,
        (
            "augmix: each view has a crop of its own",
            "(mixture,), shared=True)",
            "(mixture,), shared=False)",
            "predictions for different parts of an image would be made equal",
            "::test_views_share_crop_and_flip_and_the_first_is_clean",
        ),
        (
            "augmix: a mixture is classified",
            "self.task.loss(logits[0], batch.y)",
            "self.task.loss(logits[1], batch.y)",
            "the clean images would not be learnt",
            "::test_the_clean_view_alone_is_classified_and_counted",
        ),
        (
            "augmix: mixtures are counted",
            "self.observe(logits[0], batch.y)",
            "self.observe(logits[1], batch.y)",
            "train/accuracy would not be that of the images",
            "::test_the_clean_view_alone_is_classified_and_counted",
        ),
        (
            "augmix: divergence from the first view",
            "log_p.logsumexp(dim=0) - math.log(len(logits))",
            "log_p[0]",
            "it would not be symmetric",
            "::test_the_divergence_is_that_of_its_definition",
        ),
    ),
    *of(
        "src/biasbed/algorithms/random_erasing.py",
        TESTS,
        (
            "erasing: areas of the largest part alone",
            "scale[0] + (scale[1] - scale[0]) * drawn[..., 0]",
            "scale[1] + 0 * drawn[..., 0]",
            "twice as much would be erased",
            "::test_rectangles_have_the_law_of_torchvision_s",
        ),
        (
            "erasing: before images are normalised",
            'insert_after(self.network.get_submodule("normalise"), self.erasure)',
            'insert_before(self.network.get_submodule("normalise"), self.erasure)',
            "rectangles would be black",
            "::test_what_is_erased_has_the_mean_colour_once_normalised",
        ),
    ),
    *of(
        "src/biasbed/algorithms/fast_adversarial.py",
        "algorithms/test_fast_adversarial.py",
        (
            "fast_adversarial: what is cut off counts",
            "self.logits((batch.x + noise).clamp(0, 1))",
            "self.logits(batch.x + noise)",
            "the attack would leave [0,1]",
            "::test_the_attack_stays_within_its_bounds_and_raises_the_loss",
        ),
        (
            "fast_adversarial: down the slope",
            "eps * slope.sign()",
            "eps * -slope.sign()",
            "the attack would help",
            "::test_the_attack_stays_within_its_bounds_and_raises_the_loss",
        ),
        (
            "fast_adversarial: each phase has the whole course",
            "course=(end - stretch.part, end)",
            "course=(0.0, 1.0)",
            "the rate would restart",
            "::test_phases_follow_one_course",
        ),
    ),
    *of(
        "src/biasbed/algorithms/speckle.py",
        TESTS,
        (
            "speckle: noise regardless of the value",
            "x + x * sigma * noise",
            "x + sigma * noise",
            "it would be Gaussian noise",
            "::test_black_stays_black_under_speckle",
        ),
        (
            "speckle: all images have noise",
            "return int(self.hparams.share * len(x) + 1e-9)",
            "return len(x)",
            "no clean image would be seen",
            "::test_half_of_a_batch_is_noisy_with_strengths_of_its_images",
        ),
    ),
    *of(
        "src/biasbed/data/contact_sheet.py",
        TESTS,
        (
            "pictures: floats are divided by 255",
            "image if image.is_floating_point() else image.float() / 255",
            "image.float() / 255",
            "mixtures would be shown black",
            "::test_the_pictures_show_all_views_of_an_image",
        ),
    ),
]
