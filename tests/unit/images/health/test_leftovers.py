"""What a user has left on a node goes, and nothing else does."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from images.common.boundary import give_up_set_up
from images.common.steps import PROC, is_step
from images.health import leftovers
from images.health.leftovers import Moment, end_processes, has_files, ipc_objects, left_processes, remove_files
from images.health.proc import Process, process, sees
from tests.fakes.commands import FakeClock
from tests.unit.images.health.processes import add_process
from tests.unit.images.health.tables import table

UID = os.getuid()
OTHER = UID + 1
NOBODY = 65534
LATER = Moment(seconds=time.time() + 3600, ticks=float("inf"))
AT_9000 = Moment(seconds=9000.5, ticks=0.0)
EARLIER = Moment(seconds=0.0, ticks=0.0)

SHM = """       key      shmid perms       size  cpid  lpid nattch   uid   gid  cuid  cgid  ctime
         0          5   600       4096   123   123      0  1000  1000  1000  1000   1000
         0          6   600       4096   123   123      1  1000  1000  1000  1000   1000
         0          7   600       4096   123   123      0  1001  1001  1001  1001   1000
         0          8   600       4096   123   123      0  5432  1000  1000  1000   9000
         0          9   600       4096   123   123      0  1000  1000  1000  1000   9999
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "tmp"
    (place / "mine/deep").mkdir(parents=True)
    (place / "mine/deep/file").touch()
    (place / "file").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").touch()
    (place / "link").symlink_to(tmp_path / "outside")
    return place


def test_the_users_files_go_and_links_are_not_followed(place: Path, tmp_path: Path) -> None:
    assert has_files(UID, (place,))
    assert remove_files(UID, LATER, (place, tmp_path / "none")) == 5
    assert list(place.iterdir()) == []
    assert not has_files(UID, (place,))
    assert (tmp_path / "outside/precious").exists()


@table("user, until", {"those of others": (OTHER, LATER), "those that came later": (UID, EARLIER)})
def test_files_that_stay(place: Path, user: int, until: Moment) -> None:
    assert has_files(user, (place,)) is (user == UID)
    assert remove_files(user, until, (place,)) == 0
    assert len(list(place.rglob("*"))) == 5


def test_a_directory_with_something_that_stays_in_it_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    takes, deep = leftovers._Removal.takes, (place / "mine/deep/file").stat().st_ino
    monkeypatch.setattr(
        leftovers._Removal, "takes", lambda removal, status: status.st_ino != deep and takes(removal, status)
    )
    assert remove_files(UID, LATER, (place,)) == 2
    assert (place / "mine/deep/file").exists()


def test_a_directory_that_another_has_put_in_place_meanwhile_is_not_entered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fstat = os.fstat

    def anothers(descriptor: int) -> os.stat_result:
        found = list(fstat(descriptor))
        found[4] = OTHER if found[1] == (place / "mine").stat().st_ino else found[4]
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", anothers)
    remove_files(UID, LATER, (place,))
    assert (place / "mine/deep/file").exists()
    assert not (place / "file").exists()


def test_a_link_in_place_of_the_directory_itself_leads_nowhere(place: Path, tmp_path: Path) -> None:
    assert leftovers.remove_tree(place / "link") == 0
    assert remove_files(UID, LATER, (place / "link",)) == 0
    assert (tmp_path / "outside/precious").exists()


def make_deep(place: Path, levels: int) -> Path:
    """The innermost of so many directories, one in the other."""
    path = place.joinpath(*["d"] * levels)
    path.mkdir(parents=True)
    return path


@table("whose", {"the user's files": "user", "a job's directory": "job"})
def test_directories_go_however_deep_they_are(tmp_path: Path, whose: str) -> None:
    place = tmp_path / "tmp"
    path = make_deep(place, 200)
    (path / "file").touch()
    if whose == "user":
        assert remove_files(UID, LATER, (place,)) == 201
        assert list(place.iterdir()) == []
    else:
        assert leftovers.remove_tree(place) == 201
        assert not place.exists()


def test_what_stays_stays_at_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "tmp"
    path = make_deep(place, 100)
    (path / "newer").touch()
    (path / "older").touch()
    takes, newer = leftovers._Removal.takes, (path / "newer").stat().st_ino
    monkeypatch.setattr(
        leftovers._Removal, "takes", lambda removal, status: status.st_ino != newer and takes(removal, status)
    )
    remove_files(UID, LATER, (place,))
    assert [found.name for found in place.rglob("*") if found.is_file()] == ["newer"]


