"""Memory that jobs leave behind: found without jobs, and never confused with what a job has."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from images.health.checks import memory
from images.health.contract import Node, Result, Status, Thresholds
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.places import DATA, make_node, write

GIB = 2**30
CGROUP = "sys/fs/cgroup"


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


def check(node: Node, at: float = 1000.0, **thresholds: float) -> Result:
    return memory.run(node, FakeRunner(), Thresholds({"memory": thresholds}), clock=lambda: at)


def twice(node: Node) -> Result:
    """Two runs in a row."""
    check(node, 1000.0)
    return check(node, 1030.0)


def test_an_idle_node_with_nothing_left_is_well(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use(node)

    result = twice(node)

    assert (result.status, result.message) == (Status.OK, "")
    assert result.values == {
        "memory_anonymous_bytes": 21102592,
        "memory_shared_bytes": 4096,
        "memory_huge_pages_bytes": 0,
    }


@pytest.mark.parametrize(
    ("left", "figures"),
    [
        ({"anon": 8 * GIB}, "anonymous 8192 MiB"),
        ({"anon": 0, "shmem": 8 * GIB}, "/dev/shm and other shared 8192 MiB"),
        ({"anon": 0, "huge": 8 * GIB}, "huge pages 8192 MiB"),
    ],
)
def test_what_is_left_in_two_runs_is_a_users_fault(tmp_path: Path, left: dict[str, int], figures: str) -> None:
    node = make_node(tmp_path)
    use(node, **left)  # type: ignore[arg-type]

    result = twice(node)

    assert (result.status, result.fault) == (Status.FAIL, "user")
    assert result.message == f"12.5 % in use without a job, 5 % allowed: {figures}"


def test_what_is_there_once_is_only_told(tmp_path: Path) -> None:
    """A job may have begun after somebody looked whether there is one, or be still ending."""
    node = make_node(tmp_path)
    use(node, anon=32 * GIB)

    assert check(node, 1000.0).status is Status.WARN


def test_a_job_in_between_begins_anew(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use(node, anon=32 * GIB)
    check(node, 1000.0)
    check(replace(node, other_jobs=True), 1030.0)

    assert check(node, 1060.0).status is Status.WARN


def test_some_percent_are_told(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use(node, anon=2 * GIB)

    assert twice(node).status is Status.WARN


def test_slurmd_itself_is_no_fault_in_a_small_pod(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use(node, anon=200 * 2**20, limit=str(GIB))

    assert twice(node).status is Status.OK


@pytest.mark.parametrize("name", ["other_jobs", "job"])
def test_what_a_job_has_is_no_fault(tmp_path: Path, name: str) -> None:
    node = make_node(tmp_path)
    use(node)
    twice(node)
    use(node, anon=60 * GIB)
    busy = replace(node, **{name: "17" if name == "job" else True})  # type: ignore[arg-type]

    result = check(busy, 1060.0)

    assert result.status is Status.OK
    assert result.values["memory_anonymous_bytes"] == 60 * GIB


def test_a_fault_stays_one_while_a_job_hides_it(tmp_path: Path) -> None:
    """Else the drain would be lifted as soon as a job that was starting meanwhile is there."""
    node = make_node(tmp_path)
    use(node, shmem=32 * GIB)
    failed = twice(node)

    hidden = check(replace(node, other_jobs=True), 1060.0)

    assert (hidden.status, hidden.message, hidden.fault) == (Status.FAIL, failed.message, "user")


def test_the_fault_ends_when_the_memory_is_free_again(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use(node, shmem=32 * GIB)
    twice(node)
    use(node)

    assert check(node, 1060.0).status is Status.OK


@pytest.mark.parametrize("remembered", ["", "excellent\n\n", "ok"])
def test_a_busy_node_that_was_never_seen_without_jobs_is_not_checked(tmp_path: Path, remembered: str) -> None:
    node = make_node(tmp_path, other_jobs=True)
    use(node)
    if remembered:
        write(node.state / "memory.last", remembered)

    assert check(node).status is Status.NOT_CHECKED


def test_a_site_sets_its_own_limits(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use(node, anon=GIB)

    assert check(node, fail_percent=1, persists_seconds=0).status is Status.FAIL


def test_version_1_of_cgroups_is_understood(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use_version_1(node, total_rss=9 * 2**20, rss=GIB)
    assert twice(node).status is Status.OK

    use_version_1(node, total_rss=GIB)
    write(node.root / CGROUP / "hugetlb/hugetlb.2MB.usage_in_bytes", "536870912\n")
    assert check(node, 1060.0).status is Status.WARN
    failed = check(node, 1090.0)
    assert failed.status is Status.FAIL
    assert failed.message == "75.0 % in use without a job, 5 % allowed: anonymous 1024 MiB, huge pages 512 MiB"


def test_a_whole_machine_is_not_taken_for_the_pod(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    use(node, anon=60 * GIB, limit="max")
    result = twice(node)
    assert result.status is Status.NOT_CHECKED
    assert "no memory limit" in result.message

    old = make_node(tmp_path / "old")
    use_version_1(old, limit="9223372036854771712")
    assert twice(old).status is Status.NOT_CHECKED


def test_a_kernel_that_does_not_tell_is_not_checked(tmp_path: Path) -> None:
    result = check(make_node(tmp_path))

    assert result.status is Status.NOT_CHECKED
    assert "memory.stat: No such file or directory" in result.message


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("memory.stat", ""),
        ("memory.stat", "anon many\nshmem 3\n"),
        ("memory.stat", "\x00\ufffd"),
        ("memory.max", ""),
        ("memory.max", "0"),
        ("memory.max", "a lot"),
        ("hugetlb.2MB.current", "-1"),
        ("hugetlb.2MB.current", "?"),
    ],
)
def test_garbage_is_not_checked(tmp_path: Path, file: str, text: str) -> None:
    node = make_node(tmp_path)
    use(node)
    write(node.root / CGROUP / file, text)

    assert twice(node).status is Status.NOT_CHECKED
