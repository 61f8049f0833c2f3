"""An elastic pool under random events: whatever happens, in whatever order, no job is lost and no node or pod is stuck.

A fixed node is in the partition, too, and nobody touches it. The events come from seeded generators, so that a failure
can be had again: `SLURMSTACK_SEED=NUMBER` takes that one alone. With `SLURMSTACK_EVENTS=NUMBER` there are more or fewer
of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

import pytest

from config import load_config
from tests.nodes import start_soon
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import VERSIONS
from tests.slurm.elastic import CONF, ElasticSandbox, elastic_config
from tests.slurm.kubernetes import PODS
from tests.slurm.pod import wait_until
from tests.stacks import existing, with_change

pytestmark = pytest.mark.soak

SEEDS = [int(seed) for seed in os.environ.get("SLURMSTACK_SEED", "17 18 19").split()]
EVENTS = int(os.environ.get("SLURMSTACK_EVENTS", "100"))
SETTLE_EVERY = 50
MOST = 4
NODES = [f"gpu-{number}" for number in range(MOST)]
OFF = {"POWERED_DOWN", "POWERING_DOWN"}
STARTABLE = {"IDLE", "CLOUD", "DYNAMIC_NORM", "POWERED_DOWN"}
WAITS = ("slurmstack/elastic: held back", "slurmstack/elastic: leaves")
"""Reasons of nodes that have no machine."""
WORKS = "works"
"""Why somebody has drained a node."""
FIXED = "cpu-0"
"""A node of a fixed pool, on which the lighter jobs run first."""
TOUCHED = {"CLOUD", "DRAIN", "DOWN", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"}
ENDED = {"COMPLETED", "CANCELLED", "NODE_FAIL"}
REFUSALS = (
    "not available",
    "More processors requested than permitted",
    "Node count specification invalid",
    "Invalid node name",
)
"""Of a job that needs more nodes than the pool has just now, or one that it does not have."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What was submitted."""

    requeues: bool
    losses: int
    """Before it was submitted; -1 where there were too few machines then."""


