"""Whole trainings against loops written out in plain torch: steps, averages, passes, evaluations and resuming."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pyarrow import parquet
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from biasbed.algorithms.base import Algorithm, Progress, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.make import make_algorithm
from biasbed.algorithms.requests import Pass, Phase, Stage, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.compute import checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.mean_weights import SMA
from biasbed.compute.precision import Precision
from biasbed.data.loading import TrainLoader
from biasbed.data.streams import BatchPlan
from biasbed.errors import Failure
from biasbed.networks.network import head_parameters
from biasbed.suites.sets import EvaluationSet
from biasbed.tracking.folder import RunFolder
from biasbed.training import averaged, final_evaluation, job, train
from biasbed.training.engine import Engine
from biasbed.training.resolve import resolve
from helpers import toys
from helpers.commands import ROOT

SUITE = f"{ROOT}/tests/helpers/toy_suite.py:Fogs"  # 48 training images: three steps of 16
PER_EPOCH = 3
SMALL = "timm:test_resnet"  # has batch norm


@pytest.fixture(autouse=True)
def _draws_apart() -> Iterator[None]:
    """Trainings seed the global generator; other tests keep theirs."""
    with torch.random.fork_rng():
        yield


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., job.Job]:
    """Plan a training on the toy suite; a class is found under the name of a toy."""

    def make_plan(algorithm: str | type[Algorithm], **flags: Any) -> job.Job:
        if not isinstance(algorithm, str):
            monkeypatch.setattr(toys, "Wrong", algorithm, raising=False)
            algorithm = "helpers.toys:Wrong"
        settings = {name.replace("__", "."): str(value) for name, value in flags.items()}
        common = {"suite": SUITE, "algorithm": algorithm, "backbone": SMALL, "tracking": "offline", "device": "cpu"}
        return job.plan(resolve({**common, "nproc": "1", "output_dir": str(tmp_path), **settings}))

    return make_plan


def open_engine(planned: job.Job, folder: Path, group: Group | None = None) -> Engine:
    folder.mkdir(exist_ok=True)
    return train._make_engine(planned, RunFolder(folder), group or Group())


def evaluations(engine: Engine) -> list[Mapping[str, Any]]:
    """Return the records of the last stage."""
    return [result for result in engine.state.history if "stage" not in result]


def find_set(planned: job.Job, name: str) -> EvaluationSet:
    return next(member for member in planned.suite.tested if member.name == name)


def decide_by_hand(network: Callable[[Tensor], Tensor], tested: EvaluationSet) -> tuple[float, float]:
    """Return accuracy and mean loss on a set whose images need no transform."""
    images = torch.from_numpy(tested.source.images).float() / 255  # type: ignore[attr-defined]
    labels = torch.from_numpy(tested.source.y)
    with torch.no_grad():
        logits = network(images)
    return (logits.argmax(1) == labels).float().mean().item(), cross_entropy(logits, labels).item()


def batches_by_hand(planned: job.Job, steps: int) -> Iterator[Batch]:
    """Yield batches of images in [0,1]; their order comes from the data room, which tests/data derives."""
    stream = planned.suite.stream(StreamRequest(), planned.training_data, planned.config.batch_size)
    for _, _, batch, _ in TrainLoader(BatchPlan({MAIN: stream}, planned.config.seed), 0, False).from_step(0, steps):
        yield Batch(batch.x.float() / 255, batch.y)


def make_by_hand(planned: job.Job) -> Algorithm:
    """Return the method at its initial weights, and seed the generators as for the first step of a training."""
    torch.manual_seed(planned.config.seed)
    group = Group()
    algorithm = make_algorithm(planned.config, planned.suite.task, group, Precision(), TrainData(48, 3, 1))
    group.seed(planned.config.seed)
    return algorithm.train()


# --- a training -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [None, 3])
def test_a_training_is_its_loop_written_out(plan: Any, tmp_path: Path, first: int | None) -> None:
    """Batch norm, dropout, warm-up, cosine and momentum; `first`: the step from which on the weights are averaged."""
    flags = dict(network__dropout=0.3, optim__schedule="cosine", optim__warmup=0.7, optim__momentum=0.8)
    averaging = {} if first is None else dict(average="sma", average_from=first)
    planned = plan("erm", seed=3, epochs=2, optim__weight_decay=0.01, **flags, **averaging)
    engine = open_engine(planned, tmp_path / "run")
    engine.run()

    algorithm = make_by_hand(planned)
    network, tested = algorithm.network, copy.deepcopy(algorithm.network)
    optimizer = torch.optim.SGD(network.parameters(), 0.05, momentum=0.8, weight_decay=0.01)
    total, warm, losses, right, iterates = 2 * PER_EPOCH, 2, [], [], []  # 0.7 of three steps are two
    for step, batch in enumerate(batches_by_hand(planned, total)):
        cosine = 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))
        optimizer.param_groups[0]["lr"] = 0.05 * ((step + 1) / warm if step < warm else cosine)
        logits = network(batch.x)
        loss = cross_entropy(logits, batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        right.append((logits.argmax(1) == batch.y).float().mean().item())
        iterates.append({name: value.clone() for name, value in network.state_dict().items()})
        if (step + 1) % PER_EPOCH:
            continue
        chosen = iterates[-1:] if first is None else iterates[first - 1 :]
        means = {}
        for name, value in iterates[-1].items():
            stacked = torch.stack([weights[name] for weights in chosen])
            means[name] = stacked.double().mean(0).to(value.dtype) if value.is_floating_point() else value
        tested.load_state_dict(means)
        result = evaluations(engine)[step // PER_EPOCH]
        assert result["step"] == (step + 1) // PER_EPOCH
        metrics = result["metrics"]
        assert metrics["train/loss"] == pytest.approx(sum(losses) / PER_EPOCH, rel=1e-5)
        assert metrics["train/accuracy"] == pytest.approx(sum(right) / PER_EPOCH)
        assert metrics["train/lr"] == pytest.approx(optimizer.param_groups[0]["lr"])
        for phase, name in (("val", "val"), ("test", "clear"), ("test", "fogged")):
            accuracy, mean_loss = decide_by_hand(tested.eval(), find_set(planned, name))
            assert metrics[f"{phase}/accuracy/{name}"] == pytest.approx(accuracy, abs=1e-6)
            assert metrics[f"{phase}/loss/{name}"] == pytest.approx(mean_loss, rel=1e-4)
        losses, right = [], []
    for name, value in engine.algorithm.network.state_dict().items():
        torch.testing.assert_close(value, iterates[-1][name], rtol=1e-5, atol=1e-6, msg=name)
    saved = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["algorithm"]
    for name, value in means.items():
        torch.testing.assert_close(saved[f"network.{name}"], value, rtol=1e-5, atol=1e-6, msg=name)


class Noting(toys.Plain):
    """Method that notes its progress and rate at every step, and the index of every image drawn."""

    uses = frozenset({"index"})

    def __init__(self, hparams: Any, setup: Any) -> None:
        super().__init__(hparams, setup)
        self.seen: list[tuple[Progress, float]] = []
        self.drawn: dict[str, list[int]] = {}

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        self.seen.append((self.progress, self.optimizer("main").param_groups[0]["lr"]))
        assert batch.index is not None
        self.drawn.setdefault(self.progress.stage, []).extend(batch.index.tolist())
        return super().update(batch)


class Shared(Noting):
    """Method of two stages that share one schedule; the first takes a third of the training."""

    def stages(self) -> tuple[Phase, ...]:
        return (
            Stage("first", self.update, share=1 / 3, course=(0.0, 1 / 3)),
            Stage(MAIN, self.update, course=(1 / 3, 1.0)),
        )


def test_stages_of_one_course_have_the_rates_of_one_training(plan: Any, tmp_path: Path) -> None:
    """Twelve steps: four and eight."""
    schedule = dict(epochs=4, optim__schedule="cosine", optim__warmup=0.0)
    engine = open_engine(plan(Shared, **schedule), tmp_path / "run")
    engine.run()
    seen = engine.algorithm.seen
    rates = [0.05 * 0.5 * (1 + math.cos(math.pi * step / 12)) for step in range(12)]
    assert [rate for _, rate in seen] == pytest.approx(rates)
    assert [progress.stage for progress, _ in seen] == ["first"] * 4 + [MAIN] * 8
    assert {progress.epochs for progress, _ in seen[:4]} == {2}, "the second of them is cut short"
    assert [(progress.epoch, progress.step) for progress, _ in seen[4:]] == [divmod(step, 3) for step in range(8)]
    # The last evaluation is within the third epoch, and of the first stage within the second.
    assert [(r.get("stage"), r["step"]) for r in engine.state.history] == [
        *(("first", 1), ("first", 2)),
        *((None, 1), (None, 2), (None, 3)),
    ]


def test_stages_draw_apart(plan: Any, tmp_path: Path) -> None:
    """The first steps of both are passes over all images, in other orders."""

    class Twice(Noting):
        def stages(self) -> tuple[Phase, ...]:
            return Stage("first", self.update, epochs=1), Stage(MAIN, self.update)

    engine = open_engine(plan(Twice, epochs=1), tmp_path / "run")
    engine.run()
    first, last = engine.algorithm.drawn["first"], engine.algorithm.drawn[MAIN]
    assert sorted(first) == sorted(last) == list(range(48))
    assert first != last
    batches = batches_by_hand(plan("erm", epochs=1), 3)
    images = torch.from_numpy(engine.reader.sources[0].images).float() / 255  # type: ignore[attr-defined]
    assert torch.equal(torch.cat([batch.x for batch in batches]), images[last]), "the last: as if it were alone"


def test_a_step_whose_parts_are_too_small_is_left_out(plan: Any, tmp_path: Path) -> None:
    """Batches of 20, 20 and 8 in five parts: three of the last would have two images and two would have one."""
    engine = open_engine(plan(Noting, epochs=2, batch_size=20, accumulate=5), tmp_path / "run")
    engine.run()
    steps = [(progress.epoch, progress.step) for progress, _ in engine.algorithm.seen]
    assert steps == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(engine.algorithm.drawn[MAIN]) == 80
    assert [result["step"] for result in evaluations(engine)] == [1, 2]


class Counting(toys.Plain):
    """Method whose steps set a bias to 100 in the first stage, and to 1, 2, 3 ... in the last."""

    def stages(self) -> tuple[Phase, ...]:
        return Stage("first", self.update, epochs=1), Stage(MAIN, self.update)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        step = self.progress.epoch * PER_EPOCH + self.progress.step
        with torch.no_grad():
            self.head.bias.fill_(100.0 if self.progress.stage == "first" else 1.0 + step)
        return {"nothing": torch.zeros(())}


@pytest.mark.parametrize(("first", "mean"), [(1, 3.5), (4, 5.0), (5, 5.5)])
def test_the_average_is_of_steps_of_the_last_stage(plan: Any, tmp_path: Path, first: int, mean: float) -> None:
    engine = open_engine(plan(Counting, epochs=2, average="sma", average_from=first), tmp_path / "run")
    engine.run()
    saved = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)
    assert saved["algorithm"]["head.bias"].tolist() == [mean] * 3
    assert saved["average"]["live"]["head.bias"].tolist() == [6.0] * 3


# --- passes and evaluations -------------------------------------------------------------------------------------------


class Looking(ERM):
    """ERM that stores, after a first stage, the logits of every training image."""

    def on_train_data(self, data: TrainData) -> None:
        self.register_buffer("outputs", torch.zeros(data.num_examples, 3))

    def stages(self) -> tuple[Phase, ...]:
        first = Stage("first", self.update, epochs=1)
        return (
            first,
            Pass("look", lambda batch: {"outputs": self.network(batch.x)}, self.keep, begin=self.begin),
            Stage(MAIN, self.update),
        )

    def begin(self) -> None:
        self.expected = copy.deepcopy(self.network)

    def keep(self, values: Mapping[str, Tensor]) -> None:
        self.outputs.copy_(values["outputs"])


def test_a_pass_sees_every_image_as_a_test_would(plan: Any, tmp_path: Path) -> None:
    """In evaluation mode, without crops and flips, after the pass's `begin`; training goes on in training mode."""
    flags = dict(augment__crop="true", augment__flip="true", network__dropout=0.5, eval_batch_size=10)
    engine = open_engine(plan(Looking, epochs=1, **flags), tmp_path / "run")
    engine.run()
    algorithm = engine.algorithm
    images = torch.from_numpy(engine.reader.sources[0].images).float() / 255  # type: ignore[attr-defined]
    with torch.no_grad():
        expected = algorithm.expected.eval()(images)
    torch.testing.assert_close(algorithm.outputs, expected, rtol=1e-4, atol=1e-5)
    before, after = algorithm.expected.state_dict(), algorithm.network.state_dict()
    name = next(name for name in before if name.endswith("num_batches_tracked"))
    assert int(after[name] - before[name]) == PER_EPOCH, "running statistics move at steps, and only there"


