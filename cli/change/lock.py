"""One command that changes a cluster at a time: a Lease in its namespace, held while the command works.

Nobody renews it. One whose process has ended without a word is taken away by the next command on the same machine;
from elsewhere nobody can tell, and a person deletes it, as with the lock of Pulumi's state. Only where kubectl applies:
the Pulumi engine locks its own state.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cli.errors import Failure
from cli.kubectl.client import Kubectl, annotations_of, message, understood
from local.report import Report

LEASE = "slurmstack"
"""Name of the Lease."""

LINGER = 15
"""Seconds that a lease stays whose process has ended: a kubectl that it has begun may be at work still."""

PROCESS = "slurmstack/process"
"""Annotation of a Lease: which process holds it (the boot of its machine, its namespace of processes, its number)."""

POLL = 0.5
"""Seconds between two looks at a lease that somebody else holds."""

Work = Literal["up", "destroy", "restore", "rotate", "jail remove"]


@contextmanager
def held(kubectl: Kubectl, namespace: str, work: Work, report: Report, *, timeout: float = 900) -> Iterator[Lock]:
    """The cluster's lock. Raises Failure if others hold it for `timeout` seconds."""
    lock = Lock(kubectl, namespace, work, report, timeout)
    be_interruptible()
    try:
        lock.take()
        yield lock
    finally:
        lock.release()


def be_interruptible() -> None:
    """Have all that ends a command do so as Ctrl-C does, which takes back what is half done.

    A session that is cut off (SIGHUP, unless `nohup` ignores it), a pipeline that is cancelled (SIGTERM).
    """
    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]

    def end(*_: object) -> None:
        for number in ours:
            signal.signal(number, signal.SIG_IGN)  # the next one would end what is taken back now
        raise KeyboardInterrupt

    for number in ours if threading.current_thread() is threading.main_thread() else ():
        signal.signal(number, end)


class Lock:
    """The right to change a cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str, work: Work, report: Report, timeout: float) -> None:
        self._kubectl, self._namespace, self._name = kubectl, namespace, LEASE
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._work, self._report, self._timeout = work, report, timeout
        self._held: dict[str, Any] = {}
        self._going = False
        """Whether the namespace is being deleted. A lease in it can still be written, but goes with it."""

    @property
    def is_held(self) -> bool:
        """Whether nobody else changes the cluster. False after `take` where there was no namespace to hold it in."""
        return bool(self._held)

    def take(self) -> None:
        """Hold the lock, after all others. Where the namespace is not there yet, nobody can: take it again then."""
        deadline, died, step, first = time.monotonic() + self._timeout, 0.0, None, ""
        free = f"`{self._kubectl.shown} delete lease {self._name} -n {self._namespace}`"
        with ExitStack() as shown:
            while not self._create():
                other, now = self._read(), time.monotonic()
                holder, is_dead = _holder(other), other is not None and has_died(other)
                if step is None:
                    if other is not None and not is_dead:
                        self._report.info(f"if it has ended without a word: {free}")
                    step, first = shown.enter_context(self._report.step(f"Waiting for {holder}")), holder
                died = (died or now) if is_dead else 0.0
                if other is not None and died and now - died >= LINGER:
                    self._delete(other)
                if now > deadline:
                    hint = f"run this again later, or if it is dead {free}"
                    raise Failure(f"{holder} has not ended after {self._timeout:.0f} s", hint=hint)
                step.progress(0, 0, holder if holder != first else "")
                time.sleep(POLL)

    def release(self) -> None:
        """Let others have it. One that was taken away, or has gone with the namespace, is left as it is."""
        if self._held:
            self._delete(self._held)

    def _create(self) -> bool:
        """Whether there is nothing to wait for: the lease is made, or there is no namespace for it."""
        done = self._ask("create", "", self._lease())
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

    def _delete(self, lease: Mapping[str, Any]) -> None:
        ours = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": lease["metadata"]["uid"]}}
        self._ask("delete", f"/{self._name}", ours)

    def _lease(self) -> dict[str, Any]:
        who = f"slurmstack {self._work} of {os.environ.get('USER') or os.getuid()}@{socket.gethostname()}"
        begun = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "annotations": {PROCESS: f"{machine()} {os.getpid()}"}},
            "spec": {"holderIdentity": f"{who} (pid {os.getpid()})", "acquireTime": begun},
        }

    def _ask(self, verb: str, place: str, document: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        return self._kubectl.run(verb, "--raw", self._path + place, "-f", "-", stdin=json.dumps(document), check=False)


def has_died(lease: Mapping[str, Any]) -> bool:
    """Whether the process that holds a lease was one of this machine, and has ended."""
    where, _, number = annotations_of(lease).get(PROCESS, "").rpartition(" ")
    return bool(where) and where == machine() and number.isdigit() and not Path("/proc", number).exists()


def machine() -> str:
    """Where process numbers mean the same as here; empty where nobody can tell (not Linux)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _holder(lease: Mapping[str, Any] | None) -> str:
    """Who has a lease, for people. Where there is none, the namespace is being deleted."""
    if lease is None:
        return "the deletion of the namespace"
    spec = lease.get("spec", {})  # all of its fields are optional
    since = f", at work since {spec['acquireTime'][:19]} UTC" if spec.get("acquireTime") else ""
    return f"{spec.get('holderIdentity') or 'somebody'}{since}"
