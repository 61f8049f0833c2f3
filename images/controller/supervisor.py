"""supervisor: one of two controllers. It stands by until it is its turn, and runs slurmctld as long as that lasts.

Its turn begins with the Lease (lease.py) and the term of the state directory (terms.py), and ends when it learns that
another one has either. Where it can learn nothing, the API server and the volume both being silent or this very process
having been paused, it ends slurmctld and looks again. While only the API server is silent the volume says enough. While
only the volume is, slurmctld can save nothing and so answers nobody: the other one may have a volume that works.

What hangs with the volume is a thread: the main one hears signals.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar

from images.common import http_server, terms
from images.common.command import run
from images.common.files import Owner, swap_symlink, write_atomically
from images.common.http_server import Answer
from images.common.kubernetes import Kube, KubeError, own_namespace
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, program, required_env
from images.common.readiness import MUNGE_SOCKET, accepts_connections, can_connect
from images.common.wait import Clock, Reminder
from images.controller.configuration import READY, SLURM_CONF, STARTS, STATE
from images.controller.lease import (
    LOOK_SECONDS,
    ROUND_SECONDS,
    SECONDS,
    UNANSWERED,
    VOLUME_SECONDS,
    Lease,
    Over,
    Turn,
    lead_to,
)

PORT: Final = 8820
"""HTTP: /ready for kubelet."""

SLURMCTLD: Final = ("/usr/libexec/slurmstack/slurmctld",)
FIRST: Final = "controller-0"
"""The pod that takes over what one controller has left: that one has been a pod of this name, and is gone then."""

TURN: Final = Path("/run/slurmstack/term")
"""The term that this pod has, for a container that starts again in it."""

LABEL_SECONDS: Final = 2.0
"""Between two looks at whether the Service still leads here."""

REMAINS: Final = "the slurmctld of an earlier turn to be gone; standing by"

END_SECONDS: Final = 30.0
"""From SIGTERM to SIGKILL for slurmctld."""

DEAD_SECONDS: Final = 5.0
"""For a killed slurmctld to be gone. One that hangs in the kernel, with the volume, runs no more either."""

RESTART_SECONDS: Final = 2.0
"""Between two starts at least: one that has run for longer is started again at once."""

ASK_SECONDS: Final = 5.0
"""Between two questions to slurmctld."""

ANSWER_SECONDS: Final = 10.0
"""For one answer."""

ASKING: Final = Path("/run/slurmstack/asking.conf")
"""slurm.conf for the question, which needs no name: that of the active controller may lead elsewhere, or nowhere."""

_CONF: Final = "ClusterName=asking\nSlurmctldHost=localhost(127.0.0.1)\nSlurmUser=slurm\n"

T = TypeVar("T")


def answers() -> bool:
    """Ask slurmctld of this pod whether it is there."""
    with contextlib.suppress(OSError):
        if not ASKING.exists():
            write_atomically(ASKING, _CONF)
    asked = run(["scontrol", "ping"], timeout=ANSWER_SECONDS, env={**os.environ, "SLURM_CONF": str(ASKING)})
    return " is UP" in asked.stdout  # its status may be lost to Daemon.reap


class Daemon:
    """slurmctld as a child."""

    def __init__(self, command: tuple[str, ...], log: Callable[[str], None], clock: Clock) -> None:
        self._command, self._log, self._clock = command, log, clock
        self._pid = 0
        self._not_before = 0.0
        self._has_answered = False
        self._silent = 0

    @property
    def hangs(self) -> bool:
        """Whether another machine had better have a try at it. One that reads its state for long does not hang."""
        return self._has_answered and bool(self._pid) and self._silent >= UNANSWERED

    def note(self, *, answered: bool) -> None:
        """Whether it has answered a question."""
        self._has_answered = self._has_answered or answered
        self._silent = 0 if answered else self._silent + 1

    def keep_up(self) -> None:
        """Start it if it does not run."""
        self.reap()
        now = self._clock.now()
        if self._pid or now < self._not_before:
            return
        self._pid = os.posix_spawn(self._command[0], self._command, os.environ, setsid=True)
        self._not_before = now + RESTART_SECONDS

    def reap(self) -> bool:
        """Whether it runs. What else has ended in this container is forgotten, too."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._pid = self._silent = 0
                    self._has_answered = False  # the next one may read its state for long
                    self._log(f"slurmctld has ended with {os.waitstatus_to_exitcode(ended[1])}")
        return bool(self._pid)

    def end(
        self, number: signal.Signals, seconds: float = END_SECONDS, hurries: Callable[[], object] = lambda: None
    ) -> None:
        """End it, and all that it has started; with SIGKILL at last, or when `hurries` says something true.

        One that hangs then is not waited for. `hurries` is asked every 0.05 s.
        """
        kill_at, pid = self._clock.now() + (0 if number == signal.SIGKILL else seconds), self._pid
        while pid and self.reap():
            late = self._clock.now() >= kill_at
            if self._clock.now() >= kill_at + DEAD_SECONDS:
                self._log("slurmctld is killed, and gone when the volume answers what it has asked")
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL if late else number)
            for _ in range(20):
                if not self.reap():
                    break
                if not late and hurries():
                    kill_at = self._clock.now()
                    break
                self._clock.sleep(0.05)
        self._not_before = 0.0
        self._has_answered, self._silent = False, 0


