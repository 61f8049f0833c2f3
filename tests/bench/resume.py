"""One job for all nodes of an elastic pool that is off: until they have registered, and what that costs others.

slurmctld, the program `elastic` and what a worker starts are real, and share the cores of this machine. Kubernetes is
played, and has machines and images at once.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from config import load_config
from tests.bench.figures import Bench
from tests.fakes.node_conf import document
from tests.slurm.elastic import CONF, ElasticSandbox, await_state, elastic_config, submit
from tests.slurm.kubernetes import ENVIRONMENT, PODS
from tests.slurm.pod import Pod, wait_until
from tests.stacks import existing, with_change

VERSION = "24.11"
RUNS = {100: 3, 500: 2, 1000: 1}
"""Nodes -> how often. 1,000 take 2.5 GiB of memory and 13,000 threads."""
MACHINE = "machine"
"""The pod of all nodes, each of which has another port."""
FIRST_PORT = 7000

COUNTED = """#!/bin/bash
echo $EPOCHREALTIME "$@" >> /run/slurmstack/asked
exec /usr/bin/scontrol "$@"
"""
OFF = "IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN"
REGISTERED = " now responding"
"""In slurmctld's log, once for each node: to ask slurmctld would change what is measured."""


class ResumeSandbox(ElasticSandbox):
    """All nodes are in one pod."""

    def __init__(self, size: int) -> None:
        stack = with_change(existing(), "slurm.version", VERSION)
        for key, value in {"size": {"min": 0, "max": size}, "resume_timeout": "30m"}.items():
            stack = with_change(stack, f"worker_nodes.gpu.{key}", value)
        self.last_made = 0.0
        super().__init__(VERSION, config=elastic_config(VERSION, load_config(stack)), most=size)

    def start_controller(self, *, daemons: bool = True) -> Pod:
        controller = super().start_controller(daemons=daemons)
        machine = self.add_pod(MACHINE, "worker")
        (machine.root / "opt/nodes.py").write_text(Path(__file__).with_name("resume_nodes.py").read_text())
        env = {"CONTROLLER": "controller-0:6817", "POOL": "gpu", **self.worker_env(), "NODE_CONF": document(CONF)}
        command = machine.command(["python3", "-IS", "/opt/nodes.py"], env)
        with (machine.work / "ready").open("wb") as ready, (machine.work / "slurmd.log").open("wb") as log:
            self._nodes = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=ready, stderr=log, bufsize=0)
        machine.processes.append(self._nodes)
        return controller

    def start_elastic(self) -> None:
        """What it asks slurmctld is written down."""
        counted = self.controller.root / "opt/counted/scontrol"
        counted.parent.mkdir()
        counted.write_text(COUNTED)
        counted.chmod(0o755)
        path = "/opt/counted:/usr/bin:/bin"
        self.controller.start_program("elastic", {**ENVIRONMENT, **self.controller.slurm_env, "PATH": path})

    def set_pool(self, name: str = "gpu", **changes: Any) -> None:
        ports = f"Port=[{FIRST_PORT}-{FIRST_PORT + self.most - 1}]"
        super().set_pool(name, **{"conf": f"{CONF} Weight=1000 {ports}", **changes})

    def are_off(self) -> bool:
        """Whether all records are there, and have been powered down once, as `elastic` does with new ones."""
        marks = self.run("scontrol show nodes --all").stdout.count(f'"{self._mark()}"')
        return marks == self.most and {*self.states().values()} == {OFF}

    def _run_pods(self) -> None:
        known, ready = set[str](), list[str]()
        while not self._over.wait(0.1):
            for name in sorted(self.elastic_pods().keys() - known):
                self.last_made = time.time()
                self._change_pod(name, spec={"nodeName": "node-0"})
                assert self._nodes.stdin
                self._nodes.stdin.write(f"{name} {FIRST_PORT + int(name.removeprefix('gpu-'))}\n".encode())
                known.add(name)
            told = (self.work / f"pod-{MACHINE}/ready").read_text().split("\n")[:-1] if known else []
            for name in told[len(ready) :]:
                self._change_pod(name, status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
            ready = told

    def _change_pod(self, name: str, **content: Any) -> None:
        assert self.api is not None
        self.api.put(PODS, name, **{**self.elastic_pods()[name], **content})

    def used(self) -> dict[str, float]:
        """Seconds of CPU so far, with those of programs that were started and have ended."""
        programs = {"slurmctld": "sbin/slurmctld", "elastic": "slurmstack/elastic"}
        found = {name: self._cpu("controller-0", command) for name, command in programs.items()}
        return {"nodes": self._cpu(MACHINE, ""), **found, "the played API server": time.process_time()}

    def _cpu(self, pod: str, command: str) -> float:
        processes = (self.pods[pod].root / "proc").glob("[0-9]*")
        stats = [(one / "stat").read_text() for one in processes if command in (one / "cmdline").read_text()]
        ticks = sum(int(field) for stat in stats for field in stat.rpartition(")")[2].split()[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def looks(self) -> list[float]:
        """When `elastic` read all nodes, in seconds since 1970."""
        lines = (self.controller.root / "run/slurmstack/asked").read_text().splitlines()
        return [float(line.split()[0]) for line in lines if " show nodes " in line]


ROWS: dict[str, dict[str, Any]] = {
    "sbatch -> all registered": {},
    "CPU of slurmctld": {},
    "CPU of the nodes' programs": {},
    "requests to the API server": {"unit": "requests"},
    "looks at slurmctld in a second": {"unit": "looks", "goal": 2, "worst": True},
}


def resume(bench: Bench) -> None:
    """Each time in a cluster of its own."""
    for size, runs in RUNS.items():
        samples, notes = zip(*(_once(bench, size) for _ in range(bench.times(runs))), strict=True)
        for number, (name, more) in enumerate(ROWS.items()):
            row = bench.take(f"{size:,} nodes resumed: {name}", [sample[number] for sample in samples], **more)
            row.note = "" if number else notes[-1]


def _once(bench: Bench, size: int) -> tuple[tuple[float, ...], str]:
    """What `ROWS` are, and what else is to be told."""
    with ResumeSandbox(size) as sandbox:
        assert sandbox.api is not None
        wait_until(sandbox.are_off, sandbox.said)
        time.sleep(2)
        asked, before, begin = len(sandbox.api.questions), sandbox.used(), time.time()
        job = submit(sandbox, f"--nodes={size}")
        wait_until(lambda: sandbox.controller.log("slurmctld").count(REGISTERED) >= size, sandbox.said, 1800)
        end, after, requests = time.time(), sandbox.used(), len(sandbox.api.questions) - asked
        assert "POWERING_UP" not in "".join(sandbox.states().values()), sandbox.said()
        await_state(sandbox, job, "RUNNING", "COMPLETED")
        looks = [at for at in sandbox.looks() if at > begin]
        most = max(sum(at <= other < at + 1 for other in looks) for at in looks)
        cores, cpu = (end - begin) * (os.cpu_count() or 1), {name: after[name] - before[name] for name in after}
        note = (
            f"last pod made after {sandbox.last_made - begin:.1f} s; the job begins {time.time() - end:.1f} s after "
            f"the last node; of the cores had {', '.join(f'{name} {taken / cores:.0%}' for name, taken in cpu.items())}"
        )
        bench.say(f"{size:,} nodes in {end - begin:.1f} s: {note}")
        return (end - begin, cpu["slurmctld"], cpu["nodes"], requests, most), note
