"""One cluster for all clients: two nodes with sshd and containers, a login node, accounting, alice's software."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from config import load_config
from tests import stacks
from tests.clients.software import UID, VERSION, layers
from tests.slurm.accounting import AccountingSandbox
from tests.slurm.cluster import ClusterFactory, require_images
from tests.slurm.login import OPTIONS, declare, start_client, start_login
from tests.slurm.minimal import IN_JAIL, accounting_config, add_accounts, identity, lines_of
from tests.slurm.sandbox import SlurmSandbox
from tests.slurm.worker_ssh import WorkerSsh

NODES = ("default-0", "default-1")
LONGEST = 600.0
"""Seconds after which a client hangs."""


class Alice:
    """A user on the login node."""

    def __init__(self, cluster: SlurmSandbox) -> None:
        self.cluster = cluster

    def run(self, command: str, *, stdin: str | None = None, fails: bool = False) -> str:
        """What a command prints that she enters after a login."""
        client = self.cluster.pods["client"]
        done = client.run(["ssh", *OPTIONS.split(), "alice@login-0", command], stdin=stdin, timeout=LONGEST)
        told = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{command}: {told}\n{self.cluster.logs()[-5000:]}"
        return told

    def write(self, name: str, text: str) -> None:
        """A file in her home."""
        self.run(f"cat > {name}", stdin=text)

    def batch(self, script: str) -> str:
        """What a batch script prints that has succeeded."""
        self.write("job.sh", f"#!/bin/bash\n{script}")
        self.run("sbatch --quiet --wait --output=job.out job.sh || { cat job.out; exit 1; }")
        return self.run("cat job.out")


@pytest.fixture(scope="session")
def alice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alice]:
    """Alice, and the cluster behind her."""
    require_images(VERSION)
    with ExitStack() as stack:
        known = identity({"alice": UID})
        extra = lines_of(load_config(stacks.dev()), "Prolog", "Epilog")
        cluster = ClusterFactory(stack, tmp_path_factory)(
            VERSION, kind=AccountingSandbox, config=accounting_config(VERSION, extra, **IN_JAIL, **known), workers=0,
            jail=True, above=layers(), node_conf="CPUs=4 RealMemory=8000 Feature=default",
        )  # fmt: skip
        add_accounts(known, cluster.controller.root)
        workers = WorkerSsh(cluster)
        for node in NODES:
            workers.start_worker(node, env={"CONTAINERS": "yes"})
        cluster.wait_for_nodes(len(NODES))
        start_client(cluster)
        declare(cluster, {"alice": UID})
        start_login(cluster, before=workers.show_key)
        for node in NODES:
            workers.start(node)
        made = Alice(cluster)
        yield made
