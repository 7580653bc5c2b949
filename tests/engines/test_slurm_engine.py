"""launcher=slurm on a real Slurm of two nodes: what a cluster does to trainings, and that numbers don't show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.engine_study import EngineStudy, Lingering, Studies
from helpers.real_slurm import Slurm
from helpers.runs import all_runs

pytestmark = pytest.mark.slow

NODE = ("--launcher", "slurm", "--slurm.gpus_per_node", "0", "--slurm.cpus_per_task", "2", "--slurm.mem_gb", "2")
PREEMPT = ("sbatch", "--partition", "high", "--nodes", "2", "--exclusive", "--output", "/dev/null", "--wrap", "sleep 2")


def jobs(slurm: Slurm, study: EngineStudy) -> list[dict[str, str]]:
    """Return the jobs of a study, each array's in their order."""
    submitted = [job for job in slurm.jobs() if job["JobName"] == f"biasbed-{study.name}"]
    return sorted(submitted, key=lambda job: (int(job.get("ArrayJobId", 0)), int(job.get("ArrayTaskId", 0))))


def wait_for_restarts(slurm: Slurm, study: EngineStudy, expected: list[str], seconds: float = 600) -> None:
    """Wait until Slurm has started the study's jobs so often anew."""

    def running_again() -> bool:
        started = jobs(slurm, study)
        return [job["Restarts"] for job in started] == expected and all(job["JobState"] == "RUNNING" for job in started)

    slurm.wait(running_again, seconds)


def test_arrays_on_two_nodes(slurm: Slurm, study: Studies, undisturbed: Path, store: str) -> None:
    """Submit three trainings: two are an array, which has no more on this cluster, and the third waits for a node."""
    it = study("array", *NODE, environment=slurm.environment, seeds="0..2")
    it.run()
    ended = jobs(slurm, it)
    assert sorted("ArrayJobId" in job for job in ended) == [False, True, True]
    assert [job["JobState"] for job in ended] == ["COMPLETED"] * 3
    assert {job["NodeList"] for job in ended} == {"n1", "n2"}
    it.check(store, undisturbed, 3)
    assert it.starts() == [1] * 3


def test_two_nodes_under_one_training_that_is_pre_empted(
    slurm: Slurm, study: Studies, undisturbed_pair: Path, lingering: Lingering, store: str
) -> None:
    own = ("--slurm.nodes", "2", "--slurm.partition", "low")
    it = study("two_nodes", *NODE, *own, environment=slurm.environment)
    it.start()
    it.wait_for_epoch()
    assert [job["NodeList"] for job in jobs(slurm, it)] == ["n[1-2]"]
    slurm.call(*PREEMPT)
    wait_for_restarts(slurm, it, ["1"])
    lingering.hurry()
    it.end()
    it.check(store, undisturbed_pair)


def test_the_time_limit(slurm: Slurm, study: Studies, undisturbed: Path, lingering: Lingering, store: str) -> None:
    """At Slurm's warning the training saves its state; submitit queues the job again, and it goes on."""
    lingering.linger(3.0)
    it = study("limit", *NODE, "--slurm.minutes", "1", "--slurm.warning", "20", environment=slurm.environment)
    it.start()
    it.wait_for_epoch()
    wait_for_restarts(slurm, it, ["1"], 600)
    lingering.hurry()
    it.end()
    it.check(store, undisturbed)
    assert it.starts() == [1]


def test_a_training_that_runs_out_of_memory_gets_twice_as_much(
    slurm: Slurm, study: Studies, undisturbed: Path, lingering: Lingering, store: str
) -> None:
    """Slurm ends it, and the second job goes on in the one run that it has."""
    lingering.linger(0.3)
    lingering.weigh(3 * 2**29)
    own = ("--slurm.double_memory", "yes")
    it = study("memory", *NODE, *own, environment=slurm.environment)
    it.run()
    assert "ran out of memory: give more with slurm.mem_gb" in it.printed()
    first, second = sorted(jobs(slurm, it), key=lambda job: int(job["JobId"]))
    assert first["JobState"] in ("OUT_OF_MEMORY", "FAILED")  # Slurm 22.05 says only that it failed
    assert second["JobState"] == "COMPLETED"
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("2G", "4G")
    it.check(store, undisturbed)


