"""Hundreds of nodes of an empty elastic pool for one job, and how the pool empties: a real slurmd for each pod.

`elastic` and slurmctld are as in Kubernetes; the API and who starts the pods are played. What a pod's own start takes
(a machine, its sandbox, its images) is not in it, and all slurmd compete for the cores with what is measured.
"""

from __future__ import annotations

import itertools
import re
import statistics
import time
from collections import Counter

from tests.bench.row import Measuring
from tests.bench.scale.part import lacking, resident
from tests.bench.scale.pool import IDLE_SECONDS, POOL, PoolSandbox
from tests.bench.scale.sandbox import ask
from tests.bench.scale.scrape import cpu_seconds
from tests.slurm.pod import wait_until

NODES = (100, 500, 1000)
RUNS = 4
"""As few as can tell a slower commit from noise (tests/bench/compare.py)."""

STEPS = ("first pod asked for", "last pod asked for", "last slurmd started", "all registered", "the job runs")
"""Each until it is reached, from the one before."""

PROGRAMS = ("slurmctld", "elastic")

_REGISTERED = re.compile(rf"Node {POOL}-\d+ now responding".encode())


class _Run:
    """One job on so many nodes, from its submission until its nodes have gone."""

    def __init__(self, sandbox: PoolSandbox, nodes: int) -> None:
        assert sandbox.api is not None
        self.sandbox, self.nodes = sandbox, nodes
        self._log = sandbox.controller.work / "slurmctld.log"
        self._from = self._log.stat().st_size
        sandbox.asked.clear()
        sandbox.started.clear()
        sandbox.api.questions.clear()
        before = {name: cpu_seconds(sandbox.controller, name) for name in PROGRAMS}
        submitted = time.time()
        sandbox.as_user(f"sbatch --quiet --nodes={nodes} --output=/tmp/began --wrap 'date +%s.%N'")
        wait_until(lambda: self._registered() >= nodes, self._why, 300)
        registered = time.time()
        began = sandbox.machine.root / "tmp/began"
        wait_until(lambda: began.exists() and bool(began.read_text().strip()), self._why, 120)
        self.cpu = {name: cpu_seconds(sandbox.controller, name) - before[name] for name in PROGRAMS}
        self.memory = resident(sandbox)
        self.requests = Counter(question.method for question in sandbox.api.questions)
        runs = float(began.read_text())
        began.unlink()
        asked = [at for at in sandbox.asked if at < runs]  # what is asked for after that is their end
        times = [submitted, min(asked), max(asked), max(sandbox.started), registered, runs]
        self.steps = [end - begin for begin, end in itertools.pairwise(times)]
        self.to_asked, self.to_registered, self.to_run = (at - submitted for at in (times[2], registered, runs))
        wait_until(lambda: not sandbox.worker_pods(), self._why, 300)
        self.to_gone = time.time() - runs - IDLE_SECONDS

    def _registered(self) -> int:
        """How many nodes have come, by slurmctld's log, which costs it nothing."""
        with self._log.open("rb") as log:
            log.seek(self._from)
            return len(set(_REGISTERED.findall(log.read())))

    def _why(self) -> str:
        sandbox = self.sandbox
        assert sandbox.problem is None, sandbox.problem
        logs = "\n".join(sandbox.controller.log(name)[-3000:] for name in PROGRAMS)
        return f"{self.nodes} nodes come and go: {self._registered()} have\n{ask(sandbox, 'sinfo; squeue')}\n{logs}"


def resume(bench: Measuring) -> None:
    """All numbers of nodes, on one pool of the largest."""
    most = max(NODES)
    if missing := lacking(most):
        bench.say(f"left out: {missing}")
        bench.left_out.append(f"an elastic pool of {most} slurmd ({missing})")
        return
    bench.say(f"a pool of {most} nodes, which are off")
    with PoolSandbox(most) as sandbox:
        sandbox.await_off(120)
        for nodes in NODES:
            runs = []
            for _ in range(bench.times(RUNS)):
                runs.append(_Run(sandbox, nodes))
                bench.say(f"{nodes} nodes: {_split([runs[-1]])}; gone after {runs[-1].to_gone:.2f} s")
                sandbox.await_off(120)
            _take(bench, runs, nodes)
        bench.say("all is taken away")


def _take(bench: Measuring, runs: list[_Run], nodes: int) -> None:
    split, asked = _split(runs), Counter[str]()
    for run in runs:
        asked |= run.requests
    kinds = ", ".join(f"{count} {method}" for method, count in asked.items())
    for name, samples, unit, note in (
        ("elastic: sbatch -> pods of all its nodes are asked for", [run.to_asked for run in runs], "s", ""),
        ("elastic: sbatch -> all its nodes have registered", [run.to_registered for run in runs], "s", split),
        ("elastic: sbatch -> the job runs", [run.to_run for run in runs], "s", ""),
        ("elastic: idle timeout over -> the last pod is gone", [run.to_gone for run in runs], "s", ""),
        ("elastic: CPU seconds of slurmctld until the job runs", [run.cpu["slurmctld"] for run in runs], "s", ""),
        ("elastic: CPU seconds of the program until then", [run.cpu["elastic"] for run in runs], "s", ""),
        ("elastic: resident memory of slurmctld then", [run.memory for run in runs], "MiB", ""),
        ("elastic: requests to the API until then", [float(run.requests.total()) for run in runs], "", kinds),
    ):
        bench.take(name, samples, unit=unit, nodes=nodes, note=note)


def _split(runs: list[_Run]) -> str:
    """The median of each step."""
    middle = (statistics.median(values) for values in zip(*(run.steps for run in runs), strict=True))
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in zip(STEPS, middle, strict=True))
