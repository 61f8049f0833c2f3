"""await-nodes, which slurmctld starts for each job and where nodes come and go, compiled as the images compile it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stacks import ROOT

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "make"))), reason="no C compiler here; the images' own build has one"
)

KEPT_ALIVE = "02"
"""Which timer of a connection runs, in /proc/net/tcp (Documentation/networking/proc_net_tcp.rst)."""


@pytest.fixture(scope="module")
def elastic() -> Iterator[socket.socket]:
    """Where `elastic` would listen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


@pytest.fixture(scope="module")
def built(elastic: socket.socket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with a file for the names of pools beside it."""
    build = tmp_path_factory.mktemp("await-nodes")
    flags = f'-DPOOLS=\\"{build}/pools\\" -DPORT=\\"{elastic.getsockname()[1]}\\"'
    command = ["make", "-C", str(ROOT / "images/elastic/native"), f"BUILD={build}", f"{build}/await-nodes"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "CFLAGS": flags})
    return build


def started(built: Path, pools: str, nodes: str = "") -> subprocess.Popen[bytes]:
    (built / "pools").write_text(pools)
    env = {**os.environ, "ELASTIC_HOST": "127.0.0.1", **({"SLURM_JOB_NODELIST": nodes} if nodes else {})}
    return subprocess.Popen([built / "await-nodes"], env=env)


def test_it_does_not_wait_for_a_machine_that_is_lost(elastic: socket.socket, built: Path) -> None:
    """Nobody tells it: the kernel has to ask. (A link that was cut: it ended after 30 s, and before not at all.)"""
    waits = started(built, "gpu\n", "gpu-[0-3]")
    connection, (_, its_port) = elastic.accept()
    with connection:
        assert connection.recv(100).startswith(b"GET /ready/gpu-[0-3] HTTP/1.0\r\n")
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        timers = [line[5][:2] for line in lines if line[1].endswith(f":{its_port:04X}") and line[3] == "01"]
        assert timers == [KEPT_ALIVE]
    assert waits.wait(timeout=10) == 0


def test_where_nodes_come_and_go_it_asks_for_a_look_and_waits_for_no_answer(
    elastic: socket.socket, built: Path
) -> None:
    asks = started(built, "gpu\n")
    connection, _ = elastic.accept()
    with connection:
        assert connection.recv(100) == b"GET /look HTTP/1.0\r\n\r\n"
        assert asks.wait(timeout=10) == 0


@pytest.mark.parametrize(
    ("nodes", "pools", "asks"),
    [
        ("gpu-[0-3,7],cpu-0", "other\ncpu\n", True),
        ("cpu-12", "cpu", True),
        ("a-b-[1-2]", "a-b\n", True),
        ("a-2-3", "a-2\n", True),
        ("gpu-[0-3,7],cpu-0", "", False),
        ("gpu-[0-3,7],cpu-0", "gp\ngpu-0\npu\ncpu-\n", False),
        ("gpu", "gpu\n", False),
        ("gpu-[0-3", "cpu\n", False),
    ],
)
def test_it_asks_for_no_job_without_nodes_of_elastic_pools(
    elastic: socket.socket, built: Path, nodes: str, pools: str, asks: bool
) -> None:
    program = started(built, pools, nodes)
    if asks:
        elastic.accept()[0].close()
    assert program.wait(timeout=10) == 0
    elastic.settimeout(0)
    with pytest.raises(BlockingIOError):
        elastic.accept()
    elastic.settimeout(10)
