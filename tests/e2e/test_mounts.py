"""A shared volume besides the jail, on the real Kubernetes."""

from __future__ import annotations

from tests.e2e.harness import SlurmOnKubernetes


def test_users_and_jobs_on_all_nodes_see_the_same_volume_which_is_no_directory_of_the_jail(
    two_nodes: SlurmOnKubernetes,
) -> None:
    slurm = two_nodes
    slurm.change("mounts", {"data": {"path": "/data/shared", "size": "2Gi"}})
    try:
        slurm.await_rolled("default-0", "default-1")
        slurm.ssh("sudo chmod 1777 /data/shared && echo written at login > /data/shared/note")
        shown = slurm.ssh("srun -N2 --label cat /data/shared/note")
        assert sorted(shown.splitlines()) == ["0: written at login", "1: written at login"]
        slurm.ssh("srun -N1 -w default-1 sh -c 'echo written in a job > /data/shared/result'")
        assert slurm.ssh("cat /data/shared/result") == "written in a job\n"
        assert "result" in slurm.exec("login-0", "ls", "/mounts/data", container="sshd")
    finally:
        slurm.change("mounts", {})
        slurm.await_rolled("default-0", "default-1")
