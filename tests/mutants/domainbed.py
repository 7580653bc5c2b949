"""Faults of DomainBed's methods."""

from __future__ import annotations

from . import Mutant, of

METHODS = "src/biasbed/algorithms"
EDGES = "algorithms/test_domain_methods.py"


def replayed(name: str) -> str:
    return f"algorithms/test_vectors.py::test_ours_is_as_the_authors_have_it[domainbed/{name}]"


def in_two_processes(name: str) -> str:
    return f"algorithms/test_conformance.py::test_two_processes_average_the_gradients_of_their_halves[{name}]"


MUTANTS: list[Mutant] = [
    *of(
        f"{METHODS}/domains.py",
        EDGES,
        (
            "annealed: no weight at first",
            "weight = 1.0 if done < self.hparams.anneal",
            "weight = 0.0 if done < self.hparams.anneal",
            "plain ERM in the first 500 updates",
            replayed("irm"),
        ),
        (
            "annealed: the optimizer remembers",
            'self.reset_optimizer("main")',
            "pass",
            "Adam's second moments belong to another loss",
            "::test_the_optimizer_forgets_when_the_penalty_comes_into_force",
        ),
        (
            "annealed: one update too late",
            "if done < self.hparams.anneal",
            "if done <= self.hparams.anneal",
            "the reset comes one update before the jump that it is for",
            "::test_the_optimizer_forgets_when_the_penalty_comes_into_force",
        ),
    ),
    *of(
        f"{METHODS}/irm.py",
        EDGES,
        (
            "irm: square of the mean slope",
            "return (even * odd).mean()",
            "return ((even + odd) / 2).square().mean()",
            "an estimate with the variance as its bias",
            replayed("matching"),
        ),
        (
            "irm: halves of each process alone",
            "even, odd = self.mean_of_all(torch.stack(halves))",
            "even, odd = torch.stack(halves)",
            "a noisier estimate, of another batch size, on several processes",
            in_two_processes("irm"),
        ),
    ),
    *of(
        f"{METHODS}/vrex.py",
        EDGES,
        (
            "vrex: variance of a sample",
            "risks.var(unbiased=False)",
            "risks.var()",
            "one and a half times the penalty of three domains, none at all of one",
            "::test_vrex_is_the_variance_of_risks",
        ),
    ),
    *of(
        f"{METHODS}/domains.py",
        EDGES,
        (
            "domains: risks of each process alone",
            'return self.mean_of_all(self.by_domain(self.task.loss(logits, batch.y, reduction="none")).mean(1))',
            'return self.apart(self.task.loss(logits, batch.y, reduction="none")).mean(1)',
            "weights of domains drift apart on several processes",
            in_two_processes("group_dro"),
        ),
        (
            "domains: a count that no checkpoint has",
            "self.value = int(state)",
            "self.value = 0",
            "a resumed training anneals anew",
            "algorithms/test_conformance.py::test_resume_is_bit_equal[irm-mid-epoch]",
        ),
    ),
    *of(
        f"{METHODS}/group_dro.py",
        EDGES,
        (
            "group_dro: the old weights",
            'return {"classification": (self.q.to(risks.dtype) * risks).sum() / scale}',
            'return {"classification": risks.mean() / scale}',
            "plain ERM",
            replayed("groupdro"),
        ),
    ),
    *of(
        f"{METHODS}/domains.py",
        EDGES,
        (
            "matching: features of each process alone",
            "gathered = self.group.gather(features).unflatten(0, (self.group.world, self.num_domains, -1))",
            "gathered = features.unflatten(0, (1, self.num_domains, -1))",
            "covariances of half the images, and the bias of images with themselves twice",
            in_two_processes("coral"),
        ),
        (
            "matching: the sum over pairs",
            "/ max(1, len(products) * (len(products) - 1))",
            "/ 2",
            "the weight grows with the number of domains",
            replayed("coral"),
        ),
    ),
    *of(
        f"{METHODS}/coral.py",
        EDGES,
        (
            "coral: biased covariances",
            "averaging_matrix(wide, ddof=1)",
            "averaging_matrix(wide)",
            "another penalty wherever batches are small",
            replayed("matching"),
        ),
    ),
    *of(
        f"{METHODS}/mmd.py",
        EDGES,
        (
            "mmd: distances in fp32",
            "wide = x.double()",
            "wide = x",
            "what cancels is multiplied by 1000: near images are far from each other",
            "::test_an_image_is_at_no_distance_from_itself_in_fp32",
        ),
        (
            "mmd: a kernel less",
            "100.0, 1000.0)",
            "100.0)",
            "not the reference's distance",
            replayed("matching"),
        ),
    ),
    *of(
        f"{METHODS}/mixup.py",
        EDGES,
        (
            "mixup: a part too large",
            "return ring(order), betaincinv(self.hparams.alpha, self.hparams.alpha,",
            "return ring(order), betaincinv(self.hparams.alpha, 1,",
            "the law of the parts is not even",
            "::test_parts_of_mixtures_have_the_law_of_alpha",
        ),
        (
            "mixup: each process on its own",
            "self._host.shared_generator(self.progress)",
            "self._host.generator(self.progress)",
            "processes mix other domains",
            "::test_all_processes_mix_the_same_domains_in_the_same_parts",
        ),
    ),
    *of(
        f"{METHODS}/mldg.py",
        EDGES,
        (
            "mldg: no domain before the step ahead",
            "count = min(n_meta_test, len(order) - 1)",
            "count = min(n_meta_test, len(order))",
            "two domains are never trained",
            "::test_two_domains_after_the_step_ahead_leave_one_before_it",
        ),
        (
            "mldg: the second gradient at the weights",
            "self._gradients(self._ahead(weights, here), parts[test])",
            "self._gradients(weights, parts[test])",
            "plain ERM of unequal weights",
            replayed("mldg_ring"),
        ),
    ),
    *of(
        "src/biasbed/compute/optim.py",
        EDGES,
        (
            "mldg: no weight decay in the step ahead",
            "elif decay:",
            "elif False:",
            "another step than the optimizer's",
            "::test_the_step_ahead_is_the_first_of_a_fresh_optimizer",
        ),
    ),
    *of(
        f"{METHODS}/dann.py",
        EDGES,
        (
            "dann: one step more of the discriminator",
            "self.updates.value % cycle < self.hparams.d_steps",
            "self.updates.value % cycle <= self.hparams.d_steps",
            "the network never learns",
            "::test_which_steps_are_the_discriminator_s",
        ),
        (
            "dann: the penalty of the mean's slope",
            "torch.autograd.grad(losses.sum(), h, create_graph=True)",
            "torch.autograd.grad(losses.mean(), h, create_graph=True)",
            "a penalty that falls with the square of the batch size",
            replayed("dann_penalty"),
        ),
        (
            "dann: the network helps the discriminator",
            "total = loss - self.hparams.penalty_weight",
            "total = loss + self.hparams.penalty_weight",
            "features tell their domain as well as they can",
            replayed("dann"),
        ),
        (
            "dann: the slope as a constant",
            "h, create_graph=True)",
            "h)",
            "a penalty that trains nothing, as in the published tables",
            replayed("dann_penalty"),
        ),
    ),
    *of(
        f"{METHODS}/cdann.py",
        EDGES,
        (
            "cdann: classes by their images",
            "return self.mean_over(losses, 1 / counts[y]) * present / self.setup.num_classes",
            "return losses.mean()",
            "large classes decide what the discriminator learns",
            "::test_classes_count_alike_in_the_loss_of_the_conditional_discriminator",
        ),
        (
            "cdann: classes of each process alone",
            "counts = self.group.sum((y[:, None] == classes).sum(0).to(losses.dtype))",
            "counts = (y[:, None] == classes).sum(0).to(losses.dtype)",
            "classes that one process has few of count too much",
            in_two_processes("cdann"),
        ),
    ),
]
