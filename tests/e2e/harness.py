"""A Slurm cluster on the real local Kubernetes, driven as its users would: by the command, ssh and Slurm's own
programs."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from cli.access.reach import host_public_key, login_address
from cli.change.plan import KINDS, RIGHTS_OUTSIDE
from cli.change.rollout import unready
from cli.commands.access import ssh_arguments, ssh_program
from cli.errors import Failure
from cli.kubectl.client import Kubectl, cluster_labels, connect
from cli.logs.gather import gather
from cli.logs.lines import in_order
from config import load_config
from slurm.local_cluster import local_directory
from slurm.names import ACTIVE, CONTROLLER_HOST, GENERATED, POOL_LABEL, SSH_PORT
from tests import command
from tests.e2e.shell import Shell
from tests.nodes import LIMIT_S, SHOW, is_idle, node_states, run_now
from tests.stacks import ROOT, with_change

LOGS = ROOT / "test-logs"
"""Where a failing test leaves the logs of pods, Slurm and Kubernetes."""


EXEC_S = 300
"""For one command in a pod, seconds."""

LOOK_S = 30
"""For one look at a cluster that may be broken, seconds."""

SSH_FAILED = 255
"""ssh's own exit status, when it is not that of the command."""

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str | Callable[[], str], *, timeout: float = LIMIT_S, slowest: float = 0.8
) -> T:
    """Poll until the condition is true and return it. Fails with `what`, or what it says, after `timeout` seconds.

    `slowest`: seconds between two looks after a while.
    """
    deadline = time.monotonic() + timeout
    pause = 0.1
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            said = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {timeout:.0f} s: {said} (last: {value!r})")
        time.sleep(pause)
        pause = min(pause * 1.3, slowest)  # most conditions start several processes, and lanes share the machine


