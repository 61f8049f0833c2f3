"""supervisor: one of two controllers. It stands by until it is its turn, and runs slurmctld as long as that lasts.

Its turn begins with the Lease (lease.py) and the term of the state directory (terms.py), and ends when it learns that
another one has either. Where it can learn nothing, the API server and the volume both being silent or this very process
having been paused, it ends slurmctld and looks again. While only the API server is silent the volume says enough. While
only the volume is, slurmctld can save nothing and so answers nobody: the other one may have a volume that works.

What hangs with the volume is a thread: the main one hears signals.
"""

from __future__ import annotations

import contextlib
import pwd
import signal
import socket
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

from images.common import http_server, terms
from images.common.files import Owner, swap_symlink
from images.common.http_server import Answer
from images.common.kubernetes import Kube, KubeError, own_namespace
from images.common.log import Log
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, program, required_env
from images.common.readiness import MUNGE_SOCKET, accepts_connections, can_connect
from images.common.wait import Clock, Reminder
from images.controller import endpoint
from images.controller.configuration import READY, SLURM_CONF, STATE
from images.controller.daemon import ASK_SECONDS, Daemon, Trouble, answers
from images.controller.lease import RENEW_SECONDS, SECONDS, Lease

PORT: Final = 8820
"""HTTP: /ready for kubelet."""

SLURMCTLD: Final = ("/usr/libexec/slurmstack/slurmctld",)
FIRST: Final = endpoint.PODS[0]
"""The pod that takes over what one controller has left: that one has been a pod of this name, and is gone then."""

TURN: Final = Path("/run/slurmstack/term")
"""The term that this pod has, for a container that starts again in it."""

LOOK_SECONDS: Final = 0.2
ROUND_SECONDS: Final = 0.05
SILENT_SECONDS: Final = 0.75 * SECONDS
"""For how long there may be no word that it is still this one's turn: less than another one waits for. Rounds of this
program are counted: one that was paused, or had no CPU, asks first and hears from the volume at once."""

VOLUME_SECONDS: Final = 8.0
"""For how long the volume alone may answer no write, in rounds as well. A loaded one takes seconds for one."""

LABEL_SECONDS: Final = 2.0
"""Between two looks at whether the Service still leads here."""

REMAINS: Final = "the slurmctld of an earlier turn to be gone; standing by"

T = TypeVar("T")


class Over(StrEnum):
    """Why a turn is over."""

    LEASE = "another controller has the Lease"
    STATE = "another controller has taken the state over"
    SILENCE = f"neither the API server nor the volume has said anything for {SILENT_SECONDS} s"
    VOLUME = f"the state volume has answered no write for {VOLUME_SECONDS:g} s"


