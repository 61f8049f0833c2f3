"""What it costs that a job is held to what it asked for by cgroups: here, and in a guest machine.

Cgroups of version 2 are not on every machine that measures. Where they are not, the rows of `confinement` show the
spread of measuring and no more (jobs have a cell in both). Those of `cgroups` come from a guest (tests/machine), where
everything takes about ten times as long: the row without says of what they are a part.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.bench.cluster import Cluster
from tests.bench.row import Measuring
from tests.machine.slurm_machine import SlurmMachine

USER = 10001
CONFINED, FREE = "default-0", "default-1"
FILES = {"plugstack.conf": "required /usr/lib/slurmstack/jail.so root=/jail\n"}
EXTRA = "Epilog=/usr/libexec/slurmstack/health-epilog\n"
TASKS, TASKS_IN_GUEST = 100, 16
"""Tasks of an array on one node."""
ALL_ENDED = "while squeue --noheader | grep -q .; do sleep 0.05; done"
"""Epilogs too: in the guest they take seconds, of the CPUs that the next job's start needs."""


def here(bench: Measuring, cluster: Cluster) -> None:
    """A job's start, and an array, on a node of two slots with `confinement: auto` and on one without."""
    pool = cluster.sections["worker_nodes"]["default"]
    pools = {"default": {**pool, "size": 1}, "free": {**pool, "size": 1, "confinement": "off"}}
    main = {**cluster.sections["partitions"]["main"], "pools": list(pools)}
    cluster.sections = {**cluster.sections, "worker_nodes": pools, "partitions": {"main": main}}
    cluster.up()
    nodes = {CONFINED: "default-0", FREE: "free-0"}
    cluster.await_idle(*nodes.values())

    def start(node: str) -> float:
        script = f"date +%s.%N; srun --nodelist={nodes[node]} date +%s.%N"
        submitted, started = cluster.as_alice(script).split()
        return float(started) - float(submitted)

    def array(node: str) -> float:
        started = time.monotonic()
        cluster.as_alice(f"sbatch --array=1-{TASKS} --nodelist={nodes[node]} --output=/dev/null --wrap true")
        cluster.await_empty_queue(timeout=600)
        return time.monotonic() - started

    _rows(bench, "submit (srun) -> start on one node", _both(bench.times(20), start))
    _rows(bench, f"{TASKS}-task array of `true` on one node of two slots", _both(bench.times(3), array, warm=False))


def cgroups(bench: Measuring) -> None:
    """A job's start, on a worker with cgroups and on one without, one after the other."""
    with _machine(bench) as slurm:
        starts = _both(bench.times(10), lambda node: _start(slurm, node))
        _rows(bench, "submit (srun) -> start in the guest machine", starts)
        arrays = _both(bench.times(3), lambda node: _array(slurm, node), warm=False)
        _rows(bench, f"{TASKS_IN_GUEST}-task array of `true` on one node in the guest machine", arrays)


@contextmanager
def _machine(bench: Measuring) -> Iterator[SlurmMachine]:
    bench.say("a machine with version 2 of cgroups boots; a worker with confinement and one without start")
    with SlurmMachine(workers=1, cpus=2, memory="700Mi", files=FILES, extra=EXTRA) as slurm:
        slurm.add_user("alice", USER)
        spec = copy.deepcopy(slurm.specs["default"])
        (slurmd,) = (one for one in spec["containers"] if one["name"] == "slurmd")
        slurmd["env"].append({"name": "CONFINEMENT", "value": "off"})
        slurm.kubelet.start(FREE, spec)
        slurm.wait_for_nodes(2)
        yield slurm


def _both(runs: int, measure: Callable[[str], float], *, warm: bool = True) -> dict[str, list[float]]:
    """Samples of both nodes, taken in turns: the machine's mood is the same for both."""
    found: dict[str, list[float]] = {CONFINED: [], FREE: []}
    for node in found if warm else ():
        measure(node)  # once for nothing: what is read from the disk for the first time
    for _ in range(runs):
        for node, samples in found.items():
            samples.append(measure(node))
    return found


def _rows(bench: Measuring, name: str, found: dict[str, list[float]]) -> None:
    free = statistics.median(found[FREE])
    bench.take(f"{name}, confinement off", found[FREE])
    row = bench.take(f"{name}, confinement auto", found[CONFINED])
    row.note = f"{row.median - free:+.3f} s, {100 * (row.median / free - 1):+.0f} % of confinement off"


def _as_user(slurm: SlurmMachine, command: str) -> str:
    done = slurm.run(f"cd /; setpriv --reuid={USER} --regid={USER} --clear-groups sh -c '{command}'", timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr}{slurm.logs()}")
    return done.stdout


def _start(slurm: SlurmMachine, node: str) -> float:
    start = f"srun --chdir=/ --nodelist={node} --mem=64 date +%s.%N"
    submitted, started = _as_user(slurm, f"{ALL_ENDED}; date +%s.%N; {start}").split()
    return float(started) - float(submitted)


def _array(slurm: SlurmMachine, node: str) -> float:
    """By the machine's own clock: what the way into it takes is not measured. `sbatch --wait` looks too rarely."""
    submit = f"sbatch --array=1-{TASKS_IN_GUEST} --nodelist={node} --mem=64 --output=/dev/null --wrap true"
    script = f"{ALL_ENDED}; date +%s.%N; {submit} > /dev/null; {ALL_ENDED}; date +%s.%N"
    began, ended = _as_user(slurm, script).split()
    return float(ended) - float(began)