class World:
    """A pool of real daemons with a played Kubernetes, what has been done to it, and what must hold."""

    def __init__(self, elastic: ElasticSandbox, seed: int) -> None:
        self.elastic = elastic
        self.seed = seed
        self.random = Random(seed)
        self.jobs: dict[str, Job] = {}
        self.cancelled: set[str] = set()
        self.losses = 0
        """Events that may cost a job its nodes, or their start."""
        self.history: list[str] = []

    def slurm(self, command: str) -> str:
        """What a Slurm command prints, wherever it complains."""
        done = self.elastic.run(command)
        return done.stdout + done.stderr

    def run(self, count: int) -> None:
        """So many events, each with a check."""
        self.settle()
        began = time.monotonic()
        for number in range(1, count + 1):
            self.happen()
            self.check()
            print(f"{time.monotonic() - began:.0f} s, {number}: {self.history[-1]}", flush=True)
            if number % SETTLE_EVERY == 0 or number == count:
                self.settle()

    def happen(self) -> None:
        """One event."""
        weights: Mapping[Callable[[], str], int] = {
            self.submit: 40, self.cancel: 5, self.lose_pod: 15, self.end_machine: 5, self.power_down: 4,
            self.drain: 4, self.resume: 6, self.resize: 5, self.nothing: 8, self.change_machines: 20,
            self.restart_elastic: 6, self.restart_slurmctld: 3, self.kill_slurmctld: 1, self.trouble_api: 4,
            self.keep_pod: 3,
        }  # fmt: skip
        (event,) = self.random.choices([*weights], weights=[*weights.values()])
        self.losses += event not in {self.submit, self.cancel, self.nothing, self.restart_elastic}
        self.history.append(f"{event.__name__}: {event()}")

    def submit(self) -> str:
        count, seconds = self.random.choice([1, 1, 1, 2, 2, 4]), self.random.choice([0, 0.5, 2, 5])
        requeues = self.random.random() < 0.7
        options = f"--parsable --partition=gpu --output=/dev/null --nodes={count}"
        options += " --requeue" if requeues else " --no-requeue"
        if count == 1 and self.random.random() < 0.25:
            options += f" --nodelist={self.random.choice(NODES)}"
        said = self.slurm(f"sbatch {options} --wrap 'sleep {seconds}'").strip()
        if any(why in said for why in REFUSALS):
            return "refused, as the pool has fewer nodes now"
        job = said.partition("\n")[0]  # it may say how often it has asked for slurmctld's address
        assert job.isdecimal(), said
        losses = self.losses if self.elastic.machines >= MOST and not self.elastic.stuck else -1
        self.jobs[job] = Job(requeues=requeues, losses=losses)
        return f"job {job}, {count} nodes, {seconds} s{'' if requeues else ', and is not requeued'}"

    def cancel(self) -> str:
        waiting = [job for job in self.jobs if job not in self.cancelled]
        if not waiting:
            return "none"
        job = self.random.choice(waiting)
        self.slurm(f"scancel {job}")
        self.cancelled.add(job)
        return job

    def lose_pod(self) -> str:
        return self._with_a_pod(self.elastic.lose)

    def end_machine(self) -> str:
        """Of a preemptible machine or not."""
        self.elastic.preemptible = self.random.choice([True, False])
        said = self._with_a_pod(self.elastic.ask_to_leave)
        return f"{said}{', with its jobs back to the queue' if self.elastic.preemptible else ''}"

    def _with_a_pod(self, do: Callable[[str], None]) -> str:
        names = sorted(self.elastic.elastic_pods())
        if not names:
            return "none"
        name = self.random.choice(names)
        do(name)
        return name

    def power_down(self) -> str:
        name = self.random.choice(NODES)
        state = self.random.choice(["power_down", "power_down_asap", "power_down_force", "power_up"])
        self.slurm(f"scontrol update nodename={name} state={state}")
        return f"{name} {state}"

    def drain(self) -> str:
        name = self.random.choice(NODES)
        self.slurm(f"scontrol update nodename={name} state=drain reason={WORKS}")
        return name

    def resume(self) -> str:
        self.slurm(f"scontrol update nodename={','.join(self.elastic.states())} state=resume")
        return ""

    def resize(self) -> str:
        """With another configuration of the nodes, now and then."""
        most, least = self.random.randint(1, MOST), self.random.choice([0, 0, 1])
        conf = self.random.choice(["", " Weight=7"])
        self.elastic.set_pool(max=most, min=least, conf=f"{CONF}{conf}")
        return f"max {most}, min {least}{conf}"

    def nothing(self) -> str:
        time.sleep(1)
        return ""

    def change_machines(self) -> str:
        self.elastic.machines = self.random.choice([0, 1, 2, 100, 100, 100])
        return str(self.elastic.machines)

    def restart_elastic(self) -> str:
        self.elastic.run("pkill -KILL -f libexec/slurmstack/elastic")
        self.elastic.start_elastic()
        return ""

    def restart_slurmctld(self) -> str:
        self.elastic.restart_slurmctld()
        return ""

    def kill_slurmctld(self) -> str:
        time.sleep(6)  # what slurmctld has accepted in the last five seconds it may not have written yet
        self.elastic.restart_slurmctld("KILL")
        return ""

    def trouble_api(self) -> str:
        api, seconds = self.elastic.api, self.random.choice([0.5, 3, 8])
        assert api is not None
        how, over = self.random.choice(["away", "silent", "late", "takes no pods"]), threading.Event()
        api.down = how == "away"
        api.refuses = {f"POST {PODS}": 403} if how == "takes no pods" else {}
        waits: dict[str, Callable[[], object]] = {"silent": over.wait, "late": partial(over.wait, 0.5)}
        api.before_answer = waits.get(how, lambda: None)
        time.sleep(seconds)
        api.down, api.refuses, api.before_answer = False, {}, lambda: None
        over.set()
        return f"{how} for {seconds} s"

    def keep_pod(self) -> str:
        """A pod does not go, or goes at last."""
        if self.elastic.stuck:
            self.elastic.stuck.clear()
            return "goes"
        return self._with_a_pod(self.elastic.stuck.add)

    def check(self) -> None:
        """After each event: no job is lost, and soon each node's pod is as Slurm wants it."""
        states = self.job_states()
        lost = {job: state for job in self.jobs if not self.is_right(job, state := states.get(job, "gone"))}
        assert not lost, self.told(f"jobs are lost: {lost}")
        again = {job: times for job, times in self.restarts().items() if times and self.is_calm(job)}
        assert not again, self.told(f"jobs began more than once, and nothing had happened: {again}")
        fixed = self.elastic.states().get(FIXED, "gone")
        assert not TOUCHED & {*fixed.split("+")}, self.told(f"the fixed node was touched: {fixed}")
        wait_until(lambda: not self.disagreements(), lambda: self.told(f"stuck: {self.disagreements()}"))

    def is_right(self, job: str, state: str) -> bool:
        """Whether nothing has ended a job but its own end, a user, or the end of its node where it is not requeued."""
        if state in {"gone", "FAILED", "NODE_FAIL"}:
            return job in self.cancelled or (
                state == "NODE_FAIL" and not (self.jobs[job].requeues or self.is_calm(job))
            )
        return True

    def is_calm(self, job: str) -> bool:
        """Whether nothing has happened since its submission that can cost a job its nodes."""
        return self.jobs[job].losses == self.losses

    def restarts(self) -> dict[str, int]:
        """How often each job was requeued."""
        lines = self.slurm("scontrol show jobs --oneliner").splitlines()
        found = {
            line.split()[0].partition("=")[2]: int(line.partition(" Restarts=")[2].split()[0])
            for line in lines
            if " Restarts=" in line
        }
        return {job: times for job, times in found.items() if job in self.jobs}

    def disagreements(self) -> dict[str, str]:
        """Nodes and pods for which Slurm and Kubernetes do not agree now."""
        nodes, pods = self.elastic.states(), self.elastic.elastic_pods()
        found = {}
        for name in {*nodes, *pods} - {FIXED}:
            states = {*nodes.get(name, "none").split("+")}
            pod = pods.get(name)
            there = pod is not None and "deletionTimestamp" not in pod["metadata"]
            off, coming = bool(states & OFF) or states == {"none"}, "POWERING_UP" in states
            if off and there:
                found[name] = f"an orphan pod, of a node that is {'+'.join(states)}"
            elif not off and not coming and pod is None and "DRAIN" not in states:  # somebody's drain stays
                found[name] = f"{'+'.join(states)} without a pod"
            elif "DOWN" in states and "DRAIN" not in states:  # else it waits for the end of a pause
                if self.reason(name) != WORKS:  # of what was drained as it went down, Slurm lifts the drain
                    found[name] = f"is given up: {'+'.join(states)}"
            elif "DRAIN" in states and not (off or coming or "POWER_DOWN" in states):
                reason = self.reason(name)
                if reason.startswith(WAITS):
                    found[name] = f"has a machine, and takes no job: {reason}"
        return found

    def reason(self, name: str) -> str:
        """Why a node is drained or down."""
        return self.slurm(f"sinfo --noheader --nodes={name} --format=%E").strip()

    def settle(self) -> None:
        """With machines enough, and nothing drained, all jobs end and all nodes go off."""
        self.elastic.machines = 100
        self.elastic.stuck.clear()
        self.elastic.set_pool()
        self.resume()

        def is_settled() -> bool:
            waiting = [job for job, state in self.job_states().items() if state not in ENDED and job in self.jobs]
            for job in waiting:  # Slurm itself lets a job that was requeued wait for two minutes
                start_soon(self.slurm, job)
            states = {name: state for name, state in self.elastic.states().items() if name != FIXED}
            if any("DRAIN" in state for state in states.values()):
                self.resume()
            off = all({*state.split("+")} == STARTABLE for state in states.values())
            return not waiting and {*states} == {*NODES} and off and not self.elastic.elastic_pods()

        wait_until(is_settled, lambda: self.told("not settled"))
        states = self.job_states()
        ran = {job for job in self.jobs if states.get(job) == "COMPLETED" or job in self.cancelled}
        wrong = {job: states.get(job, "gone") for job in self.jobs if job not in ran and self.jobs[job].requeues}
        assert not wrong, self.told(f"jobs have not run: {wrong}")

    def job_states(self) -> dict[str, str]:
        lines = self.slurm("squeue --all --noheader --states=all --format='%A %T'").splitlines()
        return dict(line.split() for line in lines if len(line.split()) == 2)

    def told(self, what: str) -> str:
        pods = {
            name: "leaves" if "deletionTimestamp" in pod["metadata"] else ""
            for name, pod in self.elastic.elastic_pods().items()
        }
        return (
            f"{what}\nseed {self.seed}, events:\n" + "\n".join(self.history[-25:])
            + f"\nnodes {self.elastic.states()}\npods {pods}\n{self.elastic.said()}"
        )  # fmt: skip


