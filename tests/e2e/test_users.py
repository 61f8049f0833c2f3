"""Users and groups of the stack file, on real Kubernetes: the same everywhere.

One who is removed, and limits of login nodes: tests/slurm/test_login.py, test_users_everywhere.py.
"""

from __future__ import annotations

from tests.e2e.harness import SlurmOnKubernetes


def test_a_new_user_and_group_are_the_same_everywhere_at_once(two_nodes: SlurmOnKubernetes) -> None:
    slurm, sections, pods = two_nodes, two_nodes.sections, two_nodes.pod_uids()
    alice = sections["users"]["alice"]
    bob = {"uid": 10002, "groups": ["ml"], "ssh_authorized_keys": alice["ssh_authorized_keys"]}
    slurm.sections = {**sections, "groups": {"ml": {"gid": 20001}}, "users": {"alice": alice, "bob": bob}}
    try:
        slurm.up()
        wanted = "uid=10002(bob) gid=10002(bob) groups=10002(bob),20001(ml)"
        assert slurm.slurm("id bob").strip() == wanted
        assert slurm.ssh("id; srun -N2 id", user="bob").splitlines() == [wanted] * 3
        assert slurm.pod_uids() == pods, "no pod is another for it"
    finally:
        slurm.sections = sections
        slurm.up()
