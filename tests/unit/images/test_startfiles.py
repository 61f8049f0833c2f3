"""Where users' start-up files run, on directories in place of cgroups; tests/machine has real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.worker import devices
from images.worker.startfiles import PLACE, StartFiles, of_user

SCOPE = "system.slice/w-0_slurmstepd.scope"
USER = "alice"
OWN = f"{PLACE}/{of_user(USER)}"
OTHER = f"{PLACE}/{of_user('bob')}"


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    (tmp_path / SCOPE).mkdir(parents=True)
    for place in (PLACE, OWN, OTHER):
        (tmp_path / place).mkdir()
        (tmp_path / place / "cgroup.controllers").write_text("cpuset cpu memory pids\n")  # the kernel makes it
    return tmp_path


def groups(mount: Path) -> list[str]:
    return sorted(path.name for path in (mount / OWN).iterdir() if path.is_dir())


def empty(group: Path) -> None:
    """As the kernel does when the last process has ended: of a cgroup, rmdir(2) wants no file removed."""
    for path in group.iterdir():
        path.unlink()


@pytest.mark.parametrize(("whole", "of_jobs", "limit"), [(800, 672, 64), (16000, 15680, 160), (700, 672, 32)])
def test_they_have_no_memory_that_jobs_were_promised(mount: Path, whole: int, of_jobs: int, limit: int) -> None:
    """Jobs may have all of theirs: the kernel would end one for what somebody's ~/.profile takes."""
    (mount / "memory.max").write_text(f"{whole * 2**20}\n")
    (mount / SCOPE / "memory.max").write_text(f"{of_jobs * 2**20}\n")

    StartFiles(mount, lambda _: None).hold(5, 4711, USER)

    assert (mount / PLACE / "memory.max").read_text() == str(limit * 2**20)
    assert (mount / OWN / "memory.max").read_text() == str(limit * 2**20 * 3 // 4), "so a quarter is for others"
    for place in (PLACE, OWN):
        assert (mount / place / "cgroup.subtree_control").read_text() == "+cpuset +cpu +memory +pids"


def test_where_there_are_no_cgroups_nothing_is_held(tmp_path: Path) -> None:
    held = StartFiles(tmp_path, lambda _: pytest.fail("no devices"))
    assert held.hold(5, 4711, USER) == []
    held.release(5)
    assert not list(tmp_path.iterdir())


def test_another_warden_ends_what_the_one_before_has_held(mount: Path) -> None:
    StartFiles(mount, lambda _: None).hold(5, 4711, USER)
    (mount / SCOPE / "job_1").mkdir()
    held = StartFiles(mount, lambda _: None)

    held.forget_those_before()

    assert (mount / OWN / "4711/cgroup.kill").read_text() == "1"
    empty(mount / OWN / "4711")
    held.hold(6, 4712, USER)
    assert groups(mount) == ["4712"]
    assert (mount / SCOPE / "job_1").exists()


def test_the_program_for_who_has_no_devices_is_of_the_form_of_slurm_s() -> None:
    devices.check(devices.ORDINARY)


def test_each_user_s_are_by_themselves_whatever_the_name(mount: Path) -> None:
    held = StartFiles(mount, lambda _: None)
    first, second = (held.hold(number, number, user)[0] for number, user in ((5, USER), (6, "bob")))
    assert first == str(mount / OWN / "5/cgroup.procs")
    assert second == str(mount / OTHER / "6/cgroup.procs")
    assert "/" not in of_user("../../x y")
    assert of_user("jörg".encode().decode("ascii", "surrogateescape")) == of_user("jörg"), "as the warden reads it"
    assert of_user("../../x") != of_user("x")


def test_a_user_s_cgroup_stays_as_long_as_somebody_keeps_memory_of_it(mount: Path) -> None:
    """Removed, it would count for all users together, and that one could begin anew."""
    held = StartFiles(mount, lambda _: None)
    empty(mount / OWN)
    (mount / OWN / "memory.stat").write_text("shmem 40000000\n")
    empty(mount / OTHER)
    held.tidy()
    assert (mount / OWN).exists()
    assert not (mount / OTHER).exists()
    empty(mount / OWN)
    held.tidy()
    assert not (mount / OWN).exists()
