"""Two controllers that may lose the volume or the API server, one of them or both."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

from local.report import PlainReport
from local.tools import Requirement, Tools, ensure_tools
from tests.slurm.failover import FailoverSandbox
from tests.slurm.kubernetes import PORT
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import NETWORK

NOBODY = f"{NETWORK}.255.254"
"""A router that is none: what is sent there is lost, without an answer."""


@cache
def tools() -> Tools:
    return ensure_tools(PlainReport(), (Requirement(packages=("bindfs",), programs=("bindfs",)),))


def call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


class ApartSandbox(FailoverSandbox):
    """The volume is a disk that can be frozen, and each controller has it by a client of its own (FUSE)."""

    def __init__(self, version: str, **more: Any) -> None:
        self._undo = ExitStack()
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        super().__init__(version, **more)

    def __enter__(self) -> Self:
        disk = self.work / "disk"
        call("truncate", "--size=64M", str(disk))
        call("mkfs.ext4", "-q", "-m", "0", str(disk))
        call("mount", "-o", "loop", str(disk), str(self.state))
        self._undo.callback(call, "umount", "--lazy", str(self.state))
        super().__enter__()
        return self

    def __exit__(self, *arguments: object) -> None:
        for client in self._clients.values():
            client.send_signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.CalledProcessError):  # it is not frozen
            call("fsfreeze", "--unfreeze", str(self.state))
        rest, self.work = self.work, self.work / "pods-only"  # the mounts go before what they lie in
        try:
            super().__exit__(*arguments)
        finally:
            self.work = rest
            self._undo.close()
            call("rm", "-rf", "--one-file-system", str(rest))

    def volume_of(self, name: str) -> Path:
        at = self.work / f"volume-{name}"
        if name not in self._clients:
            at.mkdir()
            command = [tools().path("bindfs"), "-f", str(self.state), str(at)]
            self._clients[name] = client = subprocess.Popen(command, env=tools().env())
            self._undo.callback(client.wait, 30)
            # Who has a copy of all mounts, as a build of images beside this does, keeps it from ending by itself.
            self._undo.callback(client.terminate)
            self._undo.callback(call, "umount", "--lazy", str(at))
            wait_until(at.is_mount, "bindfs serves")
        return at

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Whoever writes waits meanwhile."""
        call("fsfreeze", "--freeze", str(self.state))
        try:
            yield
        finally:
            call("fsfreeze", "--unfreeze", str(self.state))

    @contextmanager
    def without_the_volume(self, pod: Pod) -> Iterator[None]:
        """The client of one machine hangs, as that of NFS does while it reaches no server."""
        client = self._clients[pod.name]
        client.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            client.send_signal(signal.SIGCONT)

    @contextmanager
    def without_the_api_server(self, pod: Pod) -> Iterator[None]:
        """Nothing that one machine sends to the API server arrives there."""
        inside = ["nsenter", f"--target={pod.pid}", "--net", "ip"]
        rule = ["pref", "10", "ipproto", "tcp", "dport", str(PORT), "lookup", "100"]
        call(*inside, "neigh", "replace", NOBODY, "lladdr", "02:00:00:00:00:fe", "dev", "eth0", "nud", "permanent")
        call(*inside, "route", "replace", "default", "via", NOBODY, "dev", "eth0", "table", "100")
        call(*inside, "rule", "add", *rule)
        try:
            yield
        finally:
            call(*inside, "rule", "del", *rule)
