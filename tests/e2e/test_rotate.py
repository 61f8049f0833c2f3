"""Keys that get another value under a running job, and under a stream of others: no job is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from cli.access.reach import host_public_key
from cli.change.owner import ROTATING
from slurm.names import GENERATED
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.e2e.job_stream import all_recorded, stream_of_jobs
from tests.stacks import ROOT


@pytest.fixture
def cluster(two_nodes: SlurmOnKubernetes) -> SlurmOnKubernetes:
    if two_nodes.engine != "kubectl":
        pytest.skip("with Pulumi's engine the keys are in its state")
    return two_nodes


def rotate(slurm: SlurmOnKubernetes, key: str) -> str:
    done = slurmstack("rotate", key, "--yes", "--config", str(slurm.file), timeout=600)
    assert ROTATING not in json.dumps(slurm.kubectl.items("secret", GENERATED, "-n", slurm.namespace))
    assert slurm.preview()["changes"] == [], "what the stack would make of the new value"
    return done.stdout


def secret_of(slurm: SlurmOnKubernetes, name: str) -> dict[str, str]:
    return dict(slurm.kubectl.items("secret", name, "-n", slurm.namespace)[0]["data"])


@contextmanager
def a_job_that_survives(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """A job on both nodes, which starts a step at its end."""
    job = slurm.submit("until [ -e go ]; do sleep 0.2; done; srun hostname >after", "--nodes=2", "--ntasks=2")
    slurm.await_job(job, "RUNNING")
    yield
    assert slurm.job_state(job) == "RUNNING"
    slurm.ssh("touch go")
    slurm.await_job(job)
    assert slurm.job_field(job, "Restarts") == "0"
    assert len(slurm.ssh("cat after; rm go after").split()) == 2


def test_munge_s_key_is_rotated_with_a_brief_pause_and_no_job_is_lost(cluster: SlurmOnKubernetes) -> None:
    slurm = cluster
    old = secret_of(slurm, "munge-key")
    with stream_of_jobs(slurm, seed=1, seconds=(0, 1), pause=1) as stream, a_job_that_survives(slurm):
        told = rotate(slurm, "munge")
        before = len(stream.accepted)
        wait_until(lambda: len(stream.accepted) > before + 2, "jobs are accepted")
    assert secret_of(slurm, "munge-key") != old
    assert stream.wrong() == {}, "a job whose launch met the old key is queued again"
    print(f"{told.strip()}; longest time between two accepted jobs: {stream.longest_gap:.1f} s")


def test_a_rotation_that_was_killed_goes_on_and_nothing_is_applied_before(cluster: SlurmOnKubernetes) -> None:
    slurm = cluster
    command = [sys.executable, "-m", "cli.entry", "rotate", "munge", "--yes", "--config", str(slurm.file)]
    with a_job_that_survives(slurm):
        running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(
            lambda: ROTATING in str(slurm.kubectl.items("secret", GENERATED, "-n", slurm.namespace)), "it begins"
        )
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        assert "`slurmstack rotate munge` goes on with it" in slurm.up(check=False).stderr
        other = slurmstack("rotate", "jwt", "--yes", "--config", str(slurm.file), check=False)
        assert "the rotation of munge was not finished" in other.stderr
        rotate(slurm, "munge")
    assert slurm.submit("true")


def test_the_database_gets_another_password_and_no_record_is_lost(cluster: SlurmOnKubernetes) -> None:
    slurm = cluster
    old = secret_of(slurm, "database-password")
    database = slurm.pod_uids()["database-0"]
    with stream_of_jobs(slurm, seed=2, seconds=(0, 1), pause=1) as stream, a_job_that_survives(slurm):
        print(rotate(slurm, "database-password"))
    assert stream.wrong() == {}
    wait_until(lambda: all_recorded(slurm, stream.accepted), "slurmdbd has a record of each job")
    assert secret_of(slurm, "database-password") != old
    assert slurm.pod_uids()["database-0"] == database
    slurm.lose_pods("database-0", "slurmdbd-0")
    wait_until(lambda: slurm.slurm("sacctmgr -n list cluster", check=False), "it is the password of new pods, too")


def test_login_nodes_get_another_host_key_and_sessions_stay(cluster: SlurmOnKubernetes) -> None:
    slurm = cluster
    old = host_public_key(slurm.kubectl, slurm.namespace)
    pods = slurm.pod_uids()
    with ThreadPoolExecutor() as pool:
        wait = "n=0; until [ -e out ] || [ $((n += 1)) -gt 600 ]; do sleep 0.2; done"  # a test that fails has an end
        session = pool.submit(slurm.ssh, f"touch in; {wait}; rm in out; echo still here")
        wait_until(lambda: slurm.ssh("[ ! -e in ] || echo yes"), "the session is open")
        rotate(slurm, "host-keys")
        told = rotate(slurm, "host-keys")  # what the first one has bound in the containers is deleted by now
        new = host_public_key(slurm.kubectl, slurm.namespace)
        assert new != old
        assert str(new) in told
        for login in ("login-0", "login-1"):
            shown = slurm.exec(login, "ssh-keyscan", "-t", "ed25519", "127.0.0.1", container="sshd")
            assert str(new) in shown
        assert slurm.pod_uids() == pods
        slurm.know_login()
        assert slurm.ssh("touch out; echo at once") == "at once\n"
        assert session.result(timeout=60) == "still here\n"


def test_tokens_end_with_their_key(cluster: SlurmOnKubernetes) -> None:
    slurm = cluster

    def works(token: str) -> bool:
        return "yes" in slurm.slurm(f"{token} squeue --noheader >/dev/null 2>&1 && echo yes", check=False)

    token = slurm.slurm("scontrol token username=alice lifespan=3600").strip()
    assert works(token)
    with a_job_that_survives(slurm):
        print(rotate(slurm, "jwt"))
    assert not works(token)
    assert works(slurm.slurm("scontrol token username=alice lifespan=3600").strip())
