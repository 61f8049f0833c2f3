"""SSSD is in every pod that has to know users, with a Secret that Pulumi never reads, and nowhere unasked."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change

PODS = ("slurm-controller-pods", "slurm-accounting-pods", "slurm-pool-cpu-pods", "slurm-login-pods")
PIPES = "/var/lib/sss/pipes"


def pod_of(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name and item.custom]
    return dict(reveal(found.inputs)["spec"]["template"]["spec"])


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {mounted["mountPath"]: mounted["name"] for mounted in container["volumeMounts"]}


@pytest.fixture(scope="module")
def recording() -> Recording:
    """A stack with SSSD and the REST API."""
    sections = with_change(stacks.existing(), "sssd", {"secret": "ldap", "memory": "96Mi"})
    return record(with_change(sections, "rest", {"enabled": True}), stack="prod")


@pytest.mark.parametrize("name", [*PODS, "slurm-rest-pods"])
def test_every_pod_that_asks_for_users_has_it_before_its_daemons_start(recording: Recording, name: str) -> None:
    pod = pod_of(recording, name)
    sidecar = pod["initContainers"][0]

    assert sidecar["name"] == "sssd"
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["exec"]["command"] == ["test", "-S", f"{PIPES}/nss"]
    assert sidecar["resources"]["requests"]["memory"] == "96Mi"
    for container in (*pod["initContainers"], *pod["containers"]):
        assert mounts(container)[PIPES] == "sss-pipes"
    for container in (*pod["initContainers"][1:], *pod["containers"]):
        assert {"name": "SSSD_PIPES", "value": PIPES} in container["env"]


@pytest.mark.parametrize("name", [*PODS, "slurm-rest-pods"])
def test_only_the_sidecar_sees_the_secret(recording: Recording, name: str) -> None:
    pod = pod_of(recording, name)
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "sssd"]
    assert volume["secret"] == {"secretName": "ldap", "defaultMode": 0o400}

    holders = [
        container["name"]
        for container in (*pod["initContainers"], *pod["containers"])
        if "sssd" in mounts(container).values()
    ]
    assert holders == ["sssd"]


def test_no_secret_of_that_name_is_made(recording: Recording) -> None:
    assert not [item for item in recording if item.type.endswith("Secret") and "ldap" in str(reveal(item.inputs))]


@pytest.mark.parametrize("name", PODS)
def test_without_it_nothing_of_it_is_there(name: str) -> None:
    assert "sss" not in str(pod_of(record(stacks.existing(), stack="prod"), name))


def test_limits_of_login_nodes_reach_sshd_and_nobody_else() -> None:
    limits = {
        "processes": 200, "open_files": 1024, "memory": "4Gi", "cpu_minutes": 60, "logins": 5,
        "total_memory": "1Gi", "total_cpus": "1.5",
    }  # fmt: skip
    login = pod_of(
        record(with_change(stacks.existing(), "login.user_limits", limits), stack="prod"), "slurm-login-pods"
    )

    sshd, *others = login["containers"]
    (told,) = [item["value"] for item in sshd["env"] if item["name"] == "USER_LIMITS"]
    assert told == "nproc=200 nofile=1024 as=4194304 cpu=60 maxlogins=5 total_memory=1073741824 total_cpus=1500"
    assert "USER_LIMITS" not in str(others)


def test_users_are_bound_unless_the_stack_file_says_otherwise() -> None:
    bound = str(pod_of(record(stacks.existing(), stack="prod"), "slurm-login-pods"))
    assert "'name': 'USER_LIMITS', 'value': 'nproc=4096'" in bound
    free = with_change(stacks.existing(), "login.user_limits", {"processes": None})
    assert "USER_LIMITS" not in str(pod_of(record(free, stack="prod"), "slurm-login-pods"))
