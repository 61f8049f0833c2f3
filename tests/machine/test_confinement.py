"""With version 2 of cgroups, jobs of one node are kept to what they asked for, without a privileged pod."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from shlex import join, quote

import pytest

from images.jail.ssh_session import SRUN
from tests.machine.conftest import one_version
from tests.machine.slurm_machine import JAIL, SlurmMachine
from tests.slurm.minimal import IN_JAIL, LONG_LINES
from tests.slurm.pod import wait_until

pytestmark = pytest.mark.versions

FILES = {
    **IN_JAIL,
    "gres.conf": f"{LONG_LINES}Name=gpu File=/dev/device[0-1]\n",
}
EXTRA = """\
GresTypes=gpu
JobAcctGatherType=jobacct_gather/linux
DebugFlags=NO_CONF_HASH
Epilog=/usr/libexec/slurmstack/health-epilog
KillWait=5
"""
DEVICES = {"/dev/device0": "1 8", "/dev/device1": "1 7"}
"""/dev/random and /dev/full by other names: what any container may open, so that only ours can be what refuses."""

ALICE, BOB = 10001, 10002
SCOPE = "/sys/fs/cgroup/system.slice/default-0_slurmstepd.scope"


@pytest.fixture(scope="module")
def slurm(slurm_version: str) -> Iterator[SlurmMachine]:
    """A controller and a worker with four CPUs of its own and two devices."""
    with SlurmMachine(slurm_version, workers=0, cpus=4, memory="800Mi", files=FILES, extra=EXTRA) as started:
        for user, uid in (("alice", ALICE), ("bob", BOB)):
            started.add_user(user, uid)
        start_worker(started)
        yield started


def start_worker(slurm: SlurmMachine, name: str = "default-0", *, writable_cgroups: bool = False) -> None:
    """With devices, which a device plugin of Kubernetes would have brought."""
    spec = copy.deepcopy(slurm.specs["default"])
    (slurmd,) = (one for one in spec["containers"] if one["name"] == "slurmd")
    wait = "until [ -w /dev/device1 ]; do sleep 0.1; done; exec"
    slurmd["command"] = ["sh", "-c", f"{wait} {slurmd['command'][0]}"]
    for variable in slurmd["env"]:
        if variable["name"] == "NODE_CONF":
            variable["value"] = json.dumps({**json.loads(variable["value"]), "gres": [{"name": "gpu", "count": 2}]})
    pod = slurm.kubelet.start(name, spec, writable_cgroups=writable_cgroups)
    pid = pod.containers["slurmd"].pid
    make = "; ".join(f"mknod {path} c {number} && chmod 666 {path}" for path, number in DEVICES.items())
    slurm.machine.run(["nsenter", "-t", str(pid), "-m", "sh", "-c", make], check=True)
    node = f"scontrol show node {name}"
    wait_until(lambda: "State=IDLE" in slurm.run(node).stdout, slurm.logs, 180)


def submit(slurm: SlurmMachine, script: str, options: str = "", user: int = ALICE) -> str:
    """The number of a batch job of the user's; it writes into /home/USER/ID.out."""
    home = {ALICE: "/home/alice", BOB: "/home/bob"}[user]
    batch = f"sbatch --parsable --chdir={home} --output=%j.out {options} --wrap {quote(script)}"
    done = slurm.run(as_user(batch, user))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def as_user(command: str, user: int = ALICE) -> str:
    return f"cd /; setpriv --reuid={user} --regid={user} --clear-groups sh -c {quote(command)}"


def output(slurm: SlurmMachine, job: str) -> str:
    """What a job has written so far."""
    return slurm.machine.run(f"cat {JAIL}/home/*/{job}.out").stdout


def state(slurm: SlurmMachine, job: str) -> str:
    return slurm.run(f"squeue --noheader --states=all --jobs={job} --format=%T").stdout.strip()


def wait_for(slurm: SlurmMachine, job: str, *states: str) -> str:
    """Wait until a job is in one of these states."""
    wait_until(lambda: state(slurm, job) in states, lambda: f"{output(slurm, job)}\n{slurm.logs()}", 120)
    return output(slurm, job)


def says(slurm: SlurmMachine, job: str, word: str) -> str:
    """Wait until a job has written a word."""
    wait_until(lambda: word in output(slurm, job), lambda: f"{output(slurm, job)}\n{slurm.logs()}", 120)
    return output(slurm, job)


