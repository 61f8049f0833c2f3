"""Users and groups of the stack file, on real Kubernetes: the same everywhere.

One who is removed, and limits of login nodes: tests/slurm/test_login.py, test_users_everywhere.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import SlurmOnKubernetes


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
