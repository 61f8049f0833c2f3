"""sshd beside slurmd, as in a worker's pod: a container of its own with the pod's network and volumes."""

from __future__ import annotations

import shutil
from typing import Any

from images.jail.known_host import LOGIN_KEY
from tests.rootfs import rootfs
from tests.slurm.login import private_key, public_line
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

VOLUMES = ("/run/munge", "/run/slurm", "/var/spool/slurmd")
"""Of a worker's pod, which sshd's container has, too."""


class WorkerSsh:
    """The nodes of a cluster that users reach by ssh, and the key that these have in common."""

    def __init__(self, cluster: SlurmSandbox) -> None:
        self.cluster = cluster
        self._secret, self._public = cluster.work / "worker-key", cluster.work / "worker-public-key"
        key = private_key()
        for directory, name, content in (
            (self._secret, "ssh_host_ed25519_key", key),
            (self._public, "ssh_host_ed25519_key.pub", public_line(key).encode()),
        ):
            directory.mkdir()
            (directory / name).write_bytes(content)

    def start_worker(self, name: str, *more: str, **how: Any) -> Pod:
        """A worker as `start_worker_on` starts it. `more`: further volumes of its pod."""
        volumes = {}
        for at in (*VOLUMES, *more):
            volume = self.cluster.work / f"{name}{at.replace('/', '-')}"
            volume.mkdir()
            volume.chmod(0o777)
            volumes[volume] = at
        return self.cluster.start_worker_on(name, binds={**volumes, self._public: "/run/slurm/ssh"}, **how)

    def show_key(self, login: Pod) -> None:
        """What ssh knows the workers by, on a login node too, and that one by."""
        private = (self.cluster.work / "host-keys/ssh_host_ed25519_key").read_bytes()
        (self._public / LOGIN_KEY).write_text(public_line(private))
        shutil.copytree(self._public, login.root / "run/slurm/ssh")

    def start(self, name: str, **env: str) -> Pod:
        """The container; returns when it serves. All pods of the cluster have to be there."""
        worker = self.cluster.pods[name]
        shared = {source: at for source, at in worker.binds.items() if at != "/secrets/munge"}
        pod = Pod(
            name=name, role="login", lower=str(rootfs("login", self.cluster.version)),
            work=self.cluster.work / f"sshd-{name}", binds={**shared, self._secret: "/secrets/ssh"}, beside=worker,
        )  # fmt: skip
        pod.start()
        self.cluster.pods[f"sshd-{name}"] = pod
        (pod.root / "etc/hosts").write_text((worker.root / "etc/hosts").read_text())
        pod.start_program("worker-sshd", {"JAIL": "/jail", **env})
        wait_until(lambda: "Server listening" in pod.log("worker-sshd"), lambda: pod.log("worker-sshd"))
        return pod
