"""Checks that hang: what the kernel or the C library does not answer is not checked, neither well nor a fault."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from images.health.checks import clock, disks, dns, filesystem, memory, processes
from images.health.contract import Check, Status, Thresholds
from images.health.runner import run_checks
from tests.unit.images.health.places import make_node, write


def hang(*_: object, **__: object) -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("check", "module", "call"),
    [
        (disks.CHECK, os, "statvfs"),
        (filesystem.CHECK, os, "fsync"),
        (filesystem.CHECK, os, "mkdir"),
        (clock.CHECK, os, "utime"),
        (clock.CHECK, ctypes, "CDLL"),
        (memory.CHECK, Path, "read_text"),
        (processes.CHECK, os, "listdir"),
        (dns.CHECK, socket, "getaddrinfo"),
    ],
)
def test_a_check_that_hangs_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Check, module: ModuleType, call: str
) -> None:
    node = make_node(tmp_path)
    write(node.root / "proc/7/stat", "")
    write(node.root / "sys/fs/cgroup/memory.stat", "")
    brief = replace(check, seconds=0.1)
    program = check.run

    def run(*arguments: object) -> object:
        monkeypatch.setattr(module, call, hang)  # only in the child in which it runs
        return program(*arguments)  # type: ignore[arg-type]

    outcomes = run_checks([replace(brief, run=run)], node, Thresholds())  # type: ignore[arg-type]
    result = outcomes[check.name].result
    assert result.status is Status.NOT_CHECKED
    assert "did not end" in result.message


@pytest.mark.parametrize(
    "check", [disks.CHECK, filesystem.CHECK, clock.CHECK, memory.CHECK, processes.CHECK, dns.CHECK]
)
def test_no_shared_thing_is_looked_at_before_or_after_a_job(check: Check) -> None:
    """Slurm drains for a failing prolog or epilog by itself, and so would drain all nodes for what they share."""
    assert check.contexts == {"periodic"}
