"""What a guest machine is made of: QEMU on this machine; a kernel, busybox, runc and ip inside the guest.

All of it comes from this machine's own Debian as the programs of the local cluster do: used where it is installed,
else unpacked below the cache, never installed (docs/decisions/delivery.md, 0005).
"""

from __future__ import annotations

import lzma
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from local.report import PlainReport
from local.tools import Requirement, Tools, ensure_tools

_KERNEL = "boot/vmlinuz-*-cloud-amd64"
"""Debian's kernel for virtual machines: small, with cgroups of version 2 and all their controllers."""

REQUIREMENTS = (
    Requirement(packages=("qemu-system-x86",), programs=("qemu-system-x86_64",)),
    Requirement(packages=("linux-image-cloud-amd64",), files=(_KERNEL,)),
    Requirement(packages=("busybox-static", "busybox"), programs=("busybox",)),
    Requirement(packages=("runc",), programs=("runc",)),
    Requirement(packages=("iproute2",), programs=("ip",)),
    Requirement(packages=("e2fsprogs",), programs=("mke2fs",)),
    Requirement(packages=("util-linux",), programs=("setpriv",)),
)

IN_GUEST = ("busybox", "runc", "ip")
"""Programs that the guest machine itself runs; everything else in it comes from the images."""

MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "overlay", "veth", "bridge")
"""What the guest loads of its kernel; what they need is loaded before them."""

_FIRMWARE = ("usr/share/qemu", "usr/share/seabios")
_QEMU_MODULES = "usr/lib/*-linux-gnu/qemu"
"""Debian's QEMU has its translator, `-accel tcg`, in a file of its own."""


@dataclass(frozen=True)
class Programs:
    """Where all of it is on this machine."""

    tools: Tools

    @property
    def kernel(self) -> Path:
        """The guest's kernel, the latest: in the tools' tree, else on the host."""
        for base in filter(None, (self.tools.tree, Path("/"))):
            if found := list(base.glob(_KERNEL)):
                return max(found, key=lambda path: path.stat().st_mtime)
        raise FileNotFoundError(_KERNEL)

    def qemu(self) -> list[str]:
        """The beginning of QEMU's command line."""
        firmware = [str(self.tools.file(directory)) for directory in _FIRMWARE]
        return [self.tools.path("qemu-system-x86_64"), *(part for name in firmware for part in ("-L", name))]

    def env(self) -> dict[str, str]:
        """The environment of QEMU and of other programs of this machine."""
        tree = self.tools.tree
        modules = sorted(tree.glob(_QEMU_MODULES)) if tree else []
        return {**self.tools.env(), **({"QEMU_MODULE_DIR": str(modules[0])} if modules else {})}

    def run(self, *command: str, timeout_s: float = 120) -> str:
        """Run a program of this machine to its end; returns what it wrote."""
        argv = [self.tools.path(command[0]), *command[1:]]
        done = subprocess.run(argv, env=self.env(), capture_output=True, text=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, f"`{' '.join(command)}` failed: {done.stderr or done.stdout}"
        return done.stdout

    def in_guest(self) -> dict[str, Path]:
        """Path in the guest -> file on this machine, for `IN_GUEST` and the libraries that they need.

        The libraries are this machine's: those of the images are younger or older.
        """
        found = {f"bin/{name}": Path(self.tools.path(name)) for name in IN_GUEST}
        for program in tuple(found.values()):
            found |= self._libraries(program)
        return found

    def _libraries(self, program: Path) -> dict[str, Path]:
        listed = subprocess.run(["ldd", str(program)], env=self.env(), capture_output=True, text=True, check=False)
        libraries = re.findall(r"^\s*(\S+) => (/\S+) \(", listed.stdout, re.MULTILINE)
        loader = re.findall(r"^\s*(/lib64/\S+) \(", listed.stdout, re.MULTILINE)
        return {f"lib/{name}": Path(path) for name, path in libraries} | {
            path.lstrip("/"): Path(path) for path in loader
        }

    def modules(self) -> list[tuple[str, bytes]]:
        """Names and content of the kernel's modules, in the order in which they can be loaded."""
        version = self.kernel.name.removeprefix("vmlinuz-")
        # The kernel's file is in `boot`, so its modules are below the directory above.
        root = self.kernel.parent.parent / "lib/modules" / version
        files = {_module_name(path): path for path in root.rglob("*.ko*")}
        order: dict[str, bytes] = {}

        def load(names: Iterable[str]) -> None:
            for name in names:
                if name in order or name not in files:  # what has no file is part of the kernel itself
                    continue
                content = _module_content(files[name])
                load(_needed(content))
                order[name] = content

        load(MODULES)
        return list(order.items())


def _module_name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def _module_content(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def _needed(module: bytes) -> list[str]:
    """Read `depends=a,b` in a module's own description."""
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    names = found[1].decode() if found else ""
    return [name.replace("-", "_") for name in names.split(",") if name]


@cache
def programs() -> Programs:
    """Find or fetch everything, once. Raises LocalError where apt cannot."""
    return Programs(ensure_tools(PlainReport(), REQUIREMENTS))
