"""One command that changes a cluster at a time: a Lease in its namespace, held while the command works.

Only where kubectl applies: the Pulumi engine locks its own state.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Any, Literal

from cli.errors import Failure
from cli.kubectl.client import Kubectl, message, understood
from local.report import Report

LEASE = "slurmstack"
"""Name of the Lease."""

DURATION = 15
"""Seconds without a renewal after which a holder counts as dead: killed, or its machine without power."""

RENEWAL = 4.0
"""Seconds between two renewals."""

POLL = 0.5
"""Seconds between two looks at a lease that somebody else holds."""

Work = Literal["up", "destroy", "restore", "rehearse", "rotate", "chaos", "jail remove"]


@contextmanager
def held(
    kubectl: Kubectl, namespace: str, work: Work, report: Report, *, timeout: float = 900, lease: str = LEASE
) -> Iterator[Lock]:
    """The cluster's lock. Raises Failure if others hold it for `timeout` seconds, or take it away in the end.

    `lease`: another one, for work that changes nothing of the cluster and may be done once at a time.
    """
    lock = Lock(kubectl, namespace, work, report, timeout, lease=lease)
    before = _interruptible()
    try:
        lock.take()
        yield lock
    finally:
        try:
            lock.release()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _interruptible() -> dict[signal.Signals, Any]:
    """Have all that ends a command do so as Ctrl-C does, which takes back what is half done; the handlers before.

    A session that is cut off (SIGHUP, unless `nohup` ignores it), a pipeline that is cancelled (SIGTERM). What a
    script's shell starts with `&` ignores SIGINT, by which a command that has lost its lock is stopped.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    ends = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before: dict[signal.Signals, Any] = {}
    for number, as_is in ends.items():
        if signal.getsignal(number) == as_is:
            before[number] = as_is
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _end)
    return before


def _end(ended_by: int, _: FrameType | None) -> None:
    """End as by Ctrl-C, once: the next such signal would end what is taken back now.

    A shell that is cut off sends SIGHUP to what it has started, and the kernel sends it again when that shell ends.
    """
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if ended_by == signal.SIGHUP:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (1, 2):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nothing, descriptor)  # the terminal is gone, and a word more to it would end this as well
    raise KeyboardInterrupt