def test_a_place_with_too_many_entries_may_hold_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / str(number)).touch()
    assert not has_files(OTHER, (tmp_path,))
    monkeypatch.setattr(leftovers, "_MOST_ENTRIES", 3)
    assert has_files(OTHER, (tmp_path,))


FORKER: Final = """
import os, sys, time
os.setresuid({uid}, {uid}, {uid})
print("ready", flush=True)
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    if os.fork():
        os._exit(0)
"""


CHAIN: Final = """
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
	struct pollfd reader = {.fd = 1};
	signal(SIGCHLD, SIG_IGN); /* nobody of the chain stays as a zombie, as below tini */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (fork() != 0) {
		while (wait(0) > 0)
			;
		return 0;
	}
	if (setresuid(UID, UID, UID) != 0)
		return 2;
	write(1, "ready\\n", 6);
	while (poll(&reader, 1, 0) == 0) /* as long as somebody holds the other end, however slow the machine is */
		if (fork() > 0) /* the parent ends at once; where there is no room for a child, it tries again */
			_exit(0);
	return 0;
}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_chain_that_no_look_may_see_is_never_taken_for_nothing(tmp_path: Path) -> None:
    """It counts no look in which it was not seen, as another one was forked meanwhile."""
    uid = 2**31 - 79  # nobody's on this machine
    source = CHAIN.replace("UID", str(uid))
    subprocess.run(["cc", "-O2", "-w", "-x", "c", "-o", tmp_path / "chain", "-"], input=source, text=True, check=True)

    def look() -> bool:
        return bool(left_processes(uid, leftovers.EVER, PROC))

    with subprocess.Popen([tmp_path / "chain"], stdout=subprocess.PIPE) as chain:
        assert chain.stdout is not None
        assert chain.stdout.readline() == b"ready\n"
        said, until = [sees(look)], time.monotonic() + 20
        while len(said) < 10 and time.monotonic() < until:
            said.append(sees(look))
        assert chain.poll() is None, "the chain has ended by itself"
        assert False not in said
        leftovers.sweep(uid)
        assert chain.wait(10) == 0
    assert not look()


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_sweep_ends_what_forks_without_a_pause_and_nobody_elses() -> None:
    uid = 2**31 - 77  # nobody's on this machine
    with (
        subprocess.Popen([sys.executable, "-c", FORKER.format(uid=uid)], stdout=subprocess.PIPE) as forker,
        subprocess.Popen(["sleep", "20"]) as roots,
        subprocess.Popen(["sleep", "20"], user=uid - 1) as others,
    ):
        assert forker.stdout is not None
        assert forker.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        assert not select.select([forker.stdout], [], [], 0)[0]  # somebody holds the other end
        leftovers.sweep(uid)
        assert os.getresuid() == (0, 0, 0)
        assert select.select([forker.stdout], [], [], 10)[0]
        assert forker.stdout.read() == b""  # nobody does any more
        for other in (roots, others):
            assert other.poll() is None
            other.kill()
    leftovers.sweep(uid)  # where nothing runs


def test_root_is_never_swept() -> None:
    with pytest.raises(ValueError, match="the system's"):
        leftovers.sweep(0)


def test_processes_of_the_user_outside_of_steps_are_left_ones(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 1, comm="tini", uid=0)
    add_process(proc, 20, comm="daemon", uid=1000)
    add_process(proc, 21, comm="other", uid=1001)
    add_process(proc, 22, comm="dead", uid=1000, state="Z")
    add_process(proc, 23, comm="headless", uid=1000, state="Z", threads=2)
    add_process(proc, 24, comm="slurmstepd", title="slurmstepd: [1.batch]", uid=1000)
    add_process(proc, 25, comm="child", uid=1000, parent=24)
    add_process(proc, 30, comm="slurmstepd", uid=0)
    add_process(proc, 31, comm="shell", uid=1000, parent=30)
    add_process(proc, 32, comm="python", uid=1000, parent=31)
    left = {found.comm for found in left_processes(1000, LATER, proc)}
    assert left == {"daemon", "headless", "slurmstepd", "child"}
    assert left_processes(1000, EARLIER, proc) == []


def test_each_process_is_asked_once_however_deep_a_user_nests_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 10, comm="slurmstepd", uid=0)
    for first in (100, 300):
        for pid in range(first, first + 100):
            add_process(proc, pid, parent=pid - 1 if pid > first else {100: 10, 300: 1}[first])
    asked: list[int] = []

    def ask(pid: int, root: Path) -> bool:
        asked.append(pid)
        return is_step(pid, root)

    monkeypatch.setattr(leftovers, "is_step", ask)
    assert {found.pid for found in left_processes(1000, LATER, proc)} == set(range(300, 400))
    assert len(asked) == len(set(asked))


@pytest.fixture
def sleeper() -> Iterator[tuple[subprocess.Popen[bytes], Process]]:
    with subprocess.Popen(["sleep", "600"]) as running:
        found = process(running.pid)
        assert found is not None
        yield running, found
        running.kill()


@table(
    "heeds, sent, ends",
    {
        "one that ends when asked is not killed": ({signal.SIGTERM}, [signal.SIGTERM], True),
        "one that does not is killed": ({signal.SIGKILL}, [signal.SIGTERM, signal.SIGKILL], True),
        "one that never ends is told and not waited for": (set(), [signal.SIGTERM, signal.SIGKILL], False),
    },
)
def test_a_process_is_asked_first_and_then_ended(
    sleeper: tuple[subprocess.Popen[bytes], Process], heeds: set[int], sent: list[int], ends: bool
) -> None:
    running, found = sleeper
    clock, seen = FakeClock(), list[int]()

    def kill(pid: int, number: int) -> None:
        seen.append(number)
        if number in heeds:
            os.kill(pid, number)
            running.wait()

    assert end_processes([found], PROC, clock, kill) == ([] if ends else [found])
    assert seen == sent
    assert running.poll() == (-sent[-1] if ends else None)
    assert clock.time < 2


def test_another_process_with_the_same_number_is_not_hit(sleeper: tuple[object, Process]) -> None:
    earlier = replace(sleeper[1], start=sleeper[1].start - 1)
    assert end_processes([earlier], PROC, FakeClock(), lambda *_: pytest.fail("hit")) == []


def test_this_moment_is_after_what_is_there_and_before_what_comes(sleeper: tuple[object, Process]) -> None:
    time.sleep(0.02)  # a clock tick is 0.01 s
    assert sleeper[1].start <= leftovers.now().ticks < sleeper[1].start + 60 * os.sysconf("SC_CLK_TCK")


def test_objects_of_system_v_that_nobody_uses_are_found(tmp_path: Path) -> None:
    (tmp_path / "sysvipc").mkdir()
    (tmp_path / "sysvipc/shm").write_text(SHM)
    assert list(ipc_objects(1000, AT_9000, tmp_path)) == [("shm", 5), ("shm", 8)], "one was given away"
    assert list(ipc_objects(1002, AT_9000, tmp_path)) == []
    assert list(ipc_objects(1000, AT_9000, tmp_path / "none")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_real_objects_of_a_user_are_found_and_removed_by_root_of_a_pod() -> None:
    """Without SYS_ADMIN root has no right to them. Their user has given one to somebody else."""

    def make() -> set[tuple[str, int]]:
        libc = ctypes.CDLL(None)
        os.seteuid(NOBODY)
        flags = 0o600 | 0o1000  # IPC_CREAT
        made = {
            ("shm", libc.shmget(0, 4096, flags)), ("msg", libc.msgget(0, flags)), ("sem", libc.semget(0, 3, flags)),
        }  # fmt: skip
        os.seteuid(0)
        return made

    def in_pod() -> None:
        give_up_set_up()
        made = make()
        assert made <= set(ipc_objects(NOBODY, leftovers.now(), PROC))
        assert leftovers.remove_ipc_objects(NOBODY, sorted(made)) == 3
        assert not made & set(ipc_objects(NOBODY, leftovers.now(), PROC))
        assert os.geteuid() == 0

    assert exit_status(in_pod) == 0


def exit_status(work: Callable[[], None]) -> int:
    """Of a child process that does it: what it gives up is gone for good."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except Exception:  # noqa: BLE001  (it is told, and the status says so)
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
