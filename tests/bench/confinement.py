"""What it costs that a job is held to what it asked for by cgroups, in a guest machine.

Cgroups of version 2 are not on every machine that measures, so those rows come from tests/machine, where everything
takes about ten times as long: the difference there is an upper bound, and the two rows beside it say of what.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.bench.row import Measuring
from tests.machine.slurm_machine import SlurmMachine

USER = 10001
CONFINED, FREE = "default-0", "default-1"
FILES = {"plugstack.conf": "required /usr/lib/slurmstack/jail.so root=/jail\n"}
EXTRA = "Epilog=/usr/libexec/slurmstack/health-epilog\n"


def cgroups(bench: Measuring) -> None:
    """A job's start, on a worker with cgroups and on one without, one after the other."""
    with _machine(bench) as slurm:
        starts = _both(bench.times(10), lambda node: _start(slurm, node))
        _rows(bench, "submit (srun) -> start in the guest machine", starts)


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


def _both(runs: int, measure: Callable[[str], float]) -> dict[str, list[float]]:
    """Samples of both nodes, taken in turns: the machine's mood is the same for both."""
    found: dict[str, list[float]] = {CONFINED: [], FREE: []}
    for node in found:
        measure(node)  # once for nothing: what is read from the disk for the first time
    for _ in range(runs):
        for node, samples in found.items():
            samples.append(measure(node))
    return found


def _rows(bench: Measuring, name: str, found: dict[str, list[float]]) -> None:
    free = statistics.median(found[FREE])
    bench.take(f"{name}, confinement off", found[FREE])
    row = bench.take(f"{name}, confinement auto", found[CONFINED])
    row.note = f"{100 * (row.median / free - 1):+.0f} % of confinement off"


def _as_user(slurm: SlurmMachine, command: str) -> str:
    done = slurm.run(f"cd /; setpriv --reuid={USER} --regid={USER} --clear-groups sh -c '{command}'", timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr}{slurm.logs()}")
    return done.stdout


def _start(slurm: SlurmMachine, node: str) -> float:
    submitted, started = _as_user(slurm, f"date +%s.%N; srun --chdir=/ --nodelist={node} --mem=64 date +%s.%N").split()
    return float(started) - float(submitted)
