"""Namespaces for containers in jobs: who makes them, in which order, and what becomes of whoever does not answer."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from images.common.mountinfo import expect_done
from images.worker import namespaces
from images.worker.namespaces import FILES, Owner, make, why_not


def test_as_many_groups_have_a_name_as_the_kernel_takes() -> None:
    few, many = (
        Owner(uid=1, gid=2, groups=tuple(range(1000))),
        Owner(uid=1, gid=2, groups=tuple(range(10**9, 10**9 + 999))),
    )
    assert few.gid_map().count("\n") == 340
    assert few.gid_map().startswith("2 2 1\n0 0 1\n1 1 1\n3 3 1\n")
    assert len(many.gid_map()) < 4096
    assert many.gid_map().endswith(" 1\n")


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns = 1, it takes 0",
        ),
        ("kernel/apparmor_restrict_unprivileged_userns", "0", ""),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone = 0, it takes 1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces = 0, it takes more"),
        ("user/max_user_namespaces", "100", ""),
    ],
)
def test_a_setting_of_the_machine_that_is_in_the_way_is_named(
    tmp_path: Path, setting: str, value: str, told: str
) -> None:
    assert why_not(tmp_path) == ""
    path = tmp_path / setting
    path.parent.mkdir()
    path.write_text(f"{value}\n")
    assert why_not(tmp_path) == (f"; the machine has {told}" if told else "")


PRIVATE = namespaces._MS_REC_PRIVATE

RECURSIVE_BIND = 0x5000

OWNER = Owner(uid=10001, gid=10002, groups=(10002, 20, 4294967295))


@dataclass(kw_only=True)
class FakeCalls(namespaces.Kernel):
    """Notes what it is asked for, in a file: it is another process that asks."""

    notes: Path
    fails: str = ""
    stops: bool = False
    dies: bool = False
    open_then: list[int] = field(default_factory=list)

    def _note(self, what: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{what}\n")
        if what == self.fails:
            raise OSError(errno.EPERM, f"cannot {what}")

    def leave_for(self, cell: Path) -> None:
        for number in self.open_then:
            try:
                os.fstat(number)
            except OSError:
                continue
            self._note(f"{number} is open")
        self._note(f"leave for {cell}")

    def become(self, owner: Owner) -> None:
        self._note(f"become {owner.uid}")
        if self.stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)

    def own_namespaces(self) -> None:
        self._note("own namespaces")


@dataclass(kw_only=True)
class Made:
    """A process's files in /proc, which are made when it is looked for."""

    directory: Path

    def __truediv__(self, name: str) -> Path:
        (self.directory / name).mkdir()
        return self.directory / name


@pytest.fixture
def calls(tmp_path: Path) -> FakeCalls:
    return FakeCalls(notes=tmp_path / "notes")


@pytest.fixture
def proc(tmp_path: Path) -> Made:
    (tmp_path / "proc").mkdir()
    return Made(directory=tmp_path / "proc")


def made(calls: FakeCalls, proc: Made, patience: float = 10) -> tuple[int, ...]:
    return make(Path("/cell"), OWNER, calls=calls, proc=proc, patience=patience)  # type: ignore[arg-type]


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_the_pod_is_left_before_the_process_is_the_user_s(calls: FakeCalls, proc: Made) -> None:
    before = children()

    files = made(calls, proc)

    assert calls.notes.read_text().splitlines() == ["leave for /cell", "become 10001", "own namespaces"]
    kinds = [str(Path(f"/proc/self/fd/{file}").readlink()) for file in files]
    assert [kind.partition(":")[0] for kind in kinds] == list(FILES)
    for file in files:
        os.close(file)
    (process,) = proc.directory.iterdir()
    assert {path.name: path.read_text() for path in process.iterdir()} == {
        "setgroups": "deny",
        "uid_map": "10001 10001 1\n",
        "gid_map": "10002 10002 1\n20 20 1\n4294967295 4294967295 1\n",
    }
    assert children() == before


