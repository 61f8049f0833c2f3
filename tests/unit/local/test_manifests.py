from __future__ import annotations

from local import addresses, manifests

RANGES = addresses.from_environment({})


def test_without_a_name_server_outside_the_cluster_names_still_work() -> None:
    corefile = manifests.corefile_text([])
    assert "kubernetes cluster.local" in corefile
    assert "forward" not in corefile


def test_a_changed_name_server_restarts_coredns() -> None:
    def annotation(upstream: str) -> str:
        deployment = manifests.system_objects(RANGES, [upstream])[4]
        return str(deployment["spec"]["template"]["metadata"]["annotations"])

    assert annotation("192.0.2.1") != annotation("192.0.2.2")