def test_a_node_loses_its_power(
    slurm: Slurm, study: Studies, undisturbed: Path, lingering: Lingering, store: str
) -> None:
    """Slurm queues the training again at its last checkpoint; the other node's is left alone."""
    it = study("power", *NODE, environment=slurm.environment, seeds="0,1")
    it.start()
    it.wait_for_epoch(2)
    slurm.power_off("n2")
    slurm.wait(lambda: sorted(job["Restarts"] for job in jobs(slurm, it)) == ["0", "1"])
    slurm.power_on("n2")
    lingering.hurry()
    it.end()
    it.check(store, undisturbed, 2)


def test_a_node_of_two_under_one_training_loses_its_power(
    slurm: Slurm, study: Studies, undisturbed_pair: Path, lingering: Lingering, store: str
) -> None:
    """The other node's half sees it first and fails: the launcher submits it again. Slurm queues the first job again,
    too: one of them trains, and the other finds it done."""
    it = study("half", *NODE, "--slurm.nodes", "2", environment=slurm.environment)
    it.start()
    it.wait_for_epoch()
    slurm.power_off("n2")
    slurm.wait(lambda: "attempt 2 follows" in it.printed() and slurm.node_state("n2") == "down*")
    slurm.power_on("n2")
    lingering.hurry()
    it.end()
    slurm.wait(lambda: not slurm.call("squeue", "--noheader"))
    assert len(jobs(slurm, it)) == 2
    it.check(store, undisturbed_pair)


def test_the_launcher_dies_then_scancel_of_all(
    slurm: Slurm, study: Studies, undisturbed: Path, lingering: Lingering, store: str
) -> None:
    """As docs/clusters.md says: its end, then `scancel --name`; the same command goes on with all of them later."""
    it = study("all", *NODE, environment=slurm.environment, seeds="0..2")
    it.start()
    it.wait_for_epoch(2)
    it.kill()
    slurm.call("scancel", "--name", "biasbed-all")
    slurm.wait(lambda: not slurm.call("squeue", "--noheader", "--name", "biasbed-all"))
    assert {run.info.status for run in all_runs(store, study="all", kind="train")} == {"KILLED"}
    lingering.hurry()
    it.run()
    it.check(store, undisturbed, 3)
    assert len(jobs(slurm, it)) == 6


def test_the_launcher_dies_and_the_next_finds_its_jobs(
    slurm: Slurm, study: Studies, undisturbed: Path, lingering: Lingering, store: str
) -> None:
    """Two run and one waits; all three are watched, and none is submitted again."""
    it = study("adopted", *NODE, environment=slurm.environment, seeds="0..2")
    it.start()
    it.wait_for_epoch(2)
    it.kill()
    it.start()
    slurm.wait(lambda: it.printed().count("goes on") == 3)
    lingering.hurry()
    it.end()
    it.check(store, undisturbed, 3)
    assert len(jobs(slurm, it)) == 3
    assert it.starts() == [1] * 3


def test_a_sweep(slurm: Slurm, study: Studies, method: Lingering, tmp_path: Path, store: str) -> None:
    """The trials are those of the local launcher."""
    (tmp_path / "space.yaml").write_text("hparams.drop_rate: {distribution: uniform, low: 0.1, high: 2.0}\n")
    own = ("--trials", "3", "--sampler", "random", "--pruner", "none", "--space", str(tmp_path / "space.yaml"))

    def words(it: EngineStudy) -> list[str]:
        _, *flags = it.words(*own)
        seeds = flags.index("--seeds")
        return ["sweep", *flags[:seeds], *flags[seeds + 2 :]]

    it = study("trials", *NODE, environment=slurm.environment)
    it.run(words=words(it))
    alone = study("alone_trials", "--launcher", "local", "--nproc", "1", environment={})
    alone.run(words=words(alone))
    assert [job["JobState"] for job in jobs(slurm, it)] == ["COMPLETED"] * 3
    it.check(store, alone.home, 3, "trial")
