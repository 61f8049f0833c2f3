"""Memory that jobs leave behind: found without jobs, and never confused with what a job has."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from images.health.checks import memory
from images.health.contract import Node, Result, Thresholds
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import DATA, make_node, write
from tests.unit.images.health.tables import Like, outcomes, table, words

GIB = 2**30
CGROUP = "sys/fs/cgroup"
LITTLE: dict[str, Any] = {}
MUCH: dict[str, Any] = {"shmem": 32 * GIB}
LEFT = "12.5 % in use without a job, 5 % allowed"


def use(node: Node, *, anon: int = 21102592, shmem: int = 4096, limit: str = str(64 * GIB), huge: int = 0) -> None:
    """What version 2 of cgroups tells."""
    text = (DATA / "cgroup2-memory.stat").read_text()
    text = re.sub(r"(?m)^anon \d+", f"anon {anon}", text)
    text = re.sub(r"(?m)^shmem \d+", f"shmem {shmem}", text)
    write(node.root / CGROUP / "memory.stat", text)
    write(node.root / CGROUP / "memory.max", f"{limit}\n")
    write(node.root / CGROUP / "hugetlb.2MB.current", f"{huge}\n")
    write(node.root / CGROUP / "hugetlb.2MB.rsvd.current", "999999999999\n")


def use_version_1(node: Node, *, limit: str = "2147483648", **changes: int) -> None:
    """What version 1 tells, as recorded in a worker of a local cluster."""
    text = (DATA / "cgroup1-memory.stat").read_text()
    for name, value in changes.items():
        text = re.sub(rf"(?m)^{name} \d+", f"{name} {value}", text)
    write(node.root / CGROUP / "memory/memory.stat", text)
    write(node.root / CGROUP / "memory/memory.limit_in_bytes", f"{limit}\n")
    write(node.root / CGROUP / "hugetlb/hugetlb.2MB.rsvd.usage_in_bytes", "999999999999\n")


def check(node: Node, at: float = 1000.0, **limits: float) -> Result:
    return memory.run(node, FakeRunner(), Thresholds({"memory": limits}), clock=lambda: at)


def twice(node: Node, **limits: float) -> Result:
    """Two runs in a row."""
    check(node, 1000.0, **limits)
    return check(node, 1030.0, **limits)


@outcomes(
    "used, limits",
    [
        ("ok", {}, {}),
        (f"fail [user]: {LEFT}: anonymous 8192 MiB", {"anon": 8 * GIB}, {}),
        (f"fail [user]: {LEFT}: /dev/shm and other shared 8192 MiB", {"anon": 0, "shmem": 8 * GIB}, {}),
        (f"fail [user]: {LEFT}: huge pages 8192 MiB", {"anon": 0, "huge": 8 * GIB}, {}),
        ("warn [user]: ...", {"anon": 2 * GIB}, {}),
        ("fail [user]: 1.6 % in use ...", {"anon": GIB}, {"fail_percent": 1, "persists_seconds": 0}),
        ("ok", {"anon": 200 * 2**20, "limit": str(GIB)}, {}),  # slurmd itself, in a small pod
        ("not checked: the container has no memory limit...", {"anon": 60 * GIB, "limit": "max"}, {}),
    ],
)
def test_what_is_left_in_two_runs_is_a_users_fault(
    tmp_path: Path, expected: str, used: dict[str, Any], limits: dict[str, float]
) -> None:
    node = make_node(tmp_path)
    use(node, **used)
    assert words(twice(node, **limits)) == Like(expected)


@table(
    "runs, statuses",
    {
        "what is there once is only told": ([(MUCH, {})], ["warn"]),  # a job may have begun, or be still ending
        "a job in between begins anew": ([(MUCH, {}), (MUCH, {"other_jobs": True}), (MUCH, {})], ["warn"] * 3),
        "a job hides a fault": ([(MUCH, {}), (MUCH, {}), (MUCH, {"other_jobs": True})], ["warn", "fail", "fail"]),
        "this job's memory is no fault": ([(LITTLE, {}), (MUCH, {"job": "17"})], ["ok", "ok"]),
    },
)
def test_runs_in_a_row(tmp_path: Path, runs: list[tuple[dict[str, Any], dict[str, Any]]], statuses: list[str]) -> None:
    node, found = make_node(tmp_path), list[Result]()
    for number, (used, jobs) in enumerate(runs):
        use(node, **used)
        found.append(check(replace(node, **jobs), 1000.0 + 30 * number))
        assert found[-1].values["memory_shared_bytes"] == used.get("shmem", 4096)
    assert [result.status for result in found] == statuses
    if statuses[-1] == "fail":
        assert (found[-1].message, found[-1].fault) == (found[-2].message, "user")


def test_a_busy_node_that_was_never_seen_without_jobs_is_not_checked(tmp_path: Path) -> None:
    for number, remembered in enumerate((None, '{"status": "excellent", "message": ""}', "ok")):
        node = make_node(tmp_path / str(number), other_jobs=True)
        use(node)
        if remembered is not None:
            write(node.state / "memory.json", remembered)
        assert check(node).status == "not checked"


def test_version_1_of_cgroups_is_understood(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use_version_1(node, total_rss=9 * 2**20, rss=GIB)
    assert twice(node).status == "ok"
    use_version_1(node, total_rss=GIB)
    write(node.root / CGROUP / "hugetlb/hugetlb.2MB.usage_in_bytes", "536870912\n")
    figures = "75.0 % in use without a job, 5 % allowed: anonymous 1024 MiB, huge pages 512 MiB"
    assert [words(check(node, at)) for at in (1060.0, 1090.0)] == [f"warn [user]: {figures}", f"fail [user]: {figures}"]
    use_version_1(node, limit="9223372036854771712")
    assert twice(node).status == "not checked"


def test_a_kernel_that_does_not_tell_is_not_checked(tmp_path: Path) -> None:
    assert words(check(make_node(tmp_path / "silent"))) == Like(
        "not checked: ...memory.stat: No such file or directory"
    )
    node = make_node(tmp_path)
    for file, text in [("memory.stat", "anon many\nshmem 3\n"), ("memory.max", "0"), ("hugetlb.2MB.current", "-1")]:
        use(node)
        write(node.root / CGROUP / file, text)
        assert twice(node).status == "not checked", file