class Worsening(ERM):
    """ERM that decides for the first class alone after the first epoch, so that no later evaluation is better."""

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        terms = super().update(batch)
        *_, bias = head_parameters(self)
        if self.progress.epoch:
            with torch.no_grad():
                bias[0] = 100.0
        return terms


def test_at_the_end_both_weights_decide_as_they_are_tested(plan: Any, tmp_path: Path) -> None:
    """By hand from the files: batch norm in evaluation mode, the best weights under the best evaluation's number."""
    planned = plan(Worsening, epochs=3, test_every="fogged:end")
    engine = open_engine(planned, tmp_path / "run")
    engine.run()
    live = {name: value.clone() for name, value in engine.algorithm.state_dict().items()}
    final_evaluation.evaluate_at_end(engine)
    network = copy.deepcopy(engine.algorithm.network).eval()
    late = {result["step"]: result["metrics"] for result in engine.state.history if "late" in result}
    assert set(late) == {1, 3}
    for which, number in (("best", 1), ("last", 3)):
        weights = torch.load(tmp_path / "run" / f"{which}.ckpt", weights_only=True)["algorithm"]
        network.load_state_dict({name.removeprefix("network."): value for name, value in weights.items()})
        accuracy, loss = decide_by_hand(network, find_set(planned, "fogged"))
        assert late[number]["test/accuracy/fogged"] == pytest.approx(accuracy, abs=1e-6)
        assert late[number]["test/loss/fogged"] == pytest.approx(loss, rel=1e-4)
        table = parquet.read_table(tmp_path / "run" / "predictions" / "fogged" / f"{which}.parquet")
        right = [a == b for a, b in zip(table["label"].to_pylist(), table["decision"].to_pylist(), strict=True)]
        assert sum(right) / len(right) == pytest.approx(accuracy, abs=1e-6)
    assert all(torch.equal(live[name], value) for name, value in engine.algorithm.state_dict().items())


