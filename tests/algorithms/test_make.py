"""Methods as commands make them: networks that each takes, what a checkpoint rebuilds, and classes of a user's file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed import algorithms, record, suites
from biasbed.algorithms.base import Algorithm, Setup, TrainData
from biasbed.algorithms.make import from_checkpoint, make_algorithm, make_network_factory
from biasbed.batch import Batch
from biasbed.compute import checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import Config, config_class, plain
from biasbed.errors import UsageError
from biasbed.settings import build
from biasbed.system.code_hash import code_hash
from biasbed.tasks import MultiClass
from biasbed.training.identity import config_hash
from biasbed.training.job import plan, refuse_backbone
from biasbed.training.resolve import resolve
from helpers.commands import ROOT
from helpers.making import batch_for, make

DATA = TrainData(8, 4, 1)


def configured(method: str = "erm", **settings: Any) -> Any:
    cls = config_class(Config, algorithms.load(method).HParams)
    return build(cls, {"algorithm": method, "image_size": 32, "optim.lr_batch": "none", "optim.lr": 0.01, **settings})


def made(config: Any) -> Algorithm:
    torch.manual_seed(0)
    return make_algorithm(config, MultiClass(), Group(), Precision(), DATA)


def batch_of(channels: int = 3) -> Batch:
    return Batch(torch.rand(8, channels, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4)


@pytest.mark.parametrize("backbone", ["mlp", "mnist_convnet", "squeezenet1_1"])
def test_erm_trains_any_classifier(backbone: str) -> None:
    algorithm = made(configured(backbone=backbone))
    trains(algorithm)


def test_lnl_cannot_raise_its_predictor_s_loss_by_the_size_of_the_features() -> None:
    """Reversed gradients would make the sum of a ConvNeXt's blocks ever larger: a loss of 1,000 after two steps."""
    algorithm = make("lnl", backbone="timm:test_convnext", side=64)
    batch = batch_for(algorithm, "larger")
    assert max(float(algorithm.update(batch)["predictor"]) for _ in range(5)) < 3
    x = torch.rand(4, algorithm.channels, 3, 3)
    predictor = algorithm.predictor
    torch.testing.assert_close(predictor(100 * x), predictor(x), rtol=1e-3, atol=1e-4)
    resnet = make("lnl", backbone="resnet10")
    x = torch.rand(4, resnet.channels, 3, 3)
    bias = resnet.predictor.layers[-1].bias
    torch.testing.assert_close(resnet.predictor(10 * x) - bias, 10 * (resnet.predictor(x) - bias), rtol=1e-3, atol=1e-4)


def trains(algorithm: Algorithm) -> None:
    algorithm.start()
    before = [p.clone() for p in algorithm.parameters()]
    terms = [float(algorithm.train().update(batch_of())["classification"]) for _ in range(2)]
    assert all(0 < term < 10 for term in terms)
    assert sum(not torch.equal(a, b) for a, b in zip(before, algorithm.parameters(), strict=True)) > len(before) / 2
    assert algorithm.eval().predict(batch_of().x).shape == (8, 4)


# --- requests ---------------------------------------------------------------------------------------------------------


class Several(Algorithm):
    """Asks for the networks that methods of several networks have."""

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.network = setup.network()
        self.again = setup.network("torchvision:resnet18")
        self.biased = setup.network("simple_conv_1x1")
        self.encoder = setup.network(head=False)
        self.labeller = setup.network(backbone="mlp", outputs=2, width=0.5)


def test_other_networks_start_from_scratch_and_the_configured_one_from_its_weights(tmp_path: Path) -> None:
    weights = tmp_path / "w.pt"
    torch.save({"network": 0, "model": made(configured(backbone="resnet18")).network.backbone.state_dict()}, weights)
    frozen = {"network.freeze_statistics": "true", "network.dropout": "0.1", "network.scale": "unit"}
    config = configured(backbone="resnet18", init=str(weights), **frozen)
    setup = Setup(4, MultiClass(), make_network_factory(config, 4, Group()), torch.optim.SGD, Group(), Precision())
    method = Several(None, setup).train()
    tensors = torch.load(weights)["model"]
    for network in (method.network, method.again, method.encoder):
        assert torch.equal(network.backbone.layer1[0].conv1.weight, tensors["layer1.0.conv1.weight"])
        assert not network.backbone.bn1.training
    assert torch.equal(method.network.backbone.fc.weight, tensors["fc.weight"])
    assert method.biased.backbone.layers[1].training  # from scratch it has no statistics to keep
    x = batch_of().x
    assert [tuple(n(x).shape[1:]) for n in (method.biased, method.encoder, method.labeller)] == [(4,), (512,), (2,)]
    assert method.labeller.num_features == 8
    for network in method.children():
        assert network._head.dropout == 0.1
        assert torch.equal(network.normalise(x), x)


# --- what is recorded -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["mlp", "resnet10"])
def test_a_checkpoint_rebuilds_the_network_that_was_trained(tmp_path: Path, backbone: str) -> None:
    settings = {"network.channels": 2, "network.scale": "unit_255", "network.dropout": 0.5}
    config = configured(backbone=backbone, **settings)
    algorithm = saved(config, tmp_path / "best.ckpt")
    rebuilt = from_checkpoint(tmp_path / "best.ckpt")
    x = batch_of(2).x
    assert torch.equal(rebuilt.algorithm.predict(x), algorithm.predict(x))
    assert rebuilt.config.network == config.network
    assert rebuilt.algorithm.get_submodule("network").train()._head.dropout == 0.5


