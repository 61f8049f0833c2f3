"""An elastic pool under random events: whatever happens, in whatever order, no job is lost and no node or pod is stuck.

The events come from a seeded generator, so that a failure can be had again: `SLURMSTACK_SEED=NUMBER`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from config import load_config
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.elastic import ElasticSandbox, elastic_config
from tests.slurm.pod import wait_until
from tests.stacks import existing, with_change

SEED = int(os.environ.get("SLURMSTACK_SEED", "17"))
EVENTS = 200
SETTLE_EVERY = 50

NODES = [f"gpu-{number}" for number in range(4)]
OFF = {"POWERED_DOWN", "POWERING_DOWN"}
ENDED = {"COMPLETED", "CANCELLED"}


@dataclass
class World:
    """The cluster, what has been done to it, and what must hold."""

    elastic: ElasticSandbox
    random: random.Random
    jobs: dict[str, str] = field(default_factory=dict)
    """Job -> when it was submitted, for the message of a failed test."""
    cancelled: set[str] = field(default_factory=set)
    history: list[str] = field(default_factory=list)

    def happen(self) -> None:
        """One event."""
        events: dict[Callable[[], str], int] = {
            self.submit: 40, self.cancel: 5, self.lose_pod: 15, self.end_machine: 5, self.fewer_machines: 8,
            self.more_machines: 12, self.restart_elastic: 6, self.restart_slurmctld: 3, self.kill_slurmctld: 1,
            self.power_down: 4, self.drain: 4, self.resume: 6, self.resize: 5, self.api_away: 3, self.nothing: 8,
        }  # fmt: skip
        (event,) = self.random.choices([*events], weights=[*events.values()])
        self.history.append(f"{event.__name__}: {event()}")

    def submit(self) -> str:
        nodes, seconds = self.random.choice([1, 1, 1, 2, 2, 4]), self.random.choice([0, 0.5, 2, 5])
        options = ["--parsable", "--partition=gpu", "--requeue", "--output=/dev/null", f"--nodes={nodes}"]
        done = self.elastic.run(["sbatch", *options, "--wrap", f"sleep {seconds}"])
        if "not available" in done.stderr:
            return "refused, as the pool has fewer nodes now"
        assert done.returncode == 0, done.stderr
        self.jobs[done.stdout.strip()] = f"event {len(self.history)}"
        return f"job {done.stdout.strip()}, {nodes} nodes, {seconds} s"

    def cancel(self) -> str:
        waiting = [job for job in self.jobs if job not in self.cancelled]
        if not waiting:
            return "none"
        job = self.random.choice(waiting)
        self.elastic.run(f"scancel {job}")
        self.cancelled.add(job)
        return job

    def lose_pod(self) -> str:
        names = sorted(self.elastic.elastic_pods())
        if not names:
            return "none"
        name = self.random.choice(names)
        self.elastic.lose(name)
        return name

    def end_machine(self) -> str:
        """`kubectl drain`: the pod is asked to leave."""
        names = sorted(self.elastic.elastic_pods())
        if not names:
            return "none"
        name = self.random.choice(names)
        self.elastic.ask_to_leave(name)
        return name

    def fewer_machines(self) -> str:
        self.elastic.machines = self.random.randint(0, 2)
        return str(self.elastic.machines)

    def more_machines(self) -> str:
        self.elastic.machines = 100
        return ""

    def restart_elastic(self) -> str:
        self.elastic.run("pkill -KILL -f libexec/slurmstack/elastic")
        self.elastic.start_elastic()
        return ""

    def restart_slurmctld(self) -> str:
        self._restart("TERM")
        return ""

    def kill_slurmctld(self) -> str:
        time.sleep(6)  # what slurmctld has accepted in the last five seconds it may not have written yet
        self._restart("KILL")
        return ""

    def _restart(self, signal: str) -> None:
        self.elastic.run(f"pkill -{signal} -x slurmctld")
        wait_until(lambda: self.elastic.run("pgrep -x slurmctld").returncode != 0, "slurmctld has ended", 30)
        self.elastic.controller.start_program("slurmctld")
        wait_until(lambda: "is UP" in self.elastic.run("scontrol ping").stdout, "slurmctld answers", 60)

    def power_down(self) -> str:
        name = self.random.choice(NODES)
        state = self.random.choice(["power_down", "power_down_asap", "power_down_force", "power_up"])
        self.elastic.run(f"scontrol update nodename={name} state={state}")
        return f"{name} {state}"

    def drain(self) -> str:
        name = self.random.choice(NODES)
        self.elastic.run(f"scontrol update nodename={name} state=drain reason=works")
        return name

    def resume(self) -> str:
        self.elastic.run("scontrol update nodename=gpu-[0-3] state=resume")
        return ""

    def resize(self) -> str:
        most = self.random.randint(1, 4)
        least = self.random.choice([0, 0, 1])
        conf = self.random.choice(["", " Weight=7"])
        self.elastic.set_pool(max=most, min=least, conf=f"CPUs=2 RealMemory=1000 Feature=gpu{conf}")
        return f"max {most}, min {least}{conf}"

    def api_away(self) -> str:
        assert self.elastic.api is not None
        self.elastic.api.down = True
        time.sleep(self.random.choice([0.5, 3]))
        self.elastic.api.down = False
        return ""

    def nothing(self) -> str:
        time.sleep(1)
        return ""

    # ---------------------------------------------------------------- what must hold

    def check(self) -> None:
        """After each event: no job is lost, and soon each node's pod is as Slurm wants it."""
        states = self.job_states()
        lost = {job: states.get(job, "gone") for job in self.jobs if states.get(job) in {None, "FAILED", "NODE_FAIL"}}
        lost = {job: how for job, how in lost.items() if job not in self.cancelled}
        assert not lost, self.told(f"jobs are lost: {lost}")
        wait_until(lambda: not self.disagreements(), lambda: self.told(f"stuck: {self.disagreements()}"), 60)

    def disagreements(self) -> dict[str, str]:
        """Nodes and pods for which Slurm and Kubernetes do not agree now."""
        nodes, pods = self.elastic.states(), self.elastic.elastic_pods()
        found = {}
        for name in {*nodes, *pods}:
            states = {*nodes.get(name, "none").split("+")}
            pod = pods.get(name)
            there = pod is not None and "deletionTimestamp" not in pod["metadata"]
            off, coming = bool(states & OFF) or states == {"none"}, "POWERING_UP" in states
            if off and there:
                found[name] = f"an orphan pod, of a node that is {'+'.join(states)}"
            elif not off and not coming and pod is None and "DRAIN" not in states:  # somebody's drain stays
                found[name] = f"{'+'.join(states)} without a pod"
            elif "DOWN" in states and "DRAIN" not in states:  # else it waits for the end of a pause
                found[name] = f"is given up: {'+'.join(states)}"
        return found

    def settle(self) -> None:
        """With machines enough, and nothing drained, all jobs end and all nodes go off."""
        self.elastic.machines = 100
        self.elastic.set_pool()
        self.resume()

        def is_settled() -> bool:
            waiting = [job for job, state in self.job_states().items() if state not in ENDED and job in self.jobs]
            for job in waiting:  # Slurm itself lets a job that was requeued wait for two minutes
                self.elastic.run(f"scontrol update jobid={job} starttime=now")
            if any("DRAIN" in states for states in self.elastic.states().values()):
                self.resume()
            off = {"IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN"}
            states = self.elastic.states()
            return (
                not waiting and {*states} == {*NODES} and {*states.values()} == off and not self.elastic.elastic_pods()
            )

        wait_until(is_settled, lambda: self.told("not settled"), 180)
        states = self.job_states()
        wrong = {job: states.get(job, "gone") for job in self.jobs if states.get(job) != "COMPLETED"}
        assert {*wrong} <= self.cancelled, self.told(f"jobs have not run: {wrong}")

    def job_states(self) -> dict[str, str]:
        lines = self.elastic.run("squeue --all --noheader --states=all --format='%A %T'").stdout.splitlines()
        return dict(line.split() for line in lines)

    def told(self, what: str) -> str:
        pods = {name: "leaves" if "deletionTimestamp" in pod["metadata"] else "" for name, pod in
                self.elastic.elastic_pods().items()}  # fmt: skip
        return (
            f"{what}\nseed {SEED}, events:\n" + "\n".join(self.history[-25:])
            + f"\nnodes {self.elastic.states()}\npods {pods}\n{self.elastic.said()}"
        )  # fmt: skip


@pytest.fixture(scope="module")
def world(slurm_cluster: ClusterFactory, slurm_version: str) -> World:
    sections = with_change(existing(), "slurm.version", slurm_version)
    for key, value in {"size": {"min": 0, "max": 4}, "idle_timeout": "10s", "resume_timeout": "30s"}.items():
        sections = with_change(sections, f"worker_nodes.gpu.{key}", value)
    config = elastic_config(slurm_version, load_config(sections))
    text = (
        config["slurm.conf"]
        .replace("SuspendTime=10 ", "SuspendTime=2 ")
        .replace("ResumeTimeout=30", "ResumeTimeout=15")
    )
    config["slurm.conf"] = f"{text}MinJobAge=86400\n"  # to know of each job how it has ended
    elastic = slurm_cluster(slurm_version, kind=ElasticSandbox, config=config)
    assert isinstance(elastic, ElasticSandbox)
    return World(elastic=elastic, random=random.Random(SEED))


@one_version
def test_whatever_happens_no_job_is_lost_and_no_node_or_pod_is_stuck(world: World) -> None:
    world.settle()
    for number in range(1, EVENTS + 1):
        world.happen()
        world.check()
        if number % SETTLE_EVERY == 0:
            world.settle()
