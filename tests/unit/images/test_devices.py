"""Programs for devices: those that Slurm writes are taken, and nothing else ever reaches the kernel."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.worker import devices
from images.worker.devices import ALLOW_ALL, BadProgramError, DevicePrograms, check

Device = tuple[str, int | None, int | None, bool]
"""Type (`a` is any), major, minor (None is any), and what is answered."""

SIZE = 8
"""Bytes of an instruction."""

ANY = {"a": None, "b": 1, "c": 2}
"""BPF_DEVCG_DEV_BLOCK and BPF_DEVCG_DEV_CHAR of linux/bpf.h."""


def line(code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """struct bpf_insn, of a machine whose numbers begin with the low byte."""
    return struct.pack("<BBhI", code, target | source << 4, offset, value & 0xFFFFFFFF)


def load_word(target: int, source: int, offset: int) -> bytes:
    return line(0x01 | 0x00 | 0x60, target, source, offset)  # BPF_LDX | BPF_W | BPF_MEM


def alu32(operation: int, target: int, value: int) -> bytes:
    return line(0x04 | operation, target, value=value)  # BPF_ALU | operation | BPF_K


def jump_if_other(target: int, value: int, offset: int) -> bytes:
    return line(0x05 | 0x50, target, offset=offset, value=value)  # BPF_JMP | BPF_JNE | BPF_K


def answer(value: bool) -> bytes:
    # BPF_ALU64 | BPF_MOV | BPF_K, and BPF_JMP | BPF_EXIT
    return line(0x07 | 0xB0, 0, value=int(value)) + line(0x05 | 0x90)


START = load_word(2, 1, 0) + alu32(0x50, 2, 0xFFFF) + load_word(3, 1, 0) + alu32(0x70, 3, 16)
START += load_word(4, 1, 4) + load_word(5, 1, 8)
"""init_ebpf_prog() in plugins/cgroup/v2/ebpf.c of Slurm, the same in 24.11 and 26.05."""


def slurms(found: Sequence[Device], last: bool) -> bytes:
    """A program as add_device_ebpf_prog() and close_ebpf_prog() make it."""
    program = START
    for kind, major, minor, accept in found:
        asked = [(2, ANY[kind]), (4, major), (5, minor)]
        conditions = [(register, value) for register, value in asked if value is not None]
        jumps = range(len(conditions) + 1, 1, -1)
        for (register, value), jump in zip(conditions, jumps, strict=True):
            program += jump_if_other(register, value, jump)
        program += answer(accept)
    return program + answer(last)


ONE = slurms([("c", 195, 0, True)], last=False)


BAD = {
    "half an instruction": ONE[:-1],
    "no end": ONE[:-SIZE],
    "another beginning": START[SIZE:] + answer(True),
    "a jump beyond the end": START + jump_if_other(2, 1, 2) + answer(True),
    "a jump back": START + jump_if_other(2, 1, -1) + answer(True),
    "a look at a pointer": START + jump_if_other(1, 1, 1) + answer(True),
    "two registers": START + line(0x55, 2, source=1, offset=1) + answer(True),
    "another register": START + line(0xB7, 1, value=1) + answer(True),
    "a call of the kernel": START + line(0x85, value=6) + answer(True),
    "a store on the stack": START + line(0x7B, 10, source=1, offset=-8) + answer(True),
    "our own": ALLOW_ALL,
}


def test_what_slurm_writes_is_taken_and_nothing_else() -> None:
    for last in (True, False):
        check(slurms([("c", 195, 0, True), ("b", None, 7, False), ("a", 1, None, True)], last))
        check(slurms([], last))
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
    for program in (ONE, ONE, slurms([], last=True)):
        programs.put(cgroup, job, program)
    assert attached == [cgroup] * 2
    programs.forget("1")
    programs.put(cgroup, job, ONE)
    os.close(cgroup)
    assert attached == [cgroup] * 3
