"""An elastic pool: from an empty one to a job that runs, on a node that is up, and back to an empty one."""

from __future__ import annotations

import itertools
import re
import time
from datetime import datetime

from images.common.hostlist import expand
from tests.bench.cluster import Cluster
from tests.bench.row import Measuring, Row
from tests.e2e.harness import wait_until

POOL, MOST, IDLE_SECONDS = "burst", 4, 10

STEPS = ("allocated", "pods asked for", "slurmd runs", "registered", "started")
"""Each until it is reached, from the one before."""


SUBMIT = """
rm -f began
submitted=$(date +%s.%N)
sbatch --quiet -p {pool} -N{nodes} --output=/dev/null --wrap '{began} > .began; mv .began began'
until [ -e began ]; do sleep 0.05; done
echo $submitted $(cat began) $(date +%s.%N)
"""
"""srun would ask only after 0.1, 1.1, 2.6, 4.6 and 7.1 s whether its nodes are there (src/srun/allocate.c)."""

SRUN = "a=$(date +%s.%N); b=$(srun -p {pool} -N{nodes} date +%s.%N); echo $a $b $(date +%s.%N)"


def elastic(bench: Measuring, cluster: Cluster) -> None:
    """With the images on the machines, which are there: what an autoscaler takes is not measured here."""
    pool = {**cluster.sections["worker_nodes"]["default"], "size": {"max": MOST}, "idle_timeout": f"{IDLE_SECONDS}s"}
    cluster.sections = {
        **cluster.sections,
        "worker_nodes": {**cluster.sections["worker_nodes"], POOL: pool},
        "partitions": {**cluster.sections["partitions"], POOL: {"pools": [POOL]}},
    }
    cluster.up()
    released: list[float] = []
    for of, nodes, script, runs, goal in (
        ("a node", 1, SUBMIT, 20, 3),
        (f"{MOST} nodes", MOST, SUBMIT, 6, 5),
        ("a node, with srun,", 1, SRUN, 4, None),
    ):
        split: list[list[float]] = []

        def once(_: int, nodes: int = nodes, script: str = script, split: list[list[float]] = split) -> float:
            _await_none(cluster)
            submitted, started, ended = _run(cluster, nodes, script)
            split.append(_split(cluster, submitted, started, nodes))
            wait_until(lambda: not _pods(cluster), "the pool is empty", timeout=120, slowest=0.3)
            released.append(time.time() - ended - IDLE_SECONDS)
            return started - submitted

        row = bench.measure(f"submit -> start on {of} of an empty pool", once, runs=runs, goal=goal)
        _note(row, split)
    bench.take("idle timeout over -> the last pod of the pool is gone", released, goal=5)
    _await_none(cluster)
    _run(cluster, 1, SUBMIT)

    def warm(_: int) -> float:
        submitted, started, _ended = _run(cluster, 1, SRUN)
        return started - submitted

    bench.measure("submit (srun) -> start on an idle node of an elastic pool", warm, runs=20, goal=0.2)


def _run(cluster: Cluster, nodes: int, script: str) -> tuple[float, float, float]:
    """When a job was submitted, ran on all of its nodes, and had ended."""
    began = "date +%s.%N" if nodes == 1 else "srun date +%s.%N | sort | tail -1"
    printed = cluster.as_alice(script.format(pool=POOL, nodes=nodes, began=began))
    submitted, started, ended = map(float, printed.split())
    return submitted, started, ended


def _pods(cluster: Cluster) -> list[str]:
    return [name for name in cluster.pod_uids() if name.startswith(f"{POOL}-")]


def _await_none(cluster: Cluster) -> None:
    """Wait until the pool is empty, and its nodes may be started again."""
    wait_until(lambda: not _pods(cluster), "the pool is empty", timeout=120)
    free = f"sinfo --noheader --partition={POOL} --states=powered_down --format=%D"
    wait_until(lambda: cluster.slurm(free).strip() == str(MOST), "its nodes are off", timeout=120, slowest=0.3)


def _split(cluster: Cluster, submitted: float, started: float, nodes: int) -> list[float]:
    """Seconds of each step, by what the programs have logged; of several nodes by the last of them."""
    slurmctld = _logged(cluster, "controller-0", "slurmctld", submitted)
    asked = _logged(cluster, "deployment/elastic", "elastic", submitted)
    (made,) = {re.search(r"(\S+): making the pods", line)[1] for _, line in _found(asked, "making the pods")}  # type: ignore[index]
    assert len(expand(made)) == nodes, f"{made} for {nodes} nodes"
    slurmds = [_logged(cluster, name, "slurmd", submitted)[0][0] for name in expand(made)]
    times = [
        submitted,
        _first(slurmctld, rf"(NodeList=| on ){POOL}-"),  # by the main scheduler, or by backfill
        _first(asked, "making the pods"),
        max(slurmds),
        max(at for at, _ in _found(slurmctld, rf"Node {POOL}-\d+ now responding")),
        started,
    ]
    return [end - begin for begin, end in itertools.pairwise(times)]


def _first(lines: list[tuple[float, str]], pattern: str) -> float:
    return _found(lines, pattern)[0][0]


def _found(lines: list[tuple[float, str]], pattern: str) -> list[tuple[float, str]]:
    """The lines with this, of which there is one at least."""
    found = [(at, line) for at, line in lines if re.search(pattern, line)]
    said = "\n".join(line for _, line in lines)
    assert found, f"no {pattern!r} in\n{said}"
    return found


def _logged(cluster: Cluster, pod: str, container: str, since: float) -> list[tuple[float, str]]:
    """Lines with their times, as kubelet has them, which may not yet know that a container runs whose job has ended."""
    command = ("logs", pod, "-c", container, "-n", cluster.namespace, "--timestamps")
    printed = wait_until(lambda: cluster.kubectl.run(*command, check=False).stdout, f"{pod} has a log", timeout=10)
    lines = []
    for text in printed.splitlines():
        stamp, _, line = text.partition(" ")
        at = datetime.fromisoformat(f"{stamp[:26].rstrip('Z')}+00:00").timestamp()
        if at >= since:
            lines.append((at, line))
    return lines


def _note(row: Row, split: list[list[float]]) -> None:
    """The median of each step."""
    middle = [sorted(values)[len(values) // 2] for values in zip(*split, strict=True)]
    row.note = ", ".join(f"{name} {seconds:.2f}" for name, seconds in zip(STEPS, middle, strict=True))
