"""Users and groups of the stack file, on real Kubernetes: the same everywhere, and what a removed one leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import SlurmOnKubernetes, wait_until


@pytest.fixture
def slurm_with_users(two_nodes: SlurmOnKubernetes) -> Iterator[SlurmOnKubernetes]:
    """The stack file's users and groups are as before afterwards."""
    before = two_nodes.sections
    yield two_nodes
    two_nodes.sections = before
    two_nodes.up()


def bob(slurm: SlurmOnKubernetes, **more: Any) -> dict[str, Any]:
    """A second user with alice's key."""
    return {"uid": 10002, "ssh_authorized_keys": slurm.sections["users"]["alice"]["ssh_authorized_keys"], **more}


def try_to_log_in(slurm: SlurmOnKubernetes, user: str, command: str = "id -un") -> str:
    """What a command prints that runs as a user whom the applied stack file need not have; nothing if refused."""
    return slurm.ssh(command, user=user, check=False)


def test_a_new_user_and_group_are_the_same_everywhere_at_once(slurm_with_users: SlurmOnKubernetes) -> None:
    slurm = slurm_with_users
    before = slurm.pod_uids()
    alice = slurm.sections["users"]["alice"]
    slurm.sections = {**slurm.sections, "groups": {"ml": {"gid": 20001}}}
    slurm.change("users", {"alice": alice, "bob": bob(slurm, groups=["ml"])})

    wanted = "uid=10002(bob) gid=10002(bob) groups=10002(bob),20001(ml)"
    assert slurm.slurm("id bob").strip() == wanted
    assert slurm.ssh("id; srun -N2 id", user="bob").splitlines() == [wanted] * 3
    assert slurm.pod_uids() == before, "no pod is another for it"


def test_a_removed_user_cannot_log_in_and_keeps_the_data(slurm_with_users: SlurmOnKubernetes) -> None:
    slurm = slurm_with_users
    with_bob = {**slurm.sections["users"], "bob": bob(slurm)}
    without_bob = slurm.sections["users"]
    slurm.change("users", with_bob)
    assert slurm.ssh("id -un; echo mine > note; chmod 600 note", user="bob").strip() == "bob"
    job = slurm.ssh(
        "sbatch --parsable --output=done.txt --wrap 'until [ -e go-on ]; do sleep 1; done; echo done'", user="bob"
    ).strip()
    slurm.await_job(job, "RUNNING")

    slurm.change("users", without_bob)

    assert slurm.job_state(job) == "RUNNING", "whose owner has left"
    slurm.ssh("sudo touch /home/bob/go-on")
    assert try_to_log_in(slurm, "bob") == ""
    assert slurm.ssh("sudo stat -c %u /home/bob/note; sudo cat /home/bob/note").split() == ["10002", "mine"]
    wait_until(lambda: slurm.ssh("sudo cat /home/bob/done.txt", check=False).strip() == "done", "the job's end")

    slurm.change("users", with_bob)

    assert slurm.ssh("pwd; cat note", user="bob").split() == ["/home/bob", "mine"]


def test_limits_of_a_login_node_hold_there_and_not_in_jobs(slurm_with_users: SlurmOnKubernetes) -> None:
    slurm = slurm_with_users
    slurm.change("login.user_limits", {"open_files": 300, "cpu_minutes": 9})
    wait_until(lambda: "300" in slurm.ssh("ulimit -Hn", check=False), "the login pods with their limits")

    assert slurm.ssh("ulimit -Hn; ulimit -Ht").split() == ["300", "540"]
    assert not {"300", "540"} & set(slurm.ssh("srun sh -c 'ulimit -Hn; ulimit -Ht'").split())
