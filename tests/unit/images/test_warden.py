"""The warden: who may ask for what, and what is logged."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from images.worker import devices
from images.worker.namespaces import Owner
from images.worker.startfiles import StartFiles
from images.worker.warden import IDLE_SECONDS, Warden, job_cgroups, jobs_with_steps
from tests.unit.images.cells import FakeCellMounts, cells_in

UID, GID = os.getuid(), os.getgid()
PID = 4711


@dataclass(kw_only=True)
class Kept:
    """A warden with what it works on."""

    directory: Path
    mounts: FakeCellMounts = field(default_factory=FakeCellMounts)
    log: list[str] = field(default_factory=list)
    time: float = 1000.0
    cgroups: Path | None = None
    running: set[str] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)
    start_files: StartFiles = field(default_factory=lambda: StartFiles(Path("/nowhere")))
    containers: bool = True
    made: list[tuple[int, Path, Owner]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A warden, which may take the place of another."""
        self.cells = cells_in(self.directory, self.mounts)
        self.warden = Warden(
            self.cells,
            self.log.append,
            now=lambda: self.time,
            cgroups_of=self._cgroups_of,
            running=lambda: self.running,
            cgroups=self.directory / "cgroups",
            start_files=self.start_files,
            make_namespaces=(lambda *asked: self.made.append(asked)) if self.containers else None,
        )

    def _cgroups_of(self, pid: int) -> Path | None:
        self.asked.append(pid)
        return self.cgroups

    def ask(self, connection: int, request: str) -> str:
        return self.warden.answer(connection, PID, request.encode())

    def enter(self, connection: int, job: str, mib: int = 0) -> str:
        return self.ask(connection, f"cell {job} {UID} {GID} {mib}")


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(directory=tmp_path)


def test_a_step_gets_the_way_into_the_cell_of_its_job(kept: Kept) -> None:
    assert kept.enter(5, "17") == f"ok {kept.directory}/cells/17"
    assert kept.enter(6, "17") == f"ok {kept.directory}/cells/17"
    assert kept.enter(7, "18") == f"ok {kept.directory}/cells/18"
    assert kept.asked == [PID] * 3
    assert not kept.log


@pytest.mark.parametrize("request_", ["end 17", "end 18", "cell 17", "cell 18"])
def test_a_step_asks_for_its_cell_once_and_for_nothing_else(kept: Kept, request_: str) -> None:
    """Its connection is in the jail, in a process that loads what is found there."""
    kept.enter(5, "17")
    kept.enter(6, "18")

    answer = kept.ask(5, f"{request_} {UID} {GID} 0" if request_.startswith("cell") else request_)

    assert answer == "this is a step of job 17"
    assert kept.cells.jobs() == ["17", "18"]


def test_whose_cell_was_refused_may_ask_again(kept: Kept) -> None:
    kept.mounts.fails = "copy"
    assert "not permitted" in kept.enter(5, "17")
    kept.mounts.fails = ""
    assert kept.enter(5, "17").startswith("ok ")


@pytest.mark.parametrize("job", ["", "..", "1/2", "-1", "17x", "٣", "²", "0x11", " 17", "17\n"])
@pytest.mark.parametrize("what", ["cell", "end"])
def test_what_is_no_number_of_a_job_reaches_no_directory(kept: Kept, what: str, job: str) -> None:
    answer = kept.ask(5, f"{what} {job}" + (f" {UID} {GID} 0" if what == "cell" else ""))

    assert not answer.startswith("ok")
    assert len(kept.log) == 1
    assert not list((kept.directory / "cells").iterdir())


