"""`doctor job` and `logs --job` of real jobs that a node could not start, or was lost with."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Timer
from typing import Any

import pytest

from cli.doctor.cluster.rules import diagnose_job
from cli.logs.gather import errors_in_output, errors_on_nodes, gather
from cli.status.questions import DOCTOR
from cli.status.snapshot import read_job, take
from tests.fakes.kubectl import PlayedKubectl, listed, thing
from tests.slurm.accounting import AccountingSandbox
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import accounting_config, add_accounts, identity, stack_of
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

LOST, NO_PROLOG, NO_USER, NO_KEY, ALICES = (f"default-{number}" for number in range(5))
"""A node for each."""

ALICE = 10001

PROLOG = f"#!/bin/sh\n[ $SLURMD_NODENAME != {NO_PROLOG} ]\n"


@dataclass(frozen=True, kw_only=True)
class SandboxKubectl(PlayedKubectl):
    """kubectl of a sandbox: its pods, their logs, and commands in them."""

    sandbox: SlurmSandbox

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        del stdin, check
        if arguments[0] == "exec":
            at = arguments.index("-c")
            pod, command = arguments[at - 1], arguments[at + 3 :]
            if pod not in self.sandbox.pods:
                return subprocess.CompletedProcess(arguments, 1, "", f'Error: pods "{pod}" not found')
            return self.sandbox.run(command, pod=pod)
        if arguments[0] == "logs":
            log = self.sandbox.pods[arguments[3]].log(arguments[5])
            stamp = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}Z"
            return subprocess.CompletedProcess(
                arguments, 0, "".join(f"{stamp} {one}\n" for one in log.splitlines()), ""
            )
        pods = (
            [self._pod(name) for name in self.sandbox.pods]
            if any(word.split(",")[0] == "pod" for word in arguments)
            else []
        )
        return subprocess.CompletedProcess(arguments, 0, json.dumps(listed(*pods)), "")

    def _pod(self, name: str) -> dict[str, Any]:
        container = "slurmctld" if name == "controller-0" else "slurmd"
        statuses = [{"name": container, "ready": True, "restartCount": 0, "state": {"running": {}}}]
        status = {
            "phase": "Running",
            "containerStatuses": statuses,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return thing("Pod", name, spec={"containers": [{"name": container}]}, status=status)


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> AccountingSandbox:
    """slurmctld and one node alone know alice."""
    alice = identity({"alice": ALICE}, home="/tmp")
    config = accounting_config(slurm_version, "Prolog=/prolog\nSlurmdTimeout=5\n", **alice)
    made = slurm_cluster(slurm_version, config=config, workers=5, kind=AccountingSandbox)
    add_accounts(alice, made.pods[ALICES].root)
    for name in (LOST, NO_PROLOG, NO_USER, NO_KEY, ALICES):
        path = made.pods[name].root / "prolog"
        path.write_text(PROLOG)
        path.chmod(0o755)
    return made


def submit(cluster: SlurmSandbox, node: str, options: str = "") -> str:
    done = cluster.run(f"sbatch --parsable --output=/dev/null --nodelist={node} {options} --wrap 'sleep 1000'")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def explained(cluster: SlurmSandbox, job: str) -> str:
    """What `doctor job` says: the cause, and what was seen."""
    kubectl, config = SandboxKubectl(sandbox=cluster), stack_of(cluster.version, accounting=True)
    look, known = take(kubectl, config, DOCTOR), read_job(kubectl, "slurm", job, accounting=True)
    on_nodes = errors_on_nodes(kubectl, "slurm", look.of("Pod"), known)
    found = diagnose_job(look, known, (*errors_in_output(kubectl, "slurm", known), *on_nodes))
    return "\n".join(text for item in found for text in (item.cause, *item.evidence))


def await_words(cluster: SlurmSandbox, job: str, *words: str) -> None:
    """Wait until `doctor job` says all of that."""
    wait_until(
        lambda: all(text in explained(cluster, job) for text in words),
        lambda: f"{words}: {explained(cluster, job)}\n{cluster.logs()}",
    )


def logged(cluster: SlurmSandbox, job: str) -> str:
    """What `logs --job` shows."""
    found = gather(SandboxKubectl(sandbox=cluster), "slurm", datetime.now(UTC), job=job)
    return "\n".join(line.text for line in found.lines)


def test_a_node_that_is_lost_with_its_job_is_named(cluster: SlurmSandbox) -> None:
    job = submit(cluster, LOST, "--no-requeue")
    cluster.wait_for_job(job, "RUNNING")
    cluster.run("pkill -KILL slurmd; pkill -KILL slurmstepd", pod=LOST)
    await_words(cluster, job, f"job {job} has ended: NODE_FAIL: its node was lost", f"on {LOST}")
    assert f"Killing JobId={job} on failed node {LOST}" in logged(cluster, job)


def test_a_prolog_that_fails_is_named_though_the_job_waits_again(cluster: SlurmSandbox) -> None:
    job = submit(cluster, NO_PROLOG)
    failed = f"job {job} of root waits: is tried again after an error: {NO_PROLOG}: "
    await_words(cluster, job, failed, "prolog failed", f"{NO_PROLOG} drain+idle (Prolog error)")
    assert "prolog failed" in logged(cluster, job)


def test_a_node_that_does_not_know_the_user_is_named(cluster: SlurmSandbox) -> None:
    job = submit(cluster, NO_USER, f"--uid={ALICE}")
    await_words(
        cluster, job, f"is tried again after an error: {NO_USER}: failed to init group cache entry for uid={ALICE}"
    )


def test_that_somebody_has_requeued_a_job_is_no_error(cluster: SlurmSandbox) -> None:
    job = submit(cluster, NO_USER, "--requeue")
    cluster.wait_for_job(job, "RUNNING")
    cluster.run(f"scontrol requeue {job}")
    await_words(cluster, job, f"job {job} of root waits: is not to start before its --begin time, or was just requeued")


IN_OUTPUT = {
    "no interpreter": ("#!/usr/bin/nope\n", "execve(): bad interpreter(/usr/bin/nope): No such file or directory"),
    "no program for env": ("#!/usr/bin/env nopy\n", "slurm-{job}.out: env: "),
    "no command": ("#!/bin/sh\n/opt/nope\n", "/slurm_script: 2: /opt/nope: not found"),
    "not to be executed": ("#!/bin/sh\n/etc/passwd\n", "/slurm_script: 2: /etc/passwd: Permission denied"),
    "no program for a step": ("#!/bin/sh\nsrun /opt/nope\n", "execve(): /opt/nope: No such file or directory"),
    "no such MPI": ("#!/bin/sh\nsrun --mpi=nosuch true\n", "Invalid MPI type 'nosuch', --mpi=list for"),
    "no such nodes": ("#!/bin/sh\nsrun -N9 true\n", "srun: error: Only allocated 1 nodes asked for 9"),
    "no such GPUs": ("#!/bin/sh\nsrun --gpus=1 true\n", "srun: error: Unable to create step for job"),
}


def alices(cluster: SlurmSandbox, script: str, *options: str) -> str:
    """The number of a job of alice's that has ended."""
    words = ["sbatch", "--parsable", f"--uid={ALICE}", f"--gid={ALICE}", f"--nodelist={ALICES}", "--chdir=/tmp"]
    done = cluster.controller.run([*words, *options], stdin=script)
    assert done.returncode == 0, done.stderr
    number: str = done.stdout.strip()
    cluster.wait_for_job(number, "FAILED")
    return number


