"""What a worker finds out about holding jobs to what they asked for, what it tells slurmd, and figures of jobs."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

import pytest

from images.common.cgroups import CannotConfineError, Subtree, take_subtree
from images.common.command import Result, Runner
from images.common.process import CannotGoOnError
from images.worker.confine import Confinement, Topology, described, find, read_topology
from images.worker.job_metrics import answer
from tests.fakes import node_conf
from tests.fakes.commands import FakeRunner
from tests.fakes.node_conf import conf

NODE_CONF = "CPUs=2 RealMemory=900 Feature=default"


def taken(node: str, memory_mib: int, _runner: Runner) -> Subtree:
    assert (node, memory_mib) == ("default-0", 900), "what all jobs together may have"
    return Subtree(how="remounted", swap=True)


def refused(_node: str, _memory_mib: int, _runner: Runner) -> Subtree:
    raise CannotConfineError("the machine has version 1 of cgroups, or both versions")


def found(tmp_path: Path, wanted: str = "auto", conf: str = NODE_CONF, **more: object) -> Confinement:
    given = {"take": taken, "why_no_devices": lambda: "", **more}
    runner = FakeRunner({"/usr/sbin/slurmd -V": Result(code=0, stdout="slurm 24.11.5\n")})
    return find(wanted, "default-0", node_conf.conf(conf), runner, directory=tmp_path, **given)  # type: ignore[arg-type]


ALL = [
    "CgroupPlugin=cgroup/v2", "ConstrainRAMSpace=yes", "ConstrainCores=yes", "ConstrainSwapSpace=yes",
    "AllowedSwapSpace=0", "ConstrainDevices=yes",
]  # fmt: skip
NO_PROGRAMS = "the kernel loads no device programs: Operation not permitted"


@pytest.mark.parametrize(
    ("more", "said", "lacks"),
    [
        ({}, "cores, memory, devices (cgroups remounted)", set()),
        (
            {"own_cpus": False},
            "memory, devices (cgroups remounted); its CPUs are not the pod's own",
            {"ConstrainCores=yes"},
        ),
        (
            {"why_no_devices": lambda: NO_PROGRAMS},
            f"cores, memory (cgroups remounted); {NO_PROGRAMS}",
            {"ConstrainDevices=yes"},
        ),
        ({"take": refused}, "none: the machine has version 1 of cgroups, or both versions", set(ALL)),
    ],
    ids=["all", "CPUs that others use too are not divided", "the rest without devices", "used all the same"],
)
def test_jobs_are_held_to_what_the_machine_lets_the_pod_divide(
    tmp_path: Path, more: dict[str, object], said: str, lacks: set[str]
) -> None:
    assert found(tmp_path, "auto", NODE_CONF, **more) == Confinement(confined="take" not in more, description=said)
    assert (tmp_path / "cgroup.conf").read_text().splitlines() == [line for line in ALL if line not in lacks]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"take": refused}, "the machine has version 1 of cgroups"),
        ({"own_cpus": False}, "its CPUs are not the pod's own"),
        ({"why_no_devices": lambda: NO_PROGRAMS, "conf": f"{NODE_CONF} Gres=gpu:1"}, NO_PROGRAMS),
    ],
)
def test_a_worker_that_has_to_hold_jobs_and_cannot_does_not_start(
    tmp_path: Path, more: dict[str, object], why: str
) -> None:
    with pytest.raises(CannotGoOnError, match=f"`confinement: required`: {why}"):
        found(tmp_path, "required", **more)  # type: ignore[arg-type]


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


def test_what_kubernetes_gave_to_other_pods_is_kept_from_jobs() -> None:
    """With kubelet's static policy: the pod has the second core of each socket, CPUs 2, 6, 3 and 7."""
    told = described(conf(CONF.format(4)), TWO_SOCKETS, frozenset({2, 6, 3, 7})).text

    assert "CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 CpuSpecList=0-1,4-5 " in told


@pytest.mark.parametrize(
    ("cpus", "allowed"),
    [(16, range(8)), (3, range(8)), (4, (0, 2, 4)), (2, (0, 2, 1, 3))],
    ids=["more than there are", "half a core", "too few whole cores", "halves of cores"],
)
def test_what_cannot_be_told_stays_as_the_stack_file_has_it(cpus: int, allowed: range | tuple[int, ...]) -> None:
    assert described(conf(CONF.format(cpus)), TWO_SOCKETS, frozenset(allowed)).text == CONF.format(cpus)


REMOUNT = "mount -o remount,bind,rw"
IN_NAMESPACE = "0::/"
CONTROLLERS = "cpuset cpu io memory hugetlb pids rdma misc"


def why_not(
    tmp_path: Path,
    filesystems: tuple[str, ...] = ("cgroup2",),
    place: str = IN_NAMESPACE,
    controllers: str = CONTROLLERS,
) -> tuple[str, list[str]]:
    """Why it cannot be taken, and what was run for it."""
    mount, proc = tmp_path / "cgroup", tmp_path / "proc"
    for directory in (mount, proc):
        directory.mkdir()
    (mount / "cgroup.controllers").write_text(CONTROLLERS)
    (proc / "cgroup").write_text(f"{place}\n")
    lines = [f"30 22 0:26 / {mount} rw - {filesystem} cgroup rw\n" for filesystem in filesystems]
    (proc / "mountinfo").write_text("22 1 0:2 / / rw - ext4 /dev/vda rw\n" + "".join(lines))
    runner = FakeRunner({REMOUNT: Result(code=32, stderr="mount: permission denied")})
    with pytest.raises(CannotConfineError) as error:
        take_subtree("slurmd", "system.slice/x", 2**30, runner, mount=mount, proc=proc, is_read_only=lambda _: True)
    assert [path.name for path in mount.iterdir()] == ["cgroup.controllers"], "nothing was made"
    return str(error.value), runner.commands


@pytest.mark.parametrize("filesystems", [("tmpfs",), (), ("cgroup2", "cgroup")])
def test_version_1_offers_nothing(tmp_path: Path, filesystems: tuple[str, ...]) -> None:
    why, commands = why_not(tmp_path, filesystems)
    assert "version 1 of cgroups" in why
    assert not commands


@pytest.mark.parametrize("place", ["0::/kubepods.slice/pod1.slice/cri-1.scope", "12:cpu:/\n0::/"])
def test_without_a_namespace_the_machine_s_own_tree_is_left_alone(tmp_path: Path, place: str) -> None:
    why, commands = why_not(tmp_path, place=place)
    assert "no cgroup namespace" in why
    assert not commands


def test_a_node_without_cgroups_tells_of_its_health_alone(tmp_path: Path) -> None:
    assert answer("default-0", "/metrics", tmp_path / "metrics.prom").text == ""
    (tmp_path / "metrics.prom").write_text("slurmstack_health_last_run_timestamp_seconds 1\n")
    assert answer("default-0", "/metrics", tmp_path / "metrics.prom").text.endswith("_seconds 1\n")
    assert answer("default-0", "/", tmp_path / "metrics.prom").status == HTTPStatus.NOT_FOUND
