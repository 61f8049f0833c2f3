"""A warden with what it works on, and cgroups of jobs, for tests that ask them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from images.common.kept_memory import ENDED
from images.worker.kept_memory import settle
from images.worker.namespaces import Owner
from images.worker.warden import Warden
from tests.unit.images.cells import FakeCellMounts, cells_in

UID, GID = os.getuid(), os.getgid()
PID = 4711
MIB = 2**20
SCOPE = "system.slice/w-0_slurmstepd.scope"
"""Of all jobs, below `cgroups`."""


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
            make_namespaces=(lambda *asked: self.made.append(asked)) if self.containers else None,
        )

    def _cgroups_of(self, pid: int) -> Path | None:
        self.asked.append(pid)
        return self.cgroups

    def ask(self, connection: int, request: str) -> str:
        return self.warden.answer(connection, PID, request.encode())

    def enter(self, connection: int, job: str, mib: int = 0) -> str:
        return self.ask(connection, f"cell {job} {UID} {GID} {mib}")


def empty(group: Path) -> None:
    """As the kernel does: of a cgroup, rmdir(2) wants no file removed."""
    for path in sorted(group.rglob("*")):
        if path.is_file():
            path.unlink()


@dataclass(kw_only=True)
class Jobs:
    """The cgroups of jobs."""

    mount: Path
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.mount / SCOPE).mkdir(parents=True)
        (self.mount / SCOPE / "memory.max").write_text(f"{1000 * MIB}\n")

    def job(self, job: int, uid: int = 1, *, limit: int | str = "max", used: int = 0, kept: int = 0) -> Path:
        """Sizes in MiB. With `kept` it has ended."""
        group = self.mount / SCOPE / f"job_{job}"
        (group / f"of_{uid}").mkdir(parents=True)
        limit = limit if isinstance(limit, str) else limit * MIB
        for place in ("step_extern", "step_extern/user", "step_0", "step_0/user", "step_0/slurm"):
            (group / place).mkdir()
            (group / place / "memory.max").write_text(f"{limit}\n" if place.endswith("/user") else "max\n")
        for kill in ("cgroup.kill", "step_0/user/cgroup.kill"):
            (group / kill).touch()
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text(f"{used * MIB}\n")
        (group / "step_0/slurm/memory.current").write_text(f"{10 * MIB}\n")
        (group / "memory.stat").write_text(f"anon 4096\nshmem {kept * MIB}\nfile 900000000\n")
        (group / "cgroup.events").write_text(f"populated {int(not kept)}\nfrozen 0\n")
        if kept:
            (group / ENDED).mkdir()
        return group

    def process(self, pid: int, uid: int, locked: int) -> None:
        """With so many MiB locked."""
        (self.mount / f"proc/{pid}").mkdir(parents=True)
        text = f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nVmLck:\t {locked * 1024} kB\n"
        (self.mount / f"proc/{pid}/status").write_text(text)

    def settle(self) -> None:
        settle(self.mount, self.log.append, self.mount / "proc")


def limit(group: Path) -> float:
    return int((group / "memory.max").read_text()) / MIB