def what_is_left(slurm: SlurmMachine) -> str:
    """Processes `sleep 4321`, cgroups and mounts of jobs."""
    cgroups = f"find {SCOPE} -mindepth 1 -type d ! -path '{SCOPE}/system*'"
    return slurm.worker().look(f"pgrep -f [4]321; {cgroups}; ls /run/slurmstack/job-mounts").stdout


def test_two_jobs_of_a_node_have_their_own_cores_devices_and_files(slurm: SlurmMachine) -> None:
    look = (
        "taskset -pc $$; for n in 0 1; do head -c1 /dev/device$n > /dev/null 2>&1 && echo opens $n; done; "
        "touch /tmp/mine /dev/shm/mine; ls /tmp /dev/shm; df --output=target,size -m /dev/shm; echo ready; sleep 100"
    )
    first = submit(slurm, look, "-n1 -c2 --gres=gpu:1")
    second = submit(slurm, f"ls /tmp /dev/shm; {look}", "-n1 -c2 --gres=gpu:1")
    told = [says(slurm, job, "ready") for job in (first, second)]
    slurm.run(f"scancel {first} {second}")

    cores = [re.findall(r"affinity list: (.*)", text) for text in told]
    assert sorted(cores) == [["0,1"], ["2,3"]]
    opened = [[line for line in text.splitlines() if line.startswith("opens")] for text in told]
    assert sorted(opened) == [["opens 0"], ["opens 1"]]
    assert "mine" not in told[1].partition("pid")[0], "nothing of the other job"
    for job in (first, second):
        wait_for(slurm, job, "CANCELLED")


def test_a_job_over_its_memory_is_ended_alone_and_slurm_says_why(slurm: SlurmMachine) -> None:
    slurmd = slurm.worker().look("pgrep -x slurmd").stdout
    neighbour = submit(slurm, "sleep 20; echo fine", "-n1 --mem=100", BOB)
    hungry = submit(slurm, "python3 -c 'x = bytearray(300 * 2**20)'; echo status $?", "-n1 --mem=100")

    assert "status 137" in wait_for(slurm, hungry, "OUT_OF_MEMORY")
    assert "fine" in wait_for(slurm, neighbour, "COMPLETED")
    assert slurm.worker().look("pgrep -x slurmd").stdout == slurmd
    assert "oom_group_kill 0" in slurm.worker().read("memory.events")


def test_what_a_step_uses_is_counted_by_its_cgroup(slurm: SlurmMachine) -> None:
    """A file in /dev/shm is in no process of the step."""
    hold = "open('/dev/shm/held', 'wb').write(bytes(120 * 2**20)); print('holds', flush=True); time.sleep(100)"
    job = submit(slurm, f"srun python3 -c {quote(f'import time; {hold}')}", "-n1 --mem=300")
    says(slurm, job, "holds")

    def most() -> float:
        asked = slurm.run(f"sstat --noheader --parsable2 --noconvert --format=MaxRSS --jobs={job}.0").stdout.strip()
        return float(asked or 0) / 2**20

    wait_until(lambda: 120 <= most() < 300, lambda: f"{most()}{slurm.logs()}", 60)
    slurm.run(f"scancel {job}")
    wait_for(slurm, job, "CANCELLED")


@one_version
def test_what_fills_dev_shm_is_counted_for_the_job_that_does(slurm: SlurmMachine) -> None:
    fill = "head -c 200M /dev/zero > /dev/shm/big; df --output=avail /dev/shm"
    full = submit(slurm, f"{fill}; echo went on", "-n1 --mem=100")
    over = submit(slurm, f"{fill}; python3 -c 'x = bytearray(60 * 2**20)'; echo status $?", "-n1 --mem=100")

    assert "went on" in wait_for(slurm, full, "COMPLETED"), "it has a size that leaves room for the step itself"
    assert "status 137" in wait_for(slurm, over, "OUT_OF_MEMORY")


def test_a_stopped_job_leaves_no_process_no_cgroup_and_no_job_mount(slurm: SlurmMachine) -> None:
    """Also not what left its process group, its session and its parent."""
    hide = "(setsid sh -c 'exec -a slurmstepd sleep 4321' &) & sleep 4321"
    job = submit(slurm, f"echo ready; {hide}", "-n1")
    says(slurm, job, "ready")
    slurm.run(f"scancel {job}")
    wait_for(slurm, job, "CANCELLED")
    wait_until(lambda: not what_is_left(slurm), lambda: what_is_left(slurm), 60)


