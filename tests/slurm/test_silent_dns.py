"""A site's name server that never answers: slurmctld of 24.11 asks it for the names of all peers, and serves."""

from __future__ import annotations

import subprocess
import time

from components.kit.context import DNS_OPTIONS
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.pod import wait_until

SILENT = "127.0.0.53"
SERVER = f"import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('{SILENT}', 53)); print(flush=True)\n"
SERVER += "while True: s.recv(4096)\n"

ONE_LOOKUP_S = 10
"""That the C library gives a server by default, which slurmctld waits at its start before it listens."""


@one_version
def test_slurmctld_serves_soon_where_the_name_server_is_silent(own_cluster: ClusterFactory, slurm_version: str) -> None:
    cluster = own_cluster(slurm_version, workers=1)
    pod = cluster.controller
    server = subprocess.Popen(pod.command(["python3", "-c", SERVER]), stdout=subprocess.PIPE)
    pod.processes.append(server)
    assert server.stdout is not None
    server.stdout.readline()
    options = " ".join(f"{name}:{value}" for name, value in DNS_OPTIONS.items())
    (pod.root / "etc/resolv.conf").write_text(f"nameserver {SILENT}\noptions ndots:5 {options}\n")
    names = pod.root / "etc/nsswitch.conf"
    names.write_text(names.read_text().replace("hosts: files\n", "hosts: files dns\n"))
    cluster.run(["pkill", "-TERM", "--exact", "slurmctld"])
    wait_until(lambda: cluster.run(["pgrep", "--exact", "slurmctld"]).returncode != 0, cluster.logs)
    began = time.monotonic()
    pod.start_program("slurmctld")
    wait_until(lambda: "is UP" in cluster.run("scontrol ping").stdout, cluster.logs)
    assert time.monotonic() - began < ONE_LOOKUP_S
    cluster.wait_for_idle("default-0")
    began = time.monotonic()
    assert cluster.run(["srun", "--mem=1", "hostname"]).stdout.strip() == "default-0"
    assert time.monotonic() - began < ONE_LOOKUP_S
