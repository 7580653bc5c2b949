"""pAdaIN against the authors' module, alone and in a ResNet-18."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biasbed.algorithms.draws import armed
from biasbed.algorithms.padain import Swap, insert_swaps, swap_statistics
from biasbed.networks import build, surgery

FOLDER = Path(__file__).parents[1] / "vectors"
MODULE = sorted(FOLDER.glob("padain_[abc]*.npz"))
Case = dict[str, np.ndarray]


def load(path: Path) -> Case:
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


def replay_module(case: Case) -> None:
    """Raise AssertionError where the vector and this package differ."""
    x, eps = torch.from_numpy(case["x"]).requires_grad_(), float(case["eps"])
    variance, mean = torch.var_mean(x.detach(), dim=(2, 3), keepdim=True)
    np.testing.assert_allclose(mean, case["mean"], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose((variance + eps).sqrt(), case["std"], rtol=1e-5, atol=2e-6)
    y = swap_statistics(x, torch.from_numpy(case["perm"]), eps)
    np.testing.assert_allclose(y.detach(), case["y"], rtol=1e-5, atol=2e-6)
    y.backward(torch.from_numpy(case["g"]))
    np.testing.assert_allclose(x.grad, case["grad_x"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", MODULE, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    replay_module(load(path))


@pytest.mark.parametrize("key", ["x", "y", "g", "grad_x", "mean", "std", "eps"])
@pytest.mark.parametrize("path", MODULE, ids=lambda path: path.stem)
def test_vector_with_a_changed_key_fails(path: Path, key: str) -> None:
    case = load(path)
    case[key] = np.asarray(case[key] * 1.01).astype(case[key].dtype)
    with pytest.raises(AssertionError):
        replay_module(case)


def test_identity_cases() -> None:
    case = {key: torch.from_numpy(value) for key, value in load(FOLDER / "padain_identity_cases.npz").items()}
    swap = Swap(eps=1e-5)
    assert torch.equal(swap(case["x_3x3"]), case["y_3x3_eval"])  # nobody draws in evaluation
    assert torch.equal(swap(case["x_3x3"]), case["y_3x3_p0"])  # a coin with p = 0 draws nothing (below)
    swap.draw = torch.tensor([1, 2, 3, 0])
    assert torch.equal(swap(case["x_1x1"]), case["y_1x1_train"])
    assert not torch.equal(swap(case["x_3x3"]), case["x_3x3"])


def test_coins(make_algorithm: Any) -> None:
    def share(p: float, training: bool = True) -> float:
        algorithm = make_algorithm("padain", {"p": p}).train(training)
        drawn = [draw is not None for _ in range(300) for draw in algorithm._draw(4)]
        return sum(drawn) / len(drawn)

    assert share(0.0) == 0
    assert share(1.0) == 1
    assert share(1.0, training=False) == 0
    assert abs(share(0.2) - 0.2) < 5 * (0.16 / (300 * 12)) ** 0.5


def test_one_permutation_per_swap(make_algorithm: Any) -> None:
    first, second, *_ = make_algorithm("padain", {"p": 1})._draw(50)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(50))
    assert not torch.equal(first, second)


def test_one_image_has_no_donor() -> None:
    x = torch.randn(1, 3, 4, 4)
    assert torch.equal(swap_statistics(x, torch.tensor([0])), x)


def test_half_precision_is_computed_in_fp32() -> None:
    """Variances of 1e6 overflow fp16, and eps is lost in it."""
    x = (1000 * torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(0))).half()
    y = swap_statistics(x, torch.tensor([1, 2, 3, 0]))
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.float(), swap_statistics(x.float(), torch.tensor([1, 2, 3, 0])), rtol=1e-3, atol=1e-2)


# --- the whole network ------------------------------------------------------------------------------------------------


def weights_by_formula(module: nn.Module, seed: int) -> None:
    """The weights that the vectors' README defines by the names and shapes of a state dict."""
    state = module.state_dict()
    for key, value in state.items():
        random = np.random.RandomState((zlib.crc32(key.encode()) + seed) % 2**32)
        shape = tuple(value.shape)
        if key.endswith("num_batches_tracked"):
            drawn: Any = np.zeros(shape)
        elif key.endswith("running_var"):
            drawn = random.uniform(0.5, 1.5, shape)
        elif key.endswith("running_mean"):
            drawn = 0.1 * random.standard_normal(shape)
        elif value.ndim >= 2:
            drawn = random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            drawn = 0.1 * random.standard_normal(shape) + (0 if key.endswith("bias") else 1)
        state[key] = torch.as_tensor(drawn).to(value.dtype)
    module.load_state_dict(state)


def check(ours: Tensor, reference: np.ndarray) -> None:
    """The README's tolerance for whole networks."""
    assert np.abs(ours.detach().numpy() - reference).max() <= 2e-3 * np.abs(reference).max()


def replay_network(case: Case) -> None:
    resnet = build(str(case["arch"]), case["logits_train"].shape[1]).backbone
    weights_by_formula(resnet, int(case["seed"]))
    swaps = insert_swaps(resnet, eps=1e-5)
    assert len(swaps) == case["n_calls"]
    shapes: list[list[int]] = []
    for conv in surgery.main_path_convs(resnet):
        conv.register_forward_hook(lambda module, inputs, output: shapes.append(list(output.shape)))
    x = torch.from_numpy(case["x"])
    with armed(swaps, list(torch.from_numpy(case["perms"]))):
        logits = resnet.train()(x)
    assert shapes == case["call_shapes"].tolist()
    check(logits, case["logits_train"])
    check(resnet.bn1.running_mean, case["bn1_running_mean"])
    check(resnet.bn1.running_var, case["bn1_running_var"])
    check(resnet.eval()(x), case["logits_eval_after"])


def test_network_vector() -> None:
    replay_network(load(FOLDER / "padain_net_r18.npz"))


@pytest.mark.parametrize("key", ["logits_train", "logits_eval_after", "bn1_running_mean", "bn1_running_var", "x"])
def test_network_vector_with_a_changed_key_fails(key: str) -> None:
    case = load(FOLDER / "padain_net_r18.npz")
    case[key] = case[key] * np.float32(1.01)
    with pytest.raises(AssertionError):
        replay_network(case)


def test_network_vector_with_another_permutation_fails() -> None:
    case = load(FOLDER / "padain_net_r18.npz")
    case["perms"][3] = np.roll(case["perms"][3], 1)
    with pytest.raises(AssertionError):
        replay_network(case)
