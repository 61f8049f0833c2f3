"""Random events on an elastic pool, and what must hold after each: no job is lost, each node and its pod agree.

The events come from a seeded generator, so that a failure can be had again: `SLURMSTACK_SEED=NUMBER`. With
`SLURMSTACK_EVENTS=NUMBER` there are more or fewer of them than by default.
"""

from __future__ import annotations

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.nodes import start_soon

SEED = int(os.environ.get("SLURMSTACK_SEED", "17"))

OFF = {"POWERED_DOWN", "POWERING_DOWN"}
STARTABLE = {"IDLE", "CLOUD", "DYNAMIC_NORM", "POWERED_DOWN"}
WAITS = ("slurmstack/elastic: held back", "slurmstack/elastic: leaves")
"""Reasons of nodes that have no machine."""
ENDED = {"COMPLETED", "CANCELLED"}
REFUSALS = (
    "not available",
    "More processors requested than permitted",
    "Node count specification invalid",
    "Invalid node name",
)
"""Of a job that needs more nodes than the pool has just now, or one that it does not have."""


def events(usual: int) -> int:
    """How many there are to be."""
    return int(os.environ.get("SLURMSTACK_EVENTS", usual))


@dataclass
class World(ABC):
    """A cluster with one elastic pool, what has been done to it, and what must hold."""

    pool: str
    random: random.Random = field(default_factory=lambda: random.Random(SEED))
    jobs: dict[str, str] = field(default_factory=dict)
    """Job -> when it was submitted, for the message of a failed test."""
    cancelled: set[str] = field(default_factory=set)
    history: list[str] = field(default_factory=list)
    limit: int = 4
    """Nodes that may have a machine just now, but for those that had one before and a job."""

    most: ClassVar[int] = 4
    agree_within: ClassVar[float] = 60
    """Seconds after an event until nodes and pods agree."""
    settle_within: ClassVar[float] = 180

    @property
    def nodes(self) -> list[str]:
        """Names of all nodes."""
        return [f"{self.pool}-{number}" for number in range(self.most)]

    # ---------------------------------------------------------------- the cluster

    @abstractmethod
    def slurm(self, command: str) -> str:
        """What a Slurm command prints, wherever it complains."""

    @abstractmethod
    def sbatch(self, options: str, script: str) -> str:
        """Id of a new job, or what sbatch says."""

    @abstractmethod
    def states(self) -> dict[str, str]:
        """State of each node, as scontrol has it, without what it says of plans, and of nodes that are off."""

    @abstractmethod
    def pods(self) -> dict[str, dict[str, Any]]:
        """Pods of the pool that are not gone."""

    @abstractmethod
    def lose(self, pod: str) -> None:
        """A pod vanishes."""

    @abstractmethod
    def ask_to_leave(self, pod: str) -> None:
        """As `kubectl drain` does."""

    @abstractmethod
    def set_pool(self, **changes: Any) -> None:
        """Other sizes; with none, the usual ones."""

    @abstractmethod
    def said(self) -> str:
        """What the programs that matter here have logged lately."""

    @abstractmethod
    def wait_until(self, condition: Callable[[], bool], what: Callable[[], str], timeout: float) -> None:
        """Poll."""

    def heal(self) -> None:
        """End what keeps jobs from running."""
        self.set_pool()
        self.limit = self.most
        self.resume()

    # ---------------------------------------------------------------- events

    def weights(self) -> Mapping[Callable[[], str], int]:
        """Events, and how often each comes."""
        return {
            self.submit: 40, self.cancel: 5, self.lose_pod: 15, self.end_machine: 5, self.power_down: 4,
            self.drain: 4, self.resume: 6, self.resize: 5, self.nothing: 8,
        }  # fmt: skip

    def happen(self) -> None:
        """One event."""
        weights = self.weights()
        (event,) = self.random.choices([*weights], weights=[*weights.values()])
        self.history.append(f"{event.__name__}: {event()}")

    def submit(self) -> str:
        count, seconds = self.random.choice([1, 1, 1, 2, 2, 4]), self.random.choice([0, 0.5, 2, 5])
        options = f"--parsable --partition={self.pool} --requeue --output=/dev/null --nodes={count}"
        said = self.sbatch(options, f"sleep {seconds}").strip()
        if any(why in said for why in REFUSALS):
            return "refused, as the pool has fewer nodes now"
        job = said.partition("\n")[0]  # it may say how often it has asked for slurmctld's address
        assert job.isdecimal(), said
        self.jobs[job] = f"event {len(self.history)}"
        return f"job {job}, {count} nodes, {seconds} s"

    def cancel(self) -> str:
        waiting = [job for job in self.jobs if job not in self.cancelled]
        if not waiting:
            return "none"
        job = self.random.choice(waiting)
        self.slurm(f"scancel {job}")
        self.cancelled.add(job)
        return job

    def lose_pod(self) -> str:
        return self._with_a_pod(self.lose)

    def end_machine(self) -> str:
        return self._with_a_pod(self.ask_to_leave)

    def _with_a_pod(self, do: Callable[[str], None]) -> str:
        names = sorted(self.pods())
        if not names:
            return "none"
        name = self.random.choice(names)
        do(name)
        return name

    def power_down(self) -> str:
        name = self.random.choice(self.nodes)
        state = self.random.choice(["power_down", "power_down_asap", "power_down_force", "power_up"])
        self.slurm(f"scontrol update nodename={name} state={state}")
        return f"{name} {state}"

    def drain(self) -> str:
        name = self.random.choice(self.nodes)
        self.slurm(f"scontrol update nodename={name} state=drain reason=works")
        return name

    def resume(self) -> str:
        self.slurm(f"scontrol update nodename={','.join(self.states())} state=resume")
        return ""

    def resize(self) -> str:
        most = self.random.randint(1, self.most)
        least = self.random.choice([0, 0, 1])
        self.set_pool(max=most, min=least)
        self.limit = most
        return f"max {most}, min {least}"

    def nothing(self) -> str:
        time.sleep(1)
        return ""

    # ---------------------------------------------------------------- what must hold

    def run(self, count: int, *, settle_every: int) -> None:
        """So many events, each with a check."""
        self.settle()
        began = time.monotonic()
        for number in range(1, count + 1):
            self.happen()
            self.check()
            print(f"{time.monotonic() - began:.0f} s, {number}: {self.history[-1]}", flush=True)
            if number % settle_every == 0 or number == count:
                self.settle()

    def check(self) -> None:
        """After each event: no job is lost, and soon each node's pod is as Slurm wants it."""
        states = self.job_states()
        lost = {job: states.get(job, "gone") for job in self.jobs if states.get(job) in {None, "FAILED", "NODE_FAIL"}}
        lost = {job: how for job, how in lost.items() if job not in self.cancelled}
        assert not lost, self.told(f"jobs are lost: {lost}")
        self.wait_until(
            lambda: not self.disagreements(), lambda: self.told(f"stuck: {self.disagreements()}"), self.agree_within
        )

    def disagreements(self) -> dict[str, str]:
        """Nodes and pods for which Slurm and Kubernetes do not agree now."""
        nodes, pods = self.states(), self.pods()
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
            elif "DRAIN" in states and not off and not coming and "POWER_DOWN" not in states:
                reason = self.slurm(f"sinfo --noheader --nodes={name} --format=%E").strip()
                if reason.startswith(WAITS):
                    found[name] = f"has a machine, and takes no job: {reason}"
        stay = [state for state in nodes.values() if not {*state.split("+")} & (OFF | {"POWER_DOWN"})]
        free = [name for name, state in nodes.items() if {*state.split("+")} == STARTABLE]
        if len(free) > max(0, self.limit - len(stay)):
            found["all"] = f"{self.limit} may have a machine, {len(stay)} have one, and a job may start {free}"
        return found

    def settle(self) -> None:
        """With machines enough, and nothing drained, all jobs end and all nodes go off."""
        self.heal()

        def is_settled() -> bool:
            waiting = [job for job, state in self.job_states().items() if state not in ENDED and job in self.jobs]
            for job in waiting:  # Slurm itself lets a job that was requeued wait for two minutes
                start_soon(self.slurm, job)
            states = self.states()
            if any("DRAIN" in state for state in states.values()):
                self.resume()
            off = all({*state.split("+")} == STARTABLE for state in states.values())
            return not waiting and {*states} == {*self.nodes} and off and not self.pods()

        self.wait_until(is_settled, lambda: self.told("not settled"), self.settle_within)
        states = self.job_states()
        wrong = {job: states.get(job, "gone") for job in self.jobs if states.get(job) != "COMPLETED"}
        assert {*wrong} <= self.cancelled, self.told(f"jobs have not run: {wrong}")

    def job_states(self) -> dict[str, str]:
        lines = self.slurm("squeue --all --noheader --states=all --format='%A %T'").splitlines()
        return dict(line.split() for line in lines if len(line.split()) == 2)

    def told(self, what: str) -> str:
        pods = {name: "leaves" if "deletionTimestamp" in pod["metadata"] else "" for name, pod in self.pods().items()}
        return (
            f"{what}\nseed {SEED}, events:\n" + "\n".join(self.history[-25:])
            + f"\nnodes {self.states()}\npods {pods}\n{self.said()}"
        )  # fmt: skip
