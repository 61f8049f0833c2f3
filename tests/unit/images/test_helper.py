"""The helper: who may ask for what, and what is logged."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from images.worker import devices
from images.worker.helper import job_cgroups
from tests.unit.images.cells import GID, PID, UID, FakeCellMounts, Kept


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    FakeCellMounts(monkeypatch)
    return Kept(directory=tmp_path)


@pytest.mark.parametrize("request_", ["end 17", "end 18", "cell 17", "cell 18", "namespaces 17 10001 10002"])
def test_a_step_asks_for_its_cell_once_and_for_nothing_else(kept: Kept, request_: str) -> None:
    """Its connection is in the jail, in a process that loads what is found there."""
    kept.enter(5, "17")
    kept.enter(6, "18")

    answer = kept.ask(5, f"{request_} {UID} {GID} 0" if request_.startswith("cell") else request_)

    assert answer == "this is a step of job 17"
    assert kept.jobs() == ["17", "18"]


def test_a_cell_stays_while_a_step_is_there(kept: Kept) -> None:
    """slurmstepd removes its own files last, and reaches them by the cell."""
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
def test_root_and_a_job_without_a_cell_get_no_namespaces(kept: Kept, request_: str) -> None:
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


START = b"".join(struct.pack("<BBhi", *line) for line in devices._START)
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
        "", "cell", "cell 17 1 1", "cell 17 1 1 1 1", "cell 17 x 1 0", "cell 17 1  0", "cell 17 1 1 1.5", "end 17 1",
        "cell .. 1 1 0", "cell 1/2 1 1 0", "end ..", "end 1/2", "ok",
        "devices ", "cell \u00e9 1 1 0", f"cell 17 {10**30} 1 0", f"cell 17 -7 {10**30} 0",
        f"cell {'1' * 5000} 0 0 0",
    ):  # fmt: skip
        answer = kept.ask(5, request)
        assert answer, request
        assert not answer.startswith("ok"), request
        assert len(kept.log) == 1
        assert len(kept.log[0]) < 6000
        assert kept.jobs() == []
        kept.log.clear()
    assert kept.enter(5, "18").startswith("ok ")
