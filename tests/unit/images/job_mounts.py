"""Job mounts without CAP_SYS_ADMIN: the mounts of a helper are noted."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from images.common.jail_view import Bind, open_inside
from images.worker import job_mounts
from images.worker.helper import Helper
from images.worker.job_mounts import JobMounts


class FakeJobMounts:
    """Mounts that are noted. As after a real one, the jail's directories are in the job's mount then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mounted: dict[str, str] = {}
        """What is mounted where."""
        self.fails: str = ""
        """The kind of mount that does not work."""
        calls = {"mount_points": self.points, "attach": self.copy, "show": self.bind}
        for name, call in {**calls, "mount_memory": self.memory, "unmount": self.remove}.items():
            monkeypatch.setattr(job_mounts, name, call)

    def points(self) -> frozenset[str]:
        return frozenset(self.mounted)

    def copy(self, tree: Path, target: int, **_: bool) -> None:
        job_mount = self._note("copy", target, str(tree))
        for name in ("tmp", "dev/shm"):
            (job_mount / name).mkdir(parents=True)

    def bind(self, root: Path, bind: Bind) -> None:
        self._fail("bind")
        os.close(open_inside(root, bind.path, make=False, kind="directory"))
        self.mounted[str(root / bind.path.lstrip("/"))] = bind.source

    def memory(self, target: int, size: int) -> None:
        self._note("memory", target, f"{size} bytes")

    def remove(self, point: Path) -> None:
        if str(point) not in self.mounted:
            raise OSError(22, "Invalid argument")
        self.mounted = {at: what for at, what in self.mounted.items() if not Path(at).is_relative_to(point)}
        for name in ("tmp", "dev/shm", "dev"):
            if (point / name).is_dir():
                (point / name).rmdir()

    def _note(self, kind: str, target: int, what: str) -> Path:
        self._fail(kind)
        point = Path(f"/proc/self/fd/{target}").readlink()
        self.mounted[str(point)] = what
        return point

    def _fail(self, kind: str) -> None:
        if kind == self.fails:
            raise PermissionError(1, "Operation not permitted")


def job_mounts_in(directory: Path) -> JobMounts:
    """Job mounts below a directory, with room for their jobs' own."""
    return JobMounts(Path("/jail"), 4096, job_mounts=directory / "job-mounts", jobs=directory / "jobs")


UID, GID = os.getuid(), os.getgid()
PID = 4711


@dataclass(kw_only=True)
class Kept:
    """A helper with what it works on."""

    directory: Path
    log: list[str] = field(default_factory=list)
    cgroups: Path | None = None
    asked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.job_mounts = job_mounts_in(self.directory)
        self.helper = Helper(
            self.job_mounts,
            self.log.append,
            cgroups_of=self._cgroups_of,
            cgroups=self.directory / "cgroups",
            containers=True,
        )

    def _cgroups_of(self, pid: int) -> Path | None:
        self.asked.append(pid)
        return self.cgroups

    def ask(self, connection: int, request: str) -> str:
        return self.helper.answer(connection, PID, request.encode())

    def jobs(self) -> list[str]:
        """Those that have a mount."""
        return sorted(path.name for path in (self.directory / "job-mounts").iterdir())

    def enter(self, connection: int, job: str, mib: int = 0) -> str:
        return self.ask(connection, f"mount {job} {UID} {GID} {mib}")
