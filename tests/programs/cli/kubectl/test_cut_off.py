"""A command that changes a cluster, and whose session or pipeline ends: it takes back what it has half done."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.waiting import wait_until
from tests.stacks import ROOT

COMMAND = """
import os, signal, sys, time
from pathlib import Path
from cli.change.lock import be_interruptible
be_interruptible()
try:
    print("works", flush=True)
    for _ in range(300):
        time.sleep(0.1)  # a signal that comes right before a sleep is seen after it
finally:
    for number in (signal.SIGHUP, signal.SIGTERM):  # a shell sends one, and so does the kernel when that ends
        os.kill(os.getpid(), number)
        time.sleep(0.1)
    Path(sys.argv[1]).touch()
"""


@pytest.mark.parametrize("how", ["the terminal closes", "SIGTERM"])
def test_what_it_has_half_done_is_taken_back(tmp_path: Path, how: str) -> None:
    done = tmp_path / "done"
    command = [sys.executable, "-c", COMMAND, str(done)]
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which whoever runs the tests may ignore
        os.chdir(ROOT)
        os.execv(command[0], command)
    try:
        assert b"works" in os.read(terminal, 100)
        if how == "SIGTERM":
            os.kill(pid, signal.SIGTERM)
        else:
            os.close(terminal)
        wait_until(done.exists)
    finally:
        os.waitpid(pid, 0)


def test_what_nohup_has_made_deaf_stays_so() -> None:
    look = "import signal\nfrom cli.change.lock import be_interruptible\n"
    look += "be_interruptible(); print(signal.getsignal(signal.SIGHUP))"
    told = subprocess.run(["nohup", sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == f"{signal.SIG_IGN}\n"
