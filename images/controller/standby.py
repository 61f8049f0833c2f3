"""standby: what slurmctld's container runs where there are two controllers, one of which stands by.

It runs slurmctld while it has the epoch of the state volume (epochs.py). A thread asks the volume, which may hang; the
main one looks at clocks alone, and kills. Kubernetes decides nothing: it is told which pod the Service leads to. When
slurmctld has ended, or lost the epoch, this ends with all that is in the container, and kubelet starts it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NoReturn

from images.common import http_server, terms
from images.common.files import swap_symlink
from images.common.http_server import Answer
from images.common.kubernetes import Kube, KubeError, own_namespace
from images.common.mountinfo import expect_volume, remembers_names
from images.common.process import RefusedError, end_with_threads, program, required_env
from images.common.readiness import can_connect
from images.common.wait import Clock, Reminder
from images.controller.configuration import READY, SLURM_CONF, STATE
from images.controller.epochs import LIMIT_SECONDS, RENEW_SECONDS, Candidate, Epoch, now

PORT: Final = 8820
"""HTTP, for kubelet: whether slurmctld listens, or this stands by with a volume that answers."""

ACTIVE: Final = "slurmstack/active"
"""Label of the pod to which the Service of slurmctld leads (components/controller.py)."""

PODS: Final = ("controller-0", "controller-1")
"""The first begins with what one controller has left: that one has been a pod of this name, and is gone then."""

ROUND_SECONDS: Final = 0.05
LABEL_SECONDS: Final = 2.0
"""The Service is led here again and again: a request of one that was paused may come late."""

_SLURMCTLD: Final = "/usr/libexec/slurmstack/slurmctld"


class Standby:
    """One of two controllers."""

    def __init__(self, candidate: Candidate, kube: Kube | None, me: str, log: Callable[[str], None]) -> None:
        self._candidate, self._kube, self._me, self._log = candidate, kube, me, log
        self._epoch: Epoch | None = None
        self._answered = now()
        self._slurmctld: subprocess.Popen[bytes] | None = None
        self._is_ending = self._is_over = False

    def answer(self, _path: str) -> Answer:
        """To kubelet."""
        ready = can_connect("127.0.0.1") if self._epoch else now() - self._answered < 2 * LIMIT_SECONDS
        return Answer("text/plain", "", HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    def end(self, *_: object) -> None:
        """On SIGTERM. The hook of the pod's end tells slurmctld again, and kills one that hangs (leave.py)."""
        self._is_ending = True
        self._kill(signal.SIGTERM)

    def run(self) -> NoReturn:
        """The main thread."""
        threading.Thread(target=self._follow_volume, daemon=True, name="volume").start()
        while True:
            if self._epoch is not None and (reason := self._epoch.over()) is not None:
                self._kill(signal.SIGKILL)
                _forget()
                self._log(f"no longer active: {reason}")
                os._exit(1)
            if self._slurmctld is not None and (code := self._slurmctld.poll()) is not None:
                self._log(f"slurmctld has ended with {code}")
                self._leave(abs(code))
            if self._slurmctld is None and self._is_ending:
                self._leave(0)
            if self._epoch is not None and self._slurmctld is None:
                self._slurmctld = subprocess.Popen([_SLURMCTLD], start_new_session=True)
            time.sleep(ROUND_SECONDS)

    def _follow_volume(self) -> None:
        reminder = Reminder(self._log, Clock())
        while not self._is_over:
            try:
                if self._epoch is not None:
                    self._epoch.renew()
                elif (epoch := self._candidate.look()) is not None:
                    self._begin(epoch)
                else:
                    _forget()  # an epoch of an earlier container
                    reminder.waiting("the active controller to end; standing by")
                self._answered = now()
            except OSError as error:
                reminder.waiting(f"the state volume: {error}")
            time.sleep(RENEW_SECONDS)

    def _begin(self, epoch: Epoch) -> None:
        if not (STATE.is_symlink() and STATE.readlink() == epoch.directory):
            swap_symlink(STATE, str(epoch.directory))
            if SLURM_CONF.exists():
                READY.touch()  # it was checked when it was published; where there is none yet the agent says when
        self._log(f"active: {epoch.directory.name}")
        self._epoch = epoch
        if self._kube is not None:
            threading.Thread(target=lead_here, args=(self._kube, self._me, epoch, self._log), daemon=True).start()

    def _leave(self, code: int) -> NoReturn:
        """To the other one, where this one was told to end; else slurmctld starts again here."""
        if self._is_ending and self._epoch is not None:
            self._is_over = True
            _forget()
            with contextlib.suppress(OSError):  # it waits for as long as after a loss
                self._epoch.release()
        os._exit(code)

    def _kill(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._slurmctld is not None:
                os.killpg(self._slurmctld.pid, number)


def _forget() -> None:
    """The configuration agent stands by, too, where there is no state directory."""
    STATE.unlink(missing_ok=True)
    READY.unlink(missing_ok=True)


def lead_here(kube: Kube, me: str, epoch: Epoch, log: Callable[[str], None]) -> None:
    """Take the label from the other pod, which may be paused and would answer nobody, and take it for this one."""
    reminder = Reminder(log, Clock())
    while epoch.over() is None:
        for pod in sorted(PODS, key=lambda name: name == me):
            change = {"metadata": {"labels": {ACTIVE: "yes" if pod == me else None}}}
            try:
                kube.send("PATCH", f"{kube.path('pods')}/{pod}", change, "application/merge-patch+json")
            except KubeError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    reminder.waiting(f"the API server, for the Service to lead here: {error}")
        time.sleep(LABEL_SECONDS)


def main() -> None:
    """Entry point."""
    with program("standby") as log:
        end_with_threads(log)
        expect_volume(terms.VOLUME)
        if remembers_names(terms.VOLUME):
            raise RefusedError(
                "the state volume is on NFS, whose client remembers names: who was paused could write over what "
                "others write. Mount it with lookupcache=none (mountOptions of its StorageClass or PersistentVolume)"
            )
        me = socket.gethostname()
        candidate = Candidate(terms.VOLUME, f"{me}/{required_env('POD_UID')}", is_first=me == PODS[0])
        standby = Standby(candidate, Kube.in_cluster(own_namespace()), me, log)
        signal.signal(signal.SIGTERM, standby.end)
        http_server.start_server(standby.answer, PORT)
        standby.run()
