from __future__ import annotations

from local import addresses, api, manifests

RANGES = addresses.from_environment({})


def test_the_dns_service_has_the_address_that_kubelets_tell_pods() -> None:
    service = manifests.system_objects(RANGES, ["192.0.2.1"])[-1]
    assert service["spec"]["clusterIP"] == RANGES.dns_service


def test_without_a_name_server_outside_the_cluster_names_still_work() -> None:
    corefile = manifests.corefile_text([])
    assert "kubernetes cluster.local" in corefile
    assert "forward" not in corefile


def test_a_changed_name_server_restarts_coredns() -> None:
    def annotation(upstream: str) -> str:
        deployment = manifests.system_objects(RANGES, [upstream])[4]
        return str(deployment["spec"]["template"]["metadata"]["annotations"])

    assert annotation("192.0.2.1") != annotation("192.0.2.2")


def test_every_object_has_a_place_in_the_api() -> None:
    found = [api.object_path(document) for document in manifests.system_objects(RANGES, [])]
    assert "/api/v1/namespaces/kube-system/services/kube-dns" in found
    assert "/apis/apps/v1/namespaces/kube-system/deployments/coredns" in found
    assert "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns" in found
    assert len(set(found)) == len(found)