@pytest.fixture
def elastic(own_cluster: ClusterFactory, slurm_version: str) -> ElasticSandbox:
    sections = with_change(existing(), "slurm.version", slurm_version)
    for key, value in {"size": {"min": 0, "max": 4}, "idle_timeout": "10s", "resume_timeout": "30s"}.items():
        sections = with_change(sections, f"worker_nodes.gpu.{key}", value)
    config = elastic_config(slurm_version, load_config(sections), "NodeSet=cpu Feature=cpu")
    text = (
        config["slurm.conf"]
        .replace("SuspendTime=10 ", "SuspendTime=2 ")
        .replace("ResumeTimeout=30", "ResumeTimeout=15")
        .replace("PartitionName=gpu Nodes=gpu", "PartitionName=gpu Nodes=cpu,gpu")
    )
    config["slurm.conf"] = f"{text}MinJobAge=86400\n"  # to know of each job how it has ended
    sandbox = own_cluster(slurm_version, kind=ElasticSandbox, config=config)
    sandbox.start_worker_on(FIXED, env={"NODE_CONF": CONF.replace("gpu", "cpu")})
    wait_until(lambda: sandbox.states().get(FIXED) == "IDLE+DYNAMIC_NORM", lambda: f"it is there: {sandbox.said()}")
    return sandbox


@pytest.mark.timeout(600 + 5 * EVENTS)
@pytest.mark.parametrize(
    ("slurm_version", "seed"),
    [(VERSIONS[number % len(VERSIONS)], seed) for number, seed in enumerate(SEEDS)],
    indirect=["slurm_version"],
)
def test_whatever_happens_no_job_is_lost_and_no_node_or_pod_is_stuck(elastic: ElasticSandbox, seed: int) -> None:
    World(elastic, seed).run(EVENTS)
