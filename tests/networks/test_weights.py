"""Training from weights: what is recorded of them, and that their runs are kept apart from runs from scratch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from biasbed import algorithms, cli, networks, record
from biasbed.errors import Failure, UsageError
from biasbed.networks import provenance
from biasbed.networks.network import content_hash
from biasbed.networks.weights import find_weights_file, read_file
from biasbed.training import job
from biasbed.training.resolve import resolve
from helpers import making
from helpers.runs import all_runs, run_folders


def trained(classes: int = 4, name: str = "resnet10") -> networks.Network:
    """A network with values that no fresh one has."""
    torch.manual_seed(3)
    network = networks.build(name, classes)
    with torch.no_grad():
        for value in network.state_dict().values():
            value.copy_(torch.rand(value.shape) + 0.5 if value.is_floating_point() else value + 3)
    return network


# --- the content hash -------------------------------------------------------------------------------------------------


def test_one_network_in_three_kinds_of_files_has_one_hash(tmp_path: Path) -> None:
    network = trained()
    plain = {name: value.contiguous() for name, value in network.backbone.state_dict().items()}
    without = {name: value for name, value in plain.items() if not name.endswith("num_batches_tracked")}
    torch.save(dict(reversed(plain.items())), tmp_path / "reversed.pth")
    torch.save({"state_dict": {f"module.{name}": value for name, value in without.items()}}, tmp_path / "ddp.pth")
    save_file(plain, tmp_path / "weights.safetensors")
    ours = {f"network.{name}": value for name, value in network.state_dict().items()} | {"draws": torch.ones(2)}
    torch.save({"algorithm": ours, "config": {"algorithm": "infodrop"}, "best": {"value": 0.5}}, tmp_path / "best.ckpt")
    starts = {networks.start("resnet10", str(path)) for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 4
    assert starts == {f"file:{content_hash(plain)[:16]}"}


def test_the_hash_is_of_names_types_shapes_and_values() -> None:
    """Written out for two tensors, so that what is recorded today can be checked by anyone."""
    tensors = {"b": torch.tensor([1.0, -2.0]), "a.num_batches_tracked": torch.tensor(7), "a": torch.ones(2, 1).half()}
    sha = hashlib.sha256(b"a torch.float16 [2, 1]\n" + bytes.fromhex("003c003c"))
    sha.update(b"b torch.float32 [2]\n" + bytes.fromhex("0000803f000000c0"))
    assert content_hash(tensors) == sha.hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.tensor([[1.0, 2.0], [3.0, 4.5]])},
        {"a": torch.tensor([[1.0, 3.0], [2.0, 4.0]])},
        {"a": torch.tensor([1.0, 2.0, 3.0, 4.0])},
        {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)},
        {"b": torch.tensor([[1.0, 2.0], [3.0, 4.0]])},
        {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.zeros(0)},
    ],
)
def test_other_tensors_have_another_hash(other: dict[str, Tensor]) -> None:
    tensors = {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    assert content_hash(other) != provenance.content_hash(tensors)
    assert content_hash({"a": tensors["a"].t().contiguous().t()}) == provenance.content_hash(tensors)


# Methods whose checkpoints hold their network each in another place.
KEPT = ("erm", "sagnet", "debiased", "lff", "jtt")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in KEPT else pytest.mark.slow) for name in sorted(algorithms.REGISTRY)],
)
def test_a_checkpoint_of_every_method_starts_every_other(name: str, tmp_path: Path) -> None:
    backbone = "small_clip" if name in making.TOWERS else "resnet10"
    algorithm = making.make(name, making.BUSY.get(name, {}), backbone=backbone)
    torch.save({"algorithm": algorithm.state_dict(), "config": {"algorithm": name}}, tmp_path / "best.ckpt")
    network = networks.build(backbone, making.CLASSES, str(tmp_path / "best.ckpt"))
    own = algorithm.get_submodule("pair.network" if hasattr(algorithm, "pair") else "network").backbone.state_dict()
    found = network.backbone.state_dict()
    assert len(own) in (len(found), len(found) - 2)  # an encoder has no classifier
    assert all(torch.equal(value, found[key]) for key, value in own.items())


# --- the record of weights --------------------------------------------------------------------------------------------


def test_origin_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.pth"
    torch.save(trained(9).backbone.state_dict(), path)
    found = networks.origin("resnet10", str(path))
    sha = content_hash(read_file(path, "init"))
    assert found == {
        **{"start": f"file:{sha[:16]}", "library": "own", "architecture": "resnet10"},
        **{"library_version": found["library_version"], "file": "mine.pth", "sha256": sha},
    }
    json.dumps(found)
    torch.save(trained(7).backbone.state_dict(), path)  # written anew under the same name
    assert networks.origin("resnet10", str(path))["sha256"] != sha


def test_origin_of_scratch() -> None:
    found = networks.origin("timm:resnet18.a1_in1k", "scratch")
    assert found == {
        **{"start": "scratch", "library": "timm", "architecture": "resnet18", "library_version": timm.__version__},
    }


def test_an_alias_of_torchvision_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    state, fetched = trained(1000, "resnet18").backbone.state_dict(), []

    def fetch(url: str, *args: Any, **kwargs: Any) -> Any:
        fetched.append(url)
        return state

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    monkeypatch.setattr(provenance, "_facts", {})
    networks.build("resnet18", 10, "named:DEFAULT")
    found = networks.origin("resnet18", "named:DEFAULT")
    assert found["start"] == "torchvision:resnet18:IMAGENET1K_V1"
    assert found["weights"] == "IMAGENET1K_V1"
    assert fetched == [found["url"]] == ["https://download.pytorch.org/models/resnet18-f37072fd.pth"]  # once
    assert found["sha256"] == content_hash(state)
    assert networks.origin("torchvision:resnet18", "named:IMAGENET1K_V1") == found
    assert networks.start("resnet50", "named:DEFAULT") == "torchvision:resnet50:IMAGENET1K_V2"  # reads nothing
    assert len(fetched) == 1


def test_an_alias_of_timm_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    real, built = timm.create_model, []

    def create(name: str, pretrained: bool = False, **kwargs: Any) -> Any:
        built.append((name, pretrained))
        return real(name, pretrained=False, **kwargs)

    monkeypatch.setattr(timm, "create_model", create)
    monkeypatch.setattr(provenance, "_facts", {})
    networks.build("timm:resnet18", 10, "named:default")
    found = networks.origin("timm:resnet18", "named:default")
    assert [name for name, pretrained in built if pretrained] == ["resnet18.a1_in1k"]
    assert found["start"] == "timm:resnet18:a1_in1k"
    assert found["url"] == "https://huggingface.co/timm/resnet18.a1_in1k"
    assert networks.start("timm:resnet18.a2_in1k", "named:default") == "timm:resnet18:a2_in1k"
    assert networks.start("timm:resnet18", "named:a2_in1k") == "timm:resnet18:a2_in1k"


# --- the protocol -----------------------------------------------------------------------------------------------------


def test_identity_follows_the_content_and_not_the_path(image_root: Path, tmp_path: Path) -> None:
    network = trained(3)
    torch.save(network.backbone.state_dict(), tmp_path / "one.pth")
    torch.save({"model": network.state_dict()}, tmp_path / "two.pth")
    torch.save(trained(5).backbone.state_dict(), tmp_path / "other.pth")

    def planned(init: str) -> job.Job:
        flags = {"suite": "folders", "data_dir": str(image_root), "train": "photo", "backbone": "resnet10"}
        return job.plan(resolve({**flags, "init": init}))

    one, two, other = (planned(str(tmp_path / name)) for name in ("one.pth", "two.pth", "other.pth"))
    scratch = planned("scratch")
    assert one.run_key == two.run_key
    assert one.protocol == two.protocol
    assert len({job.run_key for job in (one, other, scratch)}) == 3
    assert len({job.protocol.hash for job in (one, other, scratch)}) == 3


# --- pretrain, then fine-tune -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fine_tuning_starts_at_the_pretrained_weights(
    tracking: str, train_flags: list[str], image_root: Path, tmp_path: Path
) -> None:
    """From best.ckpt of a training, then from its run's id; the learning rate leaves the weights where they were."""
    home = tmp_path / "home"
    assert cli.main(["train", *train_flags, "--epochs", "1", "--algorithm", "infodrop"]) == 0
    (pretrained,) = run_folders(home)
    (run,) = all_runs(tracking, kind="train")
    assert json.loads(run.data.tags[record.INIT])["start"] == "scratch"

    tune = [*train_flags, "--train", "paint", "--epochs", "1", "--optim.lr", "1e-30"]
    origins = []
    for init in (str(pretrained / "best.ckpt"), run.info.run_id):
        before = {found.info.run_id for found in all_runs(tracking, kind="train")}
        assert cli.main(["train", *tune, "--init", init, "--resume", "never"]) == 0
        (tuned,) = [found for found in all_runs(tracking, kind="train") if found.info.run_id not in before]
        assert tuned.data.params["config/init"] == init
        assert tuned.data.tags[record.PROTOCOL_HASH] != run.data.tags[record.PROTOCOL_HASH]
        origins.append((json.loads(tuned.data.tags[record.INIT]), tuned.data.tags[record.RUN_KEY]))
    (from_file, first_key), (from_run, second_key) = origins
    assert (from_file["file"], from_run["run"]) == ("best.ckpt", run.info.run_id)
    assert from_file["start"] == from_run["start"]
    assert first_key == second_key

    given = torch.load(pretrained / "best.ckpt", weights_only=True)["algorithm"]
    parameters = [name for name, _ in trained(3).named_parameters()]
    for folder in (folder for folder in run_folders(home) if folder != pretrained):
        protocol = record.Protocol.from_json((folder / record.PROTOCOL_FILE).read_text())
        assert protocol.start == from_file["start"] == f"file:{from_file['sha256'][:16]}"
        tuned_weights = torch.load(folder / "best.ckpt", weights_only=True)["algorithm"]
        assert all(torch.equal(tuned_weights[f"network.{name}"], given[f"network.{name}"]) for name in parameters)
        assert tuned_weights["network.backbone.bn1.num_batches_tracked"] > 0


