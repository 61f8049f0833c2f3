"""SSSD is in every pod that has to know users, with a Secret that Pulumi never reads, and nowhere unasked."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from tests.graph.objects import containers, environment, mounts, pod, recorded, volumes

PODS = ("slurm-controller-pods", "slurm-accounting-pods", "slurm-pool-cpu-pods", "slurm-login-pods", "slurm-rest-pods")
PIPES = "/var/lib/sss/pipes"


@pytest.fixture(scope="module")
def asked() -> Recording:
    """A stack with SSSD and the REST API."""
    return recorded(sssd={"secret": "ldap"}, rest={"enabled": True})


@pytest.mark.parametrize("name", PODS)
def test_every_pod_that_asks_for_users_has_it_before_its_daemons_start_and_it_alone_sees_the_secret(
    asked: Recording, name: str
) -> None:
    spec = pod(asked, name)
    found = containers(spec)
    (first, sidecar), *others = found.items()
    assert (first, sidecar["restartPolicy"]) == ("sssd", "Always")
    assert sidecar["startupProbe"]["exec"]["command"] == ["test", "-S", f"{PIPES}/nss"]
    assert all(mounts(container)[PIPES]["name"] == "sss-pipes" for container in found.values())
    assert all(environment(container)["SSSD_PIPES"] == PIPES for _, container in others)
    assert volumes(spec)["sssd"]["secret"] == {"secretName": "ldap", "defaultMode": 0o400}
    assert [one for one, container in found.items() if mounts(container, "sssd")] == ["sssd"]


LIMITS = {
    "processes": 200, "open_files": 1024, "memory": "4Gi", "cpu_minutes": 60, "total_memory": "1Gi",
    "total_cpus": "1.5",
}  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (LIMITS, "nproc=200 nofile=1024 as=4194304 cpu=60 total_memory=1073741824 total_cpus=1500"),
        ({}, "nproc=4096"),
        ({"processes": None}, None),
    ],
)
def test_limits_of_login_nodes_reach_sshd_and_nobody_else_and_bind_unless_the_stack_file_says_otherwise(
    limits: dict[str, Any], told: str | None
) -> None:
    sshd, *others = pod(recorded(login__user_limits=limits), "slurm-login-pods")["containers"]
    assert environment(sshd).get("USER_LIMITS") == told
    assert "USER_LIMITS" not in str(others)