class Turn:
    """What is known about whether it is still this one's turn. Two threads ask, each of which may hang."""

    def __init__(self, directory: Path, lease: Lease, log: Callable[[str], None], clock: Clock) -> None:
        self._directory, self._lease, self._log, self._clock = directory, lease, log, clock
        self.term = terms.number_of(directory)
        self._heard = clock.now()
        self._answers = self._counted = 0
        self._silent_rounds = self._unanswered_rounds = 0
        self._over: Over | None = None
        self.ended = threading.Event()
        self._threads = [threading.Thread(target=ask, daemon=True) for ask in (self._ask_lease, self._ask_volume)]

    def begin(self) -> None:
        """Ask from now on."""
        for thread in self._threads:
            thread.start()

    def over(self) -> Over | None:
        """Why this one must not go on, if so. To be asked once a round."""
        is_silent = self._clock.now() - self._heard > 2 * LOOK_SECONDS
        self._silent_rounds = self._silent_rounds + 1 if is_silent else 0
        # Slow answers are answers: here it does not matter from when they are.
        self._unanswered_rounds = self._unanswered_rounds + 1 if self._counted == self._answers else 0
        self._counted = self._answers
        if self._over is None and self._silent_rounds * ROUND_SECONDS > SILENT_SECONDS:
            return Over.SILENCE
        if self._over is None and self._unanswered_rounds * ROUND_SECONDS > VOLUME_SECONDS:
            return Over.VOLUME
        return self._over

    def stop(self) -> None:
        """Ask no more."""
        self.ended.set()

    def _ask_lease(self) -> None:
        reminder = Reminder(self._log, self._clock)
        while not self.ended.wait(RENEW_SECONDS):
            try:
                asked = self._clock.now()
                if not self._lease.renew(self.term):
                    self._over = Over.LEASE
                    return
                self._heard = max(self._heard, asked)
            except (KubeError, OSError, ValueError, KeyError) as error:
                reminder.waiting(f"the API server, for the Lease; the state is still ours: {error}")

    def _ask_volume(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            asked = self._clock.now()
            try:
                terms.touch(self._directory)
                is_there = terms.current(self._directory.parent) == self._directory  # names may be remembered
            except FileNotFoundError:
                is_there = False
            except OSError:
                continue  # says nothing
            if not is_there:
                self._over = Over.STATE
                return
            self._answers += 1
            self._heard = max(self._heard, asked)


class Supervisor:
    """One of two controllers."""

    def __init__(
        self, *, kube: Kube, me: str, lease: Lease, owner: Owner, log: Callable[[str], None],
        volume: Path = terms.VOLUME, command: tuple[str, ...] = SLURMCTLD, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._kube, self._me, self._lease, self._owner, self._log = kube, me, lease, owner, log
        self._volume, self._clock = volume, clock or Clock()
        self._daemon = Daemon(command, log, self._clock)
        self._asked: float | None = None
        self.is_active = False
        self.remains = False
        """Whether a slurmctld that was killed is still there, so that this one could not take over."""
        self._failing: tuple[float, str] | None = None
        self.is_ending = threading.Event()

    @property
    def hangs(self) -> bool:
        """Whether the volume leaves this one without an answer."""
        asked = self._asked
        return asked is not None and self._clock.now() - asked > VOLUME_SECONDS

    @property
    def fails(self) -> str:
        """Why this one, which stands by, could not take over; empty where it could, or has not tried for long."""
        since, why = self._failing or (self._clock.now(), "")
        return why if self._clock.now() - since > VOLUME_SECONDS else ""

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
        turn = Turn(directory, self._lease, self._log, self._clock)
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
        gives_back = reason is Over.VOLUME or isinstance(reason, Trouble)
        given = gives_back and self._give_back(turn.term)  # first: slurmctld may hang as well
        if given or not (gives_back or reason is Over.SILENCE):
            TURN.unlink(missing_ok=True)  # not without the Lease again
        self._daemon.end(signal.SIGKILL)
        self._log(f"no longer active: {reason}")
        if given:
            self.is_ending.wait(SECONDS)  # for the other one, which may do better

    def _keep_up(self, turn: Turn) -> Over | Trouble | None:
        """Why the turn is over; None where this one is to end."""
        threading.Thread(target=self._ask, args=(turn,), daemon=True).start()
        labelled = -LABEL_SECONDS
        worker: threading.Thread | None = None
        while not self.is_ending.is_set():
            if (reason := turn.over() or self._daemon.trouble) is not None:
                return reason
            self._daemon.keep_up()
            now = self._clock.now()
            if now - labelled >= LABEL_SECONDS and (worker is None or not worker.is_alive()):
                labelled, worker = now, threading.Thread(target=self._lead_here, args=(turn.term,), daemon=True)
                worker.start()
            self._clock.sleep(ROUND_SECONDS)
        return None

    def _ask(self, turn: Turn) -> None:
        while not turn.ended.wait(ASK_SECONDS):
            answered = answers()
            munged = answered or accepts_connections(MUNGE_SOCKET)
            if not turn.ended.is_set():
                self._daemon.note(answered=answered, munged=munged)

    def _lead_here(self, term: int) -> None:
        """Not without a look at the Lease: who was paused would lead everybody to a pod in which nothing runs."""
        while self.is_active:
            try:
                if self._lease.is_mine(term):
                    endpoint.lead_to(self._kube, self._me)
            except KubeError as error:
                self._log(f"the Service does not lead here yet: {error}")
                self._clock.sleep(LOOK_SECONDS)
            else:
                return

    def _forget(self) -> None:
        """Of a turn that is over; the configuration agent stands by, too, where there is no state directory."""
        STATE.unlink(missing_ok=True)
        READY.unlink(missing_ok=True)

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


def _answers(supervisor: Supervisor) -> Callable[[str], Answer]:
    def answer(path: str) -> Answer:
        if path == "/ready" and supervisor.hangs:
            return Answer("text/plain", f"{Over.VOLUME}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if path == "/ready" and supervisor.remains:
            return Answer("text/plain", f"waiting for {REMAINS}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if path == "/ready" and supervisor.fails:
            return Answer("text/plain", f"could not take over: {supervisor.fails}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if path == "/ready" and supervisor.is_active and not can_connect("127.0.0.1"):
            return Answer("text/plain", "slurmctld does not listen yet\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer("text/plain", "active\n" if supervisor.is_active else "standing by\n")

    return answer


def _supervise(log: Log) -> None:
    kube = Kube.in_cluster(own_namespace())
    if kube is None:
        raise CannotGoOnError("two controllers need Kubernetes, whose Lease says which of them is active")
    expect_volume(terms.VOLUME)
    terms.expect_no_memory()
    user, me = pwd.getpwnam("slurm"), socket.gethostname()
    lease = Lease(kube, f"{me}/{required_env('POD_UID')}")
    supervisor = Supervisor(kube=kube, me=me, lease=lease, owner=(user.pw_uid, user.pw_gid), log=log)

    def end(_number: int, _frame: FrameType | None) -> None:
        supervisor.is_ending.set()

    signal.signal(signal.SIGTERM, end)
    http_server.start_server(_answers(supervisor), PORT)
    _run(supervisor, log)


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
        _supervise(log)
