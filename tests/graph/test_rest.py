"""The REST API: closed to the outside unless the stack file says otherwise, with no key of Slurm."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography import x509

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change


def recorded(**rest: Any) -> Recording:
    return record(with_change(stacks.existing(), "rest", {"enabled": True, **rest}), stack="prod")


def named(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name]
    return dict(reveal(found.inputs))


def test_there_is_none_by_default() -> None:
    recording = record(stacks.existing(), stack="prod")
    assert not [item.name for item in recording if "rest" in item.name and item.type.startswith("kubernetes:")]
    assert not {"rest", "rest_ca"} & recording.outputs.keys()


def test_by_default_it_has_no_address_outside() -> None:
    recording = recorded()
    assert named(recording, "slurm-rest-service")["spec"]["type"] == "ClusterIP"


def test_address_ranges_may_connect_besides() -> None:
    recording = recorded(service_type="LoadBalancer", source_ranges=["203.0.113.0/24"])
    spec = named(recording, "slurm-rest-service")["spec"]
    assert spec["loadBalancerSourceRanges"] == ["203.0.113.0/24"]
    assert spec["externalTrafficPolicy"] == "Local", "else the policy would see a node's address"


def test_ranges_of_an_ingress_controller_may_reach_the_cluster_s_own_service() -> None:
    recording = recorded(source_ranges=["10.244.0.0/16"])
    assert "loadBalancerSourceRanges" not in named(recording, "slurm-rest-service")["spec"]


def test_a_port_of_the_nodes_may_be_chosen() -> None:
    recording = recorded(service_type="NodePort", node_port=30820)
    assert named(recording, "slurm-rest-service")["spec"]["ports"][0]["nodePort"] == 30820


def test_no_key_of_slurm_is_in_its_pods() -> None:
    pod = named(recorded(), "slurm-rest-pods")["spec"]["template"]["spec"]
    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == ["rest-tls"]


def test_its_containers_have_no_rights_and_cannot_write_to_their_root() -> None:
    pod = named(recorded(), "slurm-rest-pods")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod["initContainers"], *pod["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_pod_leaves_only_after_the_next_one_answers_through_tls() -> None:
    spec = named(recorded(), "slurm-rest-pods")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    (proxy,) = spec["template"]["spec"]["containers"]
    assert proxy["readinessProbe"]["httpGet"] == {"scheme": "HTTPS", "port": 6820, "path": "/healthz"}
    (slurmrestd,) = spec["template"]["spec"]["initContainers"]
    assert slurmrestd["restartPolicy"] == "Always", "a sidecar ends after nginx, whose last requests it answers"


def test_a_node_can_be_drained_where_there_is_one_pod_and_several_do_not_leave_at_once() -> None:
    def budgets(size: int) -> list[str]:
        found = recorded(size=size).of_type("kubernetes:policy/v1:PodDisruptionBudget")
        return [item.name for item in found if "rest" in item.name]

    assert budgets(1) == []
    assert budgets(2) == ["slurm-rest-budget"]


def test_the_certificate_of_our_own_is_for_the_names_inside_and_those_of_the_stack_file() -> None:
    recording = recorded(tls={"names": ["api.example.com", "192.0.2.7"]})
    data = named(recording, "slurm-rest-tls")["stringData"]
    certificate = x509.load_pem_x509_certificate(data["tls.crt"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "rest", "rest.slurm", "rest.slurm.svc", "rest.slurm.svc.cluster.local", "api.example.com",
    ]  # fmt: skip
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(recording.outputs["rest_ca"].encode()))


def test_the_stack_exports_where_the_api_is_and_no_key() -> None:
    recording = recorded()
    assert recording.outputs["rest"] == "https://rest.slurm.svc:6820"
    assert "PRIVATE" not in str(recording.outputs)


def test_a_secret_of_ones_own_is_used_as_it_is() -> None:
    recording = recorded(tls={"secret": "mine"})
    pod = named(recording, "slurm-rest-pods")["spec"]["template"]["spec"]
    assert {"name": "tls", "secret": {"secretName": "mine", "defaultMode": 0o440}} in pod["volumes"]
    assert not [item for item in recording if item.name == "slurm-rest-tls"]
    assert "rest_ca" not in recording.outputs


def test_cert_manager_is_asked_for_a_certificate() -> None:
    recording = recorded(tls={"issuer": {"name": "letsencrypt"}, "names": ["api.example.com", "192.0.2.7"]})
    spec = named(recording, "slurm-rest-certificate")["spec"]
    assert spec["issuerRef"] == {"name": "letsencrypt", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert spec["secretName"] == "rest-tls"
    assert "api.example.com" in spec["dnsNames"]
    assert "192.0.2.7" not in spec["dnsNames"]
    assert spec["ipAddresses"] == ["192.0.2.7"]
    assert "rest_ca" not in recording.outputs


@pytest.mark.parametrize("enabled", [True, False])
def test_turning_it_on_changes_nothing_that_slurm_reads(enabled: bool) -> None:
    recording = record(with_change(stacks.existing(), "rest", {"enabled": enabled}), stack="prod")
    conf = named(recording, "slurm-configuration-files")["data"]["slurm.conf"]
    assert (
        "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=/run/slurmstack/keys/jwt_hs256.key,max_token_lifespan="
        in conf
    )
