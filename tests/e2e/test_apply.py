"""Applying: a second time changes nothing; changes by hand come back."""

from __future__ import annotations

from tests.e2e.harness import SlurmOnKubernetes


def test_a_second_apply_changes_nothing(two_nodes: SlurmOnKubernetes) -> None:
    before = two_nodes.pod_uids()
    two_nodes.up()
    assert two_nodes.pod_uids() == before
    if two_nodes.engine == "kubectl":
        assert two_nodes.preview()["changes"] == []


def test_changes_made_by_hand_are_shown_and_come_back(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    namespace = ("-n", slurm.namespace)
    slurm.kubectl.run(
        "patch", "service", "login", *namespace, "-p", '{"spec": {"ports": [{"port": 22, "targetPort": 23}]}}'
    )
    slurm.kubectl.run("delete", "networkpolicy", "login", *namespace)
    if slurm.engine == "kubectl":
        shown = {(change["action"], change["kind"], change["name"]) for change in slurm.preview()["changes"]}
        assert shown == {("update", "Service", "login"), ("create", "NetworkPolicy", "login")}
    slurm.up()
    (service,) = slurm.kubectl.items("service", "login", *namespace)
    assert service["spec"]["ports"][0]["targetPort"] == 22
    assert slurm.kubectl.items("networkpolicy", "login", *namespace)
