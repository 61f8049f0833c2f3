"""MariaDB and slurmdbd for a sandbox: the images' own programs, with the files that Kubernetes would mount."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm.conf import settings_of, slurmdbd_conf
from tests.slurm.minimal import accounting_config, stack_of
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

MEMORY_LIMIT = 512 * 2**20
SLURMDBD = settings_of(slurmdbd_conf(stack_of("24.11", accounting=True)))
"""Lines of slurmdbd.conf, as the product has them."""


def _directory(sandbox: SlurmSandbox, name: str, files: Mapping[str, str | bytes] | None = None) -> Path:
    """A directory to bind into pods, made once per sandbox."""
    directory = sandbox.work / name
    directory.mkdir(exist_ok=True)
    for file, content in (files or {}).items():
        data = content.encode() if isinstance(content, str) else content
        if not (directory / file).exists():
            (directory / file).write_bytes(data)
    return directory


def password_binds(sandbox: SlurmSandbox) -> dict[Path, str]:
    """The Secret with the database's password, for any pod."""
    return {_directory(sandbox, "database-password", {"password": secrets.token_hex(16)}): "/secrets/database"}


def slurmdbd_binds(sandbox: SlurmSandbox, **settings: str) -> dict[Path, str]:
    """The ConfigMaps with slurmdbd.conf and Slurm's other files, for a pod of the accounting image."""
    text = "".join(f"{key}={value}\n" for key, value in {**SLURMDBD, **settings}.items())
    directory = _directory(sandbox, "slurmdbd-conf")
    (directory / "slurmdbd.conf").write_text(text)
    return {directory: "/config/slurmdbd", sandbox.config_directory: "/config/slurm"}


def start_database(sandbox: SlurmSandbox, *, wait: bool = True) -> Pod:
    """A pod `database` with MariaDB. Its volume outlives it: a second call serves the same data."""
    volume = _directory(sandbox, "database-volume")
    pod = sandbox.add_pod("database", "database", {volume: "/var/lib/mysql", **password_binds(sandbox)}, munged=False)
    pod.start_program("mariadbd", {"MEMORY_LIMIT": str(MEMORY_LIMIT)})
    if wait:
        wait_for_database(pod)
    return pod


def wait_for_database(pod: Pod) -> None:
    """Until the readiness probe's query succeeds."""
    probe = ["mariadb", "--defaults-file=/run/mysqld/probe.cnf", "--execute", "SELECT 1"]
    wait_until(lambda: pod.run(probe).returncode == 0, lambda: f"mariadbd: {pod.log('mariadbd')}")


def sql(sandbox: SlurmSandbox, statement: str) -> str:
    """Run it as root in the database's pod."""
    client = ["mariadb", "--socket=/run/mysqld/mysqld.sock", "--skip-column-names", "--batch", "slurm_acct_db"]
    done = sandbox.pods["database"].run([*client, f"--execute={statement}"])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def start_accounting(
    sandbox: SlurmSandbox, *, wait: bool = True, binds: Mapping[Path, str] | None = None, **settings: str
) -> Pod:
    """A pod `slurmdbd-0` with munged and slurmdbd. `settings`: of slurmdbd.conf, besides `SLURMDBD`."""
    mounted = {**password_binds(sandbox), sandbox.jwt_secret: "/secrets/jwt", **slurmdbd_binds(sandbox, **settings)}
    pod = sandbox.add_pod("slurmdbd-0", "accounting", {**mounted, **(binds or {})})
    pod.start_program("slurmdbd")
    if wait:
        wait_for_accounting(sandbox)
    return pod


def wait_for_accounting(sandbox: SlurmSandbox) -> None:
    """Until sacctmgr, started beside slurmdbd, gets an answer."""
    wait_until(lambda: sacctmgr(sandbox, "show cluster").returncode == 0, lambda: f"slurmdbd: {sandbox.logs()}")


def sacctmgr(sandbox: SlurmSandbox, arguments: str) -> subprocess.CompletedProcess[str]:
    """Run sacctmgr in slurmdbd's pod, as root."""
    environment = {"SLURM_CONF": "/config/slurm/slurm.conf"}
    return sandbox.run(f"sacctmgr --immediate --noheader --parsable2 {arguments}", pod="slurmdbd-0", env=environment)


def wait_for_registration(sandbox: SlurmSandbox) -> None:
    """Until slurmctld is registered with slurmdbd: only then does it send records."""

    def registered() -> bool:
        return "|6817|" in sacctmgr(sandbox, "show cluster format=cluster,controlhost,controlport,rpc").stdout

    wait_until(registered, lambda: f"slurmctld is not registered: {sandbox.logs()}")


class BareSandbox(SlurmSandbox):
    """A sandbox in which nothing of Slurm runs: the first pod only carries the network of the others."""

    def start_controller(self, *, daemons: bool = True) -> Pod:
        """Without its daemons."""
        del daemons
        return super().start_controller(daemons=False)

    def wait_for_nodes(self, count: int) -> None:
        """There are none."""
        del count


class AccountingSandbox(SlurmSandbox):
    """A sandbox with MariaDB and slurmdbd. Its configuration is one of `accounting_config`, or a stack's.

    slurmdbd is up before slurmctld: at its first start, slurmctld waits until slurmdbd has told it the cluster's id.
    """

    slurmdbd_settings: Mapping[str, Any] = {}
    """Settings of slurmdbd.conf, besides `SLURMDBD`."""

    def __init__(self, version: str = "24.11", *, database: Path | None = None, **more: Any) -> None:
        """`database`: a volume as `make_database` leaves it, of which this takes a copy; else its own first start."""
        super().__init__(version, **more)
        self._database = database

    def start_controller(self, *, daemons: bool = True) -> Pod:
        """The controller's pod comes first, as the network of all pods lives in it; then database and slurmdbd."""
        pod = super().start_controller(daemons=False)
        if self._database:
            subprocess.run(["cp", "--archive", f"{self._database}/.", _directory(self, "database-volume")], check=True)
        start_database(self)
        start_accounting(self, **self.slurmdbd_settings)
        if daemons:
            self.start_controller_daemons(pod)
            wait_for_registration(self)
        return pod


def make_database(version: str, volume: Path) -> None:
    """What MariaDB's first start leaves, which is more than half of the CPU of a start, and its end in good order."""
    with BareSandbox(version, config=accounting_config(version), workers=0) as sandbox:
        kill(start_database(sandbox), "mariadbd", signal.SIGTERM)
        subprocess.run(["cp", "--archive", f"{sandbox.work}/database-volume/.", volume], check=True)


def job_records(sandbox: SlurmSandbox) -> list[dict[str, Any]]:
    """What sacct knows of all jobs, without their steps; nothing while slurmdbd does not answer."""
    command = "sacct --allusers --starttime=now-1days --allocations --json"
    done = sandbox.run(command, pod="slurmdbd-0", env={"SLURM_CONF": "/config/slurm/slurm.conf"})
    jobs: list[dict[str, Any]] = json.loads(done.stdout)["jobs"] if done.returncode == 0 else []
    return jobs


def kill(pod: Pod, name: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to the daemon of a pod, and wait until it is gone."""
    pids = pod.run(["pgrep", "--exact", name]).stdout.split()
    assert pids, f"no {name} runs in {pod.name}"
    pod.run(["kill", f"-{number.value}", *pids])
    wait_until(lambda: not pod.run(["pgrep", "--exact", name]).stdout.strip(), f"{name} to end")