def test_nothing_of_the_warden_s_is_open_in_the_user_s_process(calls: FakeCalls, proc: Made) -> None:
    with Path("/etc/passwd").open() as file:
        calls.open_then = [0, 1, 2, file.fileno()]
        os.set_inheritable(file.fileno(), True)
        for number in made(calls, proc):
            os.close(number)
    assert "is open" not in calls.notes.read_text()


@pytest.mark.parametrize("fails", ["leave for /cell", "become 10001", "own namespaces"])
def test_a_call_that_fails_is_the_last(calls: FakeCalls, proc: Made, fails: str) -> None:
    calls.fails = fails
    with pytest.raises(OSError, match=f"cannot {fails}"):
        made(calls, proc)
    assert calls.notes.read_text().splitlines()[-1] == fails
    assert not list(proc.directory.iterdir())


def test_who_is_stopped_by_its_user_is_not_waited_for_long(calls: FakeCalls, proc: Made) -> None:
    calls.stops = True
    before = children()
    with pytest.raises(OSError, match=r"did not do so within 0\.3 s"):
        made(calls, proc, patience=0.3)
    assert children() == before, "and is ended"


def test_who_is_ended_by_its_user_is_not_waited_for(calls: FakeCalls, proc: Made) -> None:
    calls.dies = True
    with pytest.raises(OSError, match="was ended"):
        made(calls, proc)


def test_maps_that_cannot_be_written_leave_nothing_open(calls: FakeCalls, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(FileNotFoundError):
        make(Path("/cell"), OWNER, calls=calls, proc=tmp_path / "no", patience=10)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes CAP_SYS_ADMIN")


def apart(tmp_path: Path, work: Callable[[namespaces.Kernel], None]) -> bool:
    """Whether it could be done, in a process with mounts of its own, where `tmp_path` is a root with a /proc."""
    (tmp_path / "proc").mkdir()
    tmp_path.chmod(0o755)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            kernel = namespaces.Kernel()
            expect_done(kernel._libc.unshare(namespaces.NEW_MOUNTS), "be apart")
            expect_done(kernel._libc.mount(None, b"/", None, PRIVATE, None), "be apart")
            for source, target in ((tmp_path, tmp_path), (Path("/proc"), tmp_path / "proc")):
                expect_done(kernel._libc.mount(bytes(source), bytes(target), None, RECURSIVE_BIND, None), "bind")
            work(kernel)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@needs_root
def test_the_kernel_gives_a_user_namespaces_of_his_own(tmp_path: Path) -> None:
    def work(kernel: namespaces.Kernel) -> None:
        files = make(tmp_path, Owner(uid=10001, gid=10002))
        os.setresgid(10002, 10002, 10002)
        os.setresuid(10001, 10001, 10001)
        for file, kind in zip(files, (namespaces.NEW_USER, namespaces.NEW_MOUNTS), strict=True):
            expect_done(kernel._libc.setns(file, kind), "enter")
        mounted = Path("/proc/self/mountinfo").read_text().splitlines()
        assert {line.split()[4] for line in mounted} >= {"/", "/proc"}
        assert os.listdir("/") == ["proc"]  # noqa: PTH208
        assert Path("/proc/self/uid_map").read_text().split() == ["10001", "10001", "1"]
        assert Path("/proc/self/setgroups").read_text() == "deny\n"
        expect_done(kernel._libc.unshare(namespaces.NEW_USER), "make another")

    assert apart(tmp_path, work)


@needs_root
def test_nothing_of_the_pod_is_below_the_cell(tmp_path: Path) -> None:
    """Not even for who could take the cell away: only the file system that the kernel itself began with."""

    def work(kernel: namespaces.Kernel) -> None:
        kernel.leave_for(tmp_path)
        here = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        expect_done(kernel._libc.umount2(b"/", namespaces._MNT_DETACH), "take the cell away")
        kernel._enter(here)
        assert not {"etc", "home", "usr"} & {*os.listdir("/")}  # noqa: PTH208

    assert apart(tmp_path, work)