def saved(config: Any, path: Path) -> Algorithm:
    """Return a new algorithm, in evaluation mode, and a checkpoint of it."""
    algorithm = made(config).eval()
    data = {"num_examples": 8, "num_classes": 4, "num_domains": 1}
    state = {"config": plain(config), "classes": list("abcd"), "train_data": data, "algorithm": algorithm.state_dict()}
    checkpoint.save(path, state)
    return algorithm


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"network.freeze_statistics": "true"}, r"freeze_statistics=true keeps .* init=scratch has none"),
        ({"backbone": "maxvit_t", "algorithm": "infodrop"}, "MaxVit is no ResNet.* of timm"),
        ({"backbone": "timm:vit_small_patch16_dinov3", "algorithm": "sagnet"}, "share a position embedding .rope."),
        ({"backbone": "timm:test_vit", "algorithm": "sagnet", "hparams.style_stage": "1"}, "none before stage 1"),
        ({"backbone": "timm:test_vit", "algorithm": "debiased", "hparams.multi_grid": "true"}, "multi_grid=false"),
        ({"backbone": "timm:test_vit", "algorithm": "end", "hparams.tanh": "true"}, "end can be trained on"),
        ({"backbone": "squeezenet1_0", "algorithm": "softcon"}, "no single linear layer at its end"),
    ],
)
def test_refused_before_a_run_exists(flags: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        plan(resolve({"suite": "demo", **flags}))
    assert "\n" not in str(caught.value)


# Kind of network in docs/methods.md -> one of it.
KINDS = {
    "ResNet": "resnet18",
    "ViT": "timm:vit_tiny_patch16_224",
    "ViT with rotary positions (DINOv3, EVA-02)": "timm:vit_small_patch16_dinov3",
    "ConvNeXt": "timm:convnext_atto",
    "Swin": "timm:swin_tiny_patch4_window7_224",
    "EfficientNet of timm": "timm:efficientnet_b0",
    "any other with one linear layer at its end": "torchvision:mobilenet_v3_small",
    "without such a layer": "squeezenet1_1",
    "`mlp`, `simple_conv`, `mnist_convnet`": "mlp",
    "`bagnet18`": "bagnet18",
}
PAGE = ROOT / "docs" / "methods.md"
HEAD = "| methods | " + " | ".join(KINDS) + " |\n" + "|---" * (len(KINDS) + 1) + "|\n"


def table_of_backbones() -> str:
    """Return methods by the kinds of network that a command takes for them, with the methods' usual settings."""
    answers: dict[str, list[str]] = {name: [] for name in algorithms.names()}
    for backbone in KINDS.values():
        for name, cells in answers.items():
            try:
                refuse_backbone(resolve({"algorithm": name, "backbone": backbone}), algorithms.load(name))
                cells.append("yes")
            except UsageError as error:
                cells.append("yes" if "pip install" in str(error) else "no")
    rows: dict[str, list[str]] = {}
    for name, cells in answers.items():
        rows.setdefault(" | ".join(cells), []).append(f"`{name}`")
    return HEAD + "".join(f"| {', '.join(names)} | {cells} |\n" for cells, names in rows.items())


def test_the_table_of_methods_and_backbones_is_what_commands_take(renew: bool) -> None:
    """`pytest --renew` writes it."""
    text = PAGE.read_text()
    written = re.search(rf"{re.escape(HEAD)}(\|.*\n)*", text)
    assert written is not None
    if renew:
        PAGE.write_text(text.replace(written[0], table_of_backbones()))
        return
    assert written[0] == table_of_backbones()


def test_the_page_lists_the_methods_of_whole_batches_and_of_one_class_per_image() -> None:
    classes = {name: algorithms.load(name) for name in algorithms.names()}
    paragraph = PAGE.read_text().partition("**Several processes.**")[2].partition("\n\n")[0]
    batches, _, labels = paragraph.partition("**Several labels per image**")
    assert set(re.findall(r"`(\w+)`", batches)) - {"accumulate"} == {n for n, cls in classes.items() if cls.coupled}
    assert set(re.findall(r"`(\w+)`", labels)) == {n for n, cls in classes.items() if cls.tasks == {"multi_class"}}


# --- a method of the user's own, in its own file ----------------------------------------------------------------------

SOURCE = """
from biasbed.algorithms.erm import ERM

class Mine(ERM):
    pass

class Infodrop(ERM):
    pass

nothing = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


def test_the_path_is_no_part_of_its_identity(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.py").write_text(SOURCE)
    names = ("mine.py:Mine", f"{file}:Mine", f"{tmp_path}/elsewhere/mine.py:Mine")
    configs = [resolve({"algorithm": name}) for name in names]
    assert configs[0].algorithm == configs[1].algorithm == f"{file}:Mine"
    protocol = record.Protocol("demo", (), (), (), "val/accuracy/val", "epoch")
    assert len({config_hash(settings, protocol, "data") for settings in configs}) == 1
    assert {algorithms.identifier(settings.algorithm) for settings in configs} == {"mine"}
    assert issubclass(algorithms.load(configs[0].algorithm), Algorithm)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.py:nothing", "is no algorithm: it has to be a subclass of biasbed.algorithms.base.Algorithm"),
        ("mine.py:Infodrop", "'infodrop' is one of biasbed's own"),
    ],
)
def test_what_is_wrong_is_said(file: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve({"algorithm": name})


def test_the_code_of_a_method_includes_what_it_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    """InfoDrop's loss is in erm.py."""
    suite = suites.load("demo")
    before = code_hash(algorithms.load("infodrop"), suite)
    erm = Path(algorithms.__file__).parent / "erm.py"
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"\nONE = 1\n" if path == erm else b""))
    assert code_hash(algorithms.load("infodrop"), suite) != before
    assert code_hash(algorithms.load("sagnet"), suites.load("demo")) == code_hash(
        algorithms.load("sagnet"), suites.load("demo")
    )
