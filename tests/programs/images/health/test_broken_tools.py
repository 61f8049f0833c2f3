"""The kernel or the C library that does not answer a check: it does not know then."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from images.common.health.contract import Check, Status, Thresholds
from images.health.checks import disks, dns, filesystem
from images.health.runner import run_checks
from tests.unit.images.health.worker import Worker, lead_names_here


def hang(*_: object, **__: object) -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("check", "module", "call"),
    [
        (disks.CHECK, os, "statvfs"),
        (filesystem.CHECK, os, "fsync"),
        (filesystem.CHECK, os, "mkdir"),
        (dns.CHECK, socket, "getaddrinfo"),
    ],
    ids=lambda value: getattr(value, "name", None) or (value if isinstance(value, str) else ""),
)
def test_a_call_that_hangs_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Check, module: ModuleType, call: str
) -> None:
    program: Callable[..., object] = check.run
    lead_names_here(monkeypatch)

    def run(*arguments: object) -> object:
        monkeypatch.setattr(module, call, hang)  # only in the child in which it runs
        return program(*arguments)

    brief = replace(check, seconds=0.1, run=run)  # type: ignore[arg-type]
    result = run_checks([brief], Worker(tmp_path).node, Thresholds())[check.name].result
    assert result.status is Status.NOT_CHECKED
    assert "did not end" in result.message