def test_live_loss_is_the_mean_of_sets_in_evaluation_mode(plan: Any, tmp_path: Path) -> None:
    """Every set counts alike, however many images it has; training goes on as it was."""
    planned = plan("erm", backbone="resnet10", network__dropout=0.5)
    engine = open_engine(planned, tmp_path / "run")
    algorithm = engine.algorithm.train()
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}
    sets = [find_set(planned, name) for name in ("val", "fogged")]
    loss = averaged.validation_loss(algorithm, engine.evaluator, sets)
    network = copy.deepcopy(algorithm.network).eval()
    by_hand = [decide_by_hand(network, tested)[1] for tested in sets]
    assert by_hand[0] != pytest.approx(by_hand[1], rel=1e-3)
    assert loss == pytest.approx(sum(by_hand) / 2, rel=1e-5)
    assert algorithm.training
    assert all(torch.equal(before[name], value) for name, value in algorithm.state_dict().items())


class SecondRank(Group):
    """Process that receives running means from -3 to 3 whenever the first one shares its buffers."""

    def share_buffers(self, module: nn.Module) -> None:
        set_means(module)


def set_means(module: nn.Module) -> None:
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.linspace(-3, 3, len(buffer)))


def evaluate_sets(engine: Engine) -> float:
    return engine.evaluate()["val/loss/val"]


