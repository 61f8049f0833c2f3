"""A slurmctld that does not end, in a process namespace like a container's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
def test_a_slurmctld_that_hangs_at_its_end_is_killed(tmp_path: Path) -> None:
    """In a process namespace like a container's, with a slurmctld that does not hear SIGTERM."""
    (tmp_path / "slurmctld").symlink_to(str(shutil.which("sleep")))
    hangs = f"trap '' TERM; echo; exec {tmp_path}/slurmctld 60"
    init = (
        "import subprocess, sys; from images.controller import leave; leave.KILL_SECONDS = 1\n"
        f"slurmctld = subprocess.Popen(['/bin/sh', '-c', {hangs!r}], stdout=subprocess.PIPE)\n"
        "slurmctld.stdout.readline(); leave.end_from_now_on(); slurmctld.terminate(); sys.exit(-slurmctld.wait())"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", init]
    assert subprocess.run(command, check=False, timeout=30).returncode == signal.SIGKILL
