"""Who may bring the warden programs that decide about devices."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from images.worker import devices
from tests.unit.images.kept import PID, Kept


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(directory=tmp_path)


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


START = b"".join(struct.pack("<BBhi", *line) for line in devices._START)
PROGRAM = START + devices.ALLOW_ALL


def put(kept: Kept, connection: int, *directories: Path, program: bytes = PROGRAM) -> str:
    files = [os.open(directory, os.O_RDONLY) for directory in directories]
    try:
        return kept.warden.answer(connection, PID, b"devices " + program, files)
    finally:
        for file in files:
            os.close(file)


def test_a_step_brings_the_programs_of_its_job(kept: Kept, loaded: list[bytes]) -> None:
    kept.cgroups = kept.directory / "job_17"
    (kept.cgroups / "step_0").mkdir(parents=True)
    kept.enter(5, "17")

    assert put(kept, 5, kept.cgroups) == "ok"
    assert put(kept, 5, kept.cgroups / "step_0", program=START + devices.ALLOW_ALL * 2) == "ok"

    assert len(loaded) == 2


def test_who_is_no_step_brings_none(kept: Kept, loaded: list[bytes]) -> None:
    kept.cgroups = kept.directory
    assert put(kept, 5, kept.directory) == "this is no step with a cgroup"
    kept.enter(5, "17")
    kept.warden.closed(5)
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


def test_a_job_of_many_steps_keeps_no_program_of_those_that_have_ended(kept: Kept, loaded: list[bytes]) -> None:
    kept.cgroups = kept.directory / "cgroups/job_17"
    kept.cgroups.mkdir(parents=True)
    kept.enter(5, "17")
    files = Path("/proc/self/fd")
    before = sum(1 for _ in files.iterdir())
    for number in range(3 * devices.FEW):
        step = kept.cgroups / f"step_{number}"
        step.mkdir()
        assert put(kept, 5, step, program=START + devices.ALLOW_ALL) == "ok"
        step.rename(kept.directory / step.name)  # so that nothing else gets its inode
    assert len(loaded) == 3 * devices.FEW
    assert sum(1 for _ in files.iterdir()) - before <= devices.FEW + 1