@pytest.mark.parametrize(
    "request_",
    [
        "", " ", "cell", "cell 17", "cell 17 1", "cell 17 1 1", "cell 17 1 1 1 1", "cell 17 x 1 0", "cell 17 1  0",
        "cell 17 1 0x1 0", "cell 17 1 1 1.5", "cell 17 1 1 ", "end", "end 17 1", "End 17", "ok", "devices", "devices ",
        f"cell 17 {10**30} 1 0", f"cell 17 -7 {10**30} 0", f"cell {'1' * 5000} 0 0 0",
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_logged(kept: Kept, request_: str) -> None:
    answer = kept.ask(5, request_)

    assert answer
    assert not answer.startswith("ok")
    assert len(kept.log) == 1
    assert len(kept.log[0]) < 6000
    assert kept.cells.jobs() == []
    assert kept.enter(5, "18").startswith("ok ")


def test_what_is_no_text_is_refused(kept: Kept) -> None:
    assert "can't decode" in kept.warden.answer(5, PID, b"cell \xff 1 1 0")


def test_why_a_cell_cannot_be_made_is_told_to_the_step_and_in_the_log(kept: Kept) -> None:
    kept.mounts.fails = "memory"

    answer = kept.enter(5, "17")

    assert answer == "[Errno 1] Operation not permitted"
    assert kept.log == [f"b'cell 17 {UID} {GID} 0': {answer}"]


def test_the_end_of_a_job_takes_its_cell_away_and_no_other(kept: Kept) -> None:
    kept.enter(5, "17")
    kept.enter(6, "18")
    kept.warden.closed(5)

    assert kept.ask(9, "end 17") == "ok"
    assert kept.ask(9, "end 17") == "ok", "nobody knows whether a job had one"

    assert kept.cells.jobs() == ["18"]


def test_who_asks_for_a_cgroup_has_it_for_as_long_as_it_is_connected(kept: Kept, tmp_path: Path) -> None:
    scope = tmp_path / "cgroups/system.slice/w-0_slurmstepd.scope"
    assert kept.ask(5, "hold 0") == "ok", "there are none here"
    scope.mkdir(parents=True)
    kept.start_files = StartFiles(tmp_path / "cgroups", lambda _: None)
    kept.start()

    assert kept.ask(5, "hold 0") == f"ok {scope}/startfiles_{PID}/cgroup.procs", "of whom the kernel names"
    kept.warden.closed(5)
    assert (scope / f"startfiles_{PID}/cgroup.kill").exists()

    kept.enter(6, "17")
    assert kept.ask(6, "hold 0") == "this is a step of job 17"


def test_a_cell_stays_while_a_step_is_there(kept: Kept) -> None:
    """slurmstepd removes its own files last, and reaches them by the cell."""
    kept.enter(5, "17")
    kept.enter(6, "17")
    kept.warden.closed(5)
    assert kept.ask(9, "end 17") == "ok later"
    assert kept.cells.jobs() == ["17"]
    assert kept.ask(9, "end 17 now") == "ok"
    assert kept.cells.jobs() == []

    kept.warden.closed(6)
    kept.enter(7, "17")
    kept.warden.closed(7)
    assert kept.ask(9, "end 17") == "ok"
    assert kept.cells.jobs() == []
    assert not kept.log


def test_the_next_warden_looks_for_the_steps_of_before(kept: Kept) -> None:
    kept.enter(5, "17")
    kept.start()
    kept.running = {"17"}
    assert kept.ask(9, "end 17") == "ok later"
    kept.running = set()
    assert kept.ask(9, "end 17") == "ok"
    assert kept.cells.jobs() == []


def left_cgroup(kept: Kept) -> Path:
    group = kept.directory / "cgroups/system.slice/w-0_slurmstepd.scope/job_17"
    for below in ("step_0/user/task_0", "step_0/slurm", "step_batch/user"):
        (group / below).mkdir(parents=True)
    return group


def test_the_cgroup_of_a_job_goes_with_its_cell(kept: Kept) -> None:
    """slurmstepd has removed it, unless the kernel has ended that."""
    group = left_cgroup(kept)
    other = group.with_name("job_170")
    other.mkdir()
    kept.enter(5, "17")
    assert kept.ask(9, "end 17") == "ok later"
    assert (group / "step_0/slurm").exists()
    kept.warden.closed(5)
    kept.running = {"17"}  # the external step, which has no cell
    assert kept.ask(9, "end 17") == "ok later"
    assert group.exists()
    kept.running = set()
    assert kept.ask(9, "end 17") == "ok"
    assert [path.name for path in group.parent.iterdir()] == ["job_170"]


def test_what_is_in_the_cgroup_of_a_job_that_has_ended_is_ended_too(kept: Kept) -> None:
    group = left_cgroup(kept)
    kill = group / "cgroup.kill"
    kill.touch()  # as a process would, it keeps the directory from being removed
    assert kept.ask(9, "end 17") == "ok later"
    assert kill.read_text() == "1"
    assert kept.ask(9, "end 17 now") == "ok"
    kill.unlink()
    assert kept.ask(9, "end 17") == "ok"
    assert not group.exists()


def test_whoever_asks_learns_that_it_is_there(kept: Kept) -> None:
    assert kept.ask(5, "here") == "ok"
    kept.enter(5, "17")
    assert kept.ask(5, "here") == "ok"
    assert not kept.log


def test_a_connection_of_the_same_number_is_another_step(kept: Kept) -> None:
    kept.enter(5, "17")
    kept.warden.closed(5)
    assert kept.enter(5, "18").startswith("ok ")


def test_a_cell_goes_a_day_after_its_last_step(kept: Kept) -> None:
    kept.enter(5, "17")
    kept.enter(6, "18")
    kept.time += IDLE_SECONDS
    kept.warden.closed(5)  # only now
    kept.warden.closed(6)
    kept.time += IDLE_SECONDS - 1
    kept.enter(7, "17")
    kept.warden.closed(7)
    assert kept.cells.jobs() == ["17", "18"]
    kept.time += 1
    kept.enter(8, "19")

    assert kept.cells.jobs() == ["17", "19"]
    assert kept.log == ["the cell of job 18 had no step for a day, and goes"]


def test_a_cell_with_a_step_stays_for_ever(kept: Kept) -> None:
    kept.enter(5, "17")
    kept.time += 30 * IDLE_SECONDS
    kept.enter(6, "18")
    assert kept.cells.jobs() == ["17", "18"]


def test_the_next_warden_knows_the_cells_and_who_is_in_them(kept: Kept) -> None:
    """The steps of before have no connection to it. Their jobs may run for weeks."""
    kept.enter(5, "17")
    kept.enter(6, "18")
    kept.running = {"17"}
    kept.start()
    assert kept.cells.jobs() == ["17", "18"]
    kept.time += IDLE_SECONDS
    kept.enter(7, "19")
    assert kept.cells.jobs() == ["17", "19"]
    kept.running = set()
    kept.time += IDLE_SECONDS - 1
    kept.enter(8, "20")
    assert "17" in kept.cells.jobs(), "it was seen a day ago"
    kept.time += 1
    kept.enter(9, "21")
    assert "17" not in kept.cells.jobs()


def test_a_cell_is_there_for_a_day_also_if_its_step_ended_at_once(kept: Kept) -> None:
    def gone(pid: int) -> Path | None:
        raise FileNotFoundError(2, "No such file or directory", f"/proc/{pid}/cgroup")

    kept.warden._cgroups_of = gone
    assert "No such file" in kept.enter(5, "17")
    kept.time += IDLE_SECONDS
    kept.warden._cgroups_of = lambda _: None
    kept.enter(6, "18")
    assert kept.cells.jobs() == ["18"]


# ---------------------------------------------------------------- namespaces


def test_namespaces_are_made_around_the_job_s_cell_and_answered_by_who_makes_them(kept: Kept) -> None:
    kept.enter(5, "17")

    assert kept.ask(6, "namespaces 17 10001 10002 10002,20") == ""

    assert kept.made == [(6, kept.directory / "cells/17", Owner(uid=10001, gid=10002, groups=(10002, 20)))]
    assert kept.ask(6, "namespaces 17 10001 10002 10002") == "", "whoever else asks is no step by that"
    assert not kept.log


def test_a_step_asks_for_no_namespaces_from_within_the_jail(kept: Kept) -> None:
    kept.enter(5, "17")
    assert kept.ask(5, "namespaces 17 10001 10002 10002") == "this is a step of job 17"
    assert not kept.made


def test_a_pool_that_allows_none_makes_none(kept: Kept) -> None:
    kept.containers = False
    kept.start()
    kept.enter(5, "17")
    assert "this pool allows no user namespaces" in kept.ask(6, "namespaces 17 10001 10002 10002")


@pytest.mark.parametrize(
    "request_",
    [
        "namespaces", "namespaces ", "namespaces 17", "namespaces 17 1", "namespaces 17 1 1", "namespaces 17 1 1 x",
        "namespaces 17 1 1 1, ", "namespaces 17 1 1 1,", "namespaces 17 1 1 1 1", "namespaces 18 1 1 1",
        "namespaces ../17 1 1 1", "namespaces 17 0 1 1", "namespaces 17 -1 1 1", "namespaces 17 1 -1 1",
        "namespaces 17 1 1 1,-1", "namespaces  17 1 1 1",
    ],
)  # fmt: skip
def test_what_is_no_request_for_namespaces_is_refused(kept: Kept, request_: str) -> None:
    kept.enter(5, "17")
    assert kept.ask(6, request_)
    assert not kept.made
    assert len(kept.log) == 1


# ---------------------------------------------------------------- devices


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


def test_a_step_without_a_cgroup_brings_none(kept: Kept, loaded: list[bytes]) -> None:
    kept.enter(5, "17")
    assert put(kept, 5, kept.directory) == "this is no step with a cgroup"
    assert not loaded


@pytest.mark.parametrize("count", [0, 2])
def test_a_program_is_for_one_cgroup(kept: Kept, loaded: list[bytes], count: int) -> None:
    kept.cgroups = kept.directory
    kept.enter(5, "17")
    assert put(kept, 5, *[kept.directory] * count) == "this is no step with a cgroup"
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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0::/system.slice/w-0_slurmstepd.scope/job_17/step_0/slurm", "system.slice/w-0_slurmstepd.scope/job_17"),
        ("0::/slurmd", None),
        ("0::/", None),
        ("0::/system.slice/w-0_slurmstepd.scope/job_17/step_0/user", None),
        ("0::/other/job_17/step_0/slurm", None),
        ("0::/../job_17/step_0/slurm", None),
        ("0::/slurm", None),
        ("12:devices:/system.slice/x/job_17/step_0/slurm\n0::/", None),
        ("", None),
    ],
)
def test_the_cgroup_of_the_job_of_a_slurmstepd(tmp_path: Path, text: str, found: str | None) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(f"{text}\n")
    assert job_cgroups(7, tmp_path, Path("/at")) == (Path("/at") / found if found else None)


def test_jobs_with_steps_are_those_of_slurmstepd(tmp_path: Path) -> None:
    titles = {
        "1": "slurmd\0-D",
        "7": "slurmstepd: [17.batch]\0",
        "8": "slurmstepd: [18.0]",
        "9": "x slurmstepd: [19.0]",
    }
    for pid, title in {**titles, "10": "slurmstepd: [x.0]", "self": "slurmstepd: [20.0]"}.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_text(title)
    (tmp_path / "11").mkdir()  # it has just ended
    assert jobs_with_steps(tmp_path) == {"17", "18"}
