"""Real processes and IPC objects of a user go, and nobody else's."""

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
from images.common.steps import PROC
from images.health import leftovers
from images.health.leftovers import end_processes, ipc_objects, left_processes
from images.health.proc import Process, process, sees
from tests.fakes.commands import FakeClock
from tests.unit.images.health.tables import table

UID = os.getuid()
NOBODY = 65534


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
