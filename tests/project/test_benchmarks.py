"""Parts of the benchmarks that nothing else runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import benchmarks, commands

TOPICS = [topic for topic in benchmarks.load("all").TOPICS if topic != "references"]  # which needs others' programs

ROWS = {"corruptions": "| all 75 / five naive glass blurs |"}  # topic -> how a row of its table begins

# As much of the programs of others as is asked for, by file.
PROGRAMS = {
    "erm, domains": {
        "domainbed/__init__.py": "",
        "domainbed/hparams_registry.py": "def default_hparams(algorithm, dataset):\n    return {'resnet18': False}\n",
        "domainbed/algorithms.py": """
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
    },
    "infodrop": {
        "domain_generalization/models/resnet.py": """
import torch
from torchvision.models.resnet import model_urls

class Network(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.avgpool = torch.nn.AvgPool2d(7)
        self.fc = torch.nn.Linear(3, classes)

    def forward(self, x):
        mask = torch.ones(1, device='cuda:0')
        y = self.fc(self.avgpool(x).flatten(1) * mask)
        return None, y

def resnet18(pretrained, classes):
    assert not pretrained
    return Network(classes)
""",
    },
    "sagnet": {
        "modules/__init__.py": "",
        "modules/loss.py": """
import torch

class AdvLoss(torch.nn.Module):
    def forward(self, x):
        return x.square().mean()
""",
        "modules/sag_resnet.py": """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.content, self.style = (torch.nn.Linear(n, m) for n, m in ((3, 4), (4, 1000), (4, 1000)))

    def adv_params(self):
        return list(self.encoder.parameters())

    def style_params(self):
        return list(self.style.parameters())

    def forward(self, x):
        z = self.encoder(x.mean((2, 3)))
        return self.content(z), self.style(z)

def sag_resnet(depth):
    assert depth == 18
    return Network()
""",
    },
    "noise2net": {
        "DeepAugment/train_noise2net.py": """
import argparse, random
import torch

parser = argparse.ArgumentParser()
parser.add_argument('data')
parser.add_argument('--save', required=True)
parser.add_argument('--noise2net', action='store_true')
assert parser.parse_args().noise2net

class Res2Net(torch.nn.Module):
    def __init__(self, hidden_planes, batch_size):
        super().__init__()
        assert all(random.choice([1, 3]) in (1, 3) and random.choice([1, 2, 3]) in (1, 2, 3) for _ in range(12))
        self.shape = (1, 3 * batch_size)

    def reload_parameters(self):
        self.epsilon = None

    def set_epsilon(self, epsilon):
        assert 0.375 <= epsilon <= 0.75
        self.epsilon = epsilon

    def forward(self, x):
        assert x.shape[:2] == self.shape
        return x * self.epsilon
""",
    },
}


@pytest.mark.parametrize("side", PROGRAMS)
def test_a_step_of_others_programs_is_taken_beside_ours(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in PROGRAMS[side].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))  # which takes back what the programs' own modules need
    methods, references = benchmarks.load("methods"), benchmarks.load("references")
    for module in (methods, references):
        monkeypatch.setattr(module, "SIZE", 32)
    program = references.program_of(tmp_path)
    assert side in program.methods
    sides = {"ours": methods.side(program.erm), "theirs": references.theirs(tmp_path, program, side)}
    found = methods.beside(sides, 1)
    assert found["ours"] == [1.0]
    assert found["theirs"][0] > 0
    assert torch_is_itself()


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"is no checkout of any of DomainBed \(domainbed/algorithms.py\), InfoDrop"):
        benchmarks.load("references").program_of(tmp_path)


def torch_is_itself() -> bool:
    """Return True if networks have their weights again."""
    import torchvision

    return torchvision.models.resnet18.__module__ == "torchvision.models.resnet"


def test_a_row_says_what_is_asked_of_it_and_whether_it_is_met() -> None:
    sides = benchmarks.load("sides")
    values = [1.0, 1.1, 1.2, 1.3, 1.4]
    most, least = sides.Row.of("a", values, sides.Goal(1.1)), sides.Row.of("a", values, sides.Goal(1.2, at_least=True))
    assert (most.ratio, most.low, most.high, most.met, least.met) == (1.2, 1.1, 1.3, False, True)
    assert most.cells() == ("a", "1.200", "1.100 to 1.300", "at most 1.1", "**no**", "")
    assert sides.Row.of("b", [5.25], note="n", unit="s").cells() == ("b", "5.25 s", "", "", "", "n")


def test_sides_take_turns_in_an_order_that_turns_round_and_the_first_round_is_left_out() -> None:
    sides, took = benchmarks.load("sides"), []
    work = {name: (lambda name=name: took.append(name)) for name in "ab"}
    ticks = iter(range(100))
    found = sides.interleaved(work, 2, clock=lambda: float(next(ticks)))
    assert "".join(took) == "baabba"
    assert found == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


def test_a_new_table_replaces_its_old_one_and_no_other() -> None:
    results, sides = benchmarks.load("results"), benchmarks.load("sides")

    def of(name: str, ratio: float) -> dict[str, str]:
        topic = results.Topic(name, name.title(), "how", "why", 1.0)
        return {name: results.section(topic, [sides.Row.of("row", [ratio], sides.Goal(2.0))])}

    order = ("one", "two")
    text = results.replaced("head\n", "", of("two", 1.5) | of("one", 3.0), order)
    assert "| row | 3.000 |  | at most 2 | **no** |" in text
    assert "Not met: row." in text
    assert text.index("## One") < text.index("## Two")
    again = results.replaced("head\n", text, of("one", 1.0), order)
    assert "3.000" not in again
    assert again.count("## One") == again.count("## Two") == again.count("head") == 1
    assert text[text.index("<!-- begin two") :] == again[again.index("<!-- begin two") :]


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = commands.command_environment()
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_the_command_measures_each_topic_into_its_file(tmp_path: Path, topic: str) -> None:
    words = [sys.executable, str(commands.ROOT / "benchmarks" / "all.py"), topic, "--quick"]
    done = run([*words, "--to", str(tmp_path / "found.md")])
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "found.md").read_text()
    assert "these numbers mean nothing" in text
    assert text.count(f"<!-- begin {topic} -->") == 1
    assert text.count("\n| ") > 2  # heading, line and rows
    assert ROWS.get(topic, "| what |") in text


def test_quick_numbers_are_not_written_over_measured_ones() -> None:
    refused = run([sys.executable, str(commands.ROOT / "benchmarks" / "all.py"), "corruptions", "--quick"])
    assert refused.returncode == 2
    assert "--quick needs --to" in refused.stderr