def evaluate_live(engine: Engine) -> float:
    sets = [tested for tested in engine.evaluator.sets if tested.name == "val"]
    return averaged.validation_loss(engine.algorithm, engine.evaluator, sets)


def evaluate_late(engine: Engine) -> float:
    weights = final_evaluation._Weights("last", 1)
    sets = [tested for tested in engine.evaluator.sets if tested.name == "val"]
    stored = final_evaluation._decide(engine, sets, weights)
    assert stored is not None
    return stored.measure()["test/loss/val"]


@pytest.mark.parametrize("evaluate", [evaluate_sets, evaluate_live, evaluate_late])
def test_every_process_decides_with_the_buffers_of_the_first(
    plan: Any, tmp_path: Path, evaluate: Callable[[Engine], float]
) -> None:
    """Else the processes would decide on their parts of the images with different models."""
    planned = plan("erm", backbone="resnet10")
    engine = open_engine(planned, tmp_path / "run", SecondRank())
    network = copy.deepcopy(engine.algorithm.network).eval()
    apart = decide_by_hand(network, find_set(planned, "val"))[1]
    set_means(network)
    expected = decide_by_hand(network, find_set(planned, "val"))[1]
    assert expected != pytest.approx(apart, rel=1e-3)
    assert evaluate(engine) == pytest.approx(expected, rel=1e-5)


