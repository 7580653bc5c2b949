"""Checks that need a GPU: narrow arithmetic, every method's steps, NCCL. benchmarks/gpu.py measures the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from biasbed import algorithms
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.networks import build
from biasbed.networks.network import as_input
from helpers.steps import compare

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.fixture
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build("resnet10", 4).to("cuda")


@pytest.fixture
def images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return as_input(torch.randint(0, 256, (16, 3, 64, 64), generator=generator, dtype=torch.uint8).to("cuda"))


def gradients(network: torch.nn.Module, images: torch.Tensor, precision: Precision) -> torch.Tensor:
    """All of them as one vector, after the scale is taken off."""
    y = torch.arange(16, device="cuda") % 4
    with precision.autocast():
        loss = torch.nn.functional.cross_entropy(network(images), y)
    found = torch.autograd.grad(precision.scale(loss), list(network.parameters()))
    return torch.cat([precision.unscale(one.float()).flatten() for one in found])


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_narrow_gradients_point_where_those_of_fp32_do(
    name: str, network: torch.nn.Module, images: torch.Tensor
) -> None:
    narrow = Precision(name, "cuda")
    narrow.load_state_dict({"scale": 256.0 if name == "fp16" else 1.0, "accepted": 0})
    plain = gradients(network, images, Precision("fp32", "cuda"))
    found = gradients(network, images, narrow)
    assert torch.cosine_similarity(plain, found, dim=0) > 0.98
    assert narrow.approve([found])


def test_fp16_refuses_a_step_that_overflows_and_halves_its_scale() -> None:
    precision = Precision("fp16", "cuda")
    assert not precision.approve([torch.tensor([1.0, float("inf")], device="cuda")])
    assert precision.state_dict()["scale"] == 2.0**15


@pytest.mark.parametrize("name", algorithms.names())
def test_every_method_in_bf16(name: str) -> None:
    """Losses near fp32's, no wait but HEX's for its eigenvalues, resume bit-equal."""
    found = compare(name, "bf16", torch.device("cuda:0"))
    assert max(found.distances) < 0.1
    assert found.waits == (1 if name == "hex" else 0), found.where
    assert found.resumed


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Group]:
    """One process on one device, over NCCL all the same."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    yield Group(0, 1, "cuda")
    dist.destroy_process_group()


def test_nccl_on_one_device_leaves_gradients_as_they_are(
    joined: Group, network: torch.nn.Module, images: torch.Tensor
) -> None:
    plain = gradients(network, images, Precision("fp32", "cuda"))
    wrapped = joined.wrap(network, find_unused_parameters=False)
    torch.nn.functional.cross_entropy(wrapped(images), torch.arange(16, device="cuda") % 4).backward()
    shared = torch.cat([one.grad.flatten() for one in network.parameters() if one.grad is not None])
    torch.testing.assert_close(shared, plain, rtol=1e-4, atol=1e-6)
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total)
    assert total.item() == 1.0
