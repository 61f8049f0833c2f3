"""Programs for devices: nothing but what Slurm writes ever reaches the kernel (tests/machine shows what it writes)."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from images.worker import devices
from images.worker.devices import ALLOW_ALL, BadProgramError, DevicePrograms, check

SIZE = 8
"""Bytes of an instruction."""


def line(code: int, registers: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """struct bpf_insn, of a machine whose numbers begin with the low byte. `registers`: target, and source times 16."""
    return struct.pack("<BBhI", code, registers, offset, value & 0xFFFFFFFF)


def answer(value: int) -> bytes:
    return line(0xB7, value=value) + line(0x95)


START = b"".join(
    (line(0x61, 0x12), line(0x54, 2, 0, 0xFFFF), line(0x61, 0x13), line(0x74, 3, 0, 16), line(0x61, 0x14, 4),
     line(0x61, 0x15, 8))
)  # fmt: skip
"""init_ebpf_prog() in plugins/cgroup/v2/ebpf.c of Slurm, the same in 24.11 and 26.05."""

ONE = START + line(0x55, 2, 4, 2) + line(0x55, 4, 3, 195) + line(0x55, 5, 2, 0) + answer(1) + answer(0)
"""A character device 195:0 is allowed, and no other."""

BAD = {
    "half an instruction": ONE[:-1],
    "no end": ONE[:-SIZE],
    "another beginning": START[SIZE:] + answer(1),
    "a jump beyond the end": START + line(0x55, 2, 2, 1) + answer(1),
    "a jump back": START + line(0x55, 2, -1, 1) + answer(1),
    "a look at a pointer": START + line(0x55, 1, 1, 1) + answer(1),
    "two registers": START + line(0x55, 0x12, 1) + answer(1),
    "another register": START + line(0xB7, 1, 0, 1) + answer(1),
    "a call of the kernel": START + line(0x85, value=6) + answer(1),
    "a store on the stack": START + line(0x7B, 0x1A, -8) + answer(1),
    "our own": ALLOW_ALL,
}


def test_what_slurm_writes_is_taken_and_nothing_else() -> None:
    check(ONE)
    for program in BAD.values():
        with pytest.raises(BadProgramError):
            check(program)


def test_a_program_that_each_step_brings_again_is_loaded_once_until_the_job_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached: list[int] = []
    monkeypatch.setattr(devices, "load", lambda _: os.open("/dev/null", os.O_RDONLY))
    monkeypatch.setattr(devices, "attach", lambda cgroup, _: attached.append(cgroup))
    programs, job = DevicePrograms(), tmp_path / "job_1"
    job.mkdir()
    cgroup = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    for program in (ONE, ONE, START + answer(1)):
        programs.put(cgroup, job, program)
    assert attached == [cgroup] * 2
    programs.forget("1")
    programs.put(cgroup, job, ONE)
    os.close(cgroup)
    assert attached == [cgroup] * 3