def test_every_process_looks_and_saves_with_the_buffers_of_the_first(plan: Any, tmp_path: Path) -> None:
    engine = open_engine(plan(Looking, epochs=1), tmp_path / "run", SecondRank())
    (_, look, _) = engine.phases
    assert isinstance(look, Pass)
    engine._run_pass(look)
    expected = copy.deepcopy(engine.algorithm.expected).eval()
    set_means(expected)
    images = torch.from_numpy(engine.reader.sources[0].images).float() / 255  # type: ignore[attr-defined]
    with torch.no_grad():
        torch.testing.assert_close(engine.algorithm.outputs, expected(images), rtol=1e-4, atol=1e-5)
    engine.algorithm.train()
    engine.algorithm.network(images)
    engine.save()
    saved = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["algorithm"]
    means = [value for name, value in saved.items() if name.endswith("running_mean")]
    assert means
    assert all(torch.equal(value, torch.linspace(-3, 3, len(value))) for value in means)


def test_the_live_weights_of_an_average_have_the_buffers_of_the_first_process() -> None:
    module = nn.BatchNorm1d(2)
    average = SMA(module, SecondRank(), 1)
    average.add(1)
    with average.evaluated_weights() as live:
        assert module.running_mean is not None
        assert module.running_mean.tolist() == [0.0, 0.0]
        assert live[".running_mean"].tolist() == [-3.0, 3.0]
    assert module.running_mean.tolist() == [-3.0, 3.0]


@pytest.mark.parametrize(("steps", "every", "count"), [(10, 4, 3), (8, 4, 2), (3, 4, 1)])
def test_evaluations_are_counted_as_they_come(plan: Any, tmp_path: Path, steps: int, every: int, count: int) -> None:
    planned = plan("helpers.toys:Plain", epochs="none", steps=steps, evaluate_every=every)
    engine = open_engine(planned, tmp_path / "run")
    assert engine.count_evaluations() == (count, steps)
    engine.run()
    assert [result["step"] for result in evaluations(engine)] == [*range(every, steps, every), steps]


# --- what is not finite -----------------------------------------------------------------------------------------------


class Failing(toys.Plain):
    """Method whose loss, or weights, are not finite at the second step; its other losses are finite."""

    spoils = "loss"

    def __init__(self, hparams: Any, setup: Any) -> None:
        super().__init__(hparams, setup)
        self.steps = 0

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        self.steps += 1
        terms = super().update(batch)
        if self.steps == 2 and self.spoils == "weights":
            with torch.no_grad():
                self.head.bias[0] = math.nan
        return {**terms, "more": torch.tensor(math.inf if self.steps == 2 and self.spoils == "loss" else 0.0)}


