"""A real machine with Linux's control groups of version 2, as nodes of Kubernetes have them: QEMU, without KVM.

This machine's own kernel has another layout of control groups, or lets nobody make any; and what runs as root in a
guest can harm nothing. It boots in some seconds with 2 GiB; what it runs takes ten times as long as here.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.machine.channel import Channel, MachineLostError
from tests.machine.disk import disk
from tests.machine.initramfs import initramfs
from tests.machine.programs import Programs, programs

BOOT_TIMEOUT_S = 120
LAYERS = "/var/layers"
_KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check nowatchdog mitigations=off random.trust_cpu=on "
    "init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off"
)
"""What protects the kernel from its users is off: it changes nothing that they see, and costs time in a translator."""

_LAZY = "nodiscard,lazy_itable_init=1"
CLEAN_ENV = {"PATH": "/bin:/sbin", "HOME": "/root", "LC_ALL": "C.UTF-8", "GODEBUG": "asyncpreemptoff=1"}
"""GODEBUG: runc, a program in Go, interrupts its own threads with a signal some hundred times a second, each of which
takes its time here, and passes it on to the container."""


class Machine:
    """A guest machine; use it as a context manager.

    `images`: name -> root file system on this machine; in the guest it is `/images/NAME`, which cannot be written.
    `layers`: name of an image -> archive of what lies over it in containers.
    `cpus`: sockets, cores of each, threads of each. `memory_mib`: all of the machine; it has no swap. `disk_mib`: of
    its `/var`, which takes here what is written to it.

    It ends with the thread that started it, however that ends: the kernel kills QEMU then.
    """

    def __init__(
        self,
        images: Mapping[str, Path],
        *,
        layers: Mapping[str, bytes] | None = None,
        cpus: tuple[int, int, int] = (2, 1, 2),
        memory_mib: int = 2048,
        disk_mib: int = 16384,
    ) -> None:
        self.images = dict(images)
        self.layers = dict(layers or {})
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.disk_mib = disk_mib
        self.boot_seconds = 0.0
        self._work = ExitStack()
        self._qemu: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None

    # ---------------------------------------------------------------- life

    def __enter__(self) -> Self:
        self.work = Path(self._work.enter_context(tempfile.TemporaryDirectory(prefix="guest-machine-")))
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
        if self._channel is not None:
            self._channel.close()
        self._work.close()

    def _boot(self) -> None:
        found = programs()
        command = self._command(found)
        begin = time.monotonic()
        ours, its = socket.socketpair()
        with its, (self.work / "qemu.log").open("wb") as log:
            self._qemu = subprocess.Popen(
                [found.tools.path("setpriv"), "--pdeathsig", "KILL", *command, *_serial_port(its.fileno())],
                env=found.env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[its.fileno()],
                start_new_session=True,
            )  # fmt: skip
        self._channel = Channel(ours)
        try:
            self._channel.wait_until_up(BOOT_TIMEOUT_S)
        except MachineLostError as error:
            raise MachineLostError(f"{error}\n{self.console()}") from None
        self.boot_seconds = time.monotonic() - begin
        for name, archive in self.layers.items():
            unpack = 'mkdir -p "$0" && tar -x -C "$0"'
            self.run(["sh", "-c", unpack, f"{LAYERS}/{name}"], stdin=archive, check=True)

    def _command(self, found: Programs) -> list[str]:
        sockets, cores, threads = self.cpus
        kernel = f"{_KERNEL_OPTIONS} agent={next(iter(self.images))}"
        command = [
            *found.qemu(), "-M", "q35,usb=off,vmport=off,hpet=off", "-accel", "tcg,thread=multi,tb-size=256",
            "-cpu", "max,la57=off,vendor=GenuineIntel", "-smp", f"sockets={sockets},cores={cores},threads={threads}",
            "-m", str(self.memory_mib), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-serial", f"file:{self.work}/console.log", "-kernel", str(found.kernel), "-append", kernel,
            "-initrd", str(initramfs(found)),
        ]  # fmt: skip
        scratch = self.work / "scratch"
        with scratch.open("wb") as file:
            file.truncate(self.disk_mib * 2**20)
        found.run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", _LAZY, str(scratch))
        command += _drive("scratch", scratch)
        for name, rootfs in self.images.items():
            command += _drive(name, disk(rootfs, found), read_only=True)
        return command

    @property
    def qemu_pid(self) -> int:
        """Of the process that is the machine."""
        assert self._qemu is not None, "the machine has not been started"
        return self._qemu.pid

    def lower(self, image: str) -> str:
        """The lower directories of a container's root file system, topmost first, as overlayfs wants them."""
        return f"{LAYERS}/{image}:/images/{image}" if image in self.layers else f"/images/{image}"

    def console(self) -> str:
        """What kernel and QEMU have said."""
        logs = (self.work / "qemu.log", self.work / "console.log")
        return "\n".join(path.read_text(errors="replace")[-8000:] for path in logs if path.exists())

    # ---------------------------------------------------------------- use

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
        done = self.run_bytes(command, timeout=timeout, stdin=stdin, env=env)
        text = subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if check:
            assert text.returncode == 0, f"{command} failed with {text.returncode}: {text.stdout}{text.stderr}"
        return text

    def run_bytes(
        self,
        command: Sequence[str] | str,
        *,
        timeout: float = 60,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """The same for output that is no text."""
        assert self._channel is not None, "the machine has not been started"
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        given = stdin.encode() if isinstance(stdin, str) else stdin
        answer = self._channel.run(argv, {**CLEAN_ENV, **(env or {})}, given, timeout)
        if answer.exit is None:
            raise subprocess.TimeoutExpired(argv, timeout, answer.out, answer.err)
        return subprocess.CompletedProcess(argv, answer.exit, answer.out, answer.err)

    def put(self, path: str, content: str | bytes, *, mode: int = 0o644) -> None:
        """Write a file of the machine; its directory is made."""
        script = 'mkdir -p "${0%/*}" && cat > "$0" && chmod "$1" "$0"'
        self.run(["sh", "-c", script, path, f"{mode:o}"], stdin=content, check=True)

    def get(self, path: str) -> bytes:
        """Read a file of the machine."""
        done = self.run_bytes(["cat", path])
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout


def _drive(name: str, file: Path, *, read_only: bool = False) -> list[str]:
    options = f"if=none,id={name},format=raw,cache=unsafe,file={file}{',readonly=on' if read_only else ''}"
    return ["-drive", options, "-device", f"virtio-blk-pci,drive={name},serial={name}"]


def _serial_port(descriptor: int) -> list[str]:
    return [
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,fd={descriptor}",
        "-device", "virtserialport,chardev=agent,name=agent,nr=1",
    ]  # fmt: skip
