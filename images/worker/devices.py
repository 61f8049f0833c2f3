"""Which devices a job may open: programs in BPF that the kernel runs at each open(2) in a cgroup.

slurmstepd makes them out of what its job was given (`ConstrainDevices`), and may not load them: that takes
CAP_SYS_ADMIN. So the library that slurmd is started with (images/common/native/devices.c) sends them to the helper.
It takes programs of the form that Slurm writes and no other: the kernel checks what it loads, but for root it checks
less.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from pathlib import Path
from typing import Final

LONGEST: Final = 4096
"""Instructions of a program: the kernel's own limit for what users load."""

_SYS_BPF: Final = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM: Final = 15
_CGROUP_DEVICE_ATTACH: Final = 6
_ALLOW_MULTI: Final = 2

_INSTRUCTION: Final = struct.Struct("<BBhi")
_START: Final = (
    # type and access, major, minor: into R2, R3, R4, R5
    (0x61, 0x12, 0, 0), (0x54, 0x02, 0, 0xFFFF), (0x61, 0x13, 0, 0), (0x74, 0x03, 0, 16),
    (0x61, 0x14, 4, 0), (0x61, 0x15, 8, 0),
)  # fmt: skip
_COMPARE, _ANSWER, _END = 0x55, 0xB7, 0x95
_COMPARED: Final = (2, 4, 5)

ALLOW_ALL: Final = b"".join(_INSTRUCTION.pack(*line) for line in ((_ANSWER, 0, 0, 1), (_END, 0, 0, 0)))


class BadProgramError(ValueError):
    """Not a program as Slurm writes them."""


def check(program: bytes) -> None:
    """Raise BadProgramError unless a program only compares type, major and minor with numbers, and answers.

    As of plugins/cgroup/v2/ebpf.c of Slurm 24.11 and 26.05: `if (type == a && major == b && minor == c) return d`, any
    number of times, and a last answer. There is nothing in it that could reach memory or call the kernel.
    """
    if len(program) % _INSTRUCTION.size or not 0 < len(program) <= LONGEST * _INSTRUCTION.size:
        raise BadProgramError(f"{len(program)} bytes are no program")
    lines = list(_INSTRUCTION.iter_unpack(program))
    if tuple(lines[: len(_START)]) != _START or lines[-1][0] != _END:
        raise BadProgramError("does not begin or end as Slurm's do")
    for number, (code, registers, offset, value) in enumerate(lines[len(_START) :], len(_START)):
        if code == _COMPARE:
            good = registers in _COMPARED and 0 <= offset < len(lines) - number - 1
        elif code == _ANSWER:
            good = (registers, offset) == (0, 0) and value in {0, 1}
        else:
            good = (code, registers, offset, value) == (_END, 0, 0, 0)
        if not good:
            raise BadProgramError(f"instruction {number} is none of Slurm's")


def load(program: bytes) -> int:
    """Load a program; returns a descriptor for it. Raises OSError: EPERM without CAP_SYS_ADMIN, or if BPF is locked."""
    text, licence = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(b"GPL")
    count = len(program) // _INSTRUCTION.size
    return _bpf(
        _PROG_LOAD,
        struct.pack("=IIQQ", _CGROUP_DEVICE_PROGRAM, count, ctypes.addressof(text), ctypes.addressof(licence)),
    )


def attach(cgroup: int, program: int) -> None:
    """Have the kernel ask a program for a cgroup, beside those that it asks already: all have to allow."""
    _bpf(_PROG_ATTACH, struct.pack("=IIIII", cgroup, program, _CGROUP_DEVICE_ATTACH, _ALLOW_MULTI, 0))


def why_not() -> str:
    """Why no program can be loaded here; empty where one can."""
    try:
        os.close(load(ALLOW_ALL))
    except OSError as error:
        return f"the kernel loads no device programs: {error.strerror}"
    return ""


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYS_BPF.get(platform.machine())
    if number is None:
        raise OSError(38, f"bpf(2) has no number here for {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    given = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    result = int(libc.syscall(number, command, given, ctypes.c_uint(len(given))))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


class DevicePrograms:
    """What has been attached: each step brings its job's program again."""

    def __init__(self) -> None:
        self._attached: dict[str, set[tuple[int, bytes]]] = {}
        """By the name of the job's cgroup."""

    def put(self, cgroup: int, directory: Path, program: bytes) -> None:
        """Attach a program to an open cgroup, which has to be in `directory`. Raises OSError or BadProgramError."""
        inode = os.fstat(cgroup).st_ino
        if inode not in _inodes(directory):
            raise PermissionError(f"not a cgroup of {directory}")
        check(program)
        attached = self._attached.setdefault(directory.name, set())
        if (inode, program) not in attached:
            loaded = load(program)
            try:
                attach(cgroup, loaded)
            finally:
                os.close(loaded)  # the cgroup has it
            attached.add((inode, program))

    def forget(self, job: str) -> None:
        """A job has ended, and the kernel has let go of its programs with its cgroups."""
        self._attached.pop(f"job_{job}", None)


def _inodes(directory: Path) -> set[int]:
    found = set()
    for path, _, _ in os.walk(directory):
        with contextlib.suppress(FileNotFoundError):  # a step has ended since
            found.add(Path(path).stat().st_ino)
    return found