def test_a_loss_that_was_not_finite_stops_at_the_next_check(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the fourth step, though those after the second had finite losses."""
    monkeypatch.setattr("biasbed.training.engine.LOSS_CHECK", 4)
    engine = open_engine(plan(Failing, epochs="none", steps=9), tmp_path / "run")
    with pytest.raises(Failure, match=r"not finite \(more\)"):
        engine.run()
    assert engine.algorithm.steps == 4


def test_weights_that_are_not_finite_are_never_saved(plan: Any, tmp_path: Path) -> None:
    failing = type("Spoilt", (Failing,), {"spoils": "weights"})
    engine = open_engine(plan(failing, epochs="none", steps=2), tmp_path / "run")
    with pytest.raises(Failure, match="the loss is not finite"):
        engine.run()
    assert not (tmp_path / "run" / "last.ckpt").exists()


# --- cut and resumed --------------------------------------------------------------------------------------------------


class Whole(toys.Plain):
    """Method with something in every part of a checkpoint: a best module, a table, draws of three generators."""

    uses = frozenset({"index"})

    @classmethod
    def streams(cls, hparams: Any) -> dict[str, StreamRequest]:
        return {MAIN: StreamRequest(weights="often", replacement=True)}

    def on_train_data(self, data: TrainData) -> None:
        self.register_buffer("often", torch.ones(data.num_examples))

    def stages(self) -> tuple[Phase, ...]:
        first = Stage("first", self.update, epochs=2, validate=True, best="head", streams={MAIN: StreamRequest()})
        return first, Stage(MAIN, self.update)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        terms = super().update(batch)
        noise = torch.rand((), generator=self.group.generator) + torch.rand((), generator=self.group.shared_generator)
        assert batch.index is not None
        with torch.no_grad():
            self.often[batch.index] += noise + torch.rand(())
            self.head.bias += 0.01 * noise * torch.rand(())
        self.note("noise", noise)
        return terms


CLOCKED = ("second", "timestamp", "waited", "earlier", "/memory/", "_mb")  # parts of a state that a clock decides


def list_differences(left: Any, right: Any, where: str = "") -> list[str]:
    """Return the paths of the parts in which two states differ, leaving out what depends on clock and machine."""
    if isinstance(left, Tensor):
        return [] if torch.equal(left, right) else [where]
    if isinstance(left, Mapping):
        assert left.keys() == right.keys(), where
        pairs = {name: (left[name], right[name]) for name in left}
    elif isinstance(left, (list, tuple)):
        pairs = {str(number): pair for number, pair in enumerate(zip(left, right, strict=True))}
    else:
        is_clocked = any(word in where for word in CLOCKED)
        return [] if is_clocked or left == right else [where]
    differences = []
    for name, pair in pairs.items():
        differences += list_differences(*pair, f"{where}/{name}")
    return differences


@pytest.mark.parametrize(("stage", "step"), [(0, 4), (0, 5), (1, 2), (1, 4), (1, 8)])
def test_a_restored_training_saves_what_it_was_restored_from(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: int, step: int
) -> None:
    """Every part is equal, and training on from it ends like a training that was never interrupted."""
    averaging = dict(average="swad", swad__optimum_patience=1, swad__overfit_patience=2)
    planned = plan(Whole, epochs=3, checkpoint_every=1, precision="fp16", seed=5, **averaging)
    straight = open_engine(planned, tmp_path / "straight")
    states: list[dict[str, Any]] = []

    def note(path: Path, state: dict[str, Any]) -> None:
        if path.name == checkpoint.LAST:
            states.append(copy.deepcopy(state))

    monkeypatch.setattr(checkpoint, "save", note)
    straight.run()
    positions = [(state["position"]["stage"], state["position"]["step"]) for state in states]
    final, cut = states[-1], states[positions.index((stage, step))]
    if stage:
        assert cut["tables"]["often"].unique().numel() > 1
        assert cut["tallies"][0]["images"] == 16 * (step % PER_EPOCH)
        assert bool(cut["best"]) == (step > PER_EPOCH)
    else:
        assert cut["kept"]["weights"]
        assert cut["position"]["begun"]
    resumed = open_engine(planned, tmp_path / "resumed")
    resumed.restore(copy.deepcopy(cut))
    states.clear()
    resumed.save()
    assert not list_differences(cut, states[0])
    resumed.run()
    assert not list_differences(final, states[-1])
