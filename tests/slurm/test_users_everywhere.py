"""Declared users and groups are the same for slurmctld, on login nodes, on workers and in jobs; with real daemons."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from slurm.users import accounts, group_numbers, identity_files
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import activate
from tests.slurm.login import make_users
from tests.slurm.minimal import IN_JAIL, minimal_config
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.in_gate

TEAM = "PartitionName=team Nodes=default State=UP AllowGroups=vision"
FIRST: dict[str, Any] = {
    "users": {"alice": {"uid": 23001, "groups": ["ml"]}, "bob": {"uid": 23002}},
    "groups": {"ml": {"gid": 24001}, "ops": {"gid": 24002}},
}


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A worker, a login pod, slurmdbd's pod (without slurmdbd), and the pod that makes users in the jail."""
    files = configuration(slurm_version, FIRST)
    sandbox = slurm_cluster(slurm_version, config=files, workers=1, jail=True)
    sandbox.add_pod("login-0", "login", {sandbox.jail: "/jail"})
    sandbox.add_pod("slurmdbd-0", "accounting", {sandbox.config_directory: "/config/slurm"})
    sandbox.add_pod("users", "jail", {sandbox.jail: "/jail"}, munged=False)
    return sandbox


def configuration(version: str, sections: dict[str, Any], extra: str = "") -> dict[str, str]:
    """The files of the ConfigMap with these users and groups."""
    files = identity_files(load_config({**stacks.dev(), **sections}))
    enforced = f"EnforcePartLimits=ALL\n{extra}"
    return minimal_config(version, enforced, **IN_JAIL, **files)


def declare(cluster: SlurmSandbox, sections: dict[str, Any], extra: str = "") -> None:
    """What `up` does: the job that changes the jail, and the configuration, until it is active."""
    config = load_config({**stacks.dev(), **sections})
    document = {"users": accounts(config.users, extra_keys=()), "groups": group_numbers(config.groups)}
    make_users(cluster.pods["users"], document)
    activate(cluster, configuration(cluster.version, sections, extra))


def as_user(cluster: SlurmSandbox, uid: int, command: str) -> tuple[int, str]:
    """(exit code, output) of a command of this user on the worker's side of the jail."""
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    done = cluster.run([*user, "bash", "-c", f"cd /tmp && {command}"], pod="default-0")
    return done.returncode, done.stdout + done.stderr


def test_a_user_is_the_same_for_slurmctld_slurmdbd_login_worker_and_job(cluster: SlurmSandbox) -> None:
    declare(cluster, FIRST)

    wanted = "uid=23001(alice) gid=23001(alice) groups=23001(alice),24001(ml)"
    pods = ("controller-0", "slurmdbd-0", "login-0", "default-0")
    found = {pod: cluster.run(["id", "alice"], pod=pod).stdout.strip() for pod in pods}
    assert found == dict.fromkeys(found, wanted)
    assert as_user(cluster, 23001, "srun -Q id") == (0, wanted + "\n")
    fetched = cluster.run("ls /run/slurm/conf", pod="default-0").stdout.split()
    assert "slurm.conf" in fetched
    assert not {"passwd", "group"} & set(fetched), "workers are not handed the users as configuration"


def test_a_group_and_the_partition_for_it_come_in_one_change_and_who_leaves_the_group_may_no_longer_use_it(
    cluster: SlurmSandbox,
) -> None:
    """The scratch slurmctld that tries the configuration finds users where the one in force says."""
    declare(cluster, FIRST)
    groups = {**FIRST["groups"], "vision": {"gid": 24009}}

    declare(cluster, {"users": {**FIRST["users"], "bob": {"uid": 23002, "groups": ["vision"]}}, "groups": groups}, TEAM)

    assert as_user(cluster, 23002, "srun -Q -p team id -Gn") == (0, "bob vision\n")
    declare(cluster, {"users": FIRST["users"], "groups": groups}, TEAM)
    assert as_user(cluster, 23002, "srun -Q -p team true")[0] != 0