class Supervisor:
    """One of two controllers."""

    def __init__(
        self, *, kube: Kube, me: str, lease: Lease, owner: Owner, log: Callable[[str], None],
        volume: Path = terms.VOLUME, command: tuple[str, ...] = SLURMCTLD,
    ) -> None:  # fmt: skip
        self._kube, self._me, self._lease, self._owner, self._log = kube, me, lease, owner, log
        self._volume, self._clock = volume, Clock()
        self._daemon = Daemon(command, log, self._clock)
        self._asked: float | None = None
        self.is_active = False
        self.remains = False
        """Whether a slurmctld that was killed is still there, so that this one could not take over."""
        self._failing: tuple[float, str] | None = None
        """Since when this one, which stands by, could not take over, and why."""
        self.is_ending = threading.Event()

    @property
    def hangs(self) -> bool:
        """Whether the volume leaves this one without an answer."""
        asked = self._asked
        return asked is not None and self._clock.now() - asked > VOLUME_SECONDS

    def answer(self, path: str) -> Answer:
        """To kubelet."""
        why_not = self._why_not_ready() if path == "/ready" else ""
        if why_not:
            return Answer("text/plain", f"{why_not}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer("text/plain", "active\n" if self.is_active else "standing by\n")

    def _why_not_ready(self) -> str:
        if self.hangs:
            return Over.VOLUME
        if self.remains:
            return f"waiting for {REMAINS}"
        failing = self._failing
        if failing and self._clock.now() - failing[0] > VOLUME_SECONDS:
            return f"could not take over: {failing[1]}"
        return "slurmctld does not listen yet" if self.is_active and not can_connect("127.0.0.1") else ""

    def _of_volume(self, ask: Callable[[], T]) -> T:
        self._asked = self._clock.now()
        try:
            return ask()
        finally:
            self._asked = None

    def _current(self) -> Path | None:
        """The directory that counts, of a volume that takes writes: from one that does not nobody could take over."""
        terms.touch(self._volume)
        return terms.current(self._volume)

    def run(self) -> None:
        """Until it is to end."""
        reminder = Reminder(self._log, self._clock)
        while not self.is_ending.is_set():
            self.remains = self._daemon.reap()
            if self.remains:
                # Killed, and still there: with a turn it would start no other one, and the other machine would wait.
                self._forget()
                reminder.waiting(REMAINS)
                self.is_ending.wait(LOOK_SECONDS)
                continue
            directory = self._continued() or self._await_turn()
            if directory is not None:
                self._serve(directory)

    def _continued(self) -> Path | None:
        """The turn of an earlier container of this pod, if nobody has taken over since."""
        with contextlib.suppress(OSError):
            mine, there = TURN.read_text(encoding="ascii"), self._of_volume(self._current)
            if there is not None and there.name == mine:
                return there
        return None

    def _await_turn(self) -> Path | None:
        """The state directory, once it is this one's."""
        reminder = Reminder(self._log, self._clock)
        self._forget()
        while not self.is_ending.is_set():
            try:
                there = self._of_volume(self._current)
                if self.is_ending.is_set():
                    break  # which it may have become while the volume hung
                if there is None and self._me != FIRST:
                    # While a second controller is added the only one still runs, without a Lease or a term.
                    self._failing = None
                    reminder.waiting(f"{FIRST} to begin the first term; standing by")
                    self.is_ending.wait(LOOK_SECONDS)
                    continue
                term = self._lease.acquire(terms.number_of(there) + 1 if there else 1)
                directory = self._take_over(term) if term is not None else None
                self._failing = None
                if directory is not None:
                    return directory
                reminder.waiting("the active controller to end; standing by")
            except terms.LostError as error:
                self._log(f"not active after all: {error}")
            except (KubeError, OSError) as error:
                self._failing = self._failing[0] if self._failing else self._clock.now(), str(error)
                reminder.waiting(f"the API server, the state volume and munged: {error}")
            self.is_ending.wait(LOOK_SECONDS)
        return None

    def _take_over(self, term: int) -> Path:
        try:
            if not accepts_connections(MUNGE_SOCKET):  # slurmctld would wait for it, and the other one for slurmctld
                raise ConnectionError("munged of this pod does not answer")
            return self._of_volume(lambda: terms.take_over(term, self._owner, self._volume))
        except OSError:
            self._give_back(term)
            self.is_ending.wait(SECONDS)  # for the other one, whose volume may be well
            raise

    def _serve(self, directory: Path) -> None:
        TURN.write_text(directory.name, encoding="ascii")
        swap_symlink(STATE, str(directory))
        if self._of_volume(SLURM_CONF.exists):
            READY.touch()  # it was checked when it was published; where there is none yet the agent says when
        self._log(f"active: {directory.name}")
        self.is_active = True
        turn = Turn(directory, self._lease, self._log)
        turn.begin()
        try:
            reason = self._keep_up(turn)
            self.is_active = False
            if reason is None:
                self._step_down(turn)
                return
        finally:
            self.is_active = False
            turn.stop()
        gives_back = reason in {Over.VOLUME, Over.HANGS}
        given = gives_back and self._give_back(turn.term)  # first: slurmctld may hang as well
        if given or not (gives_back or reason is Over.SILENCE):
            TURN.unlink(missing_ok=True)  # not without the Lease again
        self._daemon.end(signal.SIGKILL)
        self._log(f"no longer active: {reason}")
        if given:
            self.is_ending.wait(SECONDS)  # for the other one, which may do better

    def _keep_up(self, turn: Turn) -> Over | None:
        """Why the turn is over; None where this one is to end."""
        threading.Thread(target=self._ask, args=(turn,), daemon=True).start()
        threading.Thread(target=self._lead_here, args=(turn,), daemon=True).start()
        while not self.is_ending.is_set():
            if (reason := turn.over() or (Over.HANGS if self._daemon.hangs else None)) is not None:
                return reason
            self._daemon.keep_up()
            self._clock.sleep(ROUND_SECONDS)
        return None

    def _ask(self, turn: Turn) -> None:
        while not turn.ended.wait(ASK_SECONDS):
            answered = answers()
            if not turn.ended.is_set():
                self._daemon.note(answered=answered)

    def _lead_here(self, turn: Turn) -> None:
        """Not without a look at the Lease: who was paused would lead everybody to a pod in which nothing runs."""
        pause = 0.0
        while self.is_active and not turn.ended.wait(pause):
            pause = LABEL_SECONDS
            try:
                if self._lease.is_mine(turn.term):
                    lead_to(self._kube, self._me)
            except (KubeError, OSError, ValueError, KeyError) as error:
                self._log(f"the Service does not lead here yet: {error}")
                pause = LOOK_SECONDS

    def _forget(self) -> None:
        """Of a turn that is over; the configuration agent stands by, too, where there is no state directory."""
        STATE.unlink(missing_ok=True)
        READY.unlink(missing_ok=True)
        STARTS.unlink(missing_ok=True)  # those that the end of a turn cut short say nothing of a configuration

    def _step_down(self, turn: Turn) -> None:
        """An end in order: slurmctld saves all, and the other one need not wait for the Lease to run out.

        It is renewed meanwhile: what slurmdbd has not taken yet is written last, half a minute later at most.
        """
        self._daemon.end(signal.SIGTERM, hurries=turn.over)
        turn.stop()
        self._forget()
        TURN.unlink(missing_ok=True)
        self._give_back(turn.term)
        self._log("ended in order; the other controller may go on")

    def _give_back(self, term: int) -> bool:
        """The other one need not wait for the Lease to run out. Whether it could be told."""
        with contextlib.suppress(KubeError):
            self._lease.release(term)
            return True
        return False


def _run(supervisor: Supervisor, log: Callable[[str], None]) -> None:
    """Until it has ended, or hangs and is to end."""
    worker = threading.Thread(target=supervisor.run, daemon=True, name="supervisor")
    worker.start()
    said = False
    while worker.is_alive() and not (supervisor.hangs and supervisor.is_ending.is_set()):
        if supervisor.hangs != said:
            said = not said
            log(Over.VOLUME if said else "the state volume answers again")
        worker.join(LOOK_SECONDS)
    if not supervisor.is_ending.is_set():
        sys.exit(1)  # the thread's own last words say why


def main() -> None:
    """Entry point."""
    with program("supervisor") as log:
        kube = Kube.in_cluster(own_namespace())
        if kube is None:
            raise CannotGoOnError("two controllers need Kubernetes, whose Lease says which of them is active")
        expect_volume(terms.VOLUME)
        terms.expect_no_memory()
        user, me = pwd.getpwnam("slurm"), socket.gethostname()
        lease = Lease(kube, f"{me}/{required_env('POD_UID')}")
        supervisor = Supervisor(kube=kube, me=me, lease=lease, owner=(user.pw_uid, user.pw_gid), log=log)
        signal.signal(signal.SIGTERM, lambda *_: supervisor.is_ending.set())
        http_server.start_server(supervisor.answer, PORT)
        _run(supervisor, log)
