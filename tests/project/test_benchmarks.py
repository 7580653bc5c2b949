"""What benchmarks do that nothing else runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import benchmarks

# As much of the program of others as is asked for.
PROGRAM = {
    "__init__.py": "",
    "hparams_registry.py": "def default_hparams(algorithm, dataset):\n    return {'resnet18': False}\n",
    "algorithms.py": """
import torch, torchvision

class ERM(torch.nn.Module):
    def __init__(self, shape, classes, domains, hparams):
        super().__init__()
        assert hparams['resnet18'] and domains == 3
        self.network = torchvision.models.resnet18(pretrained=True)

    def update(self, minibatches):
        assert [len(x) for x, y in minibatches] == [8, 8, 8]
        self.network(torch.cat([x for x, y in minibatches])).sum().backward()

def get_algorithm_class(name):
    return globals()[name]
""",
}


def test_a_step_of_domainbed_s_own_program_is_taken_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "domainbed").mkdir()
    for name, code in PROGRAM.items():
        (tmp_path / "domainbed" / name).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    methods = benchmarks.load("methods")
    monkeypatch.setattr(methods, "SIZE", 32)
    sides = {"erm, domains": methods.side("erm, domains"), "theirs": methods.theirs("erm, domains")}
    found = methods.ratios(sides, 1)
    assert found["erm, domains"] == [1.0]
    assert found["theirs"][0] > 0
    assert torch_is_itself()


def torch_is_itself() -> bool:
    """Whether networks have their weights again."""
    import torchvision

    return torchvision.models.resnet18.__module__ == "torchvision.models.resnet"