def test_a_run_s_checkpoint_is_fetched_once(tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []

    def download(run_id: str, folder: Path) -> Path:
        fetched.append(run_id)
        torch.save(trained().backbone.state_dict(), folder / "best.ckpt")
        return folder / "best.ckpt"

    monkeypatch.setattr("biasbed.tracking.server.download_checkpoint", download)
    run = "0123456789abcdef" * 2
    networks.check_init("resnet10", run)
    assert networks.origin("resnet10", run)["run"] == run
    assert fetched == [run]
    assert find_weights_file(run).parent == tmp_path / "home" / "weights"
    assert [path.name for path in find_weights_file(run).parent.iterdir()] == [f"{run}.ckpt"]


# --- what can't be ----------------------------------------------------------------------------------------------------


def test_an_unknown_run_is_one_line(tracking: str) -> None:
    with pytest.raises(UsageError) as caught:
        networks.check_init("resnet10", "0" * 32)
    assert f"run={'0' * 32}: there is no such run on {tracking}" in str(caught.value)


def test_a_run_without_a_checkpoint_is_one_line(tracking: str) -> None:
    from mlflow import MlflowClient

    run_id = MlflowClient(tracking).create_run("0").info.run_id
    with pytest.raises(Failure) as caught:
        networks.check_init("resnet10", run_id)
    assert str(caught.value).startswith(f"init={run_id}: ")
    assert "\n" not in str(caught.value)


def test_a_wrong_init_is_refused_in_one_line(
    tracking: str, train_flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"algorithm": trained(3, "resnet14").state_dict()}, tmp_path / "other.ckpt")
    assert cli.main(["train", *train_flags, "--init", "other.ckpt"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in lines if "init=other.ckpt: not the weights of resnet10" in line]) == 1
    assert not run_folders(tmp_path / "home")
