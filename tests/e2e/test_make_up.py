"""`make up` and `make down` as a newcomer runs them, interrupted at bad moments and after a power cut."""

from __future__ import annotations

import os
import re
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
from tests.stacks import ROOT

pytestmark = [pytest.mark.usefixtures("no_cluster_before"), pytest.mark.disruptive]


def make(*arguments: str) -> str:
    """Run make as a user would, without a terminal; what it printed."""
    done = subprocess.run(
        ["make", *arguments, f"PYTHON={sys.executable}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, f"make {arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def footprint() -> dict[str, set[str]]:
    """What the local cluster could leave behind on the machine."""

    def lines(*command: str) -> set[str]:
        return set(subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines())

    return {
        "links": {line.split(":")[1].strip() for line in lines("ip", "-o", "link")},
        "routes": lines("ip", "route"),
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()},
        "namespaces": {path.name for path in Path("/run/netns").glob("*")},
        "cgroups": {str(path) for path in Path("/sys/fs/cgroup").glob("**/slurmstack*")},
        "processes": {
            line for line in lines("ps", "-eo", "args") if str(local_directory()) in line and "pytest" not in line
        },
        "directories": {path.name for path in local_directory().glob("*")} - {"cache", "lock"},
    }


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
    return footprint()


@pytest.mark.timeout(3600)  # a fresh machine builds everything first
def test_make_up_ends_with_srun_on_two_nodes_and_says_how_to_log_in() -> None:
    printed = make("up")
    assert "alice@login:~$ srun -N2 hostname" in printed
    assert sorted(re.findall(r"^default-\d$", printed, re.MULTILINE)) == ["default-0", "default-1"]
    assert "slurmstack login alice" in printed
    assert slurmstack("login", "alice", "--", "id -un").stdout.strip() == "alice"
    assert local_directory().stat().st_mode & 0o777 == 0o700, "the jail in it has setuid programs"


def test_the_nodes_hold_the_images_once_on_disk_and_their_databases_apart() -> None:
    nodes = [local_directory() / "cluster" / "nodes" / name / "containerd" for name in ("node-0", "node-1")]
    blobs = [{path.name: path.stat().st_ino for path in node.glob("*content*/blobs/sha256/*")} for node in nodes]
    assert blobs[0] == blobs[1] != {}
    assert not {path.stat().st_ino for path in nodes[0].glob("*/*.db")} & {
        path.stat().st_ino for path in nodes[1].glob("*/*.db")
    }


def test_make_up_again_changes_nothing() -> None:
    processes, before = {part.pid for part in local_cluster.status().components}, pods()
    make("up")
    assert pods() == before
    assert {part.pid for part in local_cluster.status().components} == processes


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


def test_make_down_removes_all_that_was_made_and_nothing_else(before: dict[str, set[str]]) -> None:
    make("down")
    wait_until(lambda: footprint() == before, f"as before: {footprint()} instead of {before}", timeout=30)
    make("down")


def test_an_interrupted_start_can_simply_be_run_again() -> None:
    for seconds in (1.0, 2.5, 4.0):
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


def test_a_removal_cut_short_leaves_nothing_that_a_new_start_could_stumble_over() -> None:
    slurmstack("local", "up")
    removing = subprocess.Popen([sys.executable, "-m", "cli.entry", "local", "down"], cwd=ROOT)
    removed = local_directory() / "removed"
    wait_until(lambda: removed.exists() or removing.poll() is not None, "`down` deletes files")
    removing.kill()
    removing.wait()
    assert removed.exists(), "`down` was over before it could be killed"
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
        assert "slurmstack0" in footprint()["links"]
    finally:
        subprocess.run(["ip", "link", "delete", "slurmstack0"], check=True)
    assert footprint() == before
