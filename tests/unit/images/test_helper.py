"""The helper: who may ask for what; the jobs' mounts that it makes; programs for devices that it loads."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from images.common.jail_view import JailViewError
from images.worker import devices, job_mounts
from images.worker.devices import ALLOW_ALL, BadProgramError, check
from images.worker.helper import job_cgroups
from images.worker.job_mounts import JobMounts
from tests.unit.images.job_mounts import GID, PID, UID, FakeJobMounts, Kept, job_mounts_in

SIZE = 8
"""Bytes of an instruction."""


def line(code: int, registers: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """struct bpf_insn, of a machine whose numbers begin with the low byte. `registers`: target, and source times 16."""
    return struct.pack("<BBhI", code, registers, offset, value & 0xFFFFFFFF)


def answer(value: int) -> bytes:
    return line(0xB7, value=value) + line(0x95)


START = b"".join(
    (line(0x61, 0x12), line(0x54, 2, 0, 0xFFFF), line(0x61, 0x13), line(0x74, 3, 0, 16), line(0x61, 0x14, 4),
     line(0x61, 0x15, 8))
)  # fmt: skip
"""init_ebpf_prog() in plugins/cgroup/v2/ebpf.c of Slurm, the same in 24.11 and 26.05."""

ONE = START + line(0x55, 2, 4, 2) + line(0x55, 4, 3, 195) + line(0x55, 5, 2, 0) + answer(1) + answer(0)
"""A character device 195:0 is allowed, and no other."""

BAD = {
    "half an instruction": ONE[:-1],
    "no end": ONE[:-SIZE],
    "another beginning": START[SIZE:] + answer(1),
    "a jump beyond the end": START + line(0x55, 2, 2, 1) + answer(1),
    "a jump back": START + line(0x55, 2, -1, 1) + answer(1),
    "a look at a pointer": START + line(0x55, 1, 1, 1) + answer(1),
    "two registers": START + line(0x55, 0x12, 1) + answer(1),
    "another register": START + line(0xB7, 1, 0, 1) + answer(1),
    "a call of the kernel": START + line(0x85, value=6) + answer(1),
    "a store on the stack": START + line(0x7B, 0x1A, -8) + answer(1),
    "our own": ALLOW_ALL,
}


def test_what_slurm_writes_is_taken_and_nothing_else() -> None:
    check(ONE)
    for program in BAD.values():
        with pytest.raises(BadProgramError):
            check(program)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    FakeJobMounts(monkeypatch)
    return Kept(directory=tmp_path)


@pytest.mark.parametrize("request_", ["end 17", "end 18", "mount 17", "mount 18", "namespaces 17 10001 10002"])
def test_a_step_asks_for_its_job_mount_once_and_for_nothing_else(kept: Kept, request_: str) -> None:
    """Its connection is in the jail, in a process that loads what is found there."""
    kept.enter(5, "17")
    kept.enter(6, "18")

    answer = kept.ask(5, f"{request_} {UID} {GID} 0" if request_.startswith("mount") else request_)

    assert answer == "this is a step of job 17"
    assert kept.jobs() == ["17", "18"]


def test_a_job_mount_stays_while_a_step_is_there(kept: Kept) -> None:
    """slurmstepd removes its own files last, and reaches them by the job's mount."""
    kept.enter(5, "17")
    kept.enter(6, "17")
    kept.helper.closed(5)
    assert kept.ask(9, "end 17") == "ok later"
    assert kept.jobs() == ["17"]
    assert kept.ask(9, "end 17 now") == "ok"
    assert kept.jobs() == []

    kept.helper.closed(6)
    kept.enter(7, "17")
    kept.helper.closed(7)
    assert kept.ask(9, "end 17") == "ok"
    assert kept.jobs() == []
    assert not kept.log


