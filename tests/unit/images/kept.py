"""A warden with what it works on, for tests that ask it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from images.worker.namespaces import Owner
from images.worker.warden import Warden
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
