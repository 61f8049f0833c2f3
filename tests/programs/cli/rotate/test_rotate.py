"""The command that ends a container's first process, by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from cli.rotate.keys import KEYS
from cli.rotate.rotation import Place, Rotation
from tests.programs.waiting import HANGS, wait_until


def test_a_container_ends_its_first_process_at_the_moment_that_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that told it has ended long before."""
    now, ended = tmp_path / "now", tmp_path / "ended"
    now.write_text("99\n")
    for name, does in (("date", f"cat {now}"), ("setpriv", f'echo "$*" >{ended}.new; mv {ended}.new {ended}')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    kubectl = MagicMock()
    place = Place(pod="login-0", container="munged", id="7", ready=True)
    Rotation(kubectl, "slurm", KEYS["munge"]).end(place, user="munge", at=100)
    said = kubectl.run.call_args.args
    subprocess.run(said[said.index("--") + 1 :], check=True, timeout=HANGS)
    assert not ended.exists()
    now.write_text("100\n")
    wait_until(ended.exists)
    what = "--reuid=munge --regid=munge --clear-groups sh -c kill -TERM $(cat /proc/1/task/1/children)\n"
    assert ended.read_text(encoding="utf-8") == what
