"""One `up` or `destroy` of a cluster at a time: a Lease in its namespace, held for as long as the command works.

Only where kubectl applies: the Pulumi engine locks its own state.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
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

Work = Literal["up", "destroy"]


@contextmanager
def held(kubectl: Kubectl, namespace: str, work: Work, report: Report, *, timeout: float = 900) -> Iterator[Lock]:
    """The cluster's lock. Raises Failure if others hold it for `timeout` seconds, or take it away in the end."""
    lock = Lock(kubectl, namespace, work, report, timeout)
    # What a script's shell starts with `&` ignores SIGINT, by which a command that has lost its lock is stopped.
    deaf = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if deaf:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        lock.take()
        yield lock
    finally:
        try:
            lock.release()
        finally:
            if deaf:
                signal.signal(signal.SIGINT, signal.SIG_IGN)


class Lock:
    """The right to change a cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str, work: Work, report: Report, timeout: float) -> None:
        self._kubectl = kubectl
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._work = work
        self._report = report
        self._timeout = timeout
        self._held: dict[str, Any] = {}
        self._lost = ""
        self._going = False
        """Whether the namespace is being deleted. A lease in it can still be written, but goes with it."""
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)

    @property
    def is_held(self) -> bool:
        """Whether nobody else changes the cluster. False after `take` where there was no namespace to hold it in."""
        return bool(self._held)

    def take(self) -> None:
        """Hold the lock, after all others. Where the namespace is not there yet, nobody can: take it again then."""
        if not self._create():
            other = self._read()
            first = _holder(other)
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
            self._ask("delete", f"/{LEASE}", {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": ours})

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
            tell(_holder(other))
            time.sleep(POLL)

    def _create(self) -> bool:
        """Whether there is nothing to wait for: the lease is made, or there is no namespace for it."""
        done = self._ask("create", "", self._lease({"name": LEASE}))
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
        done = self._kubectl.run("get", "--raw", f"{self._path}/{LEASE}", check=False)
        if done.returncode != 0 and "(NotFound)" not in done.stderr:
            raise Failure(message(done.stderr))
        return understood(done.stdout) if done.returncode == 0 else None

    def _put(self, present: Mapping[str, Any]) -> str:
        """Write ourselves into a lease that nobody has touched meanwhile; else what kubectl complains about."""
        kept = {name: present["metadata"][name] for name in ("name", "uid", "resourceVersion")}
        done = self._ask("replace", f"/{LEASE}", self._lease(kept))
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