class Lock:
    """The right to change a cluster."""

    def __init__(
        self, kubectl: Kubectl, namespace: str, work: Work, report: Report, timeout: float, *, lease: str = LEASE
    ) -> None:
        self._kubectl = kubectl
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._work = work
        self._report = report
        self._timeout = timeout
        self._name = lease
        self._held: dict[str, Any] = {}
        self._lost = ""
        self.waited_for = ""
        """Who had it before, for people; empty if there was nobody to wait for."""
        self._going = False
        """Whether the namespace is being deleted. A lease in it can still be written, but goes with it."""
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)

    @property
    def is_held(self) -> bool:
        """Whether nobody else changes the cluster. False after `take` where there was no namespace to hold it in."""
        return bool(self._held)

    @property
    def is_lost(self) -> bool:
        """Whether another command has taken it, as nothing was heard of this one for long."""
        return bool(self._lost)

    def take(self) -> None:
        """Hold the lock, after all others. Where the namespace is not there yet, nobody can: take it again then."""
        if not self._create():
            other = self._read()
            first = _holder(other)
            self.waited_for = first
            with self._report.step(f"Waiting for {first}") as step:
                self._wait(other, lambda holder: step.progress(0, 0, holder if holder != first else ""))
        if self._held:
            self._renewer.start()

    def release(self) -> None:
        """Let others have it."""
        self._ended.set()
        if self._renewer.ident is not None:
            self._renewer.join()
        if self._lost:
            raise Failure(
                f"nothing was heard of this command for {DURATION} s and more, so it was taken for dead: {self._lost}",
                hint="run it again: it finishes what is left",
            )
        if self._held:
            ours = {name: self._held["metadata"][name] for name in ("uid", "resourceVersion")}
            self._ask("delete", f"/{self._name}", {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": ours})

    def _wait(self, other: Mapping[str, Any] | None, tell: Callable[[str], None]) -> None:
        deadline = time.monotonic() + self._timeout
        seen, since = _version(other), time.monotonic()
        while not self._create():
            other, now = self._read(), time.monotonic()
            if _version(other) != seen:
                seen, since = _version(other), now
            # No clock but this one tells that nothing was heard of the holder: others may be wrong.
            elif other is not None and now - since > DURATION and self._put(other) == "":
                return
            if now > deadline:
                raise Failure(
                    f"{_holder(other)} has not ended after {self._timeout:.0f} s", hint="run this again later"
                )
            self.waited_for = _holder(other) if other is not None else self.waited_for
            tell(_holder(other))
            time.sleep(POLL)

    def _create(self) -> bool:
        """Whether there is nothing to wait for: the lease is made, or there is no namespace for it."""
        done = self._ask("create", "", self._lease({"name": self._name}))
        self._going = "is being terminated" in done.stderr
        if done.returncode == 0:
            self._held = understood(done.stdout)
            return True
        if "(AlreadyExists)" in done.stderr:
            return False
        if self._going:
            return self._work == "destroy"  # what is left may be destroyed, but not brought back
        if "(NotFound)" in done.stderr:
            return True
        raise Failure(message(done.stderr))

    def _read(self) -> dict[str, Any] | None:
        """The lease as it is; None where there is none. Raises Failure if the cluster does not answer."""
        if self._going:
            return None
        done = self._kubectl.run("get", "--raw", f"{self._path}/{self._name}", check=False)
        if done.returncode != 0 and "(NotFound)" not in done.stderr:
            raise Failure(message(done.stderr))
        return understood(done.stdout) if done.returncode == 0 else None

    def _put(self, present: Mapping[str, Any]) -> str:
        """Write ourselves into a lease that nobody has touched meanwhile; else what kubectl complains about."""
        kept = {name: present["metadata"][name] for name in ("name", "uid", "resourceVersion")}
        done = self._ask("replace", f"/{self._name}", self._lease(kept))
        if done.returncode == 0:
            self._held = understood(done.stdout)
        return "" if done.returncode == 0 else done.stderr or "no answer"

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL):
            complaint = self._put(self._held)
            if "(Conflict)" not in complaint and "(NotFound)" not in complaint:
                continue  # renewed, or the cluster did not answer
            try:
                other = self._read()
            except Failure:
                continue  # nor did it now
            if other is None and self._work == "destroy":
                return  # it has gone with the namespace
            if (
                other is not None
                and other.get("spec", {}).get("holderIdentity") == self._held["spec"]["holderIdentity"]
            ):
                self._held = other  # the answer to the last renewal was lost
                continue
            self._lost = _holder(other) if other else "others have changed the cluster meanwhile"
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            return

    def _lease(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        begun = self._held.get("spec", {}).get("acquireTime", now)
        who = f"slurmstack {self._work} of {os.environ.get('USER') or os.getuid()}@{socket.gethostname()}"
        spec = {"holderIdentity": f"{who} (pid {os.getpid()})", "leaseDurationSeconds": DURATION}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {**spec, "acquireTime": begun, "renewTime": now},
        }

    def _ask(self, verb: str, place: str, document: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        return self._kubectl.run(verb, "--raw", self._path + place, "-f", "-", stdin=json.dumps(document), check=False)


def _version(lease: Mapping[str, Any] | None) -> str:
    return str(lease["metadata"]["resourceVersion"]) if lease else ""


def _holder(lease: Mapping[str, Any] | None) -> str:
    """Who has a lease, for people. Where there is none, the namespace is being deleted."""
    if lease is None:
        return "the deletion of the namespace"
    spec = lease.get("spec", {})  # all of its fields are optional
    since = f", at work since {spec['acquireTime'][:19]} UTC" if spec.get("acquireTime") else ""
    return f"{spec.get('holderIdentity') or 'somebody'}{since}"
