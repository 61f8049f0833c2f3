"""A real machine with Linux's control groups of version 2, as nodes of Kubernetes have them: QEMU, without KVM.

This machine's own kernel has another layout of control groups, or lets nobody make any; and what runs as root in a
guest can harm nothing. It boots in some seconds with 2 GiB; what it runs takes ten times as long as here.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.machine.disk import disk
from tests.machine.initramfs import initramfs
from tests.machine.programs import Programs, programs

BOOT_TIMEOUT_S = 120
_GRACE_S = 30
"""What the agent has beyond a command's own time to answer; a machine that does not is lost."""

_CPUS, _DISK_MIB = "sockets=2,cores=1,threads=2", 16384
_KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check nowatchdog mitigations=off random.trust_cpu=on "
    "init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off"
)
"""What protects the kernel from its users is off: it changes nothing that they see, and costs time in a translator."""

_LAZY = "nodiscard,lazy_itable_init=1"
CLEAN_ENV = {"PATH": "/bin:/sbin", "HOME": "/root", "LC_ALL": "C.UTF-8", "GODEBUG": "asyncpreemptoff=1"}
"""GODEBUG: runc, a program in Go, interrupts its own threads with a signal some hundred times a second, each of which
takes its time here, and passes it on to the container."""


class MachineLostError(AssertionError):
    """The guest machine has ended, or does not answer."""


class Machine:
    """A guest machine of two sockets, each with one core of two threads; use it as a context manager.

    `images`: name -> root file system on this machine; in the guest it is `/images/NAME`, which cannot be written.
    `memory_mib`: all of the machine; it has no swap. Its `/var` takes here what is written to it.

    It ends with the thread that started it, however that ends: the kernel kills QEMU then.
    """

    def __init__(self, images: Mapping[str, Path], memory_mib: int) -> None:
        self.images = dict(images)
        self.memory_mib = memory_mib
        self._work = ExitStack()

    def __enter__(self) -> Self:
        self.work = Path(self._work.enter_context(tempfile.TemporaryDirectory(prefix="guest-machine-")))
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._work.close()

    def _boot(self) -> None:
        found = programs()
        command = self._command(found)
        ours, its = socket.socketpair()
        self._port = self._work.enter_context(ours)
        self._answers = self._work.enter_context(ours.makefile("rb"))
        with its, (self.work / "qemu.log").open("wb") as log:
            qemu = subprocess.Popen(
                [found.tools.path("setpriv"), "--pdeathsig", "KILL", *command, *_serial_port(its.fileno())],
                env=found.env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[its.fileno()],
                start_new_session=True,
            )  # fmt: skip
        self._work.callback(qemu.wait)
        self._work.callback(qemu.kill)
        self._answer(BOOT_TIMEOUT_S, "to start")

    def _command(self, found: Programs) -> list[str]:
        kernel = f"{_KERNEL_OPTIONS} agent={next(iter(self.images))}"
        (self.work / "initramfs").write_bytes(initramfs(found))
        command = [
            *found.qemu(), "-M", "q35,usb=off,vmport=off,hpet=off", "-accel", "tcg,thread=multi,tb-size=256",
            "-cpu", "max,la57=off,vendor=GenuineIntel", "-smp", _CPUS,
            "-m", str(self.memory_mib), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-serial", f"file:{self.work}/console.log", "-kernel", str(found.kernel), "-append", kernel,
            "-initrd", f"{self.work}/initramfs",
        ]  # fmt: skip
        scratch = self.work / "scratch"
        with scratch.open("wb") as file:
            file.truncate(_DISK_MIB * 2**20)
        found.run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", _LAZY, str(scratch))
        command += _drive("scratch", scratch)
        for name, rootfs in self.images.items():
            command += _drive(name, disk(rootfs, found), read_only=True)
        return command

    def console(self) -> str:
        """What kernel and QEMU have said."""
        logs = (self.work / "qemu.log", self.work / "console.log")
        return "\n".join(path.read_text(errors="replace")[-8000:] for path in logs if path.exists())

    def run(
        self,
        command: Sequence[str] | str,
        *,
        timeout: float = 60,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root of the machine itself, outside of all containers; a string goes through its shell.

        Raises TimeoutExpired, as subprocess.run does, and MachineLostError. `check`: fails the test where it fails.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        asked = {
            "argv": argv,
            "env": {**CLEAN_ENV, **(env or {})},
            "stdin": given.decode("latin-1"),
            "timeout": timeout,
        }
        self._port.settimeout(timeout + _GRACE_S)
        try:
            self._port.sendall(json.dumps(asked).encode() + b"\n")
        except OSError as error:
            raise MachineLostError(f"the guest machine has ended: {error}") from None
        answer = self._answer(timeout + _GRACE_S, f"to answer: {' '.join(argv)[:200]}")
        if answer["exit"] is None:
            raise subprocess.TimeoutExpired(argv, timeout, answer["out"], answer["err"])
        if check:
            assert answer["exit"] == 0, f"{command} failed with {answer['exit']}: {answer['out']}{answer['err']}"
        return subprocess.CompletedProcess(argv, answer["exit"], answer["out"], answer["err"])

    def _answer(self, timeout_s: float, what: str) -> dict[str, Any]:
        self._port.settimeout(timeout_s)
        try:
            line = self._answers.readline()
        except OSError:
            raise MachineLostError(
                f"the guest machine took more than {timeout_s:.0f} s {what}\n{self.console()}"
            ) from None
        if not line:
            raise MachineLostError(f"the guest machine has ended\n{self.console()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def put(self, path: str, content: str | bytes, *, mode: int = 0o644) -> None:
        """Write a file of the machine; its directory is made."""
        script = 'mkdir -p "${0%/*}" && cat > "$0" && chmod "$1" "$0"'
        self.run(["sh", "-c", script, path, f"{mode:o}"], stdin=content, check=True)

    def get(self, path: str) -> str:
        """Read a file of the machine."""
        return self.run(["cat", path], check=True).stdout


def _drive(name: str, file: Path, *, read_only: bool = False) -> list[str]:
    options = f"if=none,id={name},format=raw,cache=unsafe,file={file}{',readonly=on' if read_only else ''}"
    return ["-drive", options, "-device", f"virtio-blk-pci,drive={name},serial={name}"]


def _serial_port(descriptor: int) -> list[str]:
    return [
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,fd={descriptor}",
        "-device", "virtserialport,chardev=agent,name=agent,nr=1",
    ]  # fmt: skip
