"""What a process has given up for good, of capabilities and of signals, as the kernel says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.stacks import ROOT

CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SYS_ADMIN = 21


def test_a_daemon_does_not_ignore_what_python_ignores() -> None:
    """Jobs inherit what slurmd ignores."""
    become = "from images.common.process import become; become(['grep', 'SigIgn', '/proc/self/status'], print)"
    done = subprocess.run([sys.executable, "-c", become], cwd=ROOT, capture_output=True, text=True, check=True)

    ignored = int(done.stdout.split()[-1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to keep")
def test_what_is_kept_is_all_there_is_for_good() -> None:
    told = "[int(line.split()[1], 16) for line in open('/proc/self/status') if line.startswith('Cap')]"
    program = f"""
import os, sys
sys.path.insert(0, sys.argv[1])
from images.common.boundary import keep_only
keep_only("SYS_ADMIN", "CHOWN")
print({told}, flush=True)
keep_only("SYS_ADMIN", "CHOWN")  # a second time changes nothing
os.execv(sys.executable, [sys.executable, "-c", "print({told})"])
"""
    done = subprocess.run([sys.executable, "-c", program, str(ROOT)], check=True, stdout=subprocess.PIPE, text=True)
    kept, started = (dict(zip(CAPABILITIES, json.loads(line), strict=True)) for line in done.stdout.splitlines())
    both = 1 << SYS_ADMIN | 1
    assert kept == {"CapInh": kept["CapInh"] & both, "CapPrm": both, "CapEff": both, "CapBnd": both, "CapAmb": 0}
    assert started == kept, "what it starts does not get anything back"
