"""The Slurm cluster that is measured: a stack of its own on the local Kubernetes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from local import cluster as local_cluster
from slurm.local_cluster import local_directory
from tests.bench.figures import Bench
from tests.e2e.harness import SlurmOnKubernetes, make_key, slurmstack, wait_until
from tests.stacks import ROOT, dev, with_change

WORKERS = ("default-0", "default-1")


class Cluster(SlurmOnKubernetes):
    """The development stack in a namespace of its own, with the user alice."""

    def __init__(self, engine: str, directory: Path) -> None:
        sections: dict[str, Any] = {
            **dev(),
            "cluster": {"namespace": "bench" if engine == "kubectl" else f"bench-{engine}"},
            "users": {"alice": {"uid": 10001, "ssh_authorized_keys": [make_key(directory / "key")]}},
        }
        super().__init__(engine=engine, directory=directory, sections=sections, cold=True)
        self.began = dict(sections)

    @property
    def has_filled_jail(self) -> bool:
        """Whether an earlier cluster of this name has left a jail, which the next one takes over."""
        jail = local_directory() / "volumes" / self.namespace / "jail"
        return jail.is_dir() and any(jail.iterdir())

    def start(self) -> float:
        """Apply the stack and wait for the first `srun` on both nodes; the seconds that took."""
        started = time.monotonic()
        self.up()
        self.await_srun(len(WORKERS))
        return time.monotonic() - started

    def begin_again(self) -> None:
        """The stack as it was at first, with two idle nodes."""
        if not self.pods():
            self.start()
        if self.sections != self.began:
            self.sections = dict(self.began)
            self.up()
        self.await_idle(*WORKERS)

    def destroy(self, *, delete_data: bool = False) -> None:
        options = ("--yes", "--kill-jobs", *(["--delete-data"] if delete_data else []))
        slurmstack("destroy", *options, "--engine", self.engine, "--config", str(self.file))

    def await_ready(self) -> None:
        """Wait until all pods are ready."""

        def unready() -> list[str]:
            ready = {"type": "Ready", "status": "True"}
            return [
                name
                for name, pod in self.pods().items()
                if not any(ready.items() <= item.items() for item in pod["status"].get("conditions", []))
            ]

        wait_until(lambda: not unready(), lambda: f"ready: {unready()}", timeout=180)

    def await_srun(self, nodes: int) -> None:
        """Wait until a job of so many nodes runs."""

        def try_it() -> bool:
            return len(set(self.as_alice(f"srun -N{nodes} hostname", check=False).split())) == nodes

        wait_until(try_it, f"srun on {nodes} nodes", timeout=180, slowest=0.1)

    def await_empty_queue(self, *, timeout: float = 300) -> None:
        wait_until(
            lambda: not self.slurm("squeue --noheader").strip(), "the jobs are done", timeout=timeout, slowest=0.3
        )

    def as_alice(self, command: str, *, check: bool = True) -> str:
        """Without ssh, whose own time is not what is measured here."""
        jail = ("chroot", "--userspec=10001:10001", "/jail", "env", "-i", "HOME=/home/alice", "/bin/bash", "-lc")
        return self.exec("login-0", *jail, f"cd; {command}", container="sshd", check=check)

    def applied_until(self, path: str, value: Any, reached: Callable[[], object]) -> float:
        """Seconds from the start of an apply with a change until something is reached, be the apply done or not."""
        self.sections = with_change(self.sections, path, value)
        file = str(self.file)
        command = [sys.executable, "-m", "cli.entry", "up", "--yes", "--engine", self.engine, "--config", file]
        started = time.monotonic()
        running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            reached()
            taken = time.monotonic() - started
        finally:
            status = running.wait()
        assert status == 0, f"slurmstack up ended with {status}"
        return taken


@contextmanager
def cluster_of(engine: str, bench: Bench) -> Iterator[Cluster]:
    """A cluster of this run; what an earlier run has left of it is taken away first, and all of it at the end."""
    assert local_cluster.status().healthy, "the local cluster is not running; `make up` starts it"
    with TemporaryDirectory(prefix="slurmstack-bench-") as directory:
        if engine == "pulumi":
            os.environ["PULUMI_BACKEND_URL"] = f"file://{directory}"
            os.environ["PULUMI_CONFIG_PASSPHRASE"] = "bench"
        cluster = Cluster(engine, Path(directory))
        if cluster.pods():
            bench.say("an earlier run has left its cluster; it is taken away")
            cluster.destroy(delete_data=True)
        try:
            yield cluster
        finally:
            bench.say("the cluster is taken away")
            cluster.destroy(delete_data=True)
