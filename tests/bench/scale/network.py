"""A network of its own for each of many nodes on one machine, all joined to the controller's.

Each node is one hop from the controller, which hands packets on between them. Nobody ever asks for a hardware address:
the kernel's table of those is one for the whole machine and holds 1,024, so that a thousand nodes would take the
network away from everything else that runs there. Entries that are written down, as here, do not count.

A network lives as long as a process or a file descriptor of ours holds it: however this process ends, all goes with it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from pathlib import Path
from typing import Self

CLONE_NEWNET = 0x40000000
CONTROLLER = "10.231.0.1"
"""Address of the sandbox's first pod."""


def address(number: int) -> str:
    """Of a node."""
    return f"10.232.{number // 250}.{number % 250 + 1}"


def _hardware(side: int, number: int) -> str:
    return f"02:0{side}:0a:e8:{number >> 8:02x}:{number & 255:02x}"


class Networks:
    """The networks of nodes; use it as a context manager. `controller`: a process in the controller's network."""

    def __init__(self, controller: int, count: int) -> None:
        self._controller = controller
        self._count = count
        self._held: list[int] = []

    def __enter__(self) -> Self:
        try:
            self._held = [_new_network() for _ in range(self._count)]
            self._join()
            for number in range(self._count):
                self._set_up(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._held:
            os.close(descriptor)
        self._held = []

    def path(self, number: int) -> str:
        """The network of a node, as `nsenter --net=` takes it."""
        return f"/proc/{os.getpid()}/fd/{self._held[number]}"

    def _join(self) -> None:
        """The controller's side: a pair of devices for each node, and the way to it."""
        off = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"
        self._inside("sh", "-c", f"{off}; echo 1 >/proc/sys/net/ipv4/ip_forward")
        lines = []
        for number in range(self._count):
            near, far, device = _hardware(1, number), _hardware(2, number), f"n{number}"
            peer = f"peer name eth0 address {far} netns {self.path(number)}"
            lines += [
                f"link add {device} address {near} type veth {peer}",
                f"link set {device} up",
                f"route add {address(number)}/32 dev {device} src {CONTROLLER}",
                f"neigh add {address(number)} lladdr {far} dev {device} nud permanent",
            ]
        self._inside("ip", "-batch", "-", stdin="\n".join(lines))

    def _set_up(self, number: int) -> None:
        """The node's side."""
        lines = [
            "link set lo up",
            f"addr add {address(number)}/32 dev eth0",
            "link set eth0 up",
            f"route add {CONTROLLER}/32 dev eth0",
            f"neigh add {CONTROLLER} lladdr {_hardware(1, number)} dev eth0 nud permanent",
            f"route add default via {CONTROLLER} dev eth0",
        ]
        _run("nsenter", f"--net={self.path(number)}", "ip", "-batch", "-", stdin="\n".join(lines))

    def _inside(self, *command: str, stdin: str = "") -> None:
        _run("nsenter", f"--target={self._controller}", "--net", *command, stdin=stdin)


def _run(*command: str, stdin: str) -> None:
    done = subprocess.run(command, input=stdin + "\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stderr}"


def _new_network() -> int:
    """Open a new network namespace, without IPv6: a thread makes it, and this process keeps it."""
    made: list[int | OSError] = []

    def make() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
            made.append(OSError(ctypes.get_errno(), "a new network namespace was refused"))
            return
        for which in ("all", "default"):
            switch = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
            if switch.exists():
                switch.write_text("1", encoding="ascii")
        made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
