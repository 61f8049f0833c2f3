"""Who goes first, who gives way, who may use a partition: our slurm.conf with real daemons and a real database."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from config import load_config
from slurm.conf import config_hash, render
from tests import stacks
from tests.slurm.accounting import AccountingSandbox, sacctmgr
from tests.slurm.cluster import ClusterFactory
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

USERS = {"alice": ("ml", 10001), "bob": ("web", 10002)}
"""User -> account and uid. alice is in the group physics, too."""

ALL = "-N2 -n4"
"""All CPUs of both nodes."""

POLICY = [
    "add qos low,high,small",
    "modify qos high set preempt=low priority=100",
    "modify qos small set maxtresperuser=cpu=1",
    "add account ml,web",
    "modify account ml,web set qos=normal,low,high",
    "add user alice account=ml",
    "add user bob account=web",
]

PARTITIONS: dict[str, Any] = {
    "main": {"pools": ["default"], "default": True},
    "urgent": {"pools": ["default"], "priority_tier": 10},
}


def files(version: str, **sections: Any) -> dict[str, str]:
    """A pool of two nodes with two partitions, and what `sections` says besides."""
    base = stacks.dev() | {
        "accounts": {"ml": {}, "web": {}},
        "qos": {"low": {}, "high": {"preempt": ["low"]} if by_qos(sections) else {}, "small": {}},
        "users": {name: {"uid": uid, "accounts": [account]} for name, (account, uid) in USERS.items()},
        "groups": {"physics": {"gid": 20000}},
        "partitions": PARTITIONS,
        "slurm": {"version": version, "settings": {"DefMemPerCPU": 100}},
    }
    return render(load_config(base | sections))


def by_qos(sections: dict[str, Any]) -> bool:
    return bool(sections.get("preemption", {}).get("type") == "qos")


def make_users(pod: Pod) -> None:
    """The users, as the jail and the controller's own files would have them."""
    passwd = "".join(f"{name}:x:{uid}:{uid}::/tmp:/bin/sh\n" for name, (_, uid) in USERS.items())
    group = "".join(f"{name}:x:{uid}:\n" for name, (_, uid) in USERS.items()) + "physics:x:20000:alice\n"
    done = pod.run(f"printf '{passwd}' >>/etc/passwd; printf '{group}' >>/etc/group")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def running(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """Two nodes with two CPUs each, MariaDB, slurmdbd and a policy."""
    sandbox = slurm_cluster(slurm_version, config=files(slurm_version), workers=2, kind=AccountingSandbox)
    for pod in sandbox.pods.values():
        make_users(pod)
    for line in POLICY:
        done = sacctmgr(sandbox, line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    # Groups are read when the configuration is.
    sandbox.run("scontrol reconfigure")
    return sandbox


@pytest.fixture
def cluster(running: SlurmSandbox) -> SlurmSandbox:
    """The cluster without jobs."""
    running.run("scancel --user=alice; scancel --user=bob")
    running.wait_for_nodes(2)
    return running


def apply(cluster: SlurmSandbox, **sections: Any) -> None:
    """Put a configuration in force."""
    wanted = files(cluster.version, **sections)
    active = f"{config_hash(wanted)} is active"
    if active not in cluster.controller.log("config-agent").rstrip().rpartition("\n")[2]:
        cluster.set_config(wanted)
        wait_until(lambda: active in cluster.controller.log("config-agent").rstrip().rpartition("\n")[2], cluster.logs)


def as_user(cluster: SlurmSandbox, user: str, command: str) -> subprocess.CompletedProcess[str]:
    _, uid = USERS[user]
    return cluster.run(f"cd /tmp && setpriv --reuid={uid} --regid={uid} --init-groups {command}", pod="default-0")


def submit(cluster: SlurmSandbox, user: str, options: str, script: str = "sleep 600") -> str:
    done = as_user(cluster, user, f"sbatch --parsable --output=/dev/null {options} --wrap '{script}'")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def refused(cluster: SlurmSandbox, user: str, options: str) -> str:
    done = as_user(cluster, user, f"sbatch --output=/dev/null {options} --wrap true")
    assert done.returncode == 1, done.stdout
    return done.stderr


def shown(cluster: SlurmSandbox, job: str, key: str) -> str:
    """A field of `scontrol show job`."""
    words = cluster.run(f"scontrol show job {job} --oneliner").stdout.split()
    return next((word.partition("=")[2] for word in words if word.startswith(f"{key}=")), "")


def await_state(cluster: SlurmSandbox, job: str, state: str, key: str = "JobState") -> None:
    wait_until(
        lambda: shown(cluster, job, key) == state,
        lambda: f"{key} {state}: {cluster.run(f'scontrol show job {job}; squeue; sprio -l').stdout}{cluster.logs()}",
    )


def test_priority_has_the_weights_of_the_stack_file_and_a_qos_counts(cluster: SlurmSandbox) -> None:
    keys = {"Fairshare": 1000, "QOS": 500, "Partition": 200, "Age": 7}
    settings = {f"PriorityWeight{key}": weight for key, weight in keys.items()}
    apply(cluster, slurm={"version": cluster.version, "settings": {"DefMemPerCPU": 100, **settings}})
    weights = cluster.run("sprio --weights --noheader --format='%.8f %.8q %.8p %.8a'").stdout.split()
    assert weights == ["1000", "500", "200", "7"]
    await_state(cluster, submit(cluster, "alice", ALL), "RUNNING")
    high, low = (submit(cluster, "alice", f"--qos={qos} {ALL}") for qos in ("high", "low"))

    def factors() -> list[list[str]]:
        printed = cluster.run("sprio --noheader --user=alice --format='%.15i %.10Q %.10F'").stdout
        return sorted(line.split() for line in printed.splitlines())

    wait_until(lambda: [job for job, *_ in factors()] == [high, low], lambda: cluster.run("sprio -l").stdout)
    assert [qos for _, qos, _ in factors()] == ["500", "0"]
    assert all(int(fairshare) > 0 for *_, fairshare in factors())


def test_a_job_of_a_higher_qos_takes_the_nodes_and_the_other_runs_again(cluster: SlurmSandbox) -> None:
    apply(cluster, preemption={"type": "qos", "mode": "requeue"})
    victim = submit(cluster, "alice", f"--qos=low {ALL}", 'test -n "$SLURM_RESTART_COUNT" || sleep 600')
    await_state(cluster, victim, "RUNNING")
    urgent = submit(cluster, "bob", f"--qos=high {ALL}", "sleep 2")
    await_state(cluster, urgent, "COMPLETED")
    await_state(cluster, victim, "1", "Restarts")
    cluster.wait_for_start(victim)
    await_state(cluster, victim, "COMPLETED")


def test_a_job_of_a_higher_qos_cancels_the_other(cluster: SlurmSandbox) -> None:
    apply(cluster, preemption={"type": "qos", "mode": "cancel"})
    victim = submit(cluster, "alice", f"--qos=low {ALL}")
    await_state(cluster, victim, "RUNNING")
    urgent = submit(cluster, "bob", f"--qos=high {ALL}", "true")
    await_state(cluster, urgent, "COMPLETED")
    await_state(cluster, victim, "PREEMPTED")


def test_a_qos_that_preempts_nothing_waits(cluster: SlurmSandbox) -> None:
    apply(cluster, preemption={"type": "qos", "mode": "cancel"})
    running = submit(cluster, "alice", f"--qos=normal {ALL}")
    await_state(cluster, running, "RUNNING")
    waiting = submit(cluster, "bob", f"--qos=high {ALL}")
    await_state(cluster, waiting, "Resources", "Reason")
    assert shown(cluster, running, "JobState") == "RUNNING"


def test_a_job_runs_as_long_as_it_is_exempt(cluster: SlurmSandbox) -> None:
    settings = {"DefMemPerCPU": 100, "PreemptExemptTime": "1:00:00"}
    slurm = {"version": cluster.version, "settings": settings}
    apply(cluster, slurm=slurm, preemption={"type": "qos", "mode": "cancel"})
    victim = submit(cluster, "alice", f"--qos=low {ALL}")
    await_state(cluster, victim, "RUNNING")
    waiting = submit(cluster, "bob", f"--qos=high {ALL}")
    await_state(cluster, waiting, "Resources", "Reason")
    assert shown(cluster, victim, "JobState") == "RUNNING"


@pytest.mark.parametrize(("mode", "state"), [("requeue", "PENDING"), ("cancel", "PREEMPTED")])
def test_a_partition_of_a_higher_tier_takes_the_nodes(cluster: SlurmSandbox, mode: str, state: str) -> None:
    apply(cluster, preemption={"type": "partition", "mode": mode})
    victim = submit(cluster, "alice", ALL)
    await_state(cluster, victim, "RUNNING")
    urgent = submit(cluster, "bob", f"--partition=urgent {ALL}")
    await_state(cluster, urgent, "RUNNING")
    await_state(cluster, victim, state)


def test_a_suspended_job_goes_on_when_the_other_has_ended(cluster: SlurmSandbox) -> None:
    apply(cluster, preemption={"type": "partition", "mode": "suspend"})
    script = "until test -e /tmp/go; do sleep 0.1; done"
    victim = submit(cluster, "alice", ALL, script)
    await_state(cluster, victim, "RUNNING")
    urgent = submit(cluster, "bob", f"--partition=urgent {ALL}")
    await_state(cluster, urgent, "RUNNING")
    await_state(cluster, victim, "SUSPENDED")
    cluster.run(f"scancel {urgent}")
    await_state(cluster, victim, "RUNNING")
    for node in ("default-0", "default-1"):  # the script runs on one of them
        cluster.run("touch /tmp/go", pod=node)
    await_state(cluster, victim, "COMPLETED")


def test_where_jobs_may_be_suspended_a_cpu_still_has_one_running_job(cluster: SlurmSandbox) -> None:
    apply(cluster, preemption={"type": "partition", "mode": "suspend"})
    first = submit(cluster, "alice", ALL)
    await_state(cluster, first, "RUNNING")
    second = submit(cluster, "bob", "-n1")
    await_state(cluster, second, "Resources", "Reason")


def test_a_partition_may_be_spared(cluster: SlurmSandbox) -> None:
    partitions = {
        **PARTITIONS, "main": {**PARTITIONS["main"], "preempt_mode": "off"}, "rest": {"pools": ["default"]},
    }  # fmt: skip
    apply(cluster, preemption={"type": "partition", "mode": "suspend"}, partitions=partitions)
    running = submit(cluster, "alice", ALL)
    await_state(cluster, running, "RUNNING")
    waiting = submit(cluster, "bob", f"--partition=urgent {ALL}")
    await_state(cluster, waiting, "Resources", "Reason")
    assert shown(cluster, running, "JobState") == "RUNNING"


def test_jobs_wait_for_licenses(cluster: SlurmSandbox) -> None:
    apply(cluster, licenses={"matlab": 2, "fluent": 1})
    holder = submit(cluster, "alice", "--licenses=matlab:2")
    await_state(cluster, holder, "RUNNING")
    waiting = submit(cluster, "bob", "--licenses=matlab:1")
    await_state(cluster, waiting, "Licenses", "Reason")
    await_state(cluster, submit(cluster, "bob", "--licenses=fluent"), "RUNNING")
    assert "Invalid license specification" in refused(cluster, "alice", "--licenses=matlab:3")
    assert "Invalid license specification" in refused(cluster, "alice", "--licenses=abaqus")
    cluster.run(f"scancel {holder}")
    await_state(cluster, waiting, "RUNNING")


@pytest.mark.parametrize(
    ("access", "allowed", "denied", "message"),
    [
        ({"allow_accounts": ["ml"]}, ("alice", ""), ("bob", ""), "Invalid account"),
        ({"deny_accounts": ["ml"]}, ("bob", ""), ("alice", ""), "Invalid account"),
        ({"allow_groups": ["physics"]}, ("alice", ""), ("bob", ""), "User's group not permitted"),
        ({"allow_qos": ["high"]}, ("bob", "--qos=high"), ("bob", "--qos=low"), "Invalid qos"),
        ({"deny_qos": ["high"]}, ("bob", "--qos=low"), ("bob", "--qos=high"), "Invalid qos"),
    ],
)
def test_a_partition_lets_in_whom_it_is_for(
    cluster: SlurmSandbox, access: dict[str, Any], allowed: tuple[str, str], denied: tuple[str, str], message: str
) -> None:
    apply(cluster, partitions={**PARTITIONS, "urgent": {**PARTITIONS["urgent"], **access}})
    user, options = allowed
    await_state(cluster, submit(cluster, user, f"--partition=urgent {options}"), "RUNNING")
    user, options = denied
    assert message in refused(cluster, user, f"--partition=urgent {options}")
    await_state(cluster, submit(cluster, user, options), "RUNNING")


def test_the_limits_of_a_partition_s_qos_hold_for_its_jobs(cluster: SlurmSandbox) -> None:
    apply(cluster, partitions={**PARTITIONS, "urgent": {**PARTITIONS["urgent"], "qos": "small"}})
    first, second = (submit(cluster, "alice", "--partition=urgent -n1") for _ in range(2))
    await_state(cluster, first, "RUNNING")
    await_state(cluster, second, "QOSMaxCpuPerUserLimit", "Reason")
    await_state(cluster, submit(cluster, "bob", "--partition=urgent -n1"), "RUNNING")
