"""Distorted images of both networks: their sizes, what decides them, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from biasbed.plugins.deepaug import cae_distortion as deepaug_cae
from biasbed.plugins.deepaug import edsr_distortion as deepaug_edsr
from biasbed.plugins.deepaug.cae import CAE
from biasbed.plugins.deepaug.cae_distortion import CAEDistortion
from biasbed.plugins.deepaug.distortion import Weights
from biasbed.plugins.deepaug.edsr import EDSR
from biasbed.plugins.deepaug.edsr_distortion import EDSRDistortion
from helpers.tensors import changed, seeded

Make = Callable[..., Any]
with torch.random.fork_rng():
    torch.manual_seed(0)  # now and then a network of random weights gives one grey for whatever it is asked
    NETWORKS = {"cae": CAE(size=20, width=8).eval(), "edsr": EDSR(size=24, width=4).eval()}
MAKERS: dict[str, Make] = {
    "cae": lambda **options: CAEDistortion(NETWORKS["cae"], **options),
    "edsr": lambda **options: EDSRDistortion(NETWORKS["edsr"], **options),
}
ALL = {
    "cae": ([*range(10), None], [*range(10), None]),
    "edsr": ([*range(18), None], [*deepaug_edsr.SIGNAL_OPTIONS, None]),
}
IMAGE = torch.rand(3, 30, 41, generator=seeded(11))


@pytest.mark.parametrize("kind", MAKERS)
def test_every_option_makes_a_finite_image_of_the_network_s_size(kind: str) -> None:
    weight_options, signal_options = ALL[kind]
    shape = {"cae": (3, 20, 24), "edsr": (3, 24, 32)}[kind]  # of 20 x 27 and of 4 * (6 x 8) pixels
    pairs = [(w, None) for w in weight_options] + [(None, s) for s in signal_options]
    for weight_option, signal_option in pairs:
        make = MAKERS[kind](weight_option=weight_option, signal_option=signal_option)
        make.redraw(seeded(0))
        made = make(IMAGE, seeded(1))
        assert (made.shape, made.dtype) == (shape, torch.float32)
        assert torch.isfinite(made).all()
        assert 0 <= made.min() <= made.max() <= 1


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("sides", [(12, 15), (20, 20), (64, 33)])
def test_images_are_resized_to_the_short_side(kind: str, sides: tuple[int, int]) -> None:
    make = MAKERS[kind]()
    made = make(torch.rand(3, *sides, generator=seeded(0)), seeded(0))
    assert min(made.shape[1:]) == {"cae": 20, "edsr": 24}[kind]


@pytest.mark.parametrize("kind", MAKERS)
def test_the_generators_decide(kind: str) -> None:
    def made(weights: int, image: int) -> Tensor:
        make = MAKERS[kind]()
        make.redraw(seeded(weights))
        return make(IMAGE, seeded(image))

    before = torch.get_rng_state()
    first = made(1, 2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, made(1, 2))
    assert any(not torch.equal(first, made(weights, 2)) for weights in range(2, 6))
    assert not torch.equal(first, made(1, 3))


@pytest.mark.parametrize("kind", MAKERS)
def test_a_redraw_starts_from_the_clean_weights(kind: str) -> None:
    clean = {key: value.clone() for key, value in NETWORKS[kind].state_dict().items()}
    make, fresh = MAKERS[kind](), MAKERS[kind]()
    for seed in range(5):
        make.redraw(seeded(seed))
    fresh.redraw(seeded(4))
    assert changed(clean, make.distorted.state_dict())
    assert not changed(fresh.distorted.state_dict(), make.distorted.state_dict())
    assert not changed(clean, NETWORKS[kind].state_dict())
    make.weight_option = {"cae": deepaug_cae.NONE, "edsr": deepaug_edsr.NO_WEIGHTS}[kind]
    make.redraw(seeded(9))
    assert not changed(clean, make.distorted.state_dict())


def test_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of options 0 to 7 for the autoencoder, three of 0 to 16 for EDSR; every signal option."""
    drawn: dict[str, list[int]] = {"cae": [], "edsr": []}
    signals: dict[str, list[int]] = {"cae": [], "edsr": []}
    results = {"cae": torch.zeros(1, 4, 5, 5), "edsr": torch.zeros(1, 3, 8, 8)}  # a code, an image
    for kind, module in (("cae", deepaug_cae), ("edsr", deepaug_edsr)):

        def weights(old: Weights, option: int, *rest: Any, into: list[int] = drawn[kind]) -> Weights:
            into.append(option)
            return old

        def signal(*arguments: Any, into: list[int] = signals[kind], made: Tensor = results[kind]) -> Tensor:
            into.append(next(argument for argument in arguments if isinstance(argument, int)))
            return made

        monkeypatch.setattr(module, "distort_weights", weights)
        monkeypatch.setattr(module, "distort_signal", signal)
        make, generator = MAKERS[kind](), seeded(0)
        for count in range(1, 151):
            make.redraw(generator)
            assert len(drawn[kind]) == count * {"cae": 1, "edsr": 3}[kind]
            make(IMAGE, generator)
    assert set(drawn["cae"]) == set(range(8))
    assert set(drawn["edsr"]) == set(range(17))
    assert set(signals["cae"]) == set(range(9))
    assert set(signals["edsr"]) == set(deepaug_edsr.SIGNAL_OPTIONS)
