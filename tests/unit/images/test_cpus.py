"""What a node says of its CPUs: the machine's sockets, cores and threads, and which of them are not the pod's."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.worker.confine import Topology, described, read_topology
from tests.fakes.node_conf import conf

CONF = "CPUs={} RealMemory=1000 Feature=default"
TWO_SOCKETS = Topology(sockets=2, cores=2, threads=2, order=(0, 4, 2, 6, 1, 5, 3, 7))
"""As many servers count: even numbers on the first socket, second threads at the end."""


def machine(root: Path, *places: tuple[int, list[int]]) -> Path:
    """For each CPU its socket and the CPUs of its core."""
    root.mkdir(exist_ok=True)
    (root / "online").write_text(f"0-{len(places) - 1}\n" if len(places) > 1 else "0\n")
    for number, (socket, core) in enumerate(places):
        topology = root / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{socket}\n")
        (topology / "thread_siblings_list").write_text(",".join(map(str, core)) + "\n")
    return root


def test_cpus_are_ordered_by_sockets_cores_and_threads(tmp_path: Path) -> None:
    places = [(number % 2, [number % 4, number % 4 + 4]) for number in range(8)]

    assert read_topology(machine(tmp_path, *places)) == TWO_SOCKETS


def test_unequal_cores_are_not_described(tmp_path: Path) -> None:
    """Efficiency cores have one thread, the others two: Slurm has no words for that."""
    assert read_topology(machine(tmp_path, (0, [0, 1]), (0, [0, 1]), (0, [2]))) is None
    assert described(conf(CONF.format(2)), None, frozenset({0, 1})).text == CONF.format(2)


def test_a_worker_that_has_the_machine_has_its_topology() -> None:
    told = described(conf(CONF.format(8)), TWO_SOCKETS, frozenset(range(8))).text

    assert told == "CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=1000 Feature=default"


def test_what_kubernetes_gave_to_other_pods_is_kept_from_jobs() -> None:
    """With kubelet's static policy: the pod has the second core of each socket, CPUs 2, 6, 3 and 7."""
    told = described(conf(CONF.format(4)), TWO_SOCKETS, frozenset({2, 6, 3, 7})).text

    assert "CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 CpuSpecList=0-1,4-5 " in told


def test_a_worker_smaller_than_its_machine_has_the_first_cores() -> None:
    assert "CpuSpecList=6-7 " in described(conf(CONF.format(6)), TWO_SOCKETS, frozenset(range(8))).text


@pytest.mark.parametrize(
    ("cpus", "allowed"),
    [(16, range(8)), (3, range(8)), (4, (0, 2, 4)), (2, (0, 2, 1, 3))],
    ids=["more than there are", "half a core", "too few whole cores", "halves of cores"],
)
def test_what_cannot_be_told_stays_as_the_stack_file_has_it(cpus: int, allowed: range | tuple[int, ...]) -> None:
    assert described(conf(CONF.format(cpus)), TWO_SOCKETS, frozenset(allowed)).text == CONF.format(cpus)
