"""`make up` as a newcomer runs it: again, interrupted at bad moments and after a power cut.

What it ends with, and that `make down` leaves nothing: tests/gate/test_end_to_end.py.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from local import cluster as local_cluster
from slurm.local_cluster import local_directory
from tests.e2e.harness import slurmstack, wait_until
from tests.e2e.newcomer import make, traces
from tests.stacks import ROOT

pytestmark = [pytest.mark.usefixtures("no_cluster_before"), pytest.mark.disruptive]


CUT_SHORT = """
import os, signal
from local import cluster, teardown
from local.report import PlainReport
teardown.remove_tree = lambda directory: os.kill(os.getpid(), signal.SIGKILL)
cluster.down(PlainReport())
"""
"""`slurmstack local down`, killed when the files are out of sight and none of them is deleted yet."""


def _kill_everything() -> None:
    """Processes gone in an instant, and all that they had mounted or recorded left behind: a power cut."""
    for component in local_cluster.status().components:
        if component.pid is not None:
            os.kill(component.pid, signal.SIGKILL)
    for tasks in Path("/sys/fs/cgroup").glob("**/slurmstack*/**/cgroup.procs"):
        for pid in tasks.read_text(encoding="utf-8").split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue


def pods() -> dict[str, str]:
    """Uid of each pod of the development stack."""
    kubectl = [str(local_cluster.kubectl_path()), "--kubeconfig", str(local_directory() / "cluster" / "kubeconfig")]
    template = '{range .items[*]}{.metadata.name} {.metadata.uid}{"\\n"}{end}'
    shown = subprocess.run(
        [*kubectl, "get", "pods", "-n", "slurm", "-o", f"jsonpath={template}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return dict(line.split() for line in shown.splitlines())


@pytest.fixture(scope="module", autouse=True)
def before() -> dict[str, set[str]]:
    """The machine before anything was started."""
    return traces()


@pytest.fixture(scope="module")
def made(before: dict[str, set[str]]) -> None:
    """`make up` was run once."""
    make("up")


@pytest.mark.usefixtures("made")
def test_make_up_again_changes_nothing() -> None:
    processes, before = {part.pid for part in local_cluster.status().components}, pods()
    make("up")
    assert pods() == before
    assert {part.pid for part in local_cluster.status().components} == processes


@pytest.mark.usefixtures("made")
def test_after_a_power_cut_make_up_brings_everything_back_with_its_state() -> None:
    name = f"held-{secrets.token_hex(4)}"
    submit = f"sbatch --parsable --hold --job-name={name} --wrap true"
    job = slurmstack("login", "alice", "--", submit).stdout.strip()
    # slurmctld writes its queue down within seconds of a change, not before it answers sbatch.
    queue = local_directory() / "volumes" / "slurm" / "controller-state" / "job_state"
    wait_until(lambda: queue.exists() and name.encode() in queue.read_bytes(), "slurmctld has saved its queue")
    _kill_everything()
    assert not local_cluster.status().healthy
    make("up")
    assert job in slurmstack("login", "alice", "--", "squeue --noheader --format=%i").stdout.split()


@pytest.mark.usefixtures("made")
def test_a_removal_cut_short_and_interrupted_starts_leave_nothing_that_a_new_start_could_stumble_over() -> None:
    assert subprocess.run([sys.executable, "-c", CUT_SHORT], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    removed = local_directory() / "removed"
    assert any(removed.iterdir())
    for seconds in (1.0, 3.0, 5.0, 7.0):  # of which the first may go on with the removal
        running = subprocess.Popen(
            [sys.executable, "-m", "cli.entry", "local", "up"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        time.sleep(seconds)  # the moment of the interruption is what varies here, nothing is awaited
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=120)
        assert running.returncode in {0, 130}, errors
        assert b"Traceback" not in errors
    slurmstack("local", "up")
    assert local_cluster.status().healthy
    assert not removed.exists()


def test_a_name_that_is_taken_is_named_and_left_alone(before: dict[str, set[str]]) -> None:
    slurmstack("local", "down")
    subprocess.run(["ip", "link", "add", "slurmstack0", "type", "bridge"], check=True)
    try:
        done = slurmstack("local", "up", check=False)
        assert done.returncode == 1
        assert "slurmstack0" in done.stderr
        assert "Traceback" not in done.stderr
        slurmstack("local", "down", check=False)
        assert "slurmstack0" in traces()["links"]
    finally:
        subprocess.run(["ip", "link", "delete", "slurmstack0"], check=True)
    assert traces() == before
