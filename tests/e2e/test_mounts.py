"""A shared volume besides the jail, on the real Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import SlurmOnKubernetes


@pytest.fixture(scope="module")
def with_mount(slurm: SlurmOnKubernetes) -> Iterator[SlurmOnKubernetes]:
    """The cluster with a volume at /data/shared, taken out of the stack file afterwards."""
    slurm.change("mounts", {"data": {"path": "/data/shared", "size": "2Gi"}})
    slurm.await_rolled("default-0", "default-1")
    yield slurm
    slurm.change("mounts", {})
    slurm.await_rolled("default-0", "default-1")


def test_users_and_jobs_on_all_nodes_see_the_same_volume(with_mount: SlurmOnKubernetes) -> None:
    with_mount.ssh("sudo chmod 1777 /data/shared && echo written at login > /data/shared/note")
    shown = with_mount.ssh("srun -N2 --label cat /data/shared/note")
    assert sorted(shown.splitlines()) == ["0: written at login", "1: written at login"]
    with_mount.ssh("srun -N1 -w default-1 sh -c 'echo written in a job > /data/shared/result'")
    assert with_mount.ssh("cat /data/shared/result") == "written in a job\n"


def test_it_is_a_volume_of_its_own_and_no_directory_of_the_jail(with_mount: SlurmOnKubernetes) -> None:
    with_mount.ssh("sudo touch /data/shared/only-here")
    assert "only-here" in with_mount.exec("login-0", "ls", "/mounts/data", container="sshd")
    claims = with_mount.kubectl.items("pvc", "-n", with_mount.namespace)
    assert {claim["metadata"]["name"]: claim["status"]["phase"] for claim in claims}["mount-data"] == "Bound"