def test_of_a_job_whose_slurmstepd_was_ended_nothing_stays(slurm: SlurmMachine) -> None:
    job = submit(slurm, "echo ready; sleep 4321", "-n1")
    says(slurm, job, "ready")
    assert slurm.worker().look(f"ls -d {SCOPE}/job_{job}").stdout
    slurm.worker().look(f"pkill -9 -f '^slurmstepd: .{job}[.]'")
    slurm.run(f"scancel {job}")
    wait_for(slurm, job, "CANCELLED", "FAILED", "NODE_FAIL")
    wait_until(lambda: not what_is_left(slurm), lambda: what_is_left(slurm), 60)


@one_version
def test_root_in_the_jail_changes_no_cgroup(slurm: SlurmMachine) -> None:
    """By sudo a user may be root there: it may not take its job out of its limits, nor see another way to them."""
    attempts = (
        "echo $$ > /sys/fs/cgroup/slurmd/cgroup.procs",
        "echo max > /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.max",
        "mkdir /sys/fs/cgroup/slurmd/mine",
        "mount -o remount,bind,rw /sys/fs/cgroup",
        "mount -t cgroup2 none /mnt",
        "echo $$ > /proc/1/root/sys/fs/cgroup/slurmd/cgroup.procs",
        "echo $$ > /proc/$PPID/root/sys/fs/cgroup/slurmd/cgroup.procs",
        "for file in /proc/$PPID/fd/*; do echo $$ > $file/slurmd/cgroup.procs; done",
        "unshare --cgroup --mount true",
    )
    script = "; ".join(f"({attempt}) 2>/dev/null && echo got through: {quote(attempt)}" for attempt in attempts)
    look = "id -u; ls -d /.slurmstack; cat /sys/fs/cgroup/memory.max /proc/self/cgroup"
    done = slurm.run(f"srun --chdir=/ --mem=60 sh -c {quote(f'{script}; {look}')}")

    assert "got through" not in done.stdout, done.stdout
    uid, jail, memory, cgroup = done.stdout.split()
    assert (uid, jail, memory) == ("0", "/.slurmstack", str(800 * 2**20)), done.stdout + done.stderr
    assert cgroup.startswith("0::/system.slice/default-0_slurmstepd.scope/"), "of its own, by Slurm"
    assert slurm.worker().read("memory.oom.group") == "1\n"


def test_a_new_configuration_reaches_slurmd_and_its_jobs_stay_confined(slurm: SlurmMachine) -> None:
    job = submit(slurm, "echo ready; until [ -e go ]; do sleep 0.2; done; cat /proc/self/cgroup", "-n1 -c2")
    says(slurm, job, "ready")
    assert slurm.run("scontrol reconfigure").returncode == 0
    slurm.wait_for_nodes(1, "MIXED")
    by_ssh = slurm.run(as_user(join([*SRUN, f"--jobid={job}", "cat", "/proc/self/cgroup"])))
    assert f"/job_{job}/step_" in by_ssh.stdout, by_ssh.stderr
    slurm.machine.run(f"touch {JAIL}/home/alice/go")

    assert f"job_{job}/" in wait_for(slurm, job, "COMPLETED") or "/step_batch/" in output(slurm, job)
    after = slurm.run(as_user("srun --chdir=/ --mem=60 -n1 sh -c 'cat /proc/self/cgroup; taskset -pc $$'"))
    assert "default-0_slurmstepd.scope" in after.stdout, after.stderr
    assert "slurmd: error" not in slurm.worker().logs()


def test_tasks_are_bound_as_they_ask(slurm: SlurmMachine) -> None:
    """The node has registered the machine's two sockets, each with one core of two threads."""
    done = slurm.run(as_user("srun --chdir=/ --mem=60 -n4 --cpu-bind=verbose,cores true"))

    assert sorted(re.findall(r"mask (\w+) set$", done.stderr, re.MULTILINE)) == ["0x3", "0x3", "0xc", "0xc"]


@one_version
def test_cgroups_that_the_runtime_lets_the_pod_write_are_used_as_they_are(slurm: SlurmMachine) -> None:
    start_worker(slurm, "default-1", writable_cgroups=True)
    try:
        assert "(cgroups runtime)" in slurm.run("scontrol show node default-1").stdout
        assert "(cgroups remounted)" in slurm.run("scontrol show node default-0").stdout
        script = "cat /proc/self/cgroup; python3 -c 'x = bytearray(300 * 2**20)'; echo status $?"
        job = submit(slurm, script, "-n1 --mem=100 --nodelist=default-1")
        told = wait_for(slurm, job, "OUT_OF_MEMORY")
        assert "default-1_slurmstepd.scope" in told
        assert "status 137" in told
    finally:
        slurm.kubelet.remove("default-1")
        slurm.run("scontrol update nodename=default-1 state=down reason=test; scontrol delete nodename=default-1")
