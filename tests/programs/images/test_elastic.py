"""await-nodes, which slurmctld starts for each job and where nodes come and go, compiled as the images compile it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.stacks import ROOT

needs_compiler = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "make"))), reason="no C compiler here; the images' own build compiles and tests it"
)

KEPT_ALIVE = "02"
"""Which timer of a connection runs, in /proc/net/tcp (Documentation/networking/proc_net_tcp.rst)."""


@needs_compiler
def test_it_does_not_wait_for_a_machine_that_is_lost(tmp_path: Path) -> None:
    """Nobody tells it: the kernel has to ask. (A link that was cut: it ended after 30 s, and before not at all.)"""
    (tmp_path / "pools").write_text("gpu\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        flags = f'-DPOOLS=\\"{tmp_path}/pools\\" -DPORT=\\"{port}\\"'
        command = ["make", "-C", str(ROOT / "images/elastic/native"), f"BUILD={tmp_path}", f"{tmp_path}/await-nodes"]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "CFLAGS": flags})
        env = {**os.environ, "SLURM_JOB_NODELIST": "gpu-[0-3]", "ELASTIC_HOST": "127.0.0.1"}
        waits = subprocess.Popen([tmp_path / "await-nodes"], env=env)
        try:
            connection, (_, its_port) = server.accept()
            with connection:
                assert connection.recv(100).startswith(b"GET /ready?nodes=gpu-[0-3] HTTP/1.0\r\n")
                lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
                timers = [line[5][:2] for line in lines if line[1].endswith(f":{its_port:04X}") and line[3] == "01"]
                assert timers == [KEPT_ALIVE]
            assert waits.wait(timeout=10) == 0
        finally:
            waits.kill()
            waits.wait()
        env.pop("SLURM_JOB_NODELIST")
        asks = subprocess.Popen([tmp_path / "await-nodes"], env=env)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(100) == b"POST /look HTTP/1.0\r\n\r\n"
            assert asks.wait(timeout=10) == 0, "it waits for no answer"
