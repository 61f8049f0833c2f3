"""A command that changes a cluster, and whose pipeline is cancelled: it takes back what it has half done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.stacks import ROOT

COMMAND = """
import os, signal, sys, time
from pathlib import Path
from cli.change import lock
lock._interruptible()
try:
    print("works", flush=True)
    for _ in range(300):
        time.sleep(0.1)  # a signal that comes right before a sleep is seen after it
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
    print("takes it back", flush=True)
    Path(sys.argv[1]).touch()
"""


def test_what_it_has_half_done_is_taken_back_also_where_it_is_told_twice(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with subprocess.Popen([sys.executable, "-c", COMMAND, str(done)], cwd=ROOT, stdout=subprocess.PIPE) as begun:
        assert begun.stdout is not None
        assert begun.stdout.readline() == b"works\n"
        begun.terminate()
        assert begun.communicate(timeout=30)[0] == b"takes it back\n"
    assert done.exists()