def make_key(private: Path) -> str:
    """Make an SSH key pair; the public half as in a stack file."""
    key = Ed25519PrivateKey.generate()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    private.chmod(0o600)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def slurmstack(
    *arguments: str, check: bool = True, timeout: float = 1200, cold: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, without a terminal; `cold`: with the time that it takes to load."""
    run = command.run_from_cold if cold else command.run
    done = run(arguments, {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}, timeout=timeout)
    if check:
        assert done.returncode == 0, (
            f"slurmstack {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done


def only_data_is_left(slurm: SlurmOnKubernetes) -> None:
    """Nothing of the cluster is in its namespace but claims, all bound, and the keys; status and doctor say so.

    What tests have put there stays, as what people have.
    """
    there = ("-n", slurm.namespace)
    ours = slurm.kubectl.items(",".join({*KINDS, "pod"}), *there, "-l", cluster_labels(slurm.namespace))
    left = {(item["kind"], item["metadata"]["name"]) for item in ours}
    claims_left = {name for kind, name in left if kind == "PersistentVolumeClaim"}
    assert {"jail", "controller-state", "database-data"} <= claims_left
    assert {(kind, name) for kind, name in left if kind != "PersistentVolumeClaim"} <= {("Secret", GENERATED)}
    assert slurm.kubectl.items("secret", GENERATED, *there)
    assert not slurm.kubectl.items("lease", "slurmstack", *there)
    claims = slurm.kubectl.items("persistentvolumeclaim", *there, "-l", cluster_labels(slurm.namespace))
    assert {item["status"]["phase"] for item in claims} == {"Bound"}
    for verb, status in (("status", 1), ("doctor", 3)):
        said = slurmstack(verb, "--config", str(slurm.file), check=False)
        assert said.returncode == status, said
        assert "all users' files and the software in the jail" in said.stdout + said.stderr


def nothing_is_left(slurm: SlurmOnKubernetes) -> None:
    """No object of the cluster is in Kubernetes any more, in its namespace or outside of it."""
    of_cluster = f"app.kubernetes.io/part-of=slurmstack,app.kubernetes.io/instance={slurm.namespace}"
    left = slurm.kubectl.items(f"namespace,{RIGHTS_OUTSIDE}", "-l", of_cluster)
    volumes = slurm.kubectl.items("persistentvolume", "-l", "app.kubernetes.io/part-of=slurmstack")
    left += [item for item in volumes if item["spec"]["claimRef"]["namespace"] == slurm.namespace]
    assert not left, [f"{item['kind']} {item['metadata']['name']}" for item in left]


@dataclass
class SlurmOnKubernetes:
    """One stack on the local cluster."""

    engine: str
    directory: Path
    sections: dict[str, Any]
    cold: bool = False
    """Whether each command is loaded anew, as users have it."""
    stack: str = ""
    """Its name; by default that of the namespace."""
    key: Path = Path()
    """Alice's private key; by default `key` in the directory."""
    _login_address: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.stack = self.stack or self.namespace
        self.key = self.key if self.key.name else self.directory / "key"

    @cached_property
    def kubectl(self) -> Kubectl:
        """Raises Failure while there is no local cluster."""
        return connect(load_config(self.sections).cloud)

    @cached_property
    def _beside_slurmctld(self) -> Shell:
        place = ("-n", self.namespace, "controller-0", "-c", "slurmctld")
        return Shell(argv=[*self.kubectl.command(), "exec", "--stdin", *place, "--"])

    @property
    def namespace(self) -> str:
        return str(self.sections["cluster"]["namespace"])

    @property
    def file(self) -> Path:
        """The stack file, as the last apply saw it."""
        path = self.directory / f"Pulumi.{self.stack}.yaml"
        document = {"config": {f"slurmstack:{name}": value for name, value in self.sections.items()}}
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def up(self, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        options = ("--yes", "--engine", self.engine, "--config", str(self.file))
        return slurmstack("up", *options, check=check, cold=self.cold)

    def change(self, path: str, value: Any, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Edit one value of the stack file and apply it."""
        self.sections = with_change(self.sections, path, value)
        return self.up(check=check)

    def preview(self) -> dict[str, Any]:
        """What `slurmstack preview --json` prints."""
        options = ("--json", "--engine", self.engine, "--config", str(self.file))
        printed = slurmstack("preview", *options, cold=self.cold).stdout
        return dict(json.loads(printed))

    def exec(self, pod: str, *command: str, container: str = "", check: bool = True) -> str:
        """What a command prints in a pod."""
        options = ["-c", container] if container else []
        argv = [*self.kubectl.command(), "exec", "-n", self.namespace, pod, *options, "--", *command]
        # Bounded: kubectl would wait for ever for a machine that is lost in the meantime.
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=EXEC_S)
        assert not check or done.returncode == 0, f"{command} in {pod}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def slurm(self, command: str, *, check: bool = True) -> str:
        """What a Slurm command prints that an administrator runs beside slurmctld."""
        standby = self.sections.get("controller", {}).get("standby")
        done = None if standby else self._beside_slurmctld.run(command, EXEC_S)
        if done is None:
            pod = f"service/{CONTROLLER_HOST}" if standby else CONTROLLER_HOST
            return self.exec(pod, "/bin/bash", "-c", command, container="slurmctld", check=check)
        status, printed, complained = done
        assert not check or status == 0, f"{command}: {status}\n{printed}\n{complained}"
        return printed

    def lose_pods(self, *names: str) -> None:
        """Have pods gone at once, without a goodbye: their processes may live a moment longer, and nobody asks them."""
        self.kubectl.run("delete", "pod", *names, "-n", self.namespace, "--force", "--grace-period=0")
        self._beside_slurmctld.close()

    def ssh(self, command: str, *, user: str = "alice", at: str = "", check: bool = True) -> str:
        """What a command prints that a user runs on a login node, over real ssh, in the jail.

        It is the ssh that `slurmstack login` starts, without that command's second of loading.
        `at`: the address of one login node; by default the Service chooses.
        """
        done = self._ssh(command, user, at)
        if done.returncode == SSH_FAILED and not at and self.know_login():
            done = self._ssh(command, user)
        if check:
            assert done.returncode == 0, f"ssh {command!r}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _ssh(self, command: str, user: str, at: str = "") -> subprocess.CompletedProcess[str]:
        known_hosts = self.directory / "known_hosts"
        arguments = ssh_arguments(known_hosts, str(self.key), SSH_PORT)
        return subprocess.run(
            [
                ssh_program(is_local=True),
                *arguments,
                "-o",
                "BatchMode=yes",
                f"{user}@{at or self.login_address}",
                command,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )

    @property
    def login_address(self) -> str:
        """Of the login Service."""
        if not self._login_address:
            self.know_login()
        return self._login_address

    def know_login(self) -> bool:
        """Look up where the login Service is, and its host key. Whether that is news: a new Service has another."""
        before = self._login_address
        self._login_address = login_address(self.kubectl, self.namespace) or ""
        key = host_public_key(self.kubectl, self.namespace)
        (self.directory / "known_hosts").write_text(f"slurmstack-login {key}\n", encoding="utf-8")
        return self._login_address != before

    def submit(self, script: str, *options: str, user: str = "alice") -> str:
        """Submit a batch job from a login node; its id."""
        quoted = script.replace("'", "'\\''")
        job = self.ssh(f"sbatch --parsable {' '.join(options)} --wrap '{quoted}'", user=user).strip()
        assert job.isdigit(), f"sbatch printed {job!r}"
        return job

    def refusal(self, *options: str, user: str = "alice") -> str:
        """What sbatch says to a user whose job it refuses."""
        said = self.ssh(f"sbatch {' '.join(options)} --wrap true 2>&1 && echo accepted", user=user, check=False)
        assert said.startswith("sbatch: error: "), said
        return said

    def await_saved(self) -> None:
        """Wait until slurmctld has written down all that has happened to jobs so far, which it does within seconds.

        What it has not yet written is forgotten where it is killed: a job that has ended would run again.
        """
        name = f"saved-{secrets.token_hex(4)}"
        job = self.submit("true", "--hold", f"--job-name={name}")
        wait_until(lambda: name.encode() in self.saved("job_state"), "slurmctld has saved its queue")
        self.slurm(f"scancel {job}")

    @property
    def state(self) -> Path:
        """The directory of slurmctld's state volume."""
        return local_directory() / "volumes" / self.namespace / "controller-state"

    def saved(self, name: str) -> bytes:
        """A file of slurmctld's state; with two controllers it is in the directory of the last one's turn."""
        return b"".join(
            path.read_bytes() for path in (self.state / name, *self.state.glob(f"term-*/{name}")) if path.exists()
        )

    def job_field(self, job: str, key: str) -> str:
        """A field of a job as slurmctld has it; empty where it no longer knows the job."""
        shown = self.slurm(f"scontrol show job {job}", check=False)
        return next((word.partition("=")[2] for word in shown.split() if word.startswith(f"{key}=")), "")

    def job_state(self, job: str) -> str:
        """`RUNNING`, `COMPLETED`, ... as slurmctld has it."""
        return self.job_field(job, "JobState")

    def await_reason(self, job: str, *reasons: str) -> None:
        """Wait until a job waits for one of these reasons, as `squeue` shows them."""
        wait_until(lambda: self.job_field(job, "Reason").rstrip(",") in reasons, f"job {job} waits for {reasons}")

    def await_job(self, job: str, state: str = "COMPLETED") -> None:
        wait_until(lambda: self.job_state(job) == state, f"job {job} is {state}")

    def run_now(self, job: str) -> None:
        """Have a job that was held back or requeued start, and wait until it does."""
        run_now(lambda command: self.slurm(command, check=False), job)

    def setting(self, name: str) -> str:
        """A setting of Slurm that is in force."""
        shown = self.slurm("scontrol show config")
        return next(line.split("=", 1)[1].strip() for line in shown.splitlines() if line.split("=")[0].strip() == name)

    def nodes(self) -> dict[str, frozenset[str]]:
        """States of each Slurm node by name."""
        return node_states(self.slurm(SHOW, check=False))

    def is_idle(self, name: str) -> bool:
        return is_idle(self.nodes().get(name, frozenset()))

    def await_idle(self, *names: str) -> None:
        """Wait until exactly these nodes are there, and idle."""

        def are_idle() -> bool:
            found = self.nodes()
            return found.keys() == {*names} and all(map(is_idle, found.values()))

        wait_until(are_idle, lambda: f"{names} idle: {self.nodes()}")

    def await_rolled(self, *names: str) -> None:
        """Wait until every worker pod is of the newest template, and exactly these nodes are there, and idle.

        A worker of the old template may look idle until its turn comes.
        """
        pools = ("statefulset", "-n", self.namespace, "-l", POOL_LABEL)
        wait_until(lambda: not unready(self.kubectl.items(*pools)), "all workers are ready and new", timeout=300)
        self.await_idle(*names)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Pods of the cluster that belong to no job, by name."""
        found = self.kubectl.items("pod", "-n", self.namespace)
        return {
            pod["metadata"]["name"]: pod
            for pod in found
            if not any(owner["kind"] == "Job" for owner in pod["metadata"].get("ownerReferences", []))
        }

    def active(self) -> list[str]:
        """The controllers that say of themselves that they are the active one."""
        return [name for name, pod in self.pods().items() if ACTIVE in pod["metadata"].get("labels", {})]

    def turn(self) -> str:
        """The directory in which the state of two controllers lies: another one has another one's turn."""
        return next((path.name for path in self.state.glob("term-*")), "")

    def pod_uids(self) -> dict[str, str]:
        """Identity of each pod: another uid is another pod of the same name. One that an earlier test ended is none."""
        stays = {name: pod["metadata"] for name, pod in self.pods().items()}
        return {name: metadata["uid"] for name, metadata in stays.items() if "deletionTimestamp" not in metadata}

    def look(self, *arguments: str) -> str:
        """What kubectl prints of a cluster that may be broken, or why it does not."""
        command = [*self.kubectl.command(), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            return f"kubectl {' '.join(arguments)}: no answer within {LOOK_S} s"
        return done.stdout or done.stderr

    def collect_logs(self, test: str) -> Path:
        """Write everything that helps to understand a failure into one folder."""
        directory = LOGS / test
        directory.mkdir(parents=True, exist_ok=True)
        namespace = ("-n", self.namespace)
        for name, arguments in {
            "pods.txt": ("get", "pods", *namespace, "-o", "wide"),
            "describe.txt": ("describe", "pods", *namespace),
            "events.txt": ("get", "events", *namespace, "--sort-by=.lastTimestamp"),
            "jobs.yaml": ("get", "jobs", *namespace, "-o", "yaml"),
        }.items():
            (directory / name).write_text(self.look(*arguments), encoding="utf-8")
        try:
            found = gather(self.kubectl, self.namespace, datetime.now(UTC))
            logs = [*(f"not read: {why}" for why in found.missing), *map(str, in_order(found.lines))]
        except Failure as failure:
            logs = [str(failure)]
        (directory / "logs.txt").write_text("\n".join(logs), encoding="utf-8")
        slurm = "sinfo -N -l; sinfo -R; squeue -a -l; scontrol show nodes; scontrol show jobs; scontrol show config"
        beside = ("exec", *namespace, "controller-0", "-c", "slurmctld", "--", "/bin/bash", "-c", slurm)
        (directory / "slurm.txt").write_text(self.look(*beside), encoding="utf-8")
        status = slurmstack("local", "status", check=False)
        (directory / "local.txt").write_text(status.stdout + status.stderr, encoding="utf-8")
        return directory