@pytest.mark.parametrize(("script", "said"), IN_OUTPUT.values(), ids=IN_OUTPUT)
def test_what_slurm_and_the_shell_said_in_the_output_of_a_job_is_told(
    cluster: SlurmSandbox, script: str, said: str
) -> None:
    job = alices(cluster, script)
    said = said.format(job=job)
    await_words(cluster, job, f"/tmp/slurm-{job}.out: ", said)
    assert said in logged(cluster, job)


def test_of_other_output_no_more_than_the_place_is_told(cluster: SlurmSandbox) -> None:
    """Nor is what a link leads to that the user may not read."""
    job = alices(cluster, "#!/bin/sh\necho my srun: error: secret >&2; exit 3", "--error=err of %x", "--job-name=mine")
    await_words(cluster, job, "its output is in /tmp/err of mine")
    assert "secret" not in logged(cluster, job)
    shadow = "echo 'srun: error: secret' >/shadow; chmod 600 /shadow; ln -sf /shadow '/tmp/err of mine'"
    cluster.run(shadow, pod=ALICES)
    assert "its output could not be read: " in explained(cluster, job)
    assert "secret" not in explained(cluster, job)


def test_of_an_array_it_is_the_tasks_own_output(cluster: SlurmSandbox) -> None:
    """The last task has the array's number."""
    job = alices(cluster, "#!/bin/sh\nexit 3", "--array=0-1%1")
    await_words(cluster, f"{job}_1", f"its output is in /tmp/slurm-{job}_1.out")


def hold(cluster: SlurmSandbox, node: str, seconds: float) -> None:
    """For so long slurmd reads nothing, and what is sent to it grows old: as where clocks differ by minutes."""
    slurmd = cluster.pods[node].processes[-1]
    cluster.run("pkill -STOP -x slurmd", pod=node)
    Timer(seconds, slurmd.send_signal, [signal.SIGCONT]).start()  # of nsenter, which has stopped, too, and hands it on


def test_a_step_that_its_node_gets_too_late_is_named(own_cluster: ClusterFactory, slurm_version: str) -> None:
    """By default that is after two minutes. How old a batch script is nobody asks."""
    config = accounting_config(slurm_version, "AuthInfo=cred_expire=5\n")
    cluster = own_cluster(slurm_version, config=config, workers=1, kind=AccountingSandbox)
    hold(cluster, LOST, 8)
    done = cluster.run("srun true")
    assert "Job credential expired" in done.stderr, done.stderr
    (job,) = cluster.run("sacct -X -n -P -o JobID").stdout.split()
    await_words(cluster, job, "its credential had expired", f"{LOST}: Invalid job credential from 0@")


def test_a_node_that_cannot_read_what_it_gets_is_named(cluster: SlurmSandbox) -> None:
    """Its munged has another key, as it would refuse what is minutes old by its own clock."""
    worker = cluster.pods[NO_KEY]
    worker.run("umount /secrets/munge; head -c 128 /dev/urandom >/secrets/munge/munge.key; pkill -x munged")
    worker.start_program("munged")
    await_words(cluster, submit(cluster, NO_KEY), f"{NO_KEY}: Munge decode failed")
