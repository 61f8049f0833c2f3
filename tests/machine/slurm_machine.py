"""A Slurm cluster in a guest machine: the program's own pods, with images, rights and limits that it gives them."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping
from typing import Any, Self

from cli.program.recording import manifests, record
from slurm.rights import CAPABILITIES
from tests import stacks
from tests.machine.kubelet import Container, Kubelet
from tests.machine.machine import Machine
from tests.nodes import SHOW, in_state
from tests.rootfs import rootfs
from tests.slurm.login import private_key
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until

JAIL, STATE, DATABASE = "/var/jail", "/var/controller-state", "/var/database"
SLURM_CONF = "/var/spool/slurmctld/slurmstack/current/slurm.conf"

_MOUNT_JAIL = f"""
set -e
mkdir -p {STATE} /var/jail-upper/.slurmstack /var/jail-work {JAIL}
touch /var/jail-upper/.slurmstack/populating
mount -t overlay jail -o "lowerdir=/images/$IMAGE,upperdir=/var/jail-upper,workdir=/var/jail-work" {JAIL}
"""

_FINISH_JAIL = """
import sys
from pathlib import Path
sys.path.insert(0, "/usr/lib/slurmstack")
from images.jail.populate import populate
Path("/tmp/empty").mkdir()
sys.exit(populate(Path("/tmp/empty"), Path("/jail"), "test", print, frozenset()))
"""
"""populate with nothing to copy: the files are there already, as the lower layer."""


def worker_sections(version: str, *, cpus: int, memory: str) -> dict[str, Any]:
    """The development stack with one pool, `default`, of small workers, which need no image but their own."""
    sections = stacks.dev()
    sections["slurm"] = {"version": version, "settings": {"DefMemPerCPU": 32}}
    # All of them: its CPUs are its own.
    resources = {"cpus": cpus, "memory": memory, "cpu_request": str(cpus)}
    pool = {**sections["worker_nodes"]["default"], "resources": resources}
    return {**sections, "worker_nodes": {**sections["worker_nodes"], "default": pool}, "worker_ssh": False}


class SlurmMachine:
    """A guest machine with a controller and workers; use it as a context manager.

    Slurm's files are the least that works, with `extra` in slurm.conf and these `files` besides. `accounting`: with
    MariaDB and slurmdbd, and all configuration is the program's own. `login`: a login node may be started.
    """

    def __init__(
        self,
        version: str = "24.11",
        *,
        workers: int = 1,
        cpus: int = 2,
        memory: str = "512Mi",
        extra: str = "",
        files: Mapping[str, str] | None = None,
        machine_mib: int = 3072,
        accounting: bool = False,
        login: bool = False,
    ) -> None:
        self.version = version
        roles = ["worker", "controller", "jail"]
        roles += ["database", "accounting"] * accounting + ["login"] * login
        images = {f"{role}-{version}": rootfs(role, version) for role in roles}
        self.machine = Machine(images, machine_mib)
        self._workers = workers
        self._accounting = accounting
        sections = worker_sections(version, cpus=cpus, memory=memory)
        if accounting:
            sections = {**sections, "accounting": {"enabled": True}, "health": {"enabled": False}}
        registered = list(manifests(record(sections, stack="dev")))
        self.specs: dict[str, Any] = {
            item.name: item.document["spec"]["template"]["spec"] for item in registered if item.kind == "StatefulSet"
        }
        """StatefulSet -> its pods' specification. A test may change one before it starts a pod."""
        config_maps = {item.name: item.document["data"] for item in registered if item.kind == "ConfigMap"}
        least = minimal_config(version, extra, **(files or {}))
        self.kubelet = Kubelet(
            self.machine,
            config_maps=config_maps if accounting else {"slurm-config": least},
            secrets={
                "munge-key": {"munge.key": secrets.token_bytes(128)},
                "jwt-key": {"jwt_hs256.key": secrets.token_bytes(32)},
                "database-password": {"password": secrets.token_hex(16)},
                "ssh-host-keys": {"ssh_host_ed25519_key": private_key()},
            },
            claims={"jail": JAIL, "controller-state": STATE, "database-data": DATABASE},
        )

    def __enter__(self) -> Self:
        try:
            self.machine.__enter__()
            self._make_jail()
            if self._accounting:
                self._start_accounting()
            self.kubelet.start("controller-0", self.specs["controller"])
            wait_until(lambda: "is UP" in self.run("scontrol ping").stdout, self.logs, 120)
            for number in range(self._workers):
                self.kubelet.start(f"default-{number}", self.specs["default"])
            self.wait_for_nodes(self._workers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.machine.__exit__(*error)

    def _start_accounting(self) -> None:
        """Start MariaDB and slurmdbd; returns when slurmdbd answers."""
        # Of its own: the mount tells the program that it is a volume.
        self.machine.run(f"mkdir -p {DATABASE} && mount --bind {DATABASE} {DATABASE}", check=True)
        self.kubelet.start("database", self.specs["database"])
        slurmdbd = self.kubelet.start("slurmdbd-0", self.specs["slurmdbd"]).containers["slurmdbd"]
        ask = "SLURM_CONF=/config/slurm/slurm.conf sacctmgr --noheader show cluster"
        wait_until(lambda: slurmdbd.look(ask).returncode == 0, self.logs, 300)

    def add_user(self, name: str, uid: int) -> str:
        """An account in the jail, with a home; returns the home's directory in the machine."""
        home = f"{JAIL}/home/{name}"
        lines = {
            "passwd": f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash",
            "group": f"{name}:x:{uid}:",
            "shadow": f"{name}:*:20000::::::",
        }
        add = [f"echo '{line}' >> {JAIL}/etc/{file}" for file, line in lines.items()]
        self.machine.run("; ".join([*add, f"mkdir -m 700 {home}; chown {uid}:{uid} {home}"]), check=True)
        return home

    def worker(self, name: str = "default-0") -> Container:
        """The container of a worker in which slurmd runs."""
        return self.kubelet.pods[name].containers["slurmd"]

    def run(self, command: str, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm's beside slurmctld, as root."""
        controller = self.kubelet.pods["controller-0"].containers["slurmctld"]
        return controller.look(f"export SLURM_CONF={SLURM_CONF}; {command}", timeout=timeout)

    def wait_for_nodes(self, count: int, state: str = "IDLE") -> None:
        """Wait until that many nodes are in a state."""
        wait_until(
            lambda: len(in_state(self.run(SHOW).stdout, state)) >= count,
            lambda: f"{self.run(SHOW).stdout}\n{self.logs()}",
        )

    def logs(self) -> str:
        """All containers' output, for the message of a failed test."""
        containers = [one for pod in self.kubelet.pods.values() for one in pod.containers.values()]
        return "\n".join(f"--- {one.identifier}\n{one.logs()}" for one in containers)

    def _make_jail(self) -> None:
        self.machine.run(_MOUNT_JAIL, env={"IMAGE": f"jail-{self.version}"}, check=True)
        fill = {
            "name": "populate", "image": f"jail:{self.version}", "command": ["python3", "-c", _FINISH_JAIL],
            "securityContext": {"capabilities": {"add": CAPABILITIES["populate"]}},
            "volumeMounts": [{"name": "jail", "mountPath": "/jail"}],
        }  # fmt: skip
        volumes = [{"name": "jail", "persistentVolumeClaim": {"claimName": "jail"}}]
        self.kubelet.start("populate", {"initContainers": [fill], "containers": [], "volumes": volumes})
        self.kubelet.remove("populate")