def test_the_cgroup_of_the_job_of_a_slurmstepd(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    job = "system.slice/w-0_slurmstepd.scope/job_17"
    for text, found in [
        (f"0::/{job}/step_0/slurm", Path("/at") / job),
        ("0::/slurmd", None),
        (f"0::/{job}/step_0/user", None),
        ("0::/other/job_17/step_0/slurm", None),
        ("0::/../job_17/step_0/slurm", None),
        ("12:devices:/system.slice/x/job_17/step_0/slurm\n0::/", None),
    ]:
        (tmp_path / "7/cgroup").write_text(f"{text}\n")
        assert job_cgroups(7, tmp_path, Path("/at")) == found


@pytest.mark.parametrize(
    "request_", ["namespaces 17 0 1", "namespaces 17 -1 1", "namespaces 17 1 -1", "namespaces 18 1 1"]
)
def test_root_and_a_job_without_a_job_mount_get_no_namespaces(kept: Kept, request_: str) -> None:
    kept.enter(5, "17")
    assert kept.ask(6, request_), "by the helper itself: who makes them would answer later"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Programs that reached the kernel."""
    found: list[bytes] = []

    def load(program: bytes) -> int:
        found.append(program)
        return os.open("/dev/null", os.O_RDONLY)

    monkeypatch.setattr(devices, "load", load)
    monkeypatch.setattr(devices, "attach", lambda *_: None)
    return found


PROGRAM = START + devices.ALLOW_ALL


def put(kept: Kept, connection: int, *directories: Path, program: bytes = PROGRAM) -> str:
    files = [os.open(directory, os.O_RDONLY) for directory in directories]
    try:
        return kept.helper.answer(connection, PID, b"devices " + program, files)
    finally:
        for file in files:
            os.close(file)


def test_who_is_no_step_brings_none(kept: Kept, loaded: list[bytes]) -> None:
    kept.cgroups = kept.directory
    assert put(kept, 5, kept.directory) == "this is no step with a cgroup"
    kept.enter(5, "17")
    kept.helper.closed(5)
    assert put(kept, 5, kept.directory) == "this is no step with a cgroup"
    assert not loaded


def test_a_step_decides_for_no_other_job(kept: Kept, loaded: list[bytes]) -> None:
    kept.cgroups = kept.directory / "job_17"
    other = kept.directory / "job_18"
    kept.cgroups.mkdir()
    other.mkdir()
    kept.enter(5, "17")
    assert "not a cgroup of" in put(kept, 5, other)
    assert "instruction" in put(kept, 5, kept.cgroups, program=START + b"\x85" + devices.ALLOW_ALL[1:])
    assert not loaded


def test_what_is_no_request_is_refused_and_logged(kept: Kept) -> None:
    for request in (
        "", "mount", "mount 17 1 1", "mount 17 1 1 1 1", "mount 17 x 1 0", "mount 17 1  0", "mount 17 1 1 1.5",
        "end 17 1", "mount .. 1 1 0", "mount 1/2 1 1 0", "end ..", "end 1/2", "ok",
        "devices ", "mount \u00e9 1 1 0", f"mount 17 {10**30} 1 0", f"mount 17 -7 {10**30} 0",
        f"mount {'1' * 5000} 0 0 0",
    ):  # fmt: skip
        answer = kept.ask(5, request)
        assert answer, request
        assert not answer.startswith("ok"), request
        assert len(kept.log) == 1
        assert len(kept.log[0]) < 6000
        assert kept.jobs() == []
        kept.log.clear()
    assert kept.enter(5, "18").startswith("ok ")


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> FakeJobMounts:
    return FakeJobMounts(monkeypatch)


def test_a_job_mount_that_cannot_be_made_whole_is_not_made_at_all(tmp_path: Path, mounts: FakeJobMounts) -> None:
    """With half of it, a job would see what is everybody's."""
    job_mounts = job_mounts_in(tmp_path)
    mounts.fails = "memory"

    with pytest.raises(OSError, match="not permitted"):
        job_mounts.enter("17", UID, GID)

    assert "17" not in job_mounts
    assert not mounts.mounted
    assert not list((tmp_path / "job-mounts").iterdir())
    mounts.fails = ""
    assert job_mounts.enter("17", UID, GID).is_dir()


@pytest.mark.parametrize("place", ["tmp", "dev/shm", "dev"])
def test_a_link_in_the_jail_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Root in the jail can put one in place of a directory of the jail's own."""

    class Tricked(FakeJobMounts):
        def copy(self, tree: Path, target: int, **_: bool) -> None:
            super().copy(tree, target)
            job_mount = Path(f"/proc/self/fd/{target}").readlink()
            at = job_mount / place
            for name in ("dev/shm", "dev", "tmp"):
                if (job_mount / name).is_relative_to(at):
                    (job_mount / name).rmdir()
            at.symlink_to(outside)

        def remove(self, point: Path) -> None:
            (point / place).unlink(missing_ok=True)
            super().remove(point)

    outside = tmp_path / "outside"
    (outside / "shm").mkdir(parents=True)
    mounts = Tricked(monkeypatch)

    with pytest.raises(JailViewError, match="is a symbolic link in the jail"):
        job_mounts_in(tmp_path).enter("17", UID, GID)

    assert not mounts.mounted


def test_a_job_mount_that_was_only_begun_is_made_anew(tmp_path: Path, mounts: FakeJobMounts) -> None:
    """A helper that is killed in the middle leaves one in which /tmp is everybody's."""
    job_mount = job_mounts_in(tmp_path).enter("17", UID, GID)
    del mounts.mounted[f"{job_mount}/tmp"]

    job_mounts = job_mounts_in(tmp_path)

    assert not mounts.mounted
    assert not job_mount.exists()
    assert job_mounts.enter("17", UID, GID) == job_mount
    assert len(mounts.mounted) == 3


MIB = 2**20


@pytest.mark.parametrize(
    ("memory_mib", "mib"),
    [(0, 100), (1000, 100), (64, 32), (1, 1)],
)
def test_a_job_has_no_more_shared_memory_than_its_memory_leaves(
    tmp_path: Path, mounts: FakeJobMounts, memory_mib: int, mib: float
) -> None:
    """What is in there stays when the kernel has ended the tasks: then the step could not end."""
    job_mounts = JobMounts(tmp_path, 100 * MIB, job_mounts=tmp_path / "job-mounts", jobs=tmp_path / "jobs")
    job_mount = job_mounts.enter("17", UID, GID, memory_mib)
    assert mounts.mounted[f"{job_mount}/dev/shm"] == f"{int(mib * MIB)} bytes"


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_a_place_that_a_user_has_prepared_is_refused(tmp_path: Path, kind: str) -> None:
    jobs, elsewhere = tmp_path / "jobs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        jobs.symlink_to(elsewhere)
    elif kind == "file":
        jobs.touch()
    else:
        jobs.mkdir()
        jobs.chmod(0o777)
    with pytest.raises(OSError, match="jobs"):
        job_mounts.make_directory("17", UID, GID, jobs)
    assert list(elsewhere.iterdir()) == []


def test_nothing_else_is_taken_for_the_job_s(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir(mode=0o755)
    (jobs / "1").mkdir()
    (jobs / "2").symlink_to(tmp_path)
    (jobs / "3").touch()
    for job, uid in (("1", UID + 1), ("2", UID), ("3", UID)):
        with pytest.raises(PermissionError):
            job_mounts.directory_of(job, uid, GID, jobs)
    jobs.chmod(0o777)
    with pytest.raises(PermissionError):
        job_mounts.directory_of("4", UID, GID, jobs)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes another user's directory")
def test_a_number_that_is_given_once_more_is_no_way_into_another_user_s_job_mount(
    tmp_path: Path, mounts: FakeJobMounts
) -> None:
    """slurmctld has lost its state, and nobody has told of the first job's end."""
    job_mounts = job_mounts_in(tmp_path)
    job_mount = job_mounts.enter("17", 10001, 10001)
    os.chown(job_mount / "tmp", 10001, 10001)  # as the mount would show it
    (tmp_path / "jobs/17/left").touch()
    first = dict(mounts.mounted)
    mounts.mounted[f"{job_mount}/dev/shm/secret"] = "of the first one"

    assert job_mounts.enter("17", 10002, 10002) == job_mount

    assert mounts.mounted == first
    assert ((tmp_path / "jobs/17").stat().st_uid, [*(tmp_path / "jobs/17").iterdir()]) == (10002, [])
    assert [path.name for path in (tmp_path / "jobs").glob(".gone-17-*/*")] == ["left"], "the next epilog removes it"
    os.chown(job_mount / "tmp", 10002, 10002)
    mounts.mounted[f"{job_mount}/dev/shm/own"] = "of a step"
    job_mounts.enter("17", 10002, -1, -1)
    assert f"{job_mount}/dev/shm/own" in mounts.mounted
